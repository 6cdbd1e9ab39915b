"""RabbitMQ: queues and streams come in, exchanges go out."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pytest

import headrace as hr
from broker_cases import WRITER, Broker, BrokerCases, Filled, Gate, batch, bodies, certificate, until
from headrace.base.broker_errors import BrokerFailed, MessageTooLarge, QueueMissing
from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.outside import Unavailable
from headrace.base.schema import as_schema
from headrace.base.time import ManualClock
from headrace.testing import Driver

pika = pytest.importorskip("pika")
from headrace.connect import rabbitmq  # noqa: E402 - only where there is a client
from headrace.connect.rabbitmq import link  # noqa: E402
from headrace.connect.rabbitmq.consuming import Consumer  # noqa: E402


class Rabbit(Broker):
    """A queue of the shared RabbitMQ."""

    kind = "classic"

    def __init__(self, rabbit):
        self.rabbit = rabbit
        self.gate = Gate(rabbit.server.port)
        arguments = {} if self.kind == "classic" else {"x-queue-type": self.kind}
        rabbit.declare(**arguments)
        self.out = rabbit.declare(f"{rabbit.name}.out")

    def url(self, login="guest:guest"):
        return f"amqp://{login}@127.0.0.1:{self.gate.port}/"

    def feed(self, **options):
        return rabbitmq.queue(self.url(), self.rabbit.name, **options)

    def sink(self, **options):
        return rabbitmq.exchange(self.url(), "", routing_key=self.out, **options)

    def cut(self):
        self.gate.shut()

    def mend(self):
        self.gate.open()

    def add(self, bodies, ids=None):
        with self.rabbit.channel() as channel:
            for body, found in zip(bodies, ids or [None] * len(bodies), strict=True):
                about = pika.BasicProperties(delivery_mode=2, message_id=found)
                channel.basic_publish("", self.rabbit.name, body, about, mandatory=True)

    def taken(self):
        return [(about.message_id, body) for about, body in self.rabbit.taken(self.out)]

    def refused(self, secret):
        return rabbitmq.queue(self.url(f"guest:{secret}"), self.rabbit.name)

    def missing(self):
        return rabbitmq.queue(self.url(), "nothing")

    def missing_sink(self):
        return rabbitmq.exchange(self.url(), "nothing")


class Stream(Rabbit):
    """A stream of the shared RabbitMQ: what was read is known by its offset."""

    kind = "stream"
    has_ids = False

    def feed(self, **options):
        return rabbitmq.stream(self.url(), self.rabbit.name, **options)

    def missing(self):
        return rabbitmq.stream(self.url(), "nothing")


class TestQueue(BrokerCases):
    """A queue that is read, and one that is written to."""

    @pytest.fixture
    def broker(self, rabbit):
        broker = Rabbit(rabbit)
        yield broker
        broker.cut()


class TestStream(BrokerCases):
    """What reads a stream; its sink is that of queues."""

    @pytest.fixture
    def broker(self, rabbit):
        broker = Stream(rabbit)
        yield broker
        broker.cut()

    test_a_missing_place_to_send_to_is_named_with_the_next_move = None
    test_a_kill_in_the_middle_of_sending_gives_repetitions_the_same_ids = None
    test_a_broker_that_is_down_is_unavailable_to_a_sink_and_gets_the_epoch_later = None


def opened(sink, **step):
    step = {"schema": batch([1]).schema.remove(2), "key": None, "is_table": False, "sealed": frozenset(), **step}
    return sink.for_step(**step).open(writer=WRITER, clock=ManualClock())


@pytest.fixture
def broker(rabbit):
    broker = Rabbit(rabbit)
    yield broker
    broker.cut()


def test_metadata_of_a_message_fills_columns(broker, tmp_path):
    schema = as_schema("id int, text string, route string, sent timestamp, message string, city string, again boolean")
    metadata = {"route": "routing_key", "sent": "time", "message": "id", "city": "header:city", "again": "redelivered"}
    writer = opened(broker.sink(headers={"city": "text"}))
    writer.publish(4, iter([batch([7])]))
    writer.close()
    feed = rabbitmq.queue(broker.url(), broker.out, metadata=metadata)
    with Filled(tmp_path, schema).by(feed) as run:
        run.has([7])
        (row,) = run.rows()
    assert row["sent"] == datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)
    found = [row[name] for name in ("text", "route", "message", "city", "again")]
    assert found == ["t7", broker.out, f"{WRITER}/4/0", "t7", False]


def test_a_time_that_no_calendar_has_is_a_dead_letter(broker, tmp_path):
    columns = pa.schema([("id", pa.int32()), ("at", pa.timestamp("us", "UTC"))])
    for i, seconds in enumerate([1_700_000_000, 1_700_000_000_000_000, 1_700_000_001]):
        broker.rabbit.send(b'{"id": %d}' % i, timestamp=seconds)
    with Filled(tmp_path / "log", columns).by(broker.feed(metadata={"at": "time"})) as run:
        run.has([0, 2])
        until(lambda: run.rows("landed.dead"))
        assert "its time is no value of the column at" in run.rows("landed.dead")[0]["reason"]


def test_a_key_that_is_a_number_deletes_a_row(broker, tmp_path):
    broker.add([b'{"id": 7, "text": "t"}', b'{"id": 8, "text": "t"}'])
    broker.rabbit.send(b"", headers={"headrace-key": 7})
    with Filled(tmp_path / "log").by(broker.feed(key="id")) as run:
        until(lambda: len(run.rows()) == 3)
        assert [(row["id"], row["text"]) for row in run.rows()] == [(7, "t"), (8, "t"), (7, None)]


def test_a_table_goes_through_an_exchange_into_a_table(broker, tmp_path):
    """A deleted row is a message with its key and an empty body, which the feed reads as a deletion."""
    app = hr.App("there", storage=tmp_path / "there")
    users = app.table("users", "id int, city string", key="id")
    users.to(broker.sink())
    with Driver(app) as driver:
        driver.send("users", {"id": 1, "city": "Kiel"}, {"id": 2, "city": "Bonn"})
        driver.run()
        driver.delete("users", id=1)
        driver.send("users", {"id": 2, "city": "Ulm"})
        driver.run()
    back = hr.App("back", storage=tmp_path / "back")
    feed = rabbitmq.queue(broker.url(), broker.out, key="id")
    back.table("users", "id int, city string", key="id", source=feed).to_view("users")
    running = back.start(carrier="in-process")
    try:
        wanted = [{"id": 2, "city": "Ulm"}]
        until(lambda: back.view("users").to_pylist() == wanted, "the table is the same")
    finally:
        running.stop()
    assert broker.rabbit.waiting(broker.out) == 0


def test_a_message_that_no_queue_gets_stops_the_app_unless_it_may_be_dropped(broker):
    nowhere = partial(rabbitmq.exchange, broker.url(), "amq.direct", routing_key="nobody.{id}")
    writer = opened(nowhere())
    with pytest.raises(QueueMissing, match=r"nobody\.1") as raised:
        writer.publish(0, iter([batch([1])]))
    assert "mandatory=False" in raised.value.hint
    writer.close()
    writer = opened(nowhere(mandatory=False))
    writer.publish(0, iter([batch([1])]))
    writer.close()


def test_messages_that_come_back_just_after_the_broker_did_are_sent_again(broker):
    """It confirms and returns what is for a queue that it has not opened yet; half a minute later there is no queue."""
    clock = ManualClock()
    sink = rabbitmq.exchange(broker.url(), "amq.direct", routing_key="nobody.{id}")
    sink.prepare(clock=clock)
    writer = sink.open(writer=WRITER, clock=clock)
    broker.cut()
    with pytest.raises(Unavailable, match="does not answer"):
        writer.publish(0, iter([batch([1])]))
    broker.mend()
    with pytest.raises(Unavailable, match="answers again"):
        writer.publish(0, iter([batch([1])]))
    clock.advance(31)
    with pytest.raises(QueueMissing):
        writer.publish(0, iter([batch([1])]))
    writer.close()


def test_a_message_that_is_too_large_is_named(broker):
    writer = opened(broker.sink())
    columns = {"id": [1, 2], "text": ["short", "x" * 17_000_000]}
    with pytest.raises(MessageTooLarge, match="17,000,0") as raised:
        writer.publish(3, iter([pa.record_batch(columns)]))
    assert f"{WRITER}/3/1" in raised.value.detail
    writer.close()


def test_a_routing_key_that_is_too_long_is_named(broker):
    writer = opened(rabbitmq.exchange(broker.url(), "amq.topic", routing_key="{text}"))
    with pytest.raises(BrokerFailed, match="255 bytes at most"):
        writer.publish(0, iter([pa.record_batch({"id": [1], "text": ["ż" * 128]})]))
    writer.close()


def test_a_queue_that_is_full_gets_the_epoch_when_it_has_room(broker):
    name = broker.rabbit.declare(f"{broker.out}.full", **{"x-max-length": 2, "x-overflow": "reject-publish"})
    writer = opened(rabbitmq.exchange(broker.url(), "", routing_key=name))
    writer.publish(0, iter([batch([0, 1])]))
    with pytest.raises(hr.HeadraceError, match="did not take"):
        writer.publish(1, iter([batch([2])]))
    broker.rabbit.taken(name)
    writer.publish(1, iter([batch([2])]))
    assert [json.loads(body)["id"] for _, body in broker.rabbit.taken(name)] == [2]
    writer.close()


@pytest.mark.parametrize("reads", ["ours", "pikas"])
def test_deliveries_are_read_by_our_code_and_by_pika_where_that_is_not_called(broker, tmp_path, monkeypatch, reads):
    """And what arrives counts as a sign of life: a broker that delivers sends no heartbeat."""
    made = []

    class Seen(link.Connection):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            made.append(self)

    if reads == "ours":
        monkeypatch.setattr(Consumer, "_on_message", lambda *_: pytest.fail("pika has read it"))
    else:
        monkeypatch.delattr(link.Connection, "_on_data_available")
    monkeypatch.setattr(link, "Connection", Seen)
    broker.add([*bodies([1]), b'{"id": 2, "text": "' + b"x" * 300_000 + b'"}'], ["m1", "m2"])
    with Filled(tmp_path).by(broker.feed()) as run:
        run.has([1, 2])
        assert made[-1].bytes_received > 300_000


def test_a_queue_that_is_deleted_meanwhile_is_named(broker, tmp_path):
    broker.add(bodies([1]), ["m1"])
    with Filled(tmp_path).by(broker.feed()) as run:
        run.has([1])
        with broker.rabbit.channel() as channel:
            channel.queue_delete(broker.rabbit.name)
        until(run.failure, "it fails")
        assert isinstance(run.failure(), QueueMissing)


def test_what_is_no_queue_for_this_is_refused_for_good(broker, tmp_path):
    """A stream cannot be read as a queue is: its reader says where to begin, and no message goes away."""
    name = broker.rabbit.declare(f"{broker.rabbit.name}.other")
    with Filled(tmp_path).by(rabbitmq.stream(broker.url(), name, start=5)) as run:
        broker.add(bodies([0]))
        until(lambda: run.failure() or run.rows() or run.status()["state"] == "retrying", "something happens")
        assert isinstance(run.failure(), BrokerFailed), run.status()


def test_no_more_than_the_prefetch_is_taken_while_there_is_no_room(broker, tmp_path):
    broker.add(bodies(range(50)))
    topics = Filled(tmp_path)
    with topics.topics() as opened_topics:
        stop = threading.Event()
        landing = opened_topics.landing(topics.spec, feed="f", limit=0, read=lambda: 0)
        feed = broker.feed(prefetch=7)
        thread = threading.Thread(target=feed.run, args=(landing, stop))
        thread.start()
        until(lambda: broker.rabbit.waiting() == 43, "it takes 7")
        stop.set()
        thread.join()
        landing.close()
    until(lambda: broker.rabbit.waiting() == 50, "they are given back")


def test_a_login_and_a_place_come_from_the_environment_and_over_tls(broker, tmp_path, monkeypatch):
    monkeypatch.setenv("RABBIT_WORD", "guest")
    cert, key = certificate(tmp_path)
    gate = broker.gate = Gate(broker.rabbit.server.port, tls=(cert, key))
    url = f"amqps://guest:env:RABBIT_WORD@localhost:{gate.port}/?ca={cert}"
    writer = opened(rabbitmq.exchange(url, "", routing_key=broker.out))
    writer.publish(0, iter([batch([5])]))
    writer.close()
    feed = rabbitmq.queue(url, broker.out)
    with Filled(tmp_path / "log").by(feed) as run:
        run.has([5])
    assert feed.identity == f"rabbitmq:/:{broker.out}"


@pytest.fixture
def stream(rabbit):
    broker = Stream(rabbit)
    yield broker
    broker.cut()


@pytest.mark.parametrize(("start", "first"), [("first", 0), ("next", 5), (3, 3)])
def test_a_stream_begins_where_it_is_said_and_goes_on_from_there(stream, tmp_path, start, first):
    stream.add(bodies(range(5)))
    with Filled(tmp_path).by(stream.feed(start=start)) as run:
        until(lambda: stream.add(bodies([5])) or 5 in [row["id"] for row in run.rows()], "it reads")
        run.has(range(first, 6))
    stream.add(bodies([6]))
    schema = pa.schema([*batch([1]).schema.remove(2), ("at", pa.int64())])
    with Filled(tmp_path).by(stream.feed(start="next")) as run:
        run.has(range(first, 7))
    with Filled(tmp_path / "anew", schema).by(stream.feed(metadata={"at": "offset"})) as run:
        run.has(range(7))
        assert [row["at"] for row in run.rows()] == list(range(len(run.rows())))


def test_a_stream_begins_at_a_time(stream, tmp_path):
    stream.add(bodies([0]))
    with Filled(tmp_path).by(stream.feed(start=datetime(2020, 1, 1, tzinfo=UTC))) as run:
        run.has([0])


def test_what_a_stream_has_removed_before_it_was_read_is_said(stream, tmp_path):
    name = f"{stream.rabbit.name}.short"
    limits = {"x-queue-type": "stream", "x-max-length-bytes": 20_000, "x-stream-max-segment-size-bytes": 10_000}
    stream.rabbit.declare(name, **limits)
    feed = rabbitmq.stream(stream.url(), name)
    stream.rabbit.send(*bodies([0]), name=name)
    with Filled(tmp_path).by(feed) as run:
        run.has([0])
    for at in range(10):
        rows = [{"id": i, "text": "x" * 1_000} for i in range(10 * at + 1, 10 * at + 11)]
        stream.rabbit.send(*(json.dumps(row).encode() for row in rows), name=name)
    with Filled(tmp_path).by(feed) as run:
        until(lambda: any(row["id"] == 100 for row in run.rows()), "the last one is landed")
        ids = sorted(row["id"] for row in run.rows())
        assert ids[1] > 1, "the broker has removed some"
        assert "offsets 1 to " in run.status()["warning"]
        assert ids == [0, *range(ids[1], 101)], "the others are there once"


@pytest.mark.parametrize(
    "make",
    [
        lambda: rabbitmq.queue("http://host", "q"),
        lambda: rabbitmq.queue("amqp://host", "q", metadata={"a": "offset"}),
        lambda: rabbitmq.queue("amqp://host", "q", prefetch=0),
        lambda: rabbitmq.stream("amqp://host", "q", start="begin"),
        lambda: rabbitmq.stream("amqp://host", "q", start=-1),
        lambda: rabbitmq.exchange("amqp://host", "e", headres={}),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_declared(make):
    with pytest.raises((InvalidPlan, InvalidArgument)):
        make()
