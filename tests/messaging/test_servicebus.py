"""Azure Service Bus, against a responder of our own: the SDK is real, the service is not (see service_bus.js)."""

from __future__ import annotations

import gc
import json
import uuid

import pytest

from broker_cases import WRITER, Broker, BrokerCases, Filled, Gate, batch, bodies, for_rows, until
from brokers import run_folder
from headrace.base.broker_errors import BrokerFailed
from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.schema import as_schema
from headrace.base.time import ManualClock

# a connection that the SDK could not open, it leaves to the collector of garbage: see `collected`
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
azure = pytest.importorskip("azure.servicebus")
from headrace.connect import servicebus  # noqa: E402 - only where there is a client


@pytest.fixture(autouse=True)
def collected():
    """Let the collector come here, where its warnings are ignored, and in no other test."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def servicebus_of_the_run(tmp_path_factory):
    from scripts.broker.servers import shared
    from scripts.servers.packages import Unavailable
    from scripts.servers.service_bus import ServiceBus

    server = ServiceBus(shared(run_folder(tmp_path_factory), "servicebus"))
    try:
        server.start()
    except Unavailable as reason:
        server.servers.leave()
        pytest.skip(f"nothing answers as Service Bus: {reason}")
    yield server
    server.servers.leave()


class Queue(Broker):
    """A queue of the responder."""

    def __init__(self, server):
        self.server = server
        self.gate = Gate(server.port)
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.out = f"{self.name}.out"

    def connection(self, **other):
        return self.server.connection_string(port=self.gate.port, **other)

    def feed(self, **options):
        return servicebus.queue(self.connection(), self.name, **options)

    def sink(self, **options):
        return servicebus.sender(self.connection(), self.out, **options)

    def cut(self):
        self.gate.shut()

    def mend(self):
        self.gate.open()

    def named(self, name):
        self.name, self.out = f"{name}{self.name}", f"{name}{self.out}"
        return self

    def client(self):
        return azure.ServiceBusClient.from_connection_string(self.server.connection_string(), retry_total=0)

    def add(self, bodies, ids=None, **about):
        with self.client() as client, client.get_queue_sender(self.name) as sender:
            for body, found in zip(bodies, ids or [None] * len(bodies), strict=True):
                sender.send_messages(azure.ServiceBusMessage(body, message_id=found, **about))

    def bury(self, reason, **about):
        """Move the first message of the queue to its dead letters, as a consumer that refuses it does."""
        with self.client() as client, client.get_queue_receiver(self.name, **about) as receiver:
            (message,) = receiver.receive_messages(max_message_count=1, max_wait_time=30)
            receiver.dead_letter_message(message, reason=reason, error_description=f"it is {reason}")

    def taken(self, name="", **about):
        found = []
        with self.client() as client, client.get_queue_receiver(name or self.out, **about) as receiver:
            while some := receiver.receive_messages(max_message_count=100, max_wait_time=0.5):
                for each in some:
                    found.append((each.message_id, b"".join(each.body)))
                    receiver.complete_message(each)
        return found

    def refused(self, secret):
        return servicebus.queue(self.connection(key=secret), self.name)

    def missing(self):
        return servicebus.queue(self.connection(), "missing")

    def missing_sink(self):
        return "the SDK takes the responder's refusal of a sender's link for a lost connection"


@pytest.fixture
def broker(servicebus_of_the_run):
    servicebus_of_the_run.start()
    broker = Queue(servicebus_of_the_run)
    yield broker
    broker.cut()


@pytest.mark.prove
class TestServiceBus(BrokerCases):
    """A queue that is read, and one that is written to."""


def test_a_queue_that_detects_duplicates_has_an_epoch_once(broker):
    broker.out = f"once{broker.out}"
    writer = for_rows(broker.sink()).open(writer=WRITER, clock=ManualClock())
    for _ in range(2):
        writer.publish(0, iter([batch([0, 1]), batch([2])]))
    writer.close()
    assert [found for found, _ in broker.taken()] == [f"{WRITER}/0/{n}" for n in range(3)]


def test_sessions_are_received_one_after_the_other_each_in_order(broker, tmp_path):
    """Also those of another one's: what it holds is received when it gives it back."""
    broker.named("sessions")
    for first, session in enumerate("abc"):
        broker.add(bodies(range(first, 30, 3)), session_id=session)
    schema = as_schema("id int, session string")
    with (
        broker.client() as client,
        Filled(tmp_path, schema).by(broker.feed(sessions=True, prefetch=4, metadata={"session": "session"})) as run,
    ):
        with client.get_queue_receiver(broker.name, session_id="c", max_wait_time=30):
            until(lambda: len(run.rows()) == 20, "two sessions are landed")
            assert {row["session"] for row in run.rows()} == {"a", "b"}
        broker.add(bodies([30]), session_id="a")
        until(lambda: len(run.rows()) == 31, "all are landed")
        rows = run.rows()
    for first, session in enumerate("abc"):
        assert [row["id"] for row in rows if row["session"] == session] == list(
            range(first, 31 if session == "a" else 30, 3)
        )


def test_a_key_is_the_session_that_a_message_is_sent_to(broker):
    broker.named("sessions")
    writer = for_rows(broker.sink(sessions=True, key="text")).open(writer=WRITER, clock=ManualClock())
    writer.publish(0, iter([batch([0, 1])]))
    writer.close()
    found = broker.taken(session_id="t1", max_wait_time=30)
    assert [json.loads(body)["id"] for _, body in found] == [1]


@pytest.mark.parametrize(("name", "sessions"), [("sessions", False), ("plain", True)])
def test_sessions_that_do_not_fit_are_named(broker, tmp_path, name, sessions):
    broker.named(name)
    with Filled(tmp_path).by(broker.feed(sessions=sessions)) as run:
        until(run.failure, "it fails")
        assert isinstance(run.failure(), BrokerFailed)
        assert "sessions=True" in run.failure().hint


@pytest.mark.parametrize("about", [{}, {"session_id": "a"}], ids=["plain", "sessions"])
def test_dead_letters_are_received_with_their_reasons(broker, tmp_path, about):
    broker.named("sessions" if about else "plain")
    broker.add(bodies([0, 1]), ["m0", "m1"], **about)
    broker.bury("spoilt", **about)
    schema = as_schema("id int, why string, more string, message string")
    metadata = {"why": "dead_letter_reason", "more": "dead_letter_description", "message": "id"}
    with Filled(tmp_path, schema).by(broker.feed(dead_letter=True, metadata=metadata)) as run:
        run.has([0])
        (row,) = run.rows()
    assert [row[name] for name in ("why", "more", "message")] == ["spoilt", "it is spoilt", "m0"]
    assert [found for found, _ in broker.taken(broker.name, **about)] == ["m1"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: servicebus.queue("env:X", "q", sessions=True, dead_letter=True),
        lambda: servicebus.queue("sb://host", "q"),
        lambda: servicebus.queue("env:X", "q", metadata={"a": "offset"}),
        lambda: servicebus.subscription("env:X", "t", "s", prefetch=0),
        lambda: servicebus.sender("env:X", "q", headres={}),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_declared(make):
    with pytest.raises((InvalidPlan, InvalidArgument)):
        make()


def test_a_connection_string_of_the_environment_is_named_where_it_is_not_there(monkeypatch):
    monkeypatch.delenv("NO_BUS", raising=False)
    sink = for_rows(servicebus.sender("env:NO_BUS", "q"))
    with pytest.raises(InvalidPlan, match=r"\$NO_BUS"):
        sink.open(writer=WRITER, clock=ManualClock()).publish(0, iter([batch([1])]))
    assert sink.where == '"q" of the Service Bus at $NO_BUS'
