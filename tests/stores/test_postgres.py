"""Tables of PostgreSQL as sinks, on a real server."""

from __future__ import annotations

import itertools
import math
import re
import threading
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from tempfile import TemporaryDirectory

import psycopg
import pyarrow as pa
import pytest
from crashing_sinks import WRITER, Kept, batches, check_each_crash, check_zombie, epochs, for_rows

import headrace as hr
from headrace.base.errors import InvalidPlan
from headrace.base.outside import OutputLost, Unavailable
from headrace.base.time import ManualClock
from headrace.connect import postgres
from headrace.connect.store import StoreDiffers, StoreRefused, WriterFenced
from headrace.testing import Driver, check_sink

BOTH = pytest.mark.parametrize("table", [False, True], ids=["stream", "table"])
CLOCK = ManualClock()
SECRET = "moneypenny"  # noqa: S105 -- of a role of this test


@pytest.fixture
def make(database):
    number = itertools.count()

    def fresh():
        name = f"t{next(number)}"
        database.execute("DROP SCHEMA IF EXISTS headrace CASCADE")  # a database of its own

        def read():
            ids = database.query(f"SELECT id, text FROM {name}")
            return [{"id": each, "text": text} for each, text in ids]

        return postgres.upsert(database.url, name), read

    return fresh


@BOTH
def test_a_table_of_postgres_is_a_sink(make, table):
    def kept():
        sink, read = make()
        return Kept(for_rows(sink, table=table), read)

    check_sink(kept)


@BOTH
def test_a_crash_at_any_step_leaves_each_epoch_once(make, table):
    passed = check_each_crash(make, table=table)
    assert {"before_transaction", "before_transaction_ends", "after_transaction"} <= passed
    assert not table or "in_transaction" in passed


@BOTH
def test_an_older_writer_is_fenced(make, table):
    check_zombie(make, WriterFenced, table=table)


def test_a_writer_that_hangs_in_its_transaction_is_ended_by_the_next_one(database):
    """The older process holds the lock and does nothing: its connection is ended, and it hears so."""
    sink = for_rows(postgres.upsert(database.url, "t"), table=True)
    sink.prepare(clock=CLOCK)
    reached, goes_on = threading.Event(), threading.Event()

    def hang(point):
        if point == "before_transaction_ends":
            reached.set()
            goes_on.wait(60)

    old = replace(sink, fault=hang).open(writer=WRITER, clock=CLOCK)
    heard = []

    def publish():
        try:
            old.publish(0, batches(epochs(table=True)[0], table=True))
        except Unavailable as error:
            heard.append(error)

    thread = threading.Thread(target=publish)
    thread.start()
    assert reached.wait(60)
    new = sink.open(writer=WRITER, clock=CLOCK)
    goes_on.set()
    thread.join(60)
    assert heard, "the older writer's epoch was not committed"
    assert new.last_epoch() == -1
    with pytest.raises(WriterFenced):
        old.publish(0, batches(epochs(table=True)[0], table=True))
    new.publish(0, batches(epochs(table=True)[0], table=True))
    new.close()
    old.close()


def test_a_server_that_is_killed_while_it_is_written_gets_the_epoch_once(breakable_database):
    """Killed inside the transaction, then between commit and return: the same writer goes on when it is back."""
    database = breakable_database
    sink = for_rows(postgres.upsert(database.url, "t"), table=False)
    sink.prepare(clock=CLOCK)
    kill_at = {"before_transaction_ends", "after_transaction"}

    def kill(point):
        if point in kill_at:
            kill_at.remove(point)
            database.server.kill()
            if point == "after_transaction":
                raise InterruptedError("the answer was lost")

    writer = replace(sink, fault=kill).open(writer=WRITER, clock=CLOCK)
    for epoch, rows in epochs(table=False).items():
        for _ in range(9):
            try:
                writer.publish(epoch, batches(rows, table=False))
            except (Unavailable, InterruptedError):
                database.server.start()
            else:
                break
    writer.close()
    assert not kill_at
    found = database.query("SELECT id, text FROM t ORDER BY id")
    assert found == sorted((i, text) for rows in epochs(table=False).values() for i, text, _ in rows)


KINDS = {
    "id": "int",
    "tiny": "tinyint",
    "small": "smallint",
    "big": "bigint",
    "f": "float",
    "d": "double",
    "yes": "boolean",
    "price": "decimal(38,10)",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "raw": "binary",
    "text": "string",
    "tags": "array<string>",
    "prices": "array<decimal(20,4)>",
    "raws": "array<binary>",
    "days": "array<timestamp>",
    "deep": "struct<a:int,b:struct<c:array<string>,d:double>,raw:binary>",
    "map": "map<string,decimal(10,2)>",
    "lists": "array<array<int>>",
}
INSTANT = datetime(2024, 5, 1, 10, 0, 0, 123456, tzinfo=UTC)
ROW = {
    "id": 1,
    "tiny": -128,
    "small": 32767,
    "big": -(2**63),
    "f": -0.0,
    "d": math.inf,
    "yes": True,
    "price": Decimal("0.0000000001"),
    "day": date(1, 1, 1),
    "at": INSTANT,
    "local": INSTANT.replace(tzinfo=None),
    "raw": b"\x00\xff\\",
    "text": 'a,"b"\r\n\\.\nä\\N',
    "tags": ["", None, "NULL", 'a"b\\c,{}'],
    "prices": [Decimal("1.5000"), None],
    "raws": [b"\x00\\", None],
    "days": [INSTANT, None],
    "deep": {"a": None, "b": {"c": ['"', None], "d": math.nan}, "raw": b"ab"},
    "map": {"x": Decimal("12345678.90"), "y": None},
    "lists": [[1, None], [], None],
}
NOTHING = dict.fromkeys(KINDS, None) | {"id": 2}
EMPTY = NOTHING | {"id": 3, "d": math.nan, "f": -math.inf, "text": "", "raw": b"", "tags": [], "lists": [], "map": {}}


def test_every_type_comes_back_as_it_was(database):
    """Written by an app, read by the database's own client; struct, map and lists of lists are jsonb."""
    app = hr.App("types")
    table = app.table("rows", ", ".join(f"{name} {kind}" for name, kind in KINDS.items()), key="id")
    table.to(postgres.upsert(database.url, "rows"))
    with Driver(app) as driver:
        driver.send("rows", {"id": 0}, {"id": 2})  # so that the table is not empty: the next epoch is staged
        driver.run()
        driver.send("rows", ROW, NOTHING, EMPTY)
        driver.run()
    with database.connect(row_factory=psycopg.rows.dict_row) as sql:
        sql.execute("SET timezone = 'UTC'")
        first, nothing, empty = sql.execute("SELECT * FROM rows WHERE id > 0 ORDER BY id").fetchall()
    nested = {
        "deep": {"a": None, "b": {"c": ['"', None], "d": "nan"}, "raw": "YWI="},
        "map": {"x": 12345678.90, "y": None},
        "lists": [[1, None], [], None],
    }
    assert first == ROW | nested
    assert nothing == NOTHING
    assert math.isnan(empty.pop("d"))
    assert empty == {name: value for name, value in EMPTY.items() if name != "d"}


def test_a_negative_zero_stays_one(database):
    """An app's tables have 0.0 alone; a stream may have both."""
    kinds = pa.schema([("f", pa.float32()), ("d", pa.float64())])
    sink = postgres.upsert(database.url, "t").for_step(schema=kinds, key=None, is_table=False, sealed=frozenset())
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer=WRITER, clock=CLOCK)
    writer.publish(0, iter([pa.record_batch([pa.array([-0.0], kind) for kind in kinds.types], schema=kinds)]))
    writer.close()
    ((f, d),) = database.query("SELECT f, d FROM t")
    assert (math.copysign(1, f), math.copysign(1, d)) == (-1, -1)


@pytest.mark.parametrize("filled", [False, True], ids=["copied", "staged"])
def test_the_one_row_that_is_refused_is_named(database, filled):
    """One of 200 000 breaks a constraint; nothing of the epoch is there. Then it is a dead letter."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, text text CHECK (text <> 'bad'))")
    if filled:
        database.execute("INSERT INTO t VALUES (-1, 'old')")
    count = 200_000
    whole = pa.record_batch(
        {
            "id": pa.array(range(count), pa.int32()),
            "text": pa.array(
                "bad" if i == 123_456 else "a\0" if i == 7 and not filled else "fine" for i in range(count)
            ),
            "_time": pa.array([0] * count),
            "_deleted": pa.array([False] * count),
        }
    )
    sink = for_rows(postgres.upsert(database.url, "t"), table=True)
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer=WRITER, clock=CLOCK)
    with pytest.raises(StoreRefused, match="the row with id = 123456: .*check constraint" if filled else "id = 7: "):
        writer.publish(0, iter([whole]))
    writer.close()
    assert database.query("SELECT count(*) FROM t WHERE id >= 0") == [(0,)]
    keeping = for_rows(postgres.upsert(database.url, "t", on_error="dead_letter"), table=True)
    writer = keeping.open(writer=WRITER, clock=CLOCK)
    writer.publish(0, iter([whole]))
    writer.close()
    letters = database.query("SELECT table_name, row_json FROM headrace.dead_letters ORDER BY row_json DESC")
    assert [table for table, _ in letters] == ['"public"."t"'] * (1 if filled else 2)
    assert '"bad"' in letters[-1][1] or '"bad"' in letters[0][1]
    assert database.query("SELECT count(*) FROM t WHERE id >= 0") == [(count - len(letters),)]


def test_deletes_do_not_depend_on_what_the_server_thinks_of_the_table(database):
    """Statistics say "next to no rows": a plan that trusts them compares each deleted row with each row there."""
    count = 100_000
    database.execute("CREATE TABLE t (id int PRIMARY KEY, text text CHECK (text <> 'bad'))", "ANALYZE t")
    with database.connect(autocommit=False) as other:  # many pages without rows
        other.execute(f"INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, {count}) AS i")
        other.rollback()
    database.execute("ANALYZE t", "INSERT INTO t VALUES (-1, 'old')")
    sink = for_rows(postgres.upsert(database.url, "t", on_error="dead_letter"), table=True)
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer=WRITER, clock=CLOCK)
    texts = ["bad" if i == count - 1 else "fine" for i in range(count)]
    inserted = {"id": pa.array(range(count), pa.int32()), "text": texts, "_time": [0] * count}
    writer.publish(0, iter([pa.record_batch(inserted | {"_deleted": [False] * count})]))
    deleted = pa.array(i % 2 == 0 for i in range(count))
    writer.publish(1, iter([pa.record_batch(inserted | {"_deleted": deleted})]))
    writer.close()
    assert database.query("SELECT count(*), min(id) FROM t WHERE id >= 0") == [(count // 2 - 1, 1)]


def test_tables_that_cannot_store_the_rows_are_refused_with_the_statement_that_mends_them(database):
    """The statement of the hint is run, and then the table is taken."""
    database.execute("CREATE TABLE t (text varchar(10), other int NOT NULL)", "INSERT INTO t VALUES ('a', 1)")
    sink = for_rows(postgres.upsert(database.url, "t"), table=True)
    with pytest.raises(StoreDiffers) as refused:
        sink.prepare(clock=CLOCK)
    statement = re.match(r"(ALTER TABLE .*); or", refused.value.hint)[1]
    assert 'ADD COLUMN "id" integer' in statement
    assert 'ALTER COLUMN "other" DROP NOT NULL' in statement
    assert 'ADD PRIMARY KEY ("id")' in statement
    database.execute("DELETE FROM t", statement)
    sink.prepare(clock=CLOCK)
    database.execute("ALTER TABLE t ALTER COLUMN id TYPE smallint")
    with pytest.raises(StoreDiffers, match="cannot store"):
        sink.prepare(clock=CLOCK)


@pytest.mark.parametrize("kind", ["text COLLATE loose", "char(5)", "name"])
def test_a_table_that_takes_different_keys_for_one_is_refused(database, kind):
    """`a` would be written over `A`, `a` over `a` with a blank, and long names over others that begin so."""
    database.execute(
        "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        f"CREATE TABLE t (k {kind} PRIMARY KEY, v int)",
    )
    app, rows = hr.App("shop"), [{"k": key, "v": 1} for key in ("a", "A", "a ", "x" * 80, "x" * 81)]
    app.table("items", "k string, v int", key="k").to(postgres.upsert(database.url, "t"))
    with pytest.raises(StoreDiffers, match="cannot store") as differs, Driver(app):
        pass
    change = str(differs.value).split("Hint: ")[1].split("; or")[0]
    database.execute(change)
    with Driver(app) as driver:
        for each in rows:
            driver.send("items", each)
            driver.run()
    assert sorted(key for (key,) in database.query("SELECT k FROM t")) == sorted(each["k"] for each in rows)


def test_what_is_refused_before_an_epoch_is_not_called_one(database):
    sink = for_rows(postgres.upsert(database.url, "t"), table=True)
    sink.prepare(clock=CLOCK)
    database.execute("DROP TABLE headrace.marks")
    with pytest.raises(StoreRefused, match=r"refuses the app: .*marks") as refused:
        sink.open(writer=WRITER, clock=CLOCK)
    assert "epoch" not in str(refused.value)


def test_a_lock_of_somebody_else_is_told_and_the_epoch_is_tried_again(database, monkeypatch):
    monkeypatch.setattr("headrace.connect.postgres.storing.writer.LONGEST_WAIT", "200ms")
    sink = for_rows(postgres.upsert(database.url, "t"), table=True)
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer=WRITER, clock=CLOCK)
    rows = epochs(table=True)[0]
    with database.connect(autocommit=False) as other:
        other.execute("LOCK TABLE t")
        with pytest.raises(Unavailable, match="lock timeout"):
            writer.publish(0, batches(rows, table=True))
    writer.publish(0, batches(rows, table=True))
    writer.close()
    assert database.query("SELECT count(*) FROM t") == [(len(rows),)]


def test_a_table_that_was_dropped_under_the_app_is_missed(database):
    """It is not begun anew without a word; a table of another name is filled."""

    def app(name):
        made = hr.App("shop")
        made.table("orders", "id int, price int", key="id").to(postgres.upsert(database.url, name))
        return made

    with TemporaryDirectory() as folder:
        with Driver(app("orders"), storage=folder) as driver:
            driver.send("orders", {"id": 1, "price": 2})
            driver.run()
        database.execute("DROP TABLE orders")
        with pytest.raises(OutputLost, match="created anew"):
            Driver(app("orders"), storage=folder)
        with Driver(app("again"), storage=folder) as driver:
            driver.run()
    assert database.query("SELECT * FROM again") == [(1, 2)]


def test_a_role_that_may_not_create_is_told_how_and_no_password_is_shown(database):
    database.execute(f"CREATE ROLE sam LOGIN PASSWORD '{SECRET}'")
    try:
        url = database.server.url(database.name, user="sam", password=SECRET)
        sink = for_rows(postgres.upsert(url, "t"), table=True)
        assert SECRET not in repr(sink) + sink.where + sink.name + sink.writer_group
        with pytest.raises(StoreDiffers, match="schema headrace") as refused:
            sink.prepare(clock=CLOCK)
        statement = refused.value.hint.partition(": ")[2]
        assert SECRET not in str(refused.value)
        database.execute(statement, "CREATE SCHEMA sams AUTHORIZATION sam")
        sink = for_rows(postgres.upsert(url, "sams.t"), table=True)
        sink.prepare(clock=CLOCK)
        sink.open(writer=WRITER, clock=CLOCK).close()
    finally:
        database.execute("DROP OWNED BY sam", "DROP ROLE sam")


@pytest.mark.parametrize("table", ["n" * 64, f"{'s' * 64}.t", f"é{'n' * 62}"])
def test_a_name_that_the_server_would_cut_off_is_refused(table):
    """Two that differ behind its 63rd byte would be one table."""
    with pytest.raises(InvalidPlan, match="PostgreSQL cannot have a"):
        postgres.upsert("postgresql://localhost/db", table)
    with pytest.raises(InvalidPlan, match="PostgreSQL cannot have a column named"):
        for_rows(postgres.upsert("postgresql://localhost/db", "n" * 63), table=False).for_step(
            schema=pa.schema([("n" * 64, pa.int64())]), key=None, is_table=False, sealed=frozenset()
        )


def test_a_table_without_a_key_is_refused():
    with pytest.raises(InvalidPlan, match="by its key"):
        postgres.upsert("postgresql://ada@localhost/shop", "t").for_step(
            schema=pa.schema([("a", pa.int64())]), key=None, is_table=True, sealed=frozenset()
        )


def test_tables_of_one_database_show_an_epoch_together(database):
    """A reader never sees one table of an epoch without the other, though the app crashes at each point."""
    app = hr.App("shop")
    orders = app.stream("orders", "id int, price int, at timestamp", event_time="at")
    orders.to(postgres.upsert(database.url, "orders"))
    orders.group_by(part="id % 3").agg(n="count(*)", sold="sum(price)").to(postgres.upsert(database.url, "parts"))
    seen, stop = [], threading.Event()

    def watch():
        with database.connect() as sql:
            while not stop.is_set():
                if sql.execute("SELECT to_regclass('parts') IS NOT NULL").fetchone()[0]:
                    both = "SELECT (SELECT count(*) FROM orders), (SELECT coalesce(sum(n), 0) FROM parts)"
                    seen.append(sql.execute(both).fetchone())

    with Driver(app) as driver:
        thread = threading.Thread(target=watch)
        thread.start()
        for step in range(6):
            row = {"price": 5, "at": f"2024-05-01T10:00:0{step}Z"}
            driver.send("orders", *({"id": 10 * step + i} | row for i in range(4)))
            if step % 2:
                driver.crash(at="before_sink" if step % 4 == 1 else "after_sink")
                driver.restart()
            driver.run()
        stop.set()
        thread.join(60)
    assert seen
    assert all(rows == counted for rows, counted in seen)
    assert database.query("SELECT count(*), sum(price) FROM orders") == [(24, 120)]
    assert database.query("SELECT sum(n), sum(sold) FROM parts") == [(24, 120)]


def test_a_check_tells_what_a_start_would_and_creates_nothing(database):
    sink = for_rows(postgres.upsert(database.url, "items"), table=True)
    sink.check()
    assert database.query("SELECT to_regclass('items'), to_regnamespace('headrace')") == [(None, None)]
    database.execute("CREATE TABLE items (id int PRIMARY KEY)")
    with pytest.raises(StoreDiffers, match="cannot store the rows"):
        sink.check()
