"""Roles of PostgreSQL that may not do all that is needed, or have settings of their own, and options of addresses."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from capturing import capture_of, running, until
from psycopg import errors

from headrace.base.errors import InvalidPlan
from headrace.base.outside import Unavailable
from headrace.base.time import ManualClock
from headrace.connect import postgres
from headrace.connect.capture.errors import NotCapturable
from headrace.connect.postgres.address import PostgresAddress
from headrace.connect.postgres.errors import LoginRefused, ours
from headrace.connect.store import StoreDiffers

CLOCK = ManualClock()
COLUMNS = pa.schema([("id", pa.int64()), ("text", pa.string())])
CHANGES = pa.schema([*COLUMNS, ("_deleted", pa.bool_())])
OURS, IN_PUBLIC = "CREATE SCHEMA headrace AUTHORIZATION {role}", "GRANT CREATE ON SCHEMA public TO {role}"
TABLE = "CREATE TABLE t (id bigint UNIQUE NULLS NOT DISTINCT, text text); INSERT INTO t VALUES (9, 'other')"
ALL, ROWS = "GRANT ALL ON t TO {role}", "GRANT SELECT, INSERT, UPDATE, DELETE ON t TO {role}"
POLICY = "ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t TO {role} USING (id < 5)"


@pytest.fixture
def role(database):
    """Return a function that makes a role with statements, and returns its address."""
    name = f"role_{database.name}"
    database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'lovelace'")

    def made(*statements):
        database.execute(*(each.format(role=name, database=database.name) for each in statements))
        return database.server.url(database.name, user=name, password="lovelace")  # noqa: S106 -- of this test

    yield made
    database.execute(f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


def written(url, *epochs):
    """Write epochs of changes to the table t."""
    sink = postgres.upsert(url, "t").for_step(schema=COLUMNS, key=("id",), is_table=True, sealed=frozenset())
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer="app/1/sink", clock=CLOCK)
    try:
        for epoch, rows in enumerate(epochs):
            names = CHANGES.names
            changes = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=CHANGES)
            writer.publish(epoch, iter(changes.to_batches()))
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("statements", "says"),
    [
        ([OURS], "schema public"),
        ([OURS, TABLE, "GRANT SELECT ON t TO {role}"], "table t"),
        ([OURS, TABLE, "GRANT INSERT, UPDATE, DELETE ON t TO {role}"], "table t"),
        ([OURS, TABLE, ROWS, "REVOKE TEMPORARY ON DATABASE {database} FROM public"], "temporary tables"),
    ],
    ids=["no CREATE", "no INSERT", "no SELECT", "no TEMPORARY"],
)
def test_a_right_that_a_sink_lacks_is_named_with_the_statement(role, statements, says):
    with pytest.raises(StoreDiffers, match=f"denied.* {says}") as differs:
        written(role(*statements), [(1, "a", False)])
    assert "GRANT " in differs.value.hint


def test_a_database_that_is_read_only_for_a_while_is_waited_for(role):
    """So some hosts set it, when a disk is nearly full."""
    url = role(OURS, IN_PUBLIC, "ALTER ROLE {role} SET default_transaction_read_only = on")
    with pytest.raises(Unavailable, match="read-only transaction"):
        written(url)
    written(role("ALTER ROLE {role} RESET ALL"), [(1, "a", False)])


def test_a_sink_does_not_leave_rows_that_a_policy_hides(database, role):
    """A delete of a hidden row would delete nothing, without a word."""
    url = role(OURS, TABLE, ALL, POLICY)
    with pytest.raises(StoreDiffers, match="row-level security") as differs:
        written(url, [(1, "a", False)], [(9, None, True)])
    assert "BYPASSRLS" in differs.value.hint
    written(role("ALTER ROLE {role} BYPASSRLS"), [(1, "a", False)], [(9, None, True)])
    assert database.query("SELECT * FROM t") == [(1, "a")]


def test_a_snapshot_does_not_leave_out_rows_that_a_policy_hides(database, role):
    """Their changes would come, and the rows before them not."""
    url = role(TABLE, "ALTER TABLE t ADD PRIMARY KEY (id)", ALL, POLICY, "ALTER ROLE {role} REPLICATION")
    database.execute(f"CREATE PUBLICATION {database.name}_slot FOR TABLE t")
    capture, landing = capture_of(database, "t", url=url)
    with pytest.raises(NotCapturable, match="row-level security") as refused:
        capture.run(landing, threading.Event())
    assert "BYPASSRLS" in refused.value.hint
    role("ALTER ROLE {role} BYPASSRLS")
    with running(capture, landing) as failure:
        until(lambda: landing.tables["t"], failure)


def test_options_of_an_address_are_those_of_the_connection_but_for_what_texts_need(database):
    given = "options=-c%20lock_timeout%3D7s%20-c%20datestyle%3DGerman&application_name=till"
    with PostgresAddress.parse(f"{database.url}?{given}").connected() as sql:
        found = [
            sql.execute(f"SHOW {name}").fetchone()[0] for name in ("lock_timeout", "application_name", "datestyle")
        ]
    assert found == ["7s", "till", "ISO, YMD"]


def test_a_role_has_no_limits_of_time_for_an_epoch(role):
    """An epoch that takes longer would end in each attempt; a limit that is met all the same may pass."""
    limits = ("idle_in_transaction_session_timeout", "statement_timeout")
    url = role(*(f"ALTER ROLE {{role}} SET {name} = '1min'" for name in limits))
    with PostgresAddress.parse(url).connected() as sql:
        assert [sql.execute(f"SHOW {name}").fetchone()[0] for name in limits] == ["0", "0"]
    ended = errors.lookup("25P03")("terminating connection due to idle-in-transaction timeout")
    assert isinstance(ours(ended, "shop"), Unavailable)


def test_an_option_that_there_is_not_is_refused_where_it_is_named():
    with pytest.raises(InvalidPlan, match='no option "sslmod"') as refused:
        postgres.upsert("postgresql://ada:lovelace@localhost/shop?sslmod=require", "t")
    assert "sslmode" in refused.value.hint
    assert "lovelace" not in str(refused.value)


@pytest.mark.parametrize("given", ["sslmode=nonsense", "port=99999999"])
def test_an_option_with_a_value_that_there_is_not_is_not_tried_again(database, given):
    with pytest.raises(LoginRefused, match="invalid"), PostgresAddress.parse(f"{database.url}?{given}").connected():
        pass
