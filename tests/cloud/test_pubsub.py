"""Google Cloud Pub/Sub, in and out, as Google's own fake plays it."""

from __future__ import annotations

import json
import threading
import uuid
from datetime import UTC, datetime

import grpc
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import headrace as hr
from broker_cases import WRITER, Broker, BrokerCases, Filled, Gate, batch, bodies, for_rows, until
from broker_proof import kills_and_restarts
from headrace.base.broker_errors import LoginRefused, MessageTooLarge
from headrace.base.errors import InvalidArgument
from headrace.base.outside import Unavailable
from headrace.base.time import ManualClock
from headrace.testing import check_sink

pytest.importorskip("google.pubsub_v1")
from google.pubsub_v1.types import PubsubMessage

from headrace.connect import pubsub
from headrace.connect.pubsub.service import PubSubService

pytestmark = pytest.mark.filterwarnings("ignore:The return_immediately flag:DeprecationWarning")


class Outside(Broker):
    """A topic with a subscription, and another one for the sink; feed and sink reach them through a gate."""

    has_ids = False  # Pub/Sub gives each message another id, also one that is sent again

    def __init__(self, server, **more):
        self.server = server
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.gate = Gate(server.port)
        place = PubSubService(path="", endpoint=f"http://{server.url()}", credentials=None)
        self.publisher, self.subscriber = place.publisher(), place.subscriber()
        for name in (self.name, f"{self.name}-out"):
            self.publisher.create_topic(name=self.path("topics", name))
            request = {"name": self.path("subscriptions", name), "topic": self.path("topics", name), **more}
            self.subscriber.create_subscription(request=request)

    def path(self, kind, name):
        return f"projects/p/{kind}/{name}"

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.gate.port}"

    def feed(self, **options):
        path = self.path("subscriptions", self.name)
        return pubsub.subscription(path, endpoint=self.endpoint, lease="10 seconds", **options)

    def sink(self, **options):
        return pubsub.topic(self.path("topics", f"{self.name}-out"), endpoint=self.endpoint, **options)

    def add(self, bodies, ids=None, *, key=""):
        for at in range(0, len(bodies), 500):
            messages = [
                PubsubMessage(data=body, ordering_key=key, attributes={"headrace-id": each} if each else {})
                for body, each in zip(bodies[at : at + 500], (ids or [None] * len(bodies))[at : at + 500], strict=True)
            ]
            self.publisher.publish(topic=self.path("topics", self.name), messages=messages)

    def messages(self):
        """Take the messages that were sent."""
        path, found = self.path("subscriptions", f"{self.name}-out"), []
        request = {"subscription": path, "max_messages": 1000, "return_immediately": True}
        while some := self.subscriber.pull(request=request).received_messages:
            self.subscriber.acknowledge(subscription=path, ack_ids=[each.ack_id for each in some])
            found += [each.message for each in some]
        return found

    def taken(self):
        return [(each.attributes["headrace-id"], each.data) for each in self.messages()]

    def cut(self):
        self.gate.shut()

    def mend(self):
        self.gate.open()

    def missing(self):
        return pubsub.subscription("projects/p/subscriptions/nosuch", endpoint=self.endpoint)

    def missing_sink(self):
        return pubsub.topic("projects/p/topics/nosuch", endpoint=self.endpoint)

    def close(self):
        self.gate.shut()
        self.publisher.transport.close()
        self.subscriber.transport.close()


@pytest.fixture
def broker(pubsub_of_the_run):
    pubsub_of_the_run.start()
    outside = Outside(pubsub_of_the_run)
    yield outside
    outside.close()


@pytest.fixture
def ordered(pubsub_of_the_run):
    """Its subscriptions deliver the messages of a key in order; others promise no order."""
    pubsub_of_the_run.start()
    outside = Outside(pubsub_of_the_run, enable_message_ordering=True)
    yield outside
    outside.close()


class TestPubSub(BrokerCases):
    """The cases of all brokers."""

    def test_a_message_of_10_mb_is_landed(self, broker, filled):
        """The fake takes 4 MB."""
        broker.add([json.dumps({"id": 1, "text": "x" * 3_000_000}).encode()])
        with filled.by(broker.feed()) as run:
            until(lambda: run.rows() or run.failure(), "it is landed")
            assert [len(row["text"]) for row in run.rows()] == [3_000_000]


def test_a_connection_that_failed_does_not_let_another_one_wait(broker):
    """After a failure gRPC waits a second or more, for all channels of one address that share their connections."""
    place = PubSubService(path=broker.path("topics", f"{broker.name}-out"), endpoint=broker.endpoint, credentials=None)
    failed = place.publisher()
    broker.cut()
    with pytest.raises(Unavailable), place.failures():
        failed.publish(topic=place.path, messages=[PubsubMessage(data=b"lost")], retry=None, timeout=10)
    broker.mend()
    sound = place.publisher()
    sound.publish(topic=place.path, messages=[PubsubMessage(data=b"sent")], retry=None, timeout=10)
    assert [each.data for each in broker.messages()] == [b"sent"]
    failed.transport.close()
    sound.transport.close()


@pytest.mark.parametrize("kind", ["publisher", "subscriber"])
def test_a_channel_to_google_is_one_of_its_own_too(kind, tmp_path, monkeypatch):
    """Google itself cannot be reached here: what gRPC is told is looked at."""
    told, opened = [], grpc.secure_channel
    monkeypatch.setattr(
        grpc, "secure_channel", lambda *args, **how: told.append(how["options"]) or opened(*args, **how)
    )
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    account = {"type": "service_account", "client_email": "a@p", "token_uri": "http://127.0.0.1:1/", "private_key": pem}
    credentials = tmp_path / "account.json"
    credentials.write_text(json.dumps(account))
    place = PubSubService(path="projects/p/topics/t", endpoint=None, credentials=str(credentials))
    getattr(place, kind)().transport.close()
    assert ("grpc.use_local_subchannel_pool", 1) in told[0]
    assert ("grpc.max_receive_message_length", -1) in told[0]


def test_it_is_a_sink(broker):
    class Kept:
        sink = for_rows(broker.sink())
        rows = []  # noqa: RUF012 - of this test alone

        def read(self):
            self.rows.extend(json.loads(body) for _, body in broker.taken())
            return self.rows

    check_sink(Kept)


def test_messages_of_a_key_are_landed_in_order(ordered, tmp_path):
    ordered.add(bodies(range(200)), key="k")
    with Filled(tmp_path).by(ordered.feed()) as run:
        run.has(range(200))
        assert [row["id"] for row in run.rows()] == list(range(200))


@pytest.mark.prove
def test_leases_are_extended_while_messages_wait(broker, tmp_path):
    """A feed that has no room for longer than a lease: nobody else gets its messages, and they are landed once."""
    broker.add(bodies(range(5)))
    feed, filled = broker.feed(), Filled(tmp_path)
    room, stop, done = threading.Event(), threading.Event(), threading.Event()

    with filled.topics() as topics:
        landing = topics.landing(filled.spec, feed=feed.identity, limit=1 << 60, read=lambda: 0)
        landing.has_room = room.is_set
        thread = threading.Thread(target=lambda: (feed.run(landing, stop), done.set()))
        thread.start()
        done.wait(14)
        request = {"subscription": feed.service.path, "max_messages": 10, "return_immediately": True}
        assert not broker.subscriber.pull(request=request).received_messages, "they are leased still"
        room.set()
        until(lambda: sum(topics.log.topic("landed").end_offsets().values()) == 5, "they are landed")
        stop.set()
        thread.join(30)
        landing.close()
    assert done.is_set()
    assert sorted(filled.ids()) == list(range(5))


def test_what_a_sink_repeats_is_recognised_by_its_id(broker, tmp_path):
    with Filled(tmp_path).by(broker.feed(id="header:headrace-id")) as run:
        broker.add(bodies([1, 2]), ["a", "b"])
        run.has([1, 2])
        broker.add(bodies([2, 3]), ["b", "c"])
        run.has([1, 2, 3])
        until(lambda: run.status().get("repeated") == 1, "it is counted")
        assert len(run.rows()) == 3


def test_an_app_reads_and_writes(ordered, tmp_path):
    app = hr.App("pubsub", storage=tmp_path, shards=1)
    known = {"of": "key", "sent": "time", "number": "id"}
    rows = app.stream(
        "landed", "id int, text string, of string, sent timestamp, number string",
        event_time="sent", source=ordered.feed(metadata=known),
    )  # fmt: skip
    rows.select("id", "text", "of").to(ordered.sink(key="of", headers={"name": "text"}))
    ordered.add(bodies([1, 2]), key="k")
    found = []
    with app.start(carrier="in-process"):
        until(lambda: found.extend(ordered.messages()) or len(found) == 2, "both are sent")
    assert [(each.ordering_key, each.attributes["name"]) for each in found] == [("k", "t1"), ("k", "t2")]
    assert datetime.now(UTC).year >= 2024


def test_a_message_that_is_too_large_is_named(broker):
    writer = for_rows(broker.sink()).open(writer=WRITER, clock=ManualClock())
    with pytest.raises(MessageTooLarge, match=f"{WRITER}/0/0"):
        writer.publish(0, iter([batch([1]).set_column(1, "text", pa.array(["x" * 10_000_001]))]))
    writer.close()


def test_credentials_that_are_missing_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    with Filled(tmp_path / "log").by(pubsub.subscription("projects/p/subscriptions/s")) as run:
        until(run.failure, "it fails")
        assert isinstance(run.failure(), LoginRefused)
        assert run.failure().hint


@pytest.mark.prove
def test_kills_lose_nothing_and_repeat_nothing(broker, tmp_path):
    """10,000 messages and ten kills of ours: the fake gives some hundred a second, and keeps nothing over a restart."""
    kills_and_restarts(broker, broker.server, tmp_path, messages=10_000, kills=10, restarts=0)


def test_names_and_options_are_checked():
    for wrong in ("s", "projects/p/topics/s", "projects//subscriptions/s"):
        with pytest.raises(InvalidArgument):
            pubsub.subscription(wrong)
    with pytest.raises(InvalidArgument):
        pubsub.subscription("projects/p/subscriptions/s", lease="1 second")
    with pytest.raises(InvalidArgument):
        pubsub.topic("projects/p/subscriptions/s")
