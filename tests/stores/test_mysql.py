"""Tables of MariaDB as sinks, on a real server."""

from __future__ import annotations

import itertools
import json
import math
import re
import threading
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from crashing_sinks import WRITER, Kept, batches, check_each_crash, check_zombie, epochs, for_rows

import headrace as hr
from budget import matrix
from headrace.base.errors import InvalidPlan
from headrace.base.outside import OutputLost, Unavailable
from headrace.base.time import ManualClock
from headrace.connect import mysql
from headrace.connect.mysql.address import MysqlAddress
from headrace.connect.mysql.storing.errors import as_ours
from headrace.connect.store import StoreDiffers, StoreRefused, WriterFenced
from headrace.testing import Driver, check_sink

pymysql = pytest.importorskip("pymysql")
BOTH = pytest.mark.parametrize("table", [False, True], ids=["stream", "table"])
CLOCK = ManualClock()
SECRET = "moneypenny"  # noqa: S105 -- of a user of this test


@pytest.fixture
def make(schema):
    number = itertools.count()

    def fresh():
        name = f"t{next(number)}"
        schema.execute("DROP TABLE IF EXISTS headrace_marks, headrace_created")  # a database of its own

        def read():
            return [{"id": each, "text": text} for each, text in schema.query(f"SELECT id, text FROM {name}")]

        return mysql.upsert(schema.url, name), read

    return fresh


@BOTH
def test_a_table_of_mariadb_is_a_sink(make, table):
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


def test_a_writer_that_hangs_in_its_transaction_is_ended_by_the_next_one(schema):
    """The older process holds the lock and does nothing: its connection is ended, and it hears so."""
    sink = for_rows(mysql.upsert(schema.url, "t"), table=True)
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


def test_a_server_that_is_killed_while_it_is_written_gets_the_epoch_once(breakable_schema):
    """Killed inside the transaction, then between commit and return: the same writer goes on when it is back."""
    schema = breakable_schema
    sink = for_rows(mysql.upsert(schema.url, "t"), table=False)
    sink.prepare(clock=CLOCK)
    kill_at = {"before_transaction_ends", "after_transaction"}

    def kill(point):
        if point in kill_at:
            kill_at.remove(point)
            schema.server.kill()
            if point == "after_transaction":
                raise InterruptedError("the answer was lost")

    writer = replace(sink, fault=kill).open(writer=WRITER, clock=CLOCK)
    for epoch, rows in epochs(table=False).items():
        for _ in range(9):
            try:
                writer.publish(epoch, batches(rows, table=False))
            except (Unavailable, InterruptedError):
                schema.server.start()
            else:
                break
    writer.close()
    assert not kill_at
    found = schema.query("SELECT id, text FROM t ORDER BY id")
    assert found == sorted((i, text) for rows in epochs(table=False).values() for i, text, _ in rows)


KINDS = {
    "id": "string",
    "raw_id": "binary",
    "tiny": "tinyint",
    "small": "smallint",
    "n": "int",
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
    "deep": "struct<a:int,b:struct<c:array<string>,d:double>,raw:binary,at:timestamp>",
    "map": "map<string,decimal(10,2)>",
}
INSTANT = datetime(2124, 5, 1, 10, 0, 0, 123456, tzinfo=UTC)
ROW = {
    "id": "a",
    "raw_id": b"\x00'",
    "tiny": -128,
    "small": 32767,
    "n": -(2**31),
    "big": -(2**63),
    "f": 0.1,
    "d": 1.7976931348623157e308,
    "yes": True,
    "price": Decimal("-1234567890123456789012345678.0000000001"),
    "day": date(1, 1, 1),
    "at": INSTANT,
    "local": datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 -- without a zone
    "raw": b"\x00\xff\\'",
    "text": "a,'b'\"\r\n\\.\n\0ä\\N \U0001f600 %s {} ",
    "tags": ["", None, "'); DROP TABLE rows; --", 'a"b\\c'],
    "deep": {"a": None, "b": {"c": ['"', None], "d": math.nan}, "raw": b"ab", "at": INSTANT},
    "map": {"x": Decimal("12345678.90"), "y": None},
}
NOTHING = dict.fromkeys(KINDS, None) | {"id": "a ", "raw_id": b""}
EMPTY = NOTHING | {"id": "A", "text": "", "raw": b"", "tags": [], "map": {}, "d": 5e-324, "yes": False}


@pytest.mark.parametrize("staged", [False, True], ids=["direct", "staged"])
def test_every_type_comes_back_as_it_was(schema, staged):
    """Keys that differ by case or by a space at the end are different ones; nested values are JSON."""
    app = hr.App("types")
    table = app.table("rows", ", ".join(f"{name} {kind}" for name, kind in KINDS.items()), key=["id", "raw_id"])
    table.to(mysql.upsert(schema.url, "rows"))
    with Driver(app) as driver:
        if staged:
            driver.send("rows", {"id": "0", "raw_id": b"0"}, {"id": "a ", "raw_id": b"", "n": 1})
            driver.run()
        driver.send("rows", ROW, NOTHING, EMPTY)
        driver.run()
    names = ", ".join(f"CAST({name} AS double)" if name == "f" else f"`{name}`" for name in KINDS)
    rows = schema.query(f"SELECT {names} FROM `rows` WHERE id <> '0' ORDER BY id")
    empty, row, nothing = (dict(zip(KINDS, each, strict=True)) for each in rows)
    nested = {
        "tags": ROW["tags"],
        "deep": {"a": None, "b": {"c": ['"', None], "d": "nan"}, "raw": "YWI=", "at": row["deep"] and AT_TEXT},
        "map": {"x": 12345678.90, "y": None},
    }
    assert {name: json.loads(row[name]) for name in nested} == nested
    plain = ROW | {"at": INSTANT.replace(tzinfo=None), "f": pytest.approx(0.1)}
    assert {name: row[name] for name in KINDS if name not in nested} == {
        name: value for name, value in plain.items() if name not in nested
    }
    assert nothing == NOTHING
    assert empty == EMPTY | {"tags": "[]", "map": "{}", "yes": 0}


AT_TEXT = "2124-05-01 10:00:00.123456+00"


@pytest.mark.parametrize(
    ("bad", "filled"), matrix(["constraint", "nan", "long", "spaces", "date"], [False, True], depth=1)
)
def test_the_one_row_that_is_refused_is_named(schema, filled, bad):
    """One of 20 000; nothing of the epoch is there. Cut off spaces are only a note of the server."""
    schema.execute("CREATE TABLE t (id int PRIMARY KEY, text varchar(9), d double, day date, CHECK (text <> 'bad'))")
    if filled:
        schema.execute("INSERT INTO t (id, text) VALUES (-1, 'old')")
    count, at = 20_000, 12_345
    texts = {"constraint": "bad", "long": "x" * 10, "spaces": "x" + " " * 9}
    columns = pa.schema([("id", pa.int32()), ("text", pa.string()), ("d", pa.float64()), ("day", pa.date32())])
    text, d, day = (["fine"] * count, [1.5] * count, [1] * count)
    text[at], d[at], day[at] = texts.get(bad, "fine"), math.nan if bad == "nan" else 1, 10**7 if bad == "date" else 1
    values = [pa.array(range(count), pa.int32()), text, d, pa.array(day, pa.int32()).cast(pa.date32())]
    whole = pa.record_batch(
        dict(zip(columns.names, values, strict=True)) | {"_time": [0] * count, "_deleted": [False] * count}
    )
    sink = mysql.upsert(schema.url, "t").for_step(schema=columns, key=("id",), is_table=True, sealed=frozenset())
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer=WRITER, clock=CLOCK)
    with pytest.raises(StoreRefused, match=f"the row with id = {at}: "):
        writer.publish(0, iter([whole.slice(0, 9_999), whole.slice(9_999)]))
    assert schema.query("SELECT count(*) FROM t WHERE id >= 0") == [(0,)]
    good = pa.compute.not_equal(whole.column("id"), at)
    writer.publish(0, iter([whole.filter(good)]))
    writer.close()
    assert schema.query("SELECT count(*), sum(d) FROM t WHERE id >= 0") == [(count - 1, 1.5 * (count - 1))]


def test_infinities_are_refused_and_a_negative_zero_is_zero(schema):
    kinds = pa.schema([("f", pa.float32()), ("d", pa.float64())])
    sink = mysql.upsert(schema.url, "t").for_step(schema=kinds, key=None, is_table=False, sealed=frozenset())
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer=WRITER, clock=CLOCK)
    with pytest.raises(StoreRefused, match="d = inf"):
        writer.publish(0, iter([pa.record_batch([pa.array([0.0, math.inf], each) for each in kinds.types], kinds)]))
    writer.publish(0, iter([pa.record_batch([pa.array([-0.0], each) for each in kinds.types], schema=kinds)]))
    writer.close()
    assert schema.query("SELECT f, d FROM t") == [(0.0, 0.0)]


def test_a_row_that_is_larger_than_a_packet_is_named(schema):
    sink = for_rows(mysql.upsert(schema.url, "t"), table=True)
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer=WRITER, clock=CLOCK)
    ((most,),) = schema.query("SELECT @@max_allowed_packet")
    with pytest.raises(StoreRefused, match=r"id = 2: .*max_allowed_packet"):
        writer.publish(0, batches([(1, "x" * (most // 2), False), (2, "x" * most, False)], table=True))
    writer.publish(0, batches([(1, "x" * (most // 2), False), (2, "", False)], table=True))
    writer.close()
    assert schema.query("SELECT id, length(text) FROM t ORDER BY id") == [(1, most // 2), (2, 0)]


def test_tables_that_cannot_store_the_rows_are_refused_with_the_statement_that_mends_them(schema):
    """The statement of the hint is run, and then the table is taken."""
    schema.execute("CREATE TABLE t (text varchar(10) UNIQUE, other int NOT NULL, n int AUTO_INCREMENT PRIMARY KEY)")
    sink = for_rows(mysql.upsert(schema.url, "t"), table=True)

    def mended():
        with pytest.raises(StoreDiffers, match="cannot store") as refused:
            sink.prepare(clock=CLOCK)
        statement = re.match(r"(ALTER TABLE .*); or", refused.value.hint)[1]
        schema.execute(statement)
        sink.prepare(clock=CLOCK)
        return statement

    statement = mended()
    assert "ADD COLUMN `id` int" in statement
    assert "MODIFY COLUMN `other` int(11) NULL" in statement
    assert "ADD UNIQUE KEY (`id`)" in statement
    assert "DROP INDEX `text`" in statement
    assert "`n`" not in statement
    schema.execute("ALTER TABLE t MODIFY id smallint, ENGINE = Aria")
    assert "ENGINE = InnoDB" in mended()
    schema.execute("CREATE TABLE u (id varchar(20) COLLATE utf8mb4_general_ci PRIMARY KEY)")
    sink = mysql.upsert(schema.url, "u").for_step(
        schema=pa.schema([("id", pa.string())]), key=("id",), is_table=True, sealed=frozenset()
    )
    assert "COLLATE utf8mb4_nopad_bin" in mended()


def test_a_lock_of_somebody_else_is_told_and_the_epoch_is_tried_again(schema, monkeypatch):
    monkeypatch.setattr("headrace.connect.mysql.storing.writer.LONGEST_WAIT", 1)
    sink = for_rows(mysql.upsert(schema.url, "t"), table=True)
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer=WRITER, clock=CLOCK)
    rows = epochs(table=True)[0]
    with closing(schema.connect()) as other:
        other.query("LOCK TABLES t WRITE")
        with pytest.raises(Unavailable, match="Lock wait timeout"):
            writer.publish(0, batches(rows, table=True))
    writer.publish(0, batches(rows, table=True))
    writer.close()
    assert schema.query("SELECT count(*) FROM t") == [(len(rows),)]


def test_a_user_who_may_not_create_is_told_how_and_no_password_is_shown(schema):
    schema.execute(f"CREATE USER sam@'%' IDENTIFIED BY '{SECRET}'", f"GRANT SELECT ON {schema.name}.* TO sam@'%'")
    try:
        url = schema.url.replace("root", f"sam:{SECRET}", 1)
        assert SECRET in url
        sink = for_rows(mysql.upsert(url, "t"), table=True)
        assert SECRET not in repr(sink) + sink.where + sink.name + sink.writer_group
        with pytest.raises(StoreDiffers, match="CREATE command denied") as refused:
            sink.prepare(clock=CLOCK)
        grant = refused.value.hint.partition(" ON ")[0]
        assert SECRET not in str(refused.value)
        schema.execute(f"{grant} ON {schema.name}.* TO sam@'%'")
        sink.prepare(clock=CLOCK)
        writer = sink.open(writer=WRITER, clock=CLOCK)
        for epoch, rows in epochs(table=True).items():
            writer.publish(epoch, batches(rows, table=True))
        writer.close()
    finally:
        schema.execute("DROP USER sam@'%'")


def test_what_cannot_be_a_table_is_refused():
    with pytest.raises(InvalidPlan, match="by its key"):
        mysql.upsert("mysql://ada@localhost/shop", "t").for_step(
            schema=pa.schema([("a", pa.int64())]), key=None, is_table=True, sealed=frozenset()
        )
    with pytest.raises(InvalidPlan, match="for marks"):
        mysql.upsert("mysql://ada@localhost/shop", "headrace_marks")


def test_a_table_that_was_dropped_under_the_app_is_missed(schema):
    """It is not begun anew without a word; a table of another name is filled."""

    def app(name):
        made = hr.App("shop")
        made.table("orders", "id int, price int", key="id").to(mysql.upsert(schema.url, name))
        return made

    with TemporaryDirectory() as folder:
        with Driver(app("orders"), storage=folder) as driver:
            driver.send("orders", {"id": 1, "price": 2})
            driver.run()
        schema.execute("DROP TABLE orders")
        with pytest.raises(OutputLost, match="created anew"):
            Driver(app("orders"), storage=folder)
        with Driver(app("again"), storage=folder) as driver:
            driver.run()
    assert schema.query("SELECT * FROM again") == [(1, 2)]


def test_tables_of_one_database_show_an_epoch_together(schema):
    """A reader never sees one table of an epoch without the other, though the app crashes at each point."""
    app = hr.App("shop")
    orders = app.stream("orders", "id int, price int, at timestamp", event_time="at")
    orders.to(mysql.upsert(schema.url, "orders"))
    orders.group_by(part="id % 3").agg(n="count(*)", sold="sum(price)").to(mysql.upsert(schema.url, "parts"))
    seen, stop = [], threading.Event()

    def watch():
        with closing(schema.connect()) as sql, sql.cursor() as cursor:
            while not stop.is_set():
                cursor.execute("SHOW TABLES LIKE 'parts'")
                if cursor.fetchone():
                    cursor.execute("SELECT (SELECT count(*) FROM orders), (SELECT coalesce(sum(n), 0) FROM parts)")
                    seen.append(cursor.fetchone())

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
    assert schema.query("SELECT count(*), sum(price) FROM orders") == [(24, 120)]
    assert schema.query("SELECT sum(n), sum(sold) FROM parts") == [(24, 120)]


@pytest.mark.parametrize("name", ["read_only", "tx_read_only"])
def test_a_mariadb_that_is_read_only_for_a_while_is_waited_for(breakable_schema, name):
    """As after a failover: an epoch is not given up at once, and is there when the server takes it."""
    user, rights = f"ada_{breakable_schema.name}", "SELECT, INSERT, UPDATE, DELETE, CREATE, CREATE TEMPORARY TABLES"
    breakable_schema.execute(f"CREATE USER {user}", f"GRANT {rights} ON {breakable_schema.name}.* TO {user}")
    sink = for_rows(mysql.upsert(breakable_schema.server.url(breakable_schema.name, user=user), "t"), table=False)
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer=WRITER, clock=CLOCK)
    writer.publish(0, batches([(1, "a", False)], table=False))
    writer.close()  # the next session has the setting
    breakable_schema.execute(f"SET GLOBAL {name} = 1")
    try:
        with pytest.raises(Unavailable, match=r"(?i)read.only"):
            writer.publish(1, batches([(2, "b", False)], table=False))
    finally:
        breakable_schema.execute("SET SESSION tx_read_only = 0", f"SET GLOBAL {name} = 0")
    writer.publish(1, batches([(2, "b", False)], table=False))
    writer.close()
    assert sorted(breakable_schema.query("SELECT id FROM t")) == [(1,), (2,)]
    breakable_schema.execute(f"DROP USER {user}")


def test_a_user_of_mariadb_has_no_limits_of_time_for_an_epoch(schema):
    """An epoch that takes longer would end in each attempt."""
    user = f"ada_{schema.name}"
    schema.execute(f"CREATE USER {user}", f"GRANT ALL ON {schema.name}.* TO {user}")
    schema.execute(f"ALTER USER {user} WITH MAX_STATEMENT_TIME 60")
    with closing(MysqlAddress.parse(schema.server.url(schema.name, user=user)).open()) as sql, sql.cursor() as cursor:
        cursor.execute("SELECT @@max_statement_time, @@idle_transaction_timeout, @@idle_write_transaction_timeout")
        assert [float(each) for each in cursor.fetchone()] == [0, 0, 0]
    schema.execute(f"DROP USER {user}")


@pytest.mark.parametrize("code", [1021, 1114])
def test_a_mariadb_without_room_is_waited_for(code):
    full = pymysql.err.OperationalError(code, "The table 't' is full")
    assert isinstance(as_ours(full, "shop", epoch=1), Unavailable)


def test_a_check_tells_what_is_wrong_with_a_table_and_creates_nothing(schema):
    sink = for_rows(mysql.upsert(schema.url, "items"), table=True)
    sink.check()
    assert schema.query("SHOW TABLES") == []
    schema.execute("CREATE TABLE items (id int PRIMARY KEY)")
    with pytest.raises(StoreDiffers, match="cannot store the rows"):
        sink.check()
