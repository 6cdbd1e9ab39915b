"""STOMP against ActiveMQ Artemis: queues and durable topics come in, epochs go out as transactions."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from broker_cases import WRITER, Broker, BrokerCases, Filled, Gate, batch, bodies, certificate, for_rows, until
from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.outside import AccessRefused
from headrace.base.schema import as_schema
from headrace.base.time import ManualClock
from headrace.connect.messages.address import BrokerAddress

pytest.importorskip("stomp")
from headrace.connect import stomp
from headrace.connect.stomp.connection import Connection


class Queue(Broker):
    """A queue of the shared Artemis."""

    def __init__(self, server):
        self.server = server
        self.gate = Gate(server.port)
        self.name = f"t{uuid.uuid4().hex[:8]}"

    def url(self, login="ada:wonder"):
        return f"stomp://{login}@127.0.0.1:{self.gate.port}"

    def feed(self, **options):
        return stomp.queue(self.url(), self.name, **options)

    def sink(self, **options):
        return stomp.destination(self.url(), f"{self.name}.out", **options)

    def cut(self):
        self.gate.shut()

    def mend(self):
        self.gate.open()

    def add(self, bodies, ids=None, *, kind="ANYCAST", **headers):
        with closing(Connection(BrokerAddress(self.server.url()))) as connection:
            for body, found in zip(bodies, ids or [None] * len(bodies), strict=True):
                about = {"destination": self.name, "destination-type": kind, "persistent": "true", **headers}
                connection.send("SEND", about | ({"headrace-id": found} if found else {}), body)
            connection.ask("DISCONNECT", {})

    def taken(self, name=""):
        found = []
        with closing(Connection(BrokerAddress(self.server.url()))) as connection:
            about = {"id": "1", "destination": name or f"{self.name}.out", "ack": "auto"}
            connection.ask("SUBSCRIBE", about | {"subscription-type": "ANYCAST"})
            while frames := connection.messages(0.3):
                found += [(each.headers.get("headrace-id"), each.body) for each in frames]
            connection.ask("DISCONNECT", {})
        return found

    def refused(self, secret):
        return stomp.queue(self.url(f"ada:{secret}"), self.name)

    def missing(self):
        return stomp.queue(self.url(), "closed.nothing")

    def missing_sink(self):
        return stomp.destination(self.url(), "closed.nothing")


@pytest.fixture
def broker(artemis):
    broker = Queue(artemis)
    yield broker
    broker.cut()


class TestStomp(BrokerCases):
    """A queue that is read, and one that is written to."""


def test_an_epoch_is_visible_as_a_whole_or_not_at_all(broker):
    sink = for_rows(broker.sink())
    writer = sink.open(writer=WRITER, clock=ManualClock())

    def rows():
        yield batch([0, 1])
        yield batch([2])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        writer.publish(0, rows())
    assert broker.taken() == []
    writer.publish(0, iter([batch([0, 1]), batch([2])]))
    broker.server.restart()
    writer.close()
    assert [json.loads(body)["id"] for _, body in broker.taken()] == [0, 1, 2]


def test_a_durable_subscription_has_what_was_sent_meanwhile(broker, tmp_path):
    feed = stomp.topic(broker.url(), broker.name, subscription=f"{broker.name}-shop", selector="size = '2'")
    with Filled(tmp_path).by(feed) as run:
        until(lambda: run.status()["state"] == "running", "it runs")

        def arrives():
            broker.add(bodies([0]), ["m0"], kind="MULTICAST", size="2")
            return run.rows()

        until(arrives, "it is subscribed")
    broker.add(bodies([1]), ["m1"], kind="MULTICAST", size="1")
    broker.add(bodies([2]), ["m2"], kind="MULTICAST", size="2")
    with Filled(tmp_path).by(feed) as run:
        run.has([0, 2])
    assert Filled(tmp_path).ids() == [0, 2]


def test_a_selector_leaves_the_others_in_the_queue(broker, tmp_path):
    broker.add(bodies([0]), city="Kiel")
    broker.add(bodies([1]), city="Bonn")
    with Filled(tmp_path).by(broker.feed(selector="city = 'Bonn'")) as run:
        run.has([1])
    assert [json.loads(body)["id"] for _, body in broker.taken(broker.name)] == [0]


def test_metadata_of_a_message_fills_columns(broker, tmp_path):
    schema = as_schema("id int, text string, queue string, sent timestamp, city string, again boolean, message string")
    metadata = {"queue": "destination", "sent": "time", "city": "header:city", "again": "redelivered", "message": "id"}
    writer = for_rows(broker.sink(headers={"city": "text"})).open(writer=WRITER, clock=ManualClock())
    writer.publish(4, iter([batch([7])]))
    writer.close()
    with Filled(tmp_path, schema).by(stomp.queue(broker.url(), f"{broker.name}.out", metadata=metadata)) as run:
        run.has([7])
        (row,) = run.rows()
    assert row["sent"] > datetime(2026, 1, 1, tzinfo=UTC)
    found = [row[name] for name in ("queue", "city", "message")]
    assert found == [f"{broker.name}.out", "t7", f"{WRITER}/4/0"]


def test_headers_and_keys_arrive_as_they_were_whatever_they_have(broker, tmp_path):
    """Colons, ends of lines and backslashes of headers are escaped; bodies may have any byte."""
    schema = as_schema("key string, note string, body binary")
    rows = pa.record_batch({"key": ["a:b\n\\c\r", "ü"], "note": ["x:y", "\\n"], "body": [b"\0\n\n\0", b"\xff"]})
    made = stomp.destination(broker.url(), broker.name, format="binary", headers={"n": "note"}, key="key")
    sink = made.for_step(schema=schema, key=None, is_table=False, sealed=frozenset())
    with pytest.raises(InvalidPlan, match="binary"):
        sink.open(writer=WRITER, clock=ManualClock()).publish(0, iter([rows]))
    made = stomp.destination(broker.url(), broker.name, headers={"n": "note"}, key="key")
    writer = made.for_step(schema=schema, key=None, is_table=False, sealed=frozenset()).open(
        writer=WRITER, clock=ManualClock()
    )
    writer.publish(0, iter([rows]))
    writer.close()
    metadata = {"key": "key", "note": "header:n"}
    with Filled(tmp_path, schema, key=()).by(broker.feed(metadata=metadata)) as run:
        until(lambda: len(run.rows()) == 2, "both arrive")
        assert [{name: row[name] for name in schema.names} for row in run.rows()] == rows.to_pylist()


def test_a_user_without_rights_is_named(broker):
    writer = for_rows(stomp.destination(broker.url(), "secret.things")).open(writer=WRITER, clock=ManualClock())
    with pytest.raises(AccessRefused):
        writer.publish(0, iter([batch([1])]))


def test_tls_checks_the_broker(broker, tmp_path):
    cert, key = certificate(tmp_path)
    broker.gate = Gate(broker.server.port, tls=(cert, key))
    broker.add(bodies([5]))
    feed = stomp.queue(f"stomp+ssl://ada:wonder@localhost:{broker.gate.port}?ca={cert}", broker.name)
    with Filled(tmp_path / "log").by(feed) as run:
        run.has([5])
    unknown = stomp.queue(f"stomp+ssl://ada:wonder@localhost:{broker.gate.port}", broker.name)
    with Filled(tmp_path / "other").by(unknown) as run:
        until(lambda: run.status()["state"] == "retrying", "it refuses a certificate that it does not know")
        assert "certificate" in run.status()["error"].lower()


@pytest.mark.parametrize(
    "make",
    [
        lambda: stomp.queue("amqp://host", "q"),
        lambda: stomp.queue("stomp://host?cafile=x", "q"),
        lambda: stomp.queue("stomp://host", "q", metadata={"a": "offset"}),
        lambda: stomp.topic("stomp://host", "q", subscription=""),
        lambda: stomp.destination("stomp://host", "q", kind="ring"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_declared(make):
    with pytest.raises((InvalidPlan, InvalidArgument)):
        make()
