"""Writes epochs to the tables of a database: one transaction an epoch, with its mark, and a generation that fences.

What is ours is in the schema `headrace`:

| table | what |
|---|---|
| `marks` | by writer, the last epoch that is here, and how often a writer of this name was opened |
| `created` | tables that we have created, and nothing was written to: who has written to them before has lost them |
| `dead_letters` | rows that the server refused, where `on_error="dead_letter"` |

All transactions of a writer have an advisory lock. A newer writer waits for it, then ends the connection that has it.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import psycopg

from headrace.base.blame import InternalError
from headrace.base.outside import OutputLost
from headrace.connect.postgres.storing.errors import as_ours, refuses_a_row, said
from headrace.connect.postgres.storing.loading import Loader, Refusals
from headrace.connect.postgres.storing.tables import creating
from headrace.connect.sink import SharedWriter
from headrace.connect.store import StoreDiffers, StoreRefused, WriterFenced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from headrace.connect.postgres.address import PostgresAddress
    from headrace.connect.postgres.storing.tables import Target

SCHEMA = "headrace"
_OURS = (
    "CREATE SCHEMA headrace",
    "CREATE TABLE headrace.marks (writer text PRIMARY KEY, epoch bigint NOT NULL, generation bigint NOT NULL)",
    "CREATE TABLE headrace.created (table_name text PRIMARY KEY)",
    """CREATE TABLE headrace.dead_letters
    (writer text, epoch bigint, table_name text, row_json text, reason text, at timestamptz DEFAULT now())""",
)
_MARK = "SELECT epoch, generation FROM headrace.marks WHERE writer = %s"
_OPEN = """
INSERT INTO headrace.marks VALUES (%s, -1, 1)
ON CONFLICT (writer) DO UPDATE SET generation = marks.generation + 1 RETURNING epoch, generation
"""
_SET_MARK = "UPDATE headrace.marks SET epoch = %s WHERE writer = %s"
_DEAD = "INSERT INTO headrace.dead_letters (writer, epoch, table_name, row_json, reason) VALUES (%s, %s, %s, %s, %s)"
_CREATED = "SELECT table_name FROM headrace.created"
_USED = "DELETE FROM headrace.created WHERE table_name = ANY(%s)"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 7242))"
_WAIT = "SET LOCAL lock_timeout = '5s'"
LONGEST_WAIT = "30s"
"""So long an epoch waits for a lock of somebody else, before that is told; then it is tried again."""
_END_HOLDER = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_locks, hashtextextended(%s, 7242) AS h(key)
WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND pid <> pg_backend_pid()
AND (classid::bigint << 32 | objid::bigint) = h.key
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class Stored(NamedTuple):
    """A table that is written to: its rows are changes by key, or are added; refused rows may be kept apart."""

    target: Target
    changes: bool
    keeps_refused: bool


def prepare(address: PostgresAddress, target: Target) -> None:
    """Create what is missing of ours and the table, or check it.

    Raises:
        StoreDiffers: the table cannot store the rows, or nothing may be created.
        Unavailable: the server does not answer.

    """
    try:
        with address.open() as sql:
            make_ours(sql, str(address))
            target.make(sql)
    except psycopg.Error as error:
        raise as_ours(error, str(address), epoch=-1) from error


def check(address: PostgresAddress, target: Target) -> None:
    """Do what `prepare` does, and take it back; raises as it does."""
    try:
        with address.open() as sql, sql.transaction(force_rollback=True):
            make_ours(sql, str(address))
            target.make(sql)
    except psycopg.Error as error:
        raise as_ours(error, str(address), epoch=-1) from error


def make_ours(sql: psycopg.Connection, where: str) -> None:
    """Create the schema `headrace` with its tables.

    Raises:
        StoreDiffers: the role may not.

    """
    there = sql.execute("SELECT to_regclass('headrace.created') IS NOT NULL").fetchone()
    if there is not None and there[0]:
        return
    try:
        with creating(sql):
            there = sql.execute("SELECT to_regnamespace('headrace') IS NOT NULL").fetchone()
            for statement in _OURS[1 if there is not None and there[0] else 0 :]:
                sql.execute(statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreDiffers(
            f"{where}: the schema headrace cannot be created: {said(error)}",
            detail="It has the numbers of the epochs that were written.",
            hint=f"The owner of the database runs: CREATE SCHEMA headrace AUTHORIZATION {sql.info.user}",
        ) from error


class PostgresWriter(SharedWriter):
    """Writes epochs to tables of one database.

    Args:
        address: the database.
        tables: by sink.
        writer: `<app>/<storage id>`.
        fault: called where a test may crash.

    """

    def __init__(
        self, address: PostgresAddress, tables: Mapping[str, Stored], writer: str, *, fault: Callable[[str], None]
    ) -> None:
        self.address, self.tables, self.writer, self.fault = address, tables, writer, fault
        self.sql: psycopg.Connection | None = None
        self.last, self.generation = -1, -1

    @property
    def staging(self) -> str | None:
        """The schema of the staging tables; None: they are temporary."""
        return None

    def take_over(self) -> None:
        """Begin: older writers of the same name are fenced.

        Raises:
            Unavailable: the server does not answer, or somebody else holds the lock.

        """
        with self.connected(-1) as sql:
            make_ours(sql, str(self.address))
            try:
                self.last, self.generation = self._opened(sql)
            except psycopg.errors.LockNotAvailable:
                sql.execute(_END_HOLDER, [self.writer])
                self.last, self.generation = self._opened(sql)

    def last_epoch(self) -> int | None:
        """Return the last epoch that the database has."""
        return self.last

    def check_published(self, epochs: Mapping[str, int]) -> None:
        """Check that no table to which rows were written had to be created anew.

        Raises:
            OutputLost: one was.

        """
        with self.connected(-1) as sql:
            created = {name for (name,) in sql.execute(_CREATED)}
        lost = [target for name in epochs if (target := self.tables[name].target.full_name) in created]
        if lost:
            raise OutputLost(f"the table {lost[0]} of {self.address} was gone, and had to be created anew")

    def publish(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        """Write an epoch in one transaction.

        Raises:
            Unavailable: the server does not answer.
            WriterFenced: a newer writer has taken over.
            StoreRefused: the server refuses a row, or the transaction.

        """
        self.fault("before_transaction")
        with self.connected(epoch) as sql, sql.transaction():
            if self.take(sql) < epoch:
                self.write(sql, epoch, rows)
                self.set_mark(sql, epoch)
                self.fault("before_transaction_ends")
        self.last = epoch
        self.fault("after_transaction")

    def take(self, sql: psycopg.Connection) -> int:
        """Lock this writer's mark until the transaction ends, and return the epoch that is here.

        Raises:
            WriterFenced: a newer writer has taken over.

        """
        sql.execute("SELECT set_config('lock_timeout', %s, true)", [LONGEST_WAIT])
        sql.execute(_LOCK, [self.writer])
        found = sql.execute(_MARK, [self.writer]).fetchone()
        if found is None:
            raise StoreDiffers(
                f"{self.address} has lost the mark of {self.writer}",
                detail="The table headrace.marks has no row of it: what was written cannot be told.",
                hint="Restore it, or start again: then the epoch is written once more.",
            )
        last, generation = found
        if generation != self.generation:
            raise WriterFenced(str(self.address))
        return int(last)

    def mark_of(self, sql: psycopg.Connection) -> int:
        """Return the epoch that is here, -1 for none."""
        there = sql.execute("SELECT to_regclass('headrace.marks') IS NOT NULL").fetchone()
        found = sql.execute(_MARK, [self.writer]).fetchone() if there and there[0] else None
        return int(found[0]) if found else -1

    def set_mark(self, sql: psycopg.Connection, epoch: int) -> None:
        """Write the mark, in the transaction of the rows."""
        sql.execute(_SET_MARK, [epoch, self.writer])

    def write(self, sql: psycopg.Connection, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        """Write an epoch's rows to all tables, in a transaction."""
        for number, (name, batches) in enumerate(rows.items()):
            stored = self.tables[name]
            loader = Loader(sql, stored.target, name=f"{self._short}_{number}", staging=self.staging)
            refusals = self.refusals(sql, epoch, stored)
            if not stored.changes:
                loader.add(batches, refusals)
            elif loader.is_empty():
                loader.fill(batches, refusals)
            else:
                has_null = loader.stage(batches, refusals)
                self.fault("in_transaction")
                loader.apply(refusals, has_null=has_null)
                loader.drop()
            self.fault("in_transaction_after_a_table")
        sql.execute(_USED, [[self.tables[name].target.full_name for name in rows]])
        try:
            sql.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.Error as error:
            if refuses_a_row(error):
                raise StoreRefused(
                    str(self.address), f"{said(error)}. {error.diag.message_detail}", epoch=epoch
                ) from error
            raise

    @property
    def _short(self) -> str:
        return hashlib.sha256(self.writer.encode()).hexdigest()[:16]

    def refusals(self, sql: psycopg.Connection, epoch: int, stored: Stored) -> Refusals:
        """Return what happens with refused rows of a table."""

        def keep(row: str, reason: str) -> None:
            sql.execute(_DEAD, [self.writer, epoch, stored.target.full_name, row, reason])

        return Refusals(stored.target, epoch, keep if stored.keeps_refused else None)

    @contextmanager
    def connected(self, epoch: int) -> Iterator[psycopg.Connection]:
        """Give a connection, kept while it is good; errors of the server as ours."""
        if self.sql is None or self.sql.closed:
            self.sql = self.address.open()
        try:
            yield self.sql
        except psycopg.Error as error:
            raise as_ours(error, str(self.address), epoch=epoch) from error
        finally:
            if self.sql.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                self.close()

    def _opened(self, sql: psycopg.Connection) -> tuple[int, int]:
        with sql.transaction():
            sql.execute(_WAIT)
            sql.execute(_LOCK, [self.writer])
            found = sql.execute(_OPEN, [self.writer]).fetchone()
            if found is None:
                raise InternalError("a mark was not written")
            return found[0], found[1]

    def close(self) -> None:
        """Close the connection."""
        if self.sql is not None:
            self.sql.close()
            self.sql = None

    def __del__(self) -> None:
        """Close what a crash in a test left open."""
        if getattr(self, "sql", None) is not None:
            self.close()
