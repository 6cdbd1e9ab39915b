"""AMQP 1.0 against ActiveMQ Artemis: queues and durable topics come in, epochs go out as transactions."""

from __future__ import annotations

import json
import uuid
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pytest

from broker_cases import WRITER, Broker, BrokerCases, Filled, Gate, batch, bodies, certificate, for_rows, until
from headrace.base.broker_errors import BrokerFailed, QueueMissing
from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.outside import AccessRefused
from headrace.base.schema import as_schema
from headrace.base.time import ManualClock
from headrace.connect.messages.address import BrokerAddress

proton = pytest.importorskip("proton")
from headrace.connect import amqp  # noqa: E402 - only where there is a client
from headrace.connect.amqp.connection import Connection  # noqa: E402 - the same


class Queue(Broker):
    """A queue of the shared Artemis."""

    options: dict[str, object] = {}  # noqa: RUF012 -- of the sink

    def __init__(self, server):
        self.server = server
        self.gate = Gate(server.port)
        self.name = f"t{uuid.uuid4().hex[:8]}"

    def url(self, login="ada:wonder"):
        return f"amqp://{login}@127.0.0.1:{self.gate.port}"

    def feed(self, **options):
        return amqp.queue(self.url(), self.name, **options)

    def sink(self, **options):
        return amqp.destination(self.url(), f"{self.name}.out", **self.options, **options)

    def cut(self):
        self.gate.shut()

    def mend(self):
        self.gate.open()

    @contextmanager
    def connection(self):
        with closing(Connection(BrokerAddress(f"amqp://ada:wonder@127.0.0.1:{self.server.port}"))) as connection:
            yield connection

    def add(self, bodies, ids=None, *, kind="queue", **properties):
        with self.connection() as connection:
            sender = connection.session.sender("test")
            sender.target.address = self.name
            sender.target.capabilities.put_object(proton.symbol(kind))
            connection.attach(sender)
            for body, found in zip(bodies, ids or [None] * len(bodies), strict=True):
                message = proton.Message(body, id=found, durable=True, properties=properties or None)
                message.inferred = isinstance(body, bytes)
                connection.until(lambda: sender.credit > 0, "credit")
                delivery = message.send(sender)
                connection.until(lambda: delivery.settled, "an answer")  # noqa: B023 -- at once
                assert delivery.remote_state == proton.Delivery.ACCEPTED

    def taken(self, name=""):
        return [(message.id, bytes(message.body)) for message in self.messages(name)]

    def messages(self, name=""):
        found = []
        with self.connection() as connection:
            receiver = connection.session.receiver("test")
            receiver.source.address = name or f"{self.name}.out"
            receiver.source.capabilities.put_object(proton.symbol("queue"))
            connection.attach(receiver)
            receiver.flow(1_000)
            while connection.work(0.3):
                while (delivery := receiver.current) is not None and not delivery.partial:
                    message = proton.Message()
                    message.decode(receiver.recv(delivery.pending))
                    receiver.advance()
                    found.append(message)
                    delivery.update(proton.Delivery.ACCEPTED)
                    delivery.settle()
        return found

    def refused(self, secret):
        return amqp.queue(self.url(f"ada:{secret}"), self.name)

    def missing(self):
        return amqp.queue(self.url(), "closed.nothing")

    def missing_sink(self):
        return amqp.destination(self.url(), "closed.nothing")


class Once(Queue):
    """The same, written to with Artemis' detection of duplicates."""

    options = {"exactly_once": True}  # noqa: RUF012 -- see above


@pytest.fixture
def broker(artemis):
    broker = Queue(artemis)
    yield broker
    broker.cut()


class TestAmqp(BrokerCases):
    """A queue that is read, and one that is written to."""


def opened(sink):
    return for_rows(sink).open(writer=WRITER, clock=ManualClock())


def rows_then_failure():
    yield batch([0, 1])
    yield batch([2])
    raise ZeroDivisionError


def test_an_epoch_is_visible_as_a_whole_or_not_at_all(broker):
    writer = opened(broker.sink())
    with pytest.raises(ZeroDivisionError):
        writer.publish(0, rows_then_failure())
    assert broker.taken() == []
    writer.publish(0, iter([batch([0, 1]), batch([2])]))
    writer.close()
    assert [json.loads(body)["id"] for _, body in broker.taken()] == [0, 1, 2]


def test_without_transactions_an_epoch_is_published_when_all_of_it_is_accepted(broker):
    writer = opened(broker.sink(transactions=False))
    with pytest.raises(ZeroDivisionError):
        writer.publish(0, rows_then_failure())
    assert [json.loads(body)["id"] for _, body in broker.taken()] == [0, 1, 2]
    writer.publish(0, iter([batch([0, 1]), batch([2])]))
    writer.close()
    assert [found for found, _ in broker.taken()] == [f"{WRITER}/0/{n}" for n in range(3)]


@pytest.mark.parametrize("size", [1, 300_000])
def test_an_epoch_that_is_sent_again_is_recognised_by_artemis(broker, size):
    """Also after Artemis was killed, by another writer of the same name, and where the message is a large one there."""
    once = Once(broker.server)
    rows = [pa.record_batch({"id": pa.array([0, 1], pa.int32()), "text": ["x" * size, "y"]})]
    writer = opened(once.sink())
    assert once.sink().guarantee == "exactly_once"
    writer.publish(7, iter(rows))
    writer.close()
    if size == 1:
        once.server.restart()
    writer = opened(once.sink())
    writer.publish(7, iter(rows))
    writer.publish(8, iter([batch([2])]))
    writer.publish(8, iter([batch([2])]))
    writer.close()
    assert [json.loads(body)["id"] for _, body in once.taken()] == [0, 1, 2]
    once.cut()


def test_rows_go_to_the_addresses_that_they_name(broker):
    writer = opened(amqp.destination(broker.url(), f"{broker.name}.{{text}}", exactly_once=True))
    for _ in range(2):
        writer.publish(0, iter([batch([0, 1])]))
    writer.close()
    found = [[json.loads(body)["id"] for _, body in broker.taken(f"{broker.name}.t{n}")] for n in range(2)]
    assert found == [[0], [1]]


@pytest.mark.parametrize("transactions", [True, False])
def test_an_address_that_is_missing_is_named_also_where_rows_name_it(broker, transactions):
    writer = opened(amqp.destination(broker.url(), "closed.{text}", transactions=transactions))
    with pytest.raises(QueueMissing):
        writer.publish(0, iter([batch([0])]))


def test_a_durable_subscription_has_what_was_sent_meanwhile(broker, tmp_path):
    feed = amqp.topic(broker.url(), broker.name, subscription=f"{broker.name}-shop", selector="size = 2")
    with Filled(tmp_path).by(feed) as run:
        until(lambda: run.status()["state"] == "running", "it runs")

        def arrives():
            broker.add(bodies([0]), ["m0"], kind="topic", size=2)
            return run.rows()

        until(arrives, "it is subscribed")
    broker.add(bodies([1]), ["m1"], kind="topic", size=1)
    broker.add(bodies([2]), ["m2"], kind="topic", size=2)
    with Filled(tmp_path).by(feed) as run:
        run.has([0, 2])
    assert Filled(tmp_path).ids() == [0, 2]


def test_a_topic_is_written_to(broker, tmp_path):
    feed = amqp.topic(broker.url(), f"{broker.name}.out", subscription=f"{broker.name}-shop")
    writer = opened(broker.sink(kind="topic"))
    with Filled(tmp_path).by(feed) as run:
        until(lambda: run.status()["state"] == "running", "it runs")

        def arrives():
            writer.publish(0, iter([batch([5])]))
            return run.rows()

        until(arrives, "it is subscribed")
        run.has([5])
    writer.close()


def test_a_selector_leaves_the_others_in_the_queue(broker, tmp_path):
    broker.add(bodies([0]), size=1)
    broker.add(bodies([1]), size=7)
    with Filled(tmp_path).by(broker.feed(selector="size > 5")) as run:
        run.has([1])
    assert [json.loads(body)["id"] for _, body in broker.taken(broker.name)] == [0]


def test_a_selector_that_is_none_is_named(broker, tmp_path):
    with Filled(tmp_path).by(broker.feed(selector="size >")) as run:
        until(run.failure, "it fails")
        assert isinstance(run.failure(), BrokerFailed)


def test_metadata_of_a_message_fills_columns(broker, tmp_path):
    schema = as_schema("id int, text string, queue string, sent timestamp, city string, failed int, message string")
    metadata = {"queue": "address", "sent": "time", "city": "header:city", "failed": "failed_deliveries"}
    writer = opened(broker.sink(headers={"city": "text"}))
    writer.publish(4, iter([batch([7])]))
    writer.close()
    feed = amqp.queue(broker.url(), f"{broker.name}.out", metadata={"message": "id", **metadata})
    with Filled(tmp_path, schema).by(feed) as run:
        run.has([7])
        (row,) = run.rows()
    assert row["sent"] == datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)
    assert [row[name] for name in ("queue", "city", "failed", "message")] == [
        *(f"{broker.name}.out", "t7", 0, f"{WRITER}/4/0"),
    ]


@pytest.mark.parametrize("body", [b'{"id": 3}', '{"id": 3}', {"id": 3}], ids=["data", "text", "map"])
def test_bodies_are_read_as_the_types_that_senders_give_them(broker, tmp_path, body):
    broker.add([body], [uuid.UUID(int=3)])
    with Filled(tmp_path).by(broker.feed()) as run:
        run.has([3])


def test_a_message_in_another_protocol_is_known_by_its_id(broker, tmp_path):
    """A program that sends by STOMP, and sends again."""
    pytest.importorskip("stomp")
    from headrace.connect import stomp

    sink = stomp.destination(f"stomp://ada:wonder@127.0.0.1:{broker.server.port}", broker.name)
    writer = opened(sink)
    for _ in range(2):
        writer.publish(0, iter([batch([4])]))
    writer.close()
    with Filled(tmp_path).by(broker.feed()) as run:
        run.has([4])
        until(lambda: run.status().get("repeated") == 1, "it is counted")


def test_a_user_without_rights_is_named(broker):
    for name in ("secret.things", "secret.{text}"):
        with pytest.raises(AccessRefused):
            opened(amqp.destination(broker.url(), name)).publish(0, iter([batch([1])]))


def test_tls_checks_the_broker(broker, tmp_path):
    cert, key = certificate(tmp_path)
    broker.gate = Gate(broker.server.port, tls=(cert, key))
    broker.add(bodies([5]))
    url = f"amqps://ada:wonder@localhost:{broker.gate.port}"
    with Filled(tmp_path / "log").by(amqp.queue(f"{url}?ca={cert}", broker.name)) as run:
        run.has([5])
    with Filled(tmp_path / "other").by(amqp.queue(url, broker.name)) as run:
        until(lambda: run.status()["state"] == "retrying", "it refuses a certificate that it does not know")
        assert "certificate" in run.status()["error"].lower()


@pytest.mark.parametrize(
    "make",
    [
        partial(amqp.queue, "stomp://host", "q"),
        partial(amqp.queue, "amqp://host?cafile=x", "q"),
        partial(amqp.queue, "amqp://host", "q", metadata={"a": "offset"}),
        partial(amqp.queue, "amqp://host", "q", prefetch=0),
        partial(amqp.topic, "amqp://host", "q", subscription=""),
        partial(amqp.destination, "amqp://host", "q", kind="ring"),
        partial(amqp.destination, "amqp://host", "q", exactly_once=True, transactions=False),
        partial(amqp.destination, "amqp://host", "q", exactly_once=True, headers={"_AMQ_DUPL_ID": "id"}),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_declared(make):
    with pytest.raises((InvalidPlan, InvalidArgument)):
        make()


def test_what_a_broker_does_not_have_is_named(broker, monkeypatch):
    from headrace.connect.amqp import connection

    monkeypatch.setattr(connection.Connection, "product", "another")
    with pytest.raises(BrokerFailed, match="Artemis"):
        opened(broker.sink(exactly_once=True)).publish(0, iter([batch([1])]))
    monkeypatch.setattr(connection.Connection, "offers", frozenset())
    with pytest.raises(BrokerFailed, match="one address"):
        opened(amqp.destination(broker.url(), "{text}")).publish(0, iter([batch([1])]))
