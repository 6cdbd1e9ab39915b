"""Tables of SQLite are followed by triggers: their rows, then each change, whole transactions, exactly once."""

from __future__ import annotations

import datetime as dt
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.base.errors import InvalidArgument
from headrace.base.outside import FeedFailed, Unavailable
from headrace.connect import sqlite
from headrace.connect.capture.errors import (
    ChangesLost,
    NoPrimaryKey,
    NotCapturable,
    SourceSchemaChanged,
    ValueDoesNotFit,
)
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.embedded.requests import request_again
from headrace.connect.sqlite.capture import Capture, connected
from headrace.connect.sqlite.catalogue import described
from headrace.connect.sqlite.reading import chunk
from headrace.connect.topics import TopicSpec
from headrace.log import Log
from headrace.testing import Crash

SECONDS = 300
FULL = "1, 1, 2, '2024-02-29', '2024-02-29 01:02:03.5', 3.25, ?, 7, -9223372036854775808, 'é🎉'"


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path / "shop ünï #1.db")


class Shop:
    """A database with a table of customers."""

    def __init__(self, path):
        self.path = path
        self.run("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT)")

    def run(self, *statements):
        """Run statements in one transaction."""
        with closing(sqlite3.connect(self.path, timeout=30)) as db, db:
            for each in statements:
                db.execute(*([each] if isinstance(each, str) else each))

    def rows(self, table="customers"):
        with closing(sqlite3.connect(self.path, timeout=30)) as db:
            return set(db.execute(f"SELECT * FROM {table}"))


class Follower:
    """A capture that looks when it is told to, and what its topics have."""

    def __init__(self, shop, folder, *tables, chunk_rows=3, reader="headrace"):
        self.shop, self.chunk_rows, self.reader = shop, chunk_rows, reader
        self.feeds = {name: sqlite.table(shop.path, name, reader=reader) for name in tables or ["customers"]}
        self.log = Log(folder, fsync=False)
        self.crash_at = None

    def install(self):
        return [feed.install() for feed in self.feeds.values()]

    def fault(self, point):
        if point == self.crash_at:
            raise Crash(point)

    def run(self, until=None, schema=None):
        """Follow until all that is there is landed; a crash ends it."""
        store = EmbeddedTopics(self.log, partitions=2, fault=self.fault)
        declared = {name: feed.declares() for name, feed in self.feeds.items()}
        specs = {
            name: TopicSpec(name=name, schema=schema or each.schema, key=each.key, upserts=True)
            for name, each in declared.items()
        }
        landing = store.shared_landing(
            "shop", specs, feeds={n: f.identity for n, f in self.feeds.items()}, limit=10**6, read=lambda _: 0
        )
        capture = Capture(
            path=str(self.shop.path), reader=self.reader, tables={n: n for n in self.feeds}, chunk_rows=self.chunk_rows
        )
        with closing(landing):
            capture.run(landing, until if isinstance(until, Looks) else Looks(until or self.chunk_looks()))

    def chunk_looks(self):
        return 3 + max(len(self.shop.rows(name)) for name in self.feeds) // self.chunk_rows

    def table(self, topic="customers"):
        """Return the rows that the topic has now."""
        now = {}
        opened_topic = self.log.topic(topic)
        key = opened_topic.key
        for part in range(opened_topic.partitions):
            for row in opened_topic.read(part, 0, 10**6).to_pylist():
                at = tuple(row[name] for name in key)
                if row["_deleted"]:
                    now.pop(at, None)
                else:
                    now[at] = tuple(value for name, value in row.items() if not name.startswith("_"))
        return set(now.values())

    def changes(self, topic="customers"):
        return sum(self.log.topic(topic).end_offsets().values())


class Looks(threading.Event):
    """Stops after so many looks."""

    def __init__(self, count):
        super().__init__()
        self.count = count

    def is_set(self):
        self.count -= 1
        return self.count < 0

    def wait(self, _seconds=None):
        return False


def test_the_rows_come_first_and_then_each_change(shop, tmp_path):
    for number in range(10):
        shop.run(("INSERT INTO customers VALUES (?, ?, ?)", (number, f"n{number}", "Rome")))
    follower = Follower(shop, tmp_path / "log")
    follower.install()
    follower.run(until=2)
    shop.run("UPDATE customers SET city = 'Oslo' WHERE id < 9", "DELETE FROM customers WHERE id = 5")
    shop.run("UPDATE customers SET id = 77 WHERE id = 3", "INSERT INTO customers VALUES (99, NULL, 'Ü')")
    follower.run()
    assert follower.table() == shop.rows()
    with closing(sqlite3.connect(shop.path)) as db:
        assert db.execute("SELECT count(*) FROM _headrace_changes_customers").fetchone() == (0,)


def test_nothing_is_landed_where_nothing_changed(shop, tmp_path):
    shop.run("INSERT INTO customers VALUES (1, 'a', 'b')")
    follower = Follower(shop, tmp_path / "log")
    follower.install()
    follower.run()
    before = follower.changes()
    follower.run()
    assert follower.changes() == before == 1


def test_each_type_and_what_does_not_fit(shop, tmp_path):
    shop.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, b BOOLEAN, r REAL, d DATE, at DATETIME, n DECIMAL(9, 2), x BLOB, "
        "free, big BIGINT, g INTEGER GENERATED ALWAYS AS (big + 1), t TEXT)",
        (
            f"INSERT INTO t (id, b, r, d, at, n, x, free, big, t) VALUES ({FULL})",
            [b"\x00\xff"],
        ),
        "INSERT INTO t (id) VALUES (2)",
    )
    follower = Follower(shop, tmp_path / "log", "t")
    follower.install()
    follower.run()
    day, rest = dt.date(2024, 2, 29), (-(2**63), -(2**63) + 1, "é🎉")
    assert follower.table("t") == {
        (
            1,
            True,
            2.0,
            day,
            dt.datetime.combine(day, dt.time(1, 2, 3, 500000)),
            Decimal("3.25"),
            b"\x00\xff",
            "7",
            *rest,
        ),
        (2, *[None] * 10),
    }
    shop.run("UPDATE t SET big = 'many' WHERE id = 2")
    with pytest.raises(ValueDoesNotFit, match='column "big"'):
        follower.run()
    shop.run("UPDATE t SET big = 3 WHERE id = 2")
    follower.run()
    assert (2, None, None, None, None, None, None, None, 3, 4, None) in follower.table("t")


def test_keys_of_several_columns_collations_and_tables_without_rowid(shop, tmp_path):
    shop.run(
        "CREATE TABLE seats (flight TEXT COLLATE NOCASE, seat INTEGER, taken BOOLEAN, PRIMARY KEY (flight, seat)) "
        "WITHOUT ROWID",
        "INSERT INTO seats VALUES ('A', 1, 0), ('A', 2, 0), ('b', 1, 1)",
    )
    follower = Follower(shop, tmp_path / "log", "seats", chunk_rows=2)
    follower.install()
    follower.run()
    shop.run("UPDATE seats SET flight = 'a' WHERE seat = 2", "UPDATE seats SET flight = 'B' WHERE flight = 'b'")
    follower.run()
    assert follower.table("seats") == {("A", 1, False), ("a", 2, False), ("B", 1, True)}


@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 100])
@pytest.mark.parametrize(
    "rows",
    [
        "(NULL, NULL), (NULL, NULL), (NULL, 'x'), (NULL, 'x'), (NULL, 'x'), (NULL, 'y')",
        "(1, NULL), (1, NULL), (1, NULL), (1, 'a')",
        "(NULL, 'x')",
    ],
)
def test_rows_behind_keys_with_nulls_are_read(shop, rows, chunk_rows):
    """SQLite has such keys, and many times the same one."""
    shop.run("CREATE TABLE t (k INT, s TEXT, PRIMARY KEY (k, s))", f"INSERT INTO t VALUES {rows}, (2, 'b'), (3, 'c')")
    found, after = [], None
    with closing(sqlite3.connect(shop.path)) as db:
        table = described(db, "t")
        while not found or after is not None:
            some = chunk(db, table, table.arrow, after=after, limit=chunk_rows)
            found += [(row["k"], row["s"]) for row in some.rows.to_pylist()]
            after = some.after
        assert Counter(found) == Counter(db.execute("SELECT k, s FROM t"))


@pytest.mark.parametrize(
    "point", ["before_landing", "during_landing", "between_topics", "before_mark", "after_landing"]
)
@pytest.mark.parametrize("look", [1, 2, 4])
def test_a_crash_at_any_point_loses_and_doubles_nothing(shop, tmp_path, point, look):
    """In the first chunk, in the middle of the snapshot, and after it; rows change in between."""
    shop.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER)")
    for number in range(8):
        shop.run(
            ("INSERT INTO customers VALUES (?, 'x', 'y')", [number]), ("INSERT INTO orders VALUES (?, 1)", [number])
        )
    follower = Follower(shop, tmp_path / "log", "customers", "orders")
    follower.install()
    for each in range(1, 6):
        follower.crash_at = point if each == look else None
        shop.run("UPDATE customers SET name = name || '!'", ("DELETE FROM orders WHERE id = ?", [each]))
        try:
            follower.run(until=1)
        except Crash:
            assert each == look
    follower.run()
    assert follower.table() == shop.rows()
    assert follower.table("orders") == shop.rows("orders")


def test_a_table_is_read_anew_on_request_and_what_vanished_is_deleted(shop, tmp_path):
    shop.run("INSERT INTO customers VALUES (1, 'a', 'x'), (2, 'b', 'x'), (3, 'c', 'x'), (4, 'd', 'x')")
    follower = Follower(shop, tmp_path / "log")
    follower.install()
    follower.run()
    follower.feeds["customers"].remove()
    shop.run("DELETE FROM customers WHERE id = 2", "UPDATE customers SET city = 'y' WHERE id = 3")
    with pytest.raises(NotCapturable, match="no triggers"):
        follower.run()
    follower.install()
    with pytest.raises(ChangesLost, match="made again") as lost:
        follower.run()
    assert "headrace connect snapshot" in lost.value.hint
    request_again(follower.log, "customers")
    follower.run()
    assert follower.table() == shop.rows()
    before = follower.changes()
    follower.run()
    assert follower.changes() == before


def test_an_older_copy_of_the_database_is_noticed(shop, tmp_path):
    follower = Follower(shop, tmp_path / "log")
    follower.install()
    follower.run()
    copy = shop.path.read_bytes()
    shop.run("INSERT INTO customers VALUES (1, 'a', 'x')")
    follower.run()
    shop.path.write_bytes(copy)
    with pytest.raises(ChangesLost, match="older copy"):
        follower.run()
    request_again(follower.log, "customers")
    follower.run()
    assert follower.table() == shop.rows() == set()


def test_a_database_that_is_locked_or_away_is_tried_again(shop, tmp_path, monkeypatch):
    """The feed raises what its app tries again; nothing is landed twice when the database is back."""
    monkeypatch.setattr("headrace.connect.sqlite.capture.BUSY_SECONDS", 0.01)
    follower = Follower(shop, tmp_path / "log")
    follower.install()
    shop.run("INSERT INTO customers VALUES (1, 'a', 'x')")
    follower.run()
    shop.run("INSERT INTO customers VALUES (2, 'b', 'y')")
    with closing(sqlite3.connect(shop.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unavailable, match="database is locked"):
            follower.run()
    away = shop.path.rename(tmp_path / "away.db")
    with pytest.raises(Unavailable, match="does not answer"), connected(str(shop.path)):
        pass
    away.rename(shop.path)
    follower.run()
    assert follower.table() == shop.rows()
    assert follower.changes() == 2


def test_two_apps_read_under_two_names(shop, tmp_path):
    one, two = (Follower(shop, tmp_path / name, reader=name) for name in ("one", "two"))
    same = Follower(shop, tmp_path / "same", reader="one")
    one.install()
    one.run()
    two.run()
    shop.run("INSERT INTO customers VALUES (1, 'a', 'x')")
    one.run()
    two.run()
    assert one.table() == two.table() == shop.rows()
    same.run()
    with pytest.raises(ChangesLost, match="another app reads"):
        one.run()


def test_a_column_that_is_added_reaches_the_topic_and_rows_that_were_there(shop, tmp_path):
    shop.run("INSERT INTO customers VALUES (1, 'a', 'x'), (2, 'b', 'y')")
    follower = Follower(shop, tmp_path / "log")
    follower.install()
    follower.run()
    shop.run("ALTER TABLE customers ADD COLUMN vip INTEGER DEFAULT 7", "UPDATE customers SET vip = 1 WHERE id = 1")
    follower.log.topic("customers").evolve(follower.feeds["customers"].declares().schema)  # as the app's start does
    follower.run()
    assert follower.table() == shop.rows() == {(1, "a", "x", 1), (2, "b", "y", 7)}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["insert", "update", "delete", "key", "look"]), st.integers(0, 6), st.integers(0, 99)
        ),
        max_size=40,
    )
)
def test_any_changes_and_looks_end_in_the_same_rows(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("any")
    shop = Shop(folder / "shop.db")
    follower = Follower(shop, folder / "log", chunk_rows=2)
    follower.install()
    for what, key, value in steps:
        if what == "look":
            follower.run(until=1)
        else:
            shop.run(
                {
                    "insert": f"INSERT OR REPLACE INTO customers VALUES ({key}, 'n{value}', NULL)",
                    "update": f"UPDATE customers SET name = 'u{value}' WHERE id >= {key}",
                    "delete": f"DELETE FROM customers WHERE id = {key}",
                    "key": f"UPDATE OR IGNORE customers SET id = {key} WHERE id = {value % 7}",
                }[what]
            )
    follower.run()
    assert follower.table() == shop.rows()


@pytest.mark.parametrize("statement", ["CREATE VIEW v AS SELECT 1 AS id", "CREATE VIRTUAL TABLE v USING fts5(t)"])
def test_what_no_trigger_sees_is_refused(shop, statement):
    shop.run(statement)
    with pytest.raises(NotCapturable, match="no trigger sees"):
        sqlite.table(shop.path, "v").declares()


def test_what_cannot_be_captured_is_refused_with_what_to_do(shop, tmp_path):
    shop.run("CREATE TABLE bag (v TEXT)")
    with pytest.raises(NoPrimaryKey, match="bag"):
        sqlite.table(shop.path, "bag").declares()
    with pytest.raises(NotCapturable) as wrong:
        sqlite.table(shop.path, "customer").declares()
    assert "customers" in wrong.value.hint
    with pytest.raises(NotCapturable, match="no database"):
        sqlite.table(tmp_path / "nowhere.db", "t").declares()
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked at as one " * 20)
    with pytest.raises(NotCapturable, match="not a database"):
        sqlite.table(tmp_path / "text.db", "t").declares()
    with pytest.raises(InvalidArgument):
        sqlite.table(shop.path, 3)


def test_triggers_are_made_and_removed_without_a_trace(shop):
    source = sqlite.table(shop.path, "customers")
    before = shop.rows("sqlite_master")
    assert source.install() == "triggers of customers"
    assert source.install() is None
    assert source.remove() == "triggers of customers"
    assert source.remove() is None
    assert {row[1] for row in shop.rows("sqlite_master")} - {"sqlite_sequence"} == {row[1] for row in before}


def test_an_app_stops_where_triggers_are_missing_and_says_which_command_makes_them(shop, tmp_path):
    app = hr.App("shop", storage=tmp_path / "app")
    app.table("customers", source=sqlite.table(shop.path, "customers")).to_view("all")
    with app.start(carrier="in-process") as running, pytest.raises(FeedFailed) as failed:
        running.await_caught_up(SECONDS)
    assert "headrace connect install" in str(failed.value)


def test_progress_is_reported(shop):
    for number in range(7):
        shop.run(("INSERT INTO customers VALUES (?, '', '')", [number]))
    sqlite.table(shop.path, "customers").install()
    said = []

    class Landing:
        stored, requests = None, staticmethod(list)

        def schema(self, _topic):
            return sqlite.table(shop.path, "customers").declares().schema

        def position(self):
            return self.stored

        def has_room(self):
            return True

        def append(self, _rows, *, position):
            self.stored = position

        def report(self, **facts):
            said.append(facts)

    Capture(path=str(shop.path), reader="r", tables={"c": "customers"}, chunk_rows=3).run(Landing(), Looks(9))
    assert said[0] == {"phase": "snapshot", "table": "customers", "done": 3, "of": 7}
    assert said[-1] == {"phase": "streaming"}


def test_a_column_that_is_added_while_it_runs_reaches_the_topic(shop, tmp_path):
    shop.run("INSERT INTO customers VALUES (1, 'a', 'x'), (2, 'b', 'y')")
    follower = Follower(shop, tmp_path / "log")
    follower.install()

    class Adding(Looks):
        def is_set(self):
            if self.count == 2:
                shop.run("ALTER TABLE customers ADD COLUMN vip INTEGER DEFAULT 7")
            return super().is_set()

    follower.run(until=Adding(4))
    assert follower.table() == {(1, "a", "x", 7), (2, "b", "y", 7)}
    shop.run("ALTER TABLE customers RENAME COLUMN city TO town")
    with pytest.raises(SourceSchemaChanged, match='no column "city"'):
        follower.run(schema=follower.log.topic("customers").schema)
