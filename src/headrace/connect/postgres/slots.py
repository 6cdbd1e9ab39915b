"""The publication and the slot of a capture: checked, created, and dropped on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import psycopg
from psycopg import sql as words

from headrace.connect.capture.errors import NotCapturable
from headrace.connect.postgres.errors import PreparedTransactionBlocks, SlotBusy, SlotLost
from headrace.connect.postgres.position import lsn_number, lsn_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

OLDEST = 140_000
"""The oldest server: before 14 the stream had no messages of a session's own."""
_FILTERS = 150_000
"""Since this server publications can leave out rows."""
_FILTERED = """
SELECT n.nspname, c.relname FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = %s AND r.prqual IS NOT NULL
"""
_SLOT = """
SELECT plugin, database, active_pid, confirmed_flush_lsn::text, wal_status,
       pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint
FROM pg_replication_slots WHERE slot_name = %s
"""
_ROLE = "SELECT rolname, rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user"


class Slot(NamedTuple):
    """A slot as the server shows it: `confirmed` is where it goes on, `held_bytes` the log that it holds back."""

    confirmed: int
    held_bytes: int


def check_server(sql: psycopg.Connection) -> str:
    """Check that the server and the role can do logical decoding; return the id of the database cluster.

    Raises:
        NotCapturable: they cannot; the hint has the setting or the statement.

    """
    if sql.info.server_version < OLDEST:
        raise NotCapturable(
            f"the server is PostgreSQL {sql.info.parameter_status('server_version')}", hint="14 or later is needed."
        )
    level = _one(sql, "SHOW wal_level")
    if level != "logical":
        raise NotCapturable(
            f"the server's wal_level is {level}, and its log has no changes of rows",
            hint="ALTER SYSTEM SET wal_level = logical; then restart the server.",
        )
    if _one(sql, "SELECT pg_is_in_recovery()"):
        raise NotCapturable("the server is a standby", hint="Name the primary server in the address.")
    role = sql.execute(_ROLE).fetchone()
    if role is None or not role[1]:
        name = role[0] if role else "?"
        raise NotCapturable(f'the role "{name}" may not replicate', hint=f'ALTER ROLE "{name}" REPLICATION')
    return str(_one(sql, "SELECT system_identifier::text FROM pg_control_system()"))


def ensure_publication(
    sql: psycopg.Connection, name: str, tables: Iterable[tuple[str, str]]
) -> Sequence[tuple[str, str]]:
    """Create the publication, or add the tables that it does not have; return these.

    Of a table that others inherit from, it has the rows of the table itself alone.

    Raises:
        NotCapturable: the role may not; the hint has the statement for its owner.

    """
    there = sql.execute(
        "SELECT puballtables, pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication "
        "WHERE pubname = %s",
        [name],
    )
    found = there.fetchone()
    if found is not None and not found[1]:
        raise NotCapturable(
            f'the publication "{name}" leaves out some kinds of changes',
            hint=words.SQL("ALTER PUBLICATION {} SET (publish = 'insert, update, delete, truncate')")
            .format(words.Identifier(name))
            .as_string(sql),
        )
    tables = list(tables)
    _check_rows(sql, name, tables)
    has = set(
        sql.execute("SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", [name]).fetchall()
    )
    lacking = [each for each in tables if each not in has]
    if found is not None and not lacking:
        return lacking
    listed = words.SQL(", ONLY ").join(words.Identifier(*each) for each in lacking)
    verb = "CREATE PUBLICATION {} FOR TABLE ONLY {}" if found is None else "ALTER PUBLICATION {} ADD TABLE ONLY {}"
    statement = words.SQL(verb).format(words.Identifier(name), listed)
    try:
        sql.execute(statement)
    except psycopg.errors.InsufficientPrivilege as error:
        raise NotCapturable(
            f"the role may not publish its tables: {error.diag.message_primary}",
            hint=f"Let the tables' owner run: {statement.as_string(sql)}",
        ) from error
    except psycopg.errors.DuplicateObject:  # another process of this app was faster
        pass
    return lacking


def _check_rows(sql: psycopg.Connection, name: str, tables: Collection[tuple[str, str]]) -> None:
    """Refuse a publication that leaves out rows of a table: their changes would be lost."""
    if sql.info.server_version < _FILTERS:
        return
    for table in sql.execute(_FILTERED, [name]).fetchall():
        if table in tables:
            publication, shown = words.Identifier(name), words.Identifier(*table)
            statement = words.SQL("ALTER PUBLICATION {0} DROP TABLE {1}; ALTER PUBLICATION {0} ADD TABLE ONLY {1}")
            raise NotCapturable(
                f'the publication "{name}" leaves out rows of {".".join(table)} (WHERE)',
                hint=statement.format(publication, shown).as_string(sql),
            )


def find_slot(sql: psycopg.Connection, name: str, *, position: int | None) -> Slot | None:
    """Return the slot, None if there is none.

    Raises:
        NotCapturable: it is one of another plugin or another database.
        SlotBusy: another process reads it.
        SlotLost: the server has given up what it held.

    """
    row = sql.execute(_SLOT, [name]).fetchone()
    if row is None:
        return None
    plugin, database, process, confirmed, status, held = row
    if plugin != "pgoutput" or database != sql.info.dbname:
        raise NotCapturable(
            f'the replication slot "{name}" is of the plugin {plugin}, for the database {database}',
            hint="Choose another name: slot=…",
        )
    if status == "lost":
        where = lsn_text(position) if position is not None else "its creation"
        raise SlotLost(name, position=where, why="has lost what it held (max_slot_wal_keep_size)")
    if process is not None:
        raise SlotBusy(name, process)
    return Slot(lsn_number(confirmed), held or 0)


def create_slot(sql: psycopg.Connection, name: str) -> Slot:
    """Create a slot; it holds all changes from now on.

    Raises:
        PreparedTransactionBlocks: it would wait for one; and everything that does not answer within 30 s.
        NotCapturable: all slots of the server are taken.

    """
    blocking = [gid for (gid,) in sql.execute("SELECT gid FROM pg_prepared_xacts ORDER BY prepared")]
    if blocking:
        raise PreparedTransactionBlocks(name, blocking)
    try:
        with sql.transaction():
            sql.execute("SET LOCAL statement_timeout = '30s'")
            confirmed = sql.execute("SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
            row = confirmed.fetchone()
    except psycopg.errors.QueryCanceled as error:
        raise PreparedTransactionBlocks(
            name, ["(one that is open for longer than 30 s: see pg_stat_activity)"]
        ) from error
    except psycopg.errors.ConfigurationLimitExceeded as error:
        raise NotCapturable(
            "all replication slots of the server are taken", hint="Drop one, or raise max_replication_slots."
        ) from error
    return Slot(lsn_number(row[0] if row else "0/0"), 0)


def log_end(sql: psycopg.Connection) -> int:
    """Return where the server's log ends."""
    return lsn_number(str(_one(sql, "SELECT pg_current_wal_insert_lsn()::text")))


def held_bytes(sql: psycopg.Connection, name: str) -> int:
    """Return how many bytes of the log the slot holds back; 0 if there is no slot."""
    row = sql.execute(_SLOT, [name]).fetchone()
    return int(row[5] or 0) if row else 0


def drop_slot(sql: psycopg.Connection, name: str) -> None:
    """Drop the slot, if it is there."""
    row = sql.execute(_SLOT, [name]).fetchone()
    if row is not None:
        if row[2] is not None:
            raise SlotBusy(name, row[2])
        sql.execute("SELECT pg_drop_replication_slot(%s)", [name])


def drop(sql: psycopg.Connection, *, slot: str, publication: str) -> None:
    """Drop slot and publication, if they are there: changes after this are not captured."""
    drop_slot(sql, slot)
    sql.execute(words.SQL("DROP PUBLICATION IF EXISTS {}").format(words.Identifier(publication)))


def _one(sql: psycopg.Connection, query: str) -> object:
    row = sql.execute(words.SQL(query)).fetchone()
    return row[0] if row else None
