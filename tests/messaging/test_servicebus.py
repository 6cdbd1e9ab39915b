"""Azure Service Bus, against a responder of our own: the SDK is real, the service is not (see service_bus.js)."""

from __future__ import annotations

import gc
import uuid

import pytest

from broker_cases import WRITER, Broker, BrokerCases, Gate, batch, for_rows
from brokers import run_folder
from headrace.base.errors import InvalidArgument, InvalidPlan
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

    def client(self):
        return azure.ServiceBusClient.from_connection_string(self.server.connection_string(), retry_total=0)

    def add(self, bodies, ids=None, **about):
        with self.client() as client, client.get_queue_sender(self.name) as sender:
            for body, found in zip(bodies, ids or [None] * len(bodies), strict=True):
                sender.send_messages(azure.ServiceBusMessage(body, message_id=found, **about))

    def taken(self, name=""):
        found = []
        with self.client() as client, client.get_queue_receiver(name or self.out) as receiver:
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


@pytest.mark.parametrize(
    "make",
    [
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
