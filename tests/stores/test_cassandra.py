"""Tables of Cassandra as sinks, on a real node. It takes up to minutes to start, so `make prove` runs them."""

from __future__ import annotations

import itertools
from datetime import date, datetime
from decimal import Decimal

import crashing_sinks
import pyarrow as pa
import pytest
from crashing_sinks import WRITER, batches, check_crashes, check_each_crash, check_zombie, for_rows

import headrace as hr
from headrace.base.errors import InvalidPlan
from headrace.base.outside import OutputLost, SinkBehind, Unavailable
from headrace.base.time import ManualClock, SystemClock
from headrace.connect.store import StoreDiffers, StoreRefused, WriterFenced
from headrace.testing import Driver

pytest.importorskip("cassandra")
from headrace.connect import cassandra

KEYSPACE = "tests"
CLOCK = ManualClock()


class Node:
    """A keyspace on the run's node."""

    def __init__(self, server):
        from cassandra.cluster import Cluster

        self.url = server.url(KEYSPACE)
        self.cluster = Cluster(["127.0.0.1"], port=server.port, connect_timeout=60)
        self.session = self.cluster.connect()
        self.session.default_timeout = 60
        self.query(f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = "
                   "{'class': 'SimpleStrategy', 'replication_factor': 1}")  # fmt: skip
        self.session.set_keyspace(KEYSPACE)

    def query(self, text):
        return list(self.session.execute(text))

    def rows(self, name):
        return [row._asdict() for row in self.query(f"SELECT * FROM {name}")]


NUMBERS = itertools.count()


@pytest.fixture
def node(cassandra_of_the_run):
    cassandra_of_the_run.start()
    made = Node(cassandra_of_the_run)
    yield made
    made.cluster.shutdown()


@pytest.fixture
def make(node, monkeypatch):
    """Fresh tables; the epochs of the kit without null keys, which Cassandra does not have."""
    whole = crashing_sinks.epochs

    def epochs(*, table):
        kept = {epoch: [row for row in rows if row[0] is not None] for epoch, rows in whole(table=table).items()}
        return {epoch: rows for epoch, rows in kept.items() if rows}

    monkeypatch.setattr(crashing_sinks, "epochs", epochs)

    def fresh():
        name = f"t{next(NUMBERS)}"
        return cassandra.table(node.url, name), lambda: node.rows(name)

    return fresh


@pytest.mark.prove
def test_a_crash_at_any_step_leaves_each_epoch_once(make):
    passed = check_each_crash(make, table=True) | check_crashes(make, table=True, upto=2)
    assert {"before_rows", "rows_written", "after_mark"} <= passed


@pytest.mark.prove
def test_an_older_writer_changes_nothing(make):
    check_zombie(make, WriterFenced, table=True)


@pytest.mark.prove
def test_what_an_older_process_still_sends_changes_nothing(make):
    """Its writes arrive after those of the newer one, and are older; also where the newer one's clock is behind."""
    sink, read = make()
    sink = for_rows(sink, table=True)
    sink.prepare(clock=CLOCK)
    old = sink.open(writer=WRITER, clock=SystemClock())
    new = sink.open(writer=WRITER, clock=ManualClock())
    assert new.base > old.base
    new.publish(0, batches([(1, "new", False), (2, None, True)], table=True))
    with pytest.raises(WriterFenced):
        old.publish(0, batches([(1, "old", False), (2, "old", False)], table=True))
    assert [(row["id"], row["text"]) for row in read()] == [(1, "new")]
    other = sink.open(writer="again/2/s", clock=ManualClock())  # another storage of the app begins with epoch 0
    other.publish(0, batches([(1, "other", False)], table=True))
    assert [row["text"] for row in read()] == ["other"]
    for each in (old, new, other):
        each.close()


@pytest.mark.prove
@pytest.mark.parametrize("name", ["", "a-b", 'a"b', "é", "x" * 223, "headrace_marks", 3])
def test_a_name_that_no_table_has_is_refused_with_the_plan(name):
    with pytest.raises(InvalidPlan, match="no name of a table"):
        cassandra.table("cassandra://h/shop", name)


def test_a_port_that_is_none_is_refused_with_the_plan():
    with pytest.raises(InvalidPlan, match="no port"):
        cassandra.table("cassandra://ada:s3cret@h:none/shop", "t")


def test_a_table_that_was_dropped_under_the_app_is_missed(node, tmp_path):
    """It is not begun anew without a word, at no later start either; another app writes to the new table."""

    def app():
        made = hr.App("shop")
        made.table("items", "id int, price int", key="id").to(cassandra.table(node.url, "dropped"))
        return made

    node.query("DROP TABLE IF EXISTS dropped")
    with Driver(app(), storage=tmp_path / "first") as driver:
        driver.send("items", {"id": 1, "price": 2})
        driver.run()
    node.query("DROP TABLE dropped")
    for _ in range(2):
        with pytest.raises(SinkBehind, match="epoch 0 was published"):
            Driver(app(), storage=tmp_path / "first")
    with Driver(app(), storage=tmp_path / "second") as driver:
        driver.send("items", {"id": 3, "price": 4})
        driver.run()
    assert node.rows("dropped") == [{"id": 3, "price": 4}]


def test_a_cluster_that_has_lost_acknowledged_writes_stops_the_app(node, make):
    sink, _ = make()
    sink = for_rows(sink, table=True)
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer=WRITER, clock=CLOCK)
    writer.publish(0, batches([(1, "a", False)], table=True))
    writer.publish(1, batches([(2, "b", False)], table=True))
    node.query(f"UPDATE headrace_marks SET epoch = 0 WHERE name = '{sink.table}' AND writer = '{WRITER}'")
    with pytest.raises(OutputLost, match="has epoch 0"):
        writer.publish(2, batches([(3, "c", False)], table=True))
    node.query(f"DELETE FROM headrace_marks WHERE name = '{sink.table}'")
    with pytest.raises(OutputLost, match="has epoch None"):
        writer.publish(2, batches([(3, "c", False)], table=True))
    writer.close()


@pytest.mark.prove
def test_what_does_not_fit_is_refused(node, make, monkeypatch):
    sink, read = make()
    sink = for_rows(sink, table=True)
    sink.prepare(clock=CLOCK)
    options = {"key": ("id",), "is_table": True, "sealed": frozenset()}
    other = sink.for_step(schema=pa.schema([("id", pa.int64()), ("more", pa.string())]), **options)
    with pytest.raises(StoreDiffers, match="other columns"):
        other.prepare(clock=CLOCK)
    with pytest.raises(StoreDiffers, match="CREATE KEYSPACE"):
        for_rows(cassandra.table(node.url.replace(KEYSPACE, "nowhere"), "t"), table=True).prepare(clock=CLOCK)
    with pytest.raises(InvalidPlan, match="no key"):
        sink.for_step(schema=pa.schema([("id", pa.int64())]), key=None, is_table=False, sealed=frozenset())
    with pytest.raises(InvalidPlan, match="milliseconds"):
        sink.for_step(schema=pa.schema([("id", pa.timestamp("us"))]), **options)
    writer = sink.open(writer=WRITER, clock=CLOCK)
    with pytest.raises(StoreRefused, match="no nulls"):
        writer.publish(0, batches([(1, "a", False), (None, "b", False)], table=True))
    assert (read(), writer.last_epoch()) == ([], -1)
    writer.close()
    monkeypatch.setattr("headrace.connect.cassandra.address.SECONDS", 2)
    with pytest.raises(Unavailable) as failed:
        for_rows(cassandra.table("cassandra://ada:s3cret@127.0.0.1:1/x", "t"), table=True).prepare(clock=CLOCK)
    assert "s3cret" not in f"{failed.value}{sink!r}"


KINDS = (
    "city string, n int, tiny tinyint, price decimal(20,4), at timestamp, day date, tags array<string>, raw binary, "
    "x double, ok boolean"
)


@pytest.mark.prove
def test_a_table_of_an_app_follows_is_compared_and_survives_a_killed_node(node, cassandra_of_the_run, tmp_path):
    """Types come back; a node that is killed and comes back has what was acknowledged; a repair goes on."""
    from headrace.engine.recovery.comparing_stores import compare_stores

    name = f"t{next(NUMBERS)}"

    def program():
        app = hr.App("shop", storage=tmp_path / "storage")
        items = app.table("items", KINDS, key=["city", "n"])
        items.to(cassandra.table(node.url, name, partition_by="city"))
        return app

    row = {"price": "12.5", "at": "2024-05-01T10:00:00.123456Z", "day": "1960-05-01", "tags": ["a", None]}
    row |= {"raw": b"\x00\xff", "tiny": -7, "ok": True}
    with Driver(program(), storage=tmp_path / "storage") as driver:
        driver.send("items", *[row | {"city": f"c{n % 3}", "n": n, "x": n / 7} for n in range(300)])
        driver.run()
        cassandra_of_the_run.kill()
        cassandra_of_the_run.start()
        driver.send("items", {"city": "c1", "n": 1, "_deleted": True}, {"city": "c2", "n": 2, "x": None})
        driver.run()
    again = Node(cassandra_of_the_run)
    found = {row["n"]: row for row in again.rows(name)}
    assert sorted(found) == [0, *range(2, 300)]
    one = found[299]
    assert (one["city"], one["tiny"], one["x"], one["ok"]) == ("c2", -7, 299 / 7, True)
    assert (one["price"], one["at"]) == (Decimal("12.5000"), datetime(2024, 5, 1, 10, 0, 0, 123000))  # noqa: DTZ001
    assert (one["day"].date(), one["tags"], one["raw"]) == (date(1960, 5, 1), '["a",null]', b"\x00\xff")
    assert found[2]["x"] is None
    (level,) = compare_stores(program(), repair=False)
    assert level.difference.count == 0
    again.query(f"DELETE FROM {name} WHERE city = 'c0' AND n = 3")
    again.query(f"UPDATE {name} SET x = 7 WHERE city = 'c1' AND n = 4")
    again.query(f"INSERT INTO {name} (city, n) VALUES ('zz', 1)")
    (found,) = compare_stores(program(), repair=True)
    assert (found.difference.missing, found.difference.other, found.difference.extra) == (1, 1, 1)
    (level,) = compare_stores(program(), repair=True)
    assert level.difference.count == 0
    with Driver(program(), storage=tmp_path / "storage") as driver:  # what a repair wrote is older than what follows
        driver.send("items", {"city": "c1", "n": 4, "x": 8.0})
        driver.run()
    assert [each.x for each in again.query(f"SELECT x FROM {name} WHERE city = 'c1' AND n = 4")] == [8.0]
    again.cluster.shutdown()
