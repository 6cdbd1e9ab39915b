"""What can be wrong with a database: each says what, and the next move; nothing that was accepted is lost."""

from __future__ import annotations

import threading

import pytest
from capturing import capture_of, running, until

from headrace.base.outside import Unavailable
from headrace.connect import postgres
from headrace.connect.capture.errors import (
    NoPrimaryKey,
    NotCapturable,
    SourceReplaced,
    SourceSchemaChanged,
    ValueDoesNotFit,
)
from headrace.connect.postgres.address import PostgresAddress
from headrace.connect.postgres.errors import (
    LoginRefused,
    PreparedTransactionBlocks,
    SlotAdvanced,
    SlotBusy,
    SlotLost,
)
from headrace.connect.postgres.position import Position

RIGHT, WRONG = "moneypenny", "dropper"
TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text)"


def once(capture, landing):
    """Run a capture whose failure is expected."""
    capture.run(landing, threading.Event())


def captured(database, *statements, table="t"):
    """Return a capture whose snapshot of a table is done, stopped."""
    database.execute(TABLE.replace(" t ", f" {table} "), f"INSERT INTO {table} VALUES (1, 'one')", *statements)
    capture, landing = capture_of(database, table)
    with running(capture, landing) as failure:
        until(lambda: landing.tables[table] and Position.of(landing.stored).tables[f"public.{table}"].done, failure)
    return capture, landing


def test_a_server_that_is_down_is_tried_again_and_a_killed_one_goes_on(breakable_database):
    capture, landing = captured(breakable_database)
    breakable_database.server.kill()
    with pytest.raises(Unavailable):
        once(capture, landing)
    breakable_database.server.start()
    with running(capture, landing) as failure:
        breakable_database.execute("INSERT INTO t VALUES (2, 'two')")
        until(lambda: (2,) in landing.tables["t"], failure)
    with pytest.raises(Unavailable), running(capture, landing) as failure:  # noqa: PT012 - what fails is the thread
        until(lambda: landing.facts, failure)
        breakable_database.server.kill()
        until(lambda: failure)
    breakable_database.server.start()


def test_a_wrong_login_or_database_is_refused_without_the_password(database):
    database.execute("CREATE ROLE ada LOGIN PASSWORD 'lovelace'" if not role(database, "ada") else "SELECT 1")
    server = database.server
    for url in (
        server.url(database.name, user="ada", password=WRONG),
        server.url("nowhere"),
        server.url(database.name, user="ben"),
    ):
        with pytest.raises(LoginRefused) as refused:
            postgres.table(url, "t").declares()
        assert "dropper" not in str(refused.value) + repr(refused.value.__cause__)


def test_a_role_that_may_not_replicate_is_told_how(database):
    """With the right it needs nothing more than to own the tables, or a publication from their owner."""
    database.execute(
        *([] if role(database, "eve") else ["CREATE ROLE eve LOGIN PASSWORD 'moneypenny'"]),
        TABLE,
        "ALTER ROLE eve NOREPLICATION",
    )
    database.execute("GRANT SELECT ON t TO eve", "INSERT INTO t VALUES (1, 'one')")
    url = database.server.url(database.name, user="eve", password=RIGHT)
    capture, landing = capture_of(database, "t", url=url)
    with pytest.raises(NotCapturable, match='ALTER ROLE "eve" REPLICATION'):
        once(capture, landing)
    database.execute("ALTER ROLE eve REPLICATION")
    with pytest.raises(NotCapturable, match="CREATE PUBLICATION") as refused:
        once(capture, landing)
    database.execute(refused.value.hint.partition("run: ")[2])
    with running(capture, landing) as failure:
        until(lambda: landing.tables["t"], failure)
        database.execute("INSERT INTO t VALUES (2, 'two')")
        until(lambda: len(landing.tables["t"]) == 2, failure)


def test_a_publication_that_lacks_a_table_gets_it_or_names_the_statement(database):
    """The owner's app adds the table; a role that may not is told what the owner runs. No change is missed by it."""
    database.execute(
        *([] if role(database, "eve") else ["CREATE ROLE eve LOGIN PASSWORD 'moneypenny'"]),
        "ALTER ROLE eve REPLICATION",
        TABLE,
        TABLE.replace(" t ", " other "),
        "GRANT SELECT ON t, other TO eve",
        'CREATE PUBLICATION "Some" FOR TABLE other',
        "CREATE PUBLICATION \"Inserts\" FOR TABLE t, other WITH (publish = 'insert')",
    )
    url = database.server.url(database.name, user="eve", password=RIGHT)
    capture, landing = capture_of(database, "t", "other", url=url, publication="Some")
    with pytest.raises(NotCapturable, match="may not publish") as refused:
        once(capture, landing)
    assert refused.value.hint == 'Let the tables\' owner run: ALTER PUBLICATION "Some" ADD TABLE ONLY "public"."t"'
    half, nothing = capture_of(database, "t", publication="Inserts")
    with pytest.raises(NotCapturable, match="leaves out") as refused:
        once(half, nothing)
    database.execute(refused.value.hint)
    owned, landing = capture_of(database, "t", "other", publication="Some")
    with running(owned, landing) as failure:
        until(lambda: len(Position.of(landing.stored).tables) == 2 if landing.stored else False, failure)
        database.execute("INSERT INTO t VALUES (1, 'one')", "INSERT INTO other VALUES (2, 'two')")
        until(lambda: landing.tables["t"] and landing.tables["other"], failure)


def test_a_table_without_a_key_without_identity_or_that_is_none_is_refused(database):
    database.execute(
        "CREATE TABLE keyless (id int)",
        TABLE,
        "ALTER TABLE t REPLICA IDENTITY NOTHING",
        "CREATE VIEW seen AS SELECT * FROM t",
    )
    with pytest.raises(NoPrimaryKey, match="ADD PRIMARY KEY"):
        postgres.table(database.url, "keyless").declares()
    with pytest.raises(NotCapturable, match="REPLICA IDENTITY DEFAULT"):
        postgres.table(database.url, "t").declares()
    with pytest.raises(NotCapturable, match="no ordinary table"):
        postgres.table(database.url, "seen").declares()
    with pytest.raises(NotCapturable, match=r"Did you mean public\.keyless"):
        postgres.table(database.url, "keyles").declares()


def test_a_key_may_be_a_unique_index(database):
    database.execute(
        "CREATE TABLE k (a text NOT NULL, b int NOT NULL, v int)",
        "CREATE UNIQUE INDEX kk ON k (b, a)",
        "ALTER TABLE k REPLICA IDENTITY USING INDEX kk",
        "INSERT INTO k SELECT chr(97 + i % 7), i, 0 FROM generate_series(1, 50) i",
    )
    assert postgres.table(database.url, "k").declares().key == ("b", "a")
    capture, landing = capture_of(database, "k", chunk_rows=7)
    with running(capture, landing) as failure:
        until(lambda: len(landing.tables["k"]) == 50, failure)
        database.execute("UPDATE k SET a = 'z' WHERE b = 3", "DELETE FROM k WHERE b = 4")
        until(lambda: (3, "z") in landing.tables["k"] and len(landing.tables["k"]) == 49, failure)


def test_a_prepared_transaction_is_named_instead_of_waited_for(database):
    database.execute(TABLE, f"BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION '{database.name}'")
    capture, landing = capture_of(database, "t")
    with pytest.raises(PreparedTransactionBlocks, match=f"ROLLBACK PREPARED '{database.name}'"):
        once(capture, landing)
    database.execute(f"COMMIT PREPARED '{database.name}'")
    with running(capture, landing) as failure:
        until(lambda: landing.tables["t"], failure)


def test_one_app_reads_a_slot(database):
    capture, landing = captured(database)
    with running(capture, landing) as failure:
        active = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
        until(lambda: database.query(active, capture.slot) == [(True,)], failure)
        other, empty = capture_of(database, "t")
        empty.stored = landing.stored
        with pytest.raises(SlotBusy, match="a slot of its own"):
            once(other, empty)


def test_a_slot_that_another_one_has_read_further_is_refused(database):
    """The other one has confirmed what this one has never landed."""
    capture, landing = captured(database)
    before = landing.stored
    with running(capture, landing) as failure:
        database.execute("INSERT INTO t VALUES (2, 'two')")
        until(lambda: len(landing.tables["t"]) == 2, failure)
    landing.stored = before
    with pytest.raises(SlotAdvanced):
        once(capture, landing)


def test_a_slot_that_is_gone_or_another_cluster_is_refused(database):
    capture, landing = captured(database)
    postgres.drop(postgres.table(database.url, "t", slot=capture.slot))
    with pytest.raises(SlotLost, match="does not exist any more"):
        once(capture, landing)
    at = Position.of(landing.stored)
    landing.stored = Position("1", at.lsn, at.tables).to_bytes()
    with pytest.raises(SourceReplaced):
        once(capture, landing)


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("ALTER TABLE t RENAME v TO w; INSERT INTO t VALUES (3)", SourceSchemaChanged),
        ("ALTER TABLE t ALTER v TYPE text; INSERT INTO dates VALUES (1, 'infinity')", ValueDoesNotFit),
        ("ALTER TABLE dates ALTER b TYPE int USING 0; INSERT INTO dates (id, b) VALUES (1, 1)", ValueDoesNotFit),
        ("ALTER TABLE dates ALTER y TYPE text USING ''; INSERT INTO dates (id, y) VALUES (1, 'ab12')", ValueDoesNotFit),
        ("ALTER TABLE dates ALTER l TYPE text USING ''; INSERT INTO dates (id, l) VALUES (1, 'abc')", ValueDoesNotFit),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (v); DELETE FROM t", SourceSchemaChanged),
    ],
)
def test_what_cannot_be_followed_stops_the_capture_and_the_slot_keeps_it(database, statement, error):
    dates = "CREATE TABLE dates (id int PRIMARY KEY, d date, b bool, y bytea, l text[])"
    database.execute(dates, TABLE, "INSERT INTO t VALUES (1, 'one')")
    capture, landing = capture_of(database, "t", "dates")
    for _ in range(2):
        with pytest.raises(error), running(capture, landing) as failure:  # noqa: PT012 - what fails is the thread
            until(lambda: len(Position.of(landing.stored).tables) == 2 if landing.stored else False, failure)
            database.execute(statement)
            statement = "SELECT 1"
            until(lambda: failure)


def test_a_server_that_does_not_log_changes_of_rows_is_told_how(tmp_path):
    from scripts.broker.servers import Servers
    from scripts.servers.packages import Unavailable as Missing
    from scripts.servers.postgres import Postgres

    server = Postgres(Servers(tmp_path, shared=True), wal_level="replica")
    try:
        server.start()
    except Missing as reason:
        pytest.skip(f"no PostgreSQL: {reason}")
    try:
        from headrace.connect.postgres import slots

        with (
            PostgresAddress.parse(server.url()).connected() as sql,
            pytest.raises(NotCapturable, match="wal_level = logical"),
        ):
            slots.check_server(sql)
    finally:
        server.stop()
        server.servers.leave()


def role(database, name):
    return bool(database.query("SELECT 1 FROM pg_roles WHERE rolname = %s", name))
