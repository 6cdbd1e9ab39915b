"""MQTT 5, in and out, on a real broker, with another client on the other side."""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import replace

import paho.mqtt.client as paho
import pyarrow as pa
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import headrace as hr
from broker_cases import (
    WRITER,
    Broker,
    BrokerCases,
    Filled,
    Gate,
    batch,
    bodies,
    certificate,
    for_rows,
    killed,
    rows_of,
    until,
)
from broker_proof import kills_and_restarts
from headrace.base.broker_errors import BrokerFailed, LoginRefused, MessageTooLarge
from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.outside import AccessRefused, Unavailable
from headrace.base.time import ManualClock
from headrace.connect import mqtt
from headrace.connect.mqtt import packets
from headrace.connect.mqtt.connection import Connection, mqtt_address
from headrace.connect.mqtt.packets import Kind
from headrace.log import Log
from headrace.testing import check_sink


class Outside(Broker):
    """Topics of a real broker; feed and sink reach it through a gate, and `qos` is that of the feed."""

    def __init__(self, server, qos=2):
        self.server, self.qos = server, qos
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.gate = Gate(server.port)
        self.subscribe(self.name, f"{self.name}/in/#")
        self.subscribe(f"{self.name}-taker", f"{self.name}/out/#")

    @property
    def url(self):
        return f"mqtt://127.0.0.1:{self.gate.port}"

    def client(self, name="", *, keep=False):
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv5)
        client.max_inflight_messages_set(500)
        about = Properties(PacketTypes.CONNECT)
        about.SessionExpiryInterval = 3600 if keep else 0
        connected = threading.Event()
        client.on_connect = lambda *_: connected.set()
        client.connect("127.0.0.1", self.server.port, clean_start=not keep, properties=about)
        client.loop_start()
        assert connected.wait(30)
        return client

    def close_client(self, client):
        ended = threading.Event()
        client.on_disconnect = lambda *_: ended.set()
        client.disconnect()
        ended.wait(10)
        client.loop_stop()

    def subscribe(self, session, topics):
        """Let the broker keep messages for somebody who is not there."""
        client, done = self.client(session, keep=True), threading.Event()
        client.on_subscribe = lambda *_: done.set()
        client.subscribe(topics, qos=self.qos if session == self.name else 2)
        assert done.wait(30)
        self.close_client(client)

    def feed(self, **options):
        return mqtt.subscription(self.url, f"{self.name}/in/#", session=self.name, **{"qos": self.qos, **options})

    def sink(self, **options):
        return mqtt.topic(self.url, f"{self.name}/out/x", **{"qos": 2, **options})

    def add(self, bodies, ids=None, *, topic="in/x"):
        client = self.client()
        waiting = []
        for each, body in zip(ids or [None] * len(bodies), bodies, strict=True):
            about = Properties(PacketTypes.PUBLISH)
            if each:
                about.UserProperty = ("headrace-id", each)
            waiting.append(client.publish(f"{self.name}/{topic}", body, qos=2, properties=about))
        for each in waiting:
            each.wait_for_publish(60)
        self.close_client(client)

    def received(self):
        """Return the messages that were sent to `out` and not yet taken."""
        found, end, came = [], uuid.uuid4().hex.encode(), threading.Event()
        self.add([end], topic="out/end")
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, f"{self.name}-taker", protocol=paho.MQTTv5)
        about = Properties(PacketTypes.CONNECT)
        about.SessionExpiryInterval = 3600
        client.on_message = lambda _, __, message: came.set() if message.payload == end else found.append(message)
        client.connect("127.0.0.1", self.server.port, clean_start=False, properties=about)
        client.loop_start()
        assert came.wait(30), "the last message comes after all others"
        self.close_client(client)
        return found

    def taken(self):
        return [(dict(each.properties.UserProperty)["headrace-id"], each.payload) for each in self.received()]

    def cut(self):
        self.gate.shut()

    def mend(self):
        self.gate.open()

    def refused(self, secret):
        from scripts.broker.servers import Servers
        from scripts.servers.mosquitto import Mosquitto

        class Guarded(Mosquitto):
            users = {"ada": "right"}  # noqa: RUF012 - never changed

        self.guarded = Guarded(Servers(self.server.folder / "guarded", shared=False))
        self.guarded.start()
        return mqtt.subscription(self.guarded.url(login=f"ada:{secret}"), "a", session="s")

    def close(self):
        self.gate.shut()
        if hasattr(self, "guarded"):
            self.guarded.kill()


@pytest.fixture
def broker(mosquitto_of_the_run):
    mosquitto_of_the_run.start()
    outside = Outside(mosquitto_of_the_run)
    yield outside
    outside.close()


class TestMqtt(BrokerCases):
    """The cases of all brokers, with QoS 2."""


def test_it_is_a_sink(broker):
    class Kept:
        sink = for_rows(broker.sink())
        rows = []  # noqa: RUF012 - of this test alone

        def read(self):
            self.rows.extend(json.loads(body) for _, body in broker.taken())
            return self.rows

    check_sink(Kept)


@pytest.mark.parametrize("point", [pytest.param("before_landing", marks=pytest.mark.prove), "after_landing"])
def test_messages_without_ids_are_landed_once_with_qos_2(broker, tmp_path, point):
    """A process that dies before the append, or between the append and PUBREC: numbers of packets are enough."""
    broker.add(bodies(range(20)))
    filled = Filled(tmp_path / "log")
    killed(broker.feed(), point, tmp_path)
    with filled.by(broker.feed()) as run:
        run.has(range(20))
        broker.add(bodies(range(20, 40)))  # the broker uses the numbers again
        run.has(range(40))
    assert sorted(filled.ids()) == list(range(40))


def test_a_death_between_pubrec_and_release_lands_messages_once(broker, tmp_path):
    """The broker does not send these messages again: it asks for their release."""
    broker.add(bodies(range(5)))
    feed, filled = broker.feed(), Filled(tmp_path)
    connection = Connection(mqtt_address(broker.url), broker.name, session=3600, receive=100)
    received = []
    until(lambda: received.extend(connection.receive(0.2)) or len(received) == 5, "five messages")
    names = [packets.published(each).packet for each in received]
    with filled.topics() as topics:
        landing = topics.landing(filled.spec, feed=feed.identity, limit=1 << 60, read=lambda: 0)
        session = _Quiet(feed, connection, landing)
        session.take(received)  # landed, and PUBREC is sent
        landing.close()
    until(lambda: any(each.kind == packets.Kind.PUBREL for each in connection.receive(0.2)), "they are to be released")
    connection.close(orderly=False)  # dead
    with filled.by(feed) as run:
        broker.add(bodies([5, 6]))
        run.has(range(7))
    assert sorted(filled.ids()) == list(range(7))
    assert len(set(names)) == 5


class _Quiet:
    """A session of a feed whose process is this test."""

    def __init__(self, feed, connection, landing):
        from headrace.connect.messages.reading import MessageLanding
        from headrace.connect.mqtt.incoming import _Session

        self.take = _Session(feed, connection, MessageLanding(landing, feed.how)).take


def test_messages_with_qos_1_come_at_least_once_and_once_with_ids(broker, tmp_path):
    broker = Outside(broker.server, qos=1)
    broker.add(bodies(range(10)), [f"m{i}" for i in range(10)])
    feed = broker.feed()
    killed(feed, "after_landing", tmp_path)
    filled = Filled(tmp_path / "log")
    with filled.by(feed) as run:
        run.has(range(10))
        until(lambda: run.status().get("repeated"), "they came again")
    assert sorted(filled.ids()) == list(range(10))
    broker.close()


def test_a_session_that_the_broker_forgot_is_a_dead_letter(broker, tmp_path):
    broker.add(bodies([0]))
    filled = Filled(tmp_path)
    with filled.by(broker.feed()) as run:
        run.has([0])
    broker.close_client(broker.client(broker.name))  # clean start, no expiry
    broker.add(bodies([1]))  # nobody keeps it
    with filled.by(broker.feed()) as run:
        until(lambda: run.rows("landed.dead"), "it is said")
        broker.add(bodies([2]))
        run.has([0, 2])
        (letter,) = run.rows("landed.dead")
        assert "no longer had the session" in letter["reason"]


def test_reasons_of_the_broker_are_told_apart(broker):
    connection = Connection(mqtt_address(broker.url), "reasons", session=None)
    kinds = {0x86: LoginRefused, 0x87: AccessRefused, 0x89: Unavailable, 0x8E: BrokerFailed, 0x84: BrokerFailed}
    assert {code: type(connection.refused(code, "it")) for code in kinds} == kinds
    connection.close()


def test_an_app_reads_and_writes_retained_messages_of_a_table(broker, tmp_path):
    app = hr.App("mqtt", storage=tmp_path, shards=1)
    known = {"topic": "topic", "qos": "qos", "retained": "retained"}
    table = app.table(
        "landed", "id string, text string, topic string, qos int, retained boolean", key="id",
        source=broker.feed(key="id", metadata=known),
    )  # fmt: skip
    table.select("id", "text", "topic", "qos").to(mqtt.topic(broker.url, f"{broker.name}/out/{{id}}", retain=True))
    with app.start(carrier="in-process"):
        broker.add([b'{"text": "one"}'], topic="in/a")
        broker.add([b'{"text": "two"}'], topic="in/b")
        found = {}
        take = lambda: found.update({m.topic.rpartition("/")[2]: m.payload for m in broker.received()})  # noqa: E731
        until(lambda: take() or len(found) == 2, "both rows")
        assert json.loads(found["a"]) == {"id": "a", "text": "one", "topic": f"{broker.name}/in/a", "qos": 2}
        broker.add([b""], topic="in/a")
        until(lambda: take() or found["a"] == b"", "a deletion")
    broker.subscribe(f"{broker.name}-taker", f"{broker.name}/out/+")
    later = broker.client()
    kept = []
    later.on_message = lambda _, __, message: kept.append(message.topic)
    later.subscribe(f"{broker.name}/out/#")
    until(lambda: kept, "what is retained")
    assert kept == [f"{broker.name}/out/b"]
    broker.close_client(later)


def test_a_broker_that_was_stopped_comes_back_with_its_sessions(broker, tmp_path):
    filled = Filled(tmp_path)
    broker.add(bodies([0, 1]))
    with filled.by(broker.feed()) as run:
        run.has([0, 1])
        Orderly(broker.server).restart()
        broker.add(bodies([2]))
        run.has([0, 1, 2])
    assert filled.ids() == [0, 1, 2]


class Orderly:
    """Mosquitto keeps what it acknowledged when it is stopped; if it is killed, what it wrote last."""

    def __init__(self, server):
        self.server = server

    def restart(self):
        self.server.stop()
        self.server.start()


@pytest.mark.prove
@pytest.mark.parametrize("restarts", [0, 2])
def test_kills_repeat_nothing_and_restarts_lose_nothing(broker, tmp_path, restarts):
    """100,000 messages without ids, ten kills of ours; what Mosquitto publishes again after a restart, it marks."""
    broker.exactly_once = not restarts
    add, feed = broker.add, broker.feed
    broker.add = lambda bodies, ids: add(bodies)  # noqa: ARG005 -- numbers of packets are to be enough
    broker.feed = lambda: feed(metadata={"text": "repeated"})
    kills_and_restarts(broker, Orderly(broker.server), tmp_path, messages=100_000, kills=10, restarts=restarts)
    with Log(tmp_path / "log") as log:
        rows = [(row["id"], row["text"]) for row in rows_of(log, "landed")]
    seen = set()
    again = [repeated for id_, repeated in rows if id_ in seen or seen.add(id_)]
    print(f"{len(again)} of {len(rows)} rows are there again")  # noqa: T201 -- how often
    assert set(again) <= {"true"}


@pytest.mark.prove
def test_mosquitto_publishes_again_what_it_had_released(broker):
    """It may not, by MQTT's section 4.3.3: a packet was answered with PUBREL, and comes again as PUBLISH.

    Two connections end before it has sent all of its PUBRELs again, and it is restarted in between. Where this no
    longer fails Mosquitto is right, and restarts repeat nothing.
    """
    broker.add(bodies(range(10)))
    connect = lambda: Connection(mqtt_address(broker.url), broker.name, session=3600, receive=100)  # noqa: E731
    connection, released = connect(), set()

    def answer():
        for each in connection.receive(0.2):
            if each.kind == Kind.PUBLISH:
                connection.send(packets.answer(Kind.PUBREC, packets.published(each).packet))
            elif each.kind == Kind.PUBREL:
                released.add(packets.answered(each.body).packet)

    until(lambda: answer() or len(released) == 10, "all are released")
    again = set()
    for _ in range(5):
        for _ in range(3):
            connection.close(orderly=False)
            Orderly(broker.server).restart()
            connection = connect()
        kinds = [each for _ in range(3) for each in connection.receive(0.2)]
        again |= {packets.published(each).packet for each in kinds if each.kind == Kind.PUBLISH}
        if again:
            break
    connection.close()
    assert again
    assert again <= released


@pytest.mark.parametrize("qos", [1, 2])
def test_more_messages_than_may_be_unacknowledged_are_sent(broker, qos):
    writer = for_rows(broker.sink(qos=qos)).open(writer=WRITER, clock=ManualClock())
    writer.publish(0, iter([batch(list(range(2_500)))]))
    writer.close()
    assert [json.loads(body)["id"] for _, body in broker.taken()] == list(range(2_500))


@pytest.mark.usefixtures("mosquitto_of_the_run")
def test_tls_and_a_password_of_the_environment(tmp_path, monkeypatch):
    from scripts.broker.servers import Servers
    from scripts.servers.mosquitto import Mosquitto

    class Encrypted(Mosquitto):
        users = {"ada": "right"}  # noqa: RUF012 - never changed
        tls = certificate(tmp_path)

    server = Encrypted(Servers(tmp_path / "server", shared=False))
    server.start()
    monkeypatch.setenv("MQTT_PASSWORD", "right")
    url = f"mqtts://ada:env:MQTT_PASSWORD@localhost:{server.port}"
    known = f"{url}?ca={server.tls[0]}"
    filled = Filled(tmp_path / "log")
    with filled.by(mqtt.subscription(known, "a/b", session="s", qos=2)) as run:
        until((tmp_path / "log" / "landings" / "landed").exists, "it has a session")
        writer = for_rows(mqtt.topic(known, "a/b", qos=2)).open(writer=WRITER, clock=ManualClock())
        writer.publish(0, iter([batch(range(50))]))
        writer.close()
        run.has(range(50))
    with Filled(tmp_path / "other").by(mqtt.subscription(url, "a", session="t")) as run:
        until(lambda: run.status()["state"] == "retrying", "it does not trust the broker")
        assert "certificate verify failed" in run.status()["error"]
    server.kill()


def test_what_is_no_packet_is_refused():
    with pytest.raises(BrokerFailed):
        packets.read_packets(bytearray(b"\x30\xff\xff\xff\xff\x01"))
    data = bytearray(packets.publish("t", b"x" * 200, qos=1, name=7, retain=True, user={"a": "b"}))
    assert packets.read_packets(data[:100]) == []
    (one,) = packets.read_packets(data)
    assert not data
    found = packets.published(one)
    assert (found.topic, found.payload, found.qos, found.packet, found.retained) == ("t", b"x" * 200, 1, 7, True)
    assert found.user == {"a": "b"}


def test_topics_and_options_are_checked(broker):
    for wrong in ({"topics": ""}, {"session": ""}, {"qos": 0}, {"expiry": "0 seconds"}):
        with pytest.raises(InvalidArgument):
            mqtt.subscription("mqtt://h", **{"topics": "a", "session": "s", **wrong})
    with pytest.raises(InvalidArgument):
        mqtt.topic("mqtt://h", "a/#")
    with pytest.raises(InvalidPlan):
        mqtt.topic("http://h", "a")
    feed = broker.feed()
    assert replace(feed, topics=("other",)).identity == feed.identity


@pytest.mark.parametrize("text", ["a\nb", "a#", "+", ""])
def test_what_is_no_topic_is_named(broker, text):
    writer = for_rows(mqtt.topic(broker.url, "{text}")).open(writer=WRITER, clock=ManualClock())
    with pytest.raises(BrokerFailed, match="is no topic"):
        writer.publish(0, iter([batch([1]).set_column(1, "text", pa.array([text]))]))
    writer.close()


def test_properties_are_of_one_line_and_one_that_is_too_large_is_named(broker):
    writer = for_rows(broker.sink(key="text", headers={"text": "text"})).open(writer=WRITER, clock=ManualClock())
    writer.publish(0, iter([batch([1]).set_column(1, "text", pa.array(["a\nb\0"]))]))
    assert [json.loads(body)["text"] for _, body in broker.taken()] == ["a\nb\0"]
    with pytest.raises(MessageTooLarge, match="65,535 bytes"):
        writer.publish(1, iter([batch([1]).set_column(1, "text", pa.array(["x" * 70_000]))]))
    writer.close()
