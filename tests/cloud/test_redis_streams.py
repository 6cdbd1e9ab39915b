"""Streams of Redis, in and out, on a real server."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest

import headrace as hr
from broker_cases import WRITER, Broker, BrokerCases, Filled, Gate, batch, bodies, for_rows, killed, until
from broker_proof import kills_and_restarts
from headrace.base.broker_errors import BrokerFailed, PositionLost
from headrace.base.errors import InvalidArgument
from headrace.base.outside import OutputLost
from headrace.base.time import ManualClock
from headrace.connect.store import WriterFenced
from headrace.testing import check_sink

redis = pytest.importorskip("redis")
from headrace.connect import redis as streams  # noqa: E402 - only where there is a client


class Outside(Broker):
    """A stream of a real server; feed and sink reach it through a gate. `group`: the feed reads as its member."""

    has_ids = False  # what is read again has its own id

    def __init__(self, server, group=None):
        self.server, self.group = server, group
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.gate = Gate(server.port)
        self.client = redis.Redis(port=server.port)
        self.client.flushall()  # other tests have writers of the same name
        self.seen = "0"

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.gate.port}/0"

    def feed(self, **options):
        return streams.stream(self.url, self.name, **{"group": self.group, "field": "value", **options})

    def sink(self, **options):
        return streams.entries(self.url, f"{self.name}-out", **{"field": "value", **options})

    def add(self, bodies, ids=None):
        with self.client.pipeline(transaction=False) as many:
            for each, body in zip(ids or [None] * len(bodies), bodies, strict=True):
                many.xadd(self.name, {"value": body, **({"headrace-id": each} if each else {})})
            many.execute()

    def entries(self):
        found = self.client.xrange(f"{self.name}-out", f"({self.seen}")
        self.seen = found[-1][0].decode() if found else self.seen
        return [fields for _, fields in found]

    def taken(self):
        return [(fields[b"headrace-id"].decode(), fields[b"value"]) for fields in self.entries()]

    def cut(self):
        self.gate.shut()

    def mend(self):
        self.gate.open()

    def refused(self, secret):
        self.client.execute_command("ACL", "SETUSER", "ada", "on", ">right", "~*", "+@all")
        return streams.stream(f"redis://ada:{secret}@127.0.0.1:{self.server.port}/0", self.name)

    def missing(self):
        return "a stream begins with its first entry"

    def close(self):
        self.gate.shut()
        self.client.close()


@pytest.fixture
def broker(redis_of_the_run):
    redis_of_the_run.start()
    outside = Outside(redis_of_the_run)
    yield outside
    outside.close()


@pytest.fixture
def grouped(redis_of_the_run):
    redis_of_the_run.start()
    outside = Outside(redis_of_the_run, group="readers")
    yield outside
    outside.close()


class TestRedisStreams(BrokerCases):
    """The cases of all brokers."""


@pytest.mark.parametrize("point", [pytest.param("before_landing", marks=pytest.mark.prove), "after_landing"])
def test_a_member_of_a_group_lands_what_it_had_not_acknowledged_first(grouped, tmp_path, point):
    grouped.add(bodies(range(20)))
    killed(grouped.feed(), point, tmp_path)
    grouped.add(bodies(range(20, 30)))
    filled = Filled(tmp_path / "log")
    with filled.by(grouped.feed()) as run:
        run.has(range(30))
        until(lambda: not grouped.client.xpending(grouped.name, "readers")["pending"], "all are acknowledged")
    assert filled.ids() == list(range(30))


def test_an_entry_that_another_member_had_is_landed_though_later_ones_were(grouped, tmp_path):
    """It is claimed for this member, as operators do for one that died; what was landed before is not repeated."""
    grouped.add(bodies([0]))
    grouped.client.xgroup_create(grouped.name, "readers", id="0")
    grouped.client.xreadgroup("readers", "another", {grouped.name: ">"})
    grouped.add(bodies(range(1, 10)))
    killed(grouped.feed(), "after_landing", tmp_path)
    (claimed,) = grouped.client.xpending_range(grouped.name, "readers", "-", "+", 1, "another")
    grouped.client.xclaim(grouped.name, "readers", "headrace", 0, [claimed["message_id"]])
    filled = Filled(tmp_path / "log")
    with filled.by(grouped.feed()) as run:
        run.has(range(10))
        until(lambda: not grouped.client.xpending(grouped.name, "readers")["pending"], "all are acknowledged")
    assert sorted(filled.ids()) == list(range(10))


def test_an_entry_that_was_deleted_while_it_was_pending_is_a_dead_letter(grouped, tmp_path):
    grouped.add(bodies(range(3)))
    killed(grouped.feed(), "before_landing", tmp_path)
    pending = grouped.client.xrange(grouped.name)
    grouped.client.xdel(grouped.name, pending[1][0])
    with Filled(tmp_path / "log").by(grouped.feed()) as run:
        run.has([0, 2])
        (letter,) = run.rows("landed.dead")
        assert pending[1][0].decode() in letter["reason"]


def test_it_is_a_sink(broker):
    class Kept:
        sink = for_rows(broker.sink())
        rows = []  # noqa: RUF012 - of this test alone

        def read(self):
            self.rows.extend(json.loads(body) for _, body in broker.taken())
            return self.rows

    check_sink(Kept)


def test_a_large_epoch_that_was_cut_is_added_once(broker):
    """A writer that dies between two calls of the script; a fenced one adds nothing."""
    sink = for_rows(broker.sink())

    def cut():
        yield batch(range(1_500))
        raise ConnectionError("dead")

    old = sink.open(writer=WRITER, clock=ManualClock())
    with pytest.raises(ConnectionError):
        old.publish(0, cut())
    assert len(broker.taken()) == 1_500
    writer = sink.open(writer=WRITER, clock=ManualClock())
    assert writer.last_epoch() == -1
    writer.publish(0, iter([batch(range(1_500)), batch(range(1_500, 2_500))]))
    assert [json.loads(body)["id"] for _, body in broker.taken()] == list(range(1_500, 2_500))
    with pytest.raises(WriterFenced):
        old.publish(1, iter([batch([7])]))
    broker.client.delete(f"_headrace:{WRITER}")
    with pytest.raises(OutputLost):
        writer.publish(1, iter([batch([7])]))
    assert broker.taken() == []


def test_fields_are_columns_and_an_app_reads_and_writes(broker, tmp_path):
    app = hr.App("redis", storage=tmp_path, shards=1)
    known = {"entry": "entry", "added": "time"}
    rows = app.stream(
        "landed", "sensor string, celsius double, n int, entry string, added timestamp", event_time="added",
        source=broker.feed(field=None, metadata=known),
    )  # fmt: skip
    rows.select("sensor", "celsius", "n").to(broker.sink(field=None, key="sensor", most=1_000))
    name = broker.client.xadd(broker.name, {"sensor": "a", "celsius": "20.5", "n": "3", "other": "x"})
    broker.client.xadd(broker.name, {"sensor": "b"})
    found = []
    with app.start(carrier="in-process"):
        until(lambda: found.extend(broker.entries()) or len(found) == 2, "both are added")
        assert b"-" in name
    first, second = [{key.decode(): value.decode() for key, value in each.items()} for each in found]
    assert {key: first[key] for key in ("sensor", "celsius", "n", "headrace-key")} == {
        "sensor": "a", "celsius": "20.5", "n": "3", "headrace-key": "a",
    }  # fmt: skip
    assert set(second) == {"sensor", "headrace-key", "headrace-id"}


def test_a_stream_that_ends_before_what_was_read_is_refused(broker, tmp_path):
    filled = Filled(tmp_path)
    broker.add(bodies([0]))
    with filled.by(broker.feed()) as run:
        run.has([0])
    broker.client.delete(broker.name)
    broker.client.xadd(broker.name, {"value": b"{}"}, id="1-1")
    with filled.by(broker.feed()) as run:
        until(run.failure, "it fails")
        assert isinstance(run.failure(), PositionLost)


def test_entries_that_were_deleted_before_they_were_read_are_a_dead_letter(broker, tmp_path):
    filled = Filled(tmp_path)
    broker.add(bodies([0]))
    with filled.by(broker.feed()) as run:
        run.has([0])
    broker.add(bodies([1, 2, 3]))
    broker.client.xdel(broker.name, broker.client.xrange(broker.name)[2][0])
    for _ in range(2):
        with filled.by(broker.feed()) as run:
            run.has([0, 1, 3])
            assert len(run.rows("landed.dead")) == 1


def test_a_new_feed_begins_where_it_is_told(broker, tmp_path):
    broker.add(bodies([0]))
    filled = Filled(tmp_path)
    with filled.by(broker.feed(start="new")):
        until((tmp_path / "landings" / "landed").exists, "it has begun")
    broker.add(bodies([1]))
    with filled.by(broker.feed(start="new")) as run:
        run.has([1])


def test_a_key_that_is_no_stream_is_named(broker, tmp_path):
    broker.client.set(broker.name, "text")
    with Filled(tmp_path).by(broker.feed()) as run:
        until(run.failure, "it fails")
        assert isinstance(run.failure(), BrokerFailed)


@pytest.mark.prove
@pytest.mark.parametrize("group", [None, "readers"])
def test_kills_and_restarts_lose_nothing_and_repeat_nothing(redis_of_the_run, tmp_path, group):
    """100,000 entries, ten kills of ours, two of theirs."""
    broker = Outside(redis_of_the_run, group)
    kills_and_restarts(broker, Restarts(redis_of_the_run), tmp_path, messages=100_000, kills=10, restarts=2)
    broker.close()


class Restarts:
    """Kills Redis, which has written its log of commands, and starts it."""

    def __init__(self, server):
        self.server = server

    def restart(self):
        self.server.kill()
        self.server.start()


def test_names_and_options_are_checked():
    for wrong in ({"stream": ""}, {"group": ""}, {"consumer": ""}, {"start": "later"}):
        with pytest.raises(InvalidArgument):
            streams.stream("redis://h", **{"stream": "s", **wrong})
    with pytest.raises(InvalidArgument):
        streams.entries("redis://h", "s", most=0)
    assert pa.schema([]) == streams.entries("redis://h", "s").columns


def test_columns_that_are_fields_have_the_text_that_json_has(broker):
    rows = pa.record_batch(
        {
            "price": pa.array([Decimal("1234567890123456789012345678.1234567890"), None], pa.decimal128(38, 10)),
            "tags": pa.array([["a b", "null"], []], pa.list_(pa.string())),
            "text": ["null", "1.10"],
        }
    )
    sink = broker.sink(field=None).for_step(schema=rows.schema, key=None, is_table=False, sealed=frozenset())
    writer = sink.open(writer=WRITER, clock=ManualClock())
    writer.publish(0, iter([rows]))
    writer.close()
    found = [{name.decode(): text.decode() for name, text in fields.items()} for fields in broker.entries()]
    assert [(each.get("price"), json.loads(each["tags"]), each["text"]) for each in found] == [
        ("1234567890123456789012345678.1234567890", ["a b", "null"], "null"),
        (None, [], "1.10"),
    ]


def test_ids_of_entries_that_are_no_times_stop_nothing(broker, tmp_path):
    """Senders may number entries by anything, as nanoseconds."""
    for i, name in enumerate(["7-1", "1700000000000-0", "1700000000000000000-0"]):
        broker.client.xadd(broker.name, {"id": i, "text": "t"}, id=name)
    with Filled(tmp_path / "plain").by(broker.feed(field=None)) as run:
        run.has(range(3))
    columns = pa.schema([("id", pa.int32()), ("at", pa.timestamp("us", "UTC"))])
    with Filled(tmp_path / "timed", columns).by(broker.feed(field=None, metadata={"at": "time"})) as run:
        run.has(range(2))
        until(lambda: run.rows("landed.dead"))
        assert "its time is no value of the column at" in run.rows("landed.dead")[0]["reason"]
