"""Apache Pulsar, in and out, on a real server: standalone, with BookKeeper."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import headrace as hr
from broker_cases import WRITER, Broker, BrokerCases, Filled, Gate, batch, bodies, certificate, for_rows, until
from broker_proof import kills_and_restarts
from headrace.base.broker_errors import BrokerFailed, LoginRefused, MessageTooLarge, PositionLost
from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.outside import AccessRefused, Unavailable
from headrace.base.time import ManualClock
from headrace.connect.messages.address import BrokerAddress
from headrace.testing import check_sink

client = pytest.importorskip("pulsar")
from headrace.connect import pulsar  # noqa: E402 - only where there is a client
from headrace.connect.pulsar.greeting import greeted  # noqa: E402
from headrace.connect.pulsar.sending import java_hash  # noqa: E402

pytestmark = pytest.mark.prove  # the server alone takes ten seconds to start

ONCE = "persistent://public/once"
QUIET = client.FileLogger(client.LoggerLevel.Error, "/dev/null")


class Outside(Broker):
    """Topics of a real server that drop duplicates; feed and sink reach it through a gate."""

    has_ids = False  # what is read again has its message id

    def __init__(self, server, partitions=0, namespace=ONCE):
        self.server = server
        self.topic = f"{namespace}/t{uuid.uuid4().hex[:8]}"
        self.out = f"{self.topic}-out"
        self.gate = Gate(server.port, at=server.gate)
        self.client = client.Client(server.url(), logger=QUIET)
        self.producers, self.seen, self.results = {}, {}, []
        for each in (self.topic, self.out) if partitions else ():
            server.ask("PUT", f"{each.replace('://', '/')}/partitions", partitions)

    @property
    def url(self):
        return f"pulsar://127.0.0.1:{self.gate.port}?listener=gate"

    def feed(self, **options):
        return pulsar.reader(self.url, self.topic, **{"subscription": "own", **options})

    def sink(self, **options):
        return pulsar.producer(self.url, self.out, **{"exactly_once": True, **options})

    def add(self, bodies, ids=None, *, keys=None):
        if self.topic not in self.producers:
            self.producers[self.topic] = self.client.create_producer(self.topic, chunking_enabled=True)
        for at, body in enumerate(bodies):
            properties = {"Id": ids[at]} if ids else None
            key = keys[at] if keys else None
            self.producers[self.topic].send_async(body, self.heard, properties=properties, partition_key=key)
        self.producers[self.topic].flush()
        assert set(self.results) <= {client.Result.Ok}

    def heard(self, result, message):
        del message
        self.results.append(result)

    def messages(self, topic=None):
        """Return what a topic has got since the last call, by partition."""
        found = []
        for name in self.client.get_topic_partitions(topic or self.out):
            reader = self.client.create_reader(name, self.seen.get(name, client.MessageId.earliest))
            while reader.has_message_available():
                found.append(reader.read_next(10_000))
                self.seen[name] = found[-1].message_id()
            reader.close()
        return found

    def taken(self):
        return [(each.properties()["headrace-id"], each.data()) for each in self.messages()]

    def cut(self):
        self.gate.shut()

    def mend(self):
        self.gate.open()

    def refused(self, secret):
        return pulsar.reader(self.url.replace("//", f"//ada:{secret}@"), self.topic, subscription="own")

    def missing(self):
        return pulsar.reader(self.url, "persistent://public/closed/nosuch", subscription="own")

    def missing_sink(self):
        return pulsar.producer(self.url, "persistent://public/closed/nosuch")

    def close(self):
        self.gate.shut()
        self.client.close()


@pytest.fixture
def broker(make):
    return make()


@pytest.fixture
def make(pulsar_of_the_run):
    pulsar_of_the_run.start()
    made = []

    def outside(**options):
        made.append(Outside(pulsar_of_the_run, **options))
        return made[-1]

    yield outside
    for each in made:
        each.close()


class TestPulsar(BrokerCases):
    """The cases of all brokers."""


def test_it_is_a_sink(broker):
    class Kept:
        sink = for_rows(broker.sink())

        def read(self):
            broker.seen = {}
            return [json.loads(each.data()) for each in broker.messages()]

    check_sink(Kept)


def test_an_app_reads_and_writes(broker, tmp_path):
    app = hr.App("pulsar", storage=tmp_path, shards=1)
    metadata = {"topic": "topic", "message": "message", "stored": "time", "by": "header:Id"}
    schema = "id int, text string, topic string, message string, stored timestamp, by string"
    rows = app.stream("landed", schema, event_time="stored", source=broker.feed(metadata=metadata))
    rows.select("id", "text", "by").to(
        pulsar.producer(broker.url, f"{broker.out}-{{text}}", key="id", headers={"from": "by"}, exactly_once=True)
    )
    broker.add(bodies([1, 2]), ["a", "b"])
    sent = {}
    with app.start(carrier="in-process"):
        for each in (1, 2):
            until(lambda each=each: sent.update({each: broker.messages(f"{broker.out}-t{each}")}) or sent[each], "sent")
    for each, sender in ((1, "a"), (2, "b")):
        (found,) = sent[each]
        assert (found.partition_key(), found.properties()["from"]) == (str(each), sender)
        assert found.event_timestamp() > 0


def test_partitions_are_read_in_their_order_also_those_that_are_added(make, tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.connect.pulsar.reading.PARTITIONS_SECONDS", 0.3)
    broker, filled = make(partitions=2), Filled(tmp_path)
    broker.add(bodies(range(20)), keys=[f"k{i}" for i in range(20)])
    with filled.by(broker.feed()) as run:
        run.has(range(20))
    broker.add(bodies(range(20, 30)), keys=[f"k{i}" for i in range(20, 30)])
    with filled.by(broker.feed()) as run:
        run.has(range(30))
        broker.server.ask("POST", f"{broker.topic.replace('://', '/')}/partitions", 3)
        added = broker.client.create_producer(f"{broker.topic}-partition-2")
        added.send(bodies([30])[0])
        run.has(range(31))
    assert sorted(filled.ids()) == list(range(31))


def test_keys_are_sent_to_the_partitions_of_pulsars_java_client_once(make):
    assert [java_hash(each) for each in ("", "k1", "ключ", "\U0001f600")] == [0, 3366, 33309882, 1772899]
    broker = make(partitions=3)
    sink = for_rows(broker.sink(key="text"))
    for _ in range(2):  # the second writer sends the epoch again
        writer = sink.open(writer=WRITER, clock=ManualClock())
        writer.publish(0, iter([batch(range(10))]))
        writer.close()
    found = broker.messages()
    assert sorted(json.loads(each.data())["id"] for each in found) == list(range(10))
    for each in found:
        assert each.topic_name().endswith(f"-partition-{java_hash(each.partition_key()) % 3}")


def test_a_topic_that_does_not_drop_duplicates_is_refused_where_that_was_promised(make):
    broker = make(namespace="persistent://public/default")
    writer = for_rows(broker.sink()).open(writer=WRITER, clock=ManualClock())
    with pytest.raises(BrokerFailed, match="does not drop duplicates"):
        writer.publish(0, iter([batch([0])]))
    plain = for_rows(broker.sink(exactly_once=False))
    assert (for_rows(broker.sink()).guarantee, plain.guarantee) == ("exactly_once", "at_least_once")
    writer = plain.open(writer="other", clock=ManualClock())
    writer.publish(0, iter([batch([1])]))
    writer.close()


def test_a_message_that_is_too_large_is_named_and_what_follows_it_is_not_lost(broker):
    """A message after it with a greater sequence id would make the broker drop it when it is sent again."""
    large = batch([0, 1, 2]).set_column(1, "text", pa.array(["a", "x" * 6_000_000, "c"]))
    writer = for_rows(broker.sink()).open(writer=WRITER, clock=ManualClock())
    with pytest.raises(MessageTooLarge, match="app/1/sink/0/1"):
        writer.publish(0, iter([large]))
    writer.publish(0, iter([batch([0, 1, 2])]))
    writer.close()
    assert [json.loads(body)["id"] for _, body in broker.taken()] == [0, 1, 2]


def test_a_table_sends_messages_without_a_body_for_what_is_deleted_and_reads_them(broker, tmp_path):
    app = hr.App("table", storage=tmp_path / "app", shards=1)
    schema = "id int, text string"
    table = app.table("landed", schema, key="id", source=broker.feed(key="id"))
    table.to(broker.sink())
    broker.add([*bodies([1, 2]), b""], keys=["1", "2", "1"])
    sent = []
    with app.start(carrier="in-process"):
        until(lambda: sent.extend(broker.messages()) or len(sent) >= 1, "rows are sent")
        broker.add([b""], keys=["2"])
        until(lambda: sent.extend(broker.messages()) or sent[-1].has_null_value(), "a deletion is sent")
    assert sent[-1].partition_key() == "2"


def test_a_new_feed_begins_where_it_is_told_also_after_a_restart(broker, tmp_path):
    broker.add(bodies([0, 1]))
    filled = Filled(tmp_path / "next")
    with filled.by(broker.feed(start="next", subscription="next")) as run:
        until(lambda: (tmp_path / "next" / "landings" / "landed").exists() or run.failure(), "it has begun")
    broker.add(bodies([2]))
    with filled.by(broker.feed(start="next", subscription="next")) as run:
        run.has([2])
    since = datetime.now(UTC) + timedelta(seconds=1)
    until(lambda: datetime.now(UTC) > since, "a second passes")
    broker.add(bodies([3]))
    with Filled(tmp_path / "time").by(broker.feed(start=since, subscription="time")) as run:
        run.has([3])


def test_what_was_landed_last_decides_and_not_what_was_acknowledged(broker, tmp_path):
    """As after a restored backup: another landing is further, with the same subscription."""
    broker.add(bodies([0]))
    behind = Filled(tmp_path / "behind")
    with behind.by(broker.feed()) as run:
        run.has([0])
    broker.add(bodies([1, 2]))
    with Filled(tmp_path / "ahead").by(broker.feed()) as run:
        run.has([0, 1, 2])
    broker.add(bodies([3]))
    with behind.by(broker.feed()) as run:
        run.has([0, 1, 2, 3])
    assert behind.ids() == [0, 1, 2, 3]


def test_a_batch_of_another_client_is_read_on_in_its_middle(broker, tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.connect.pulsar.reading.TOGETHER", 7)
    producer = broker.client.create_producer(broker.topic, batching_enabled=True, batching_max_publish_delay_ms=500)
    for body in bodies(range(20)):
        producer.send_async(body, broker.heard)
    producer.flush()
    filled = Filled(tmp_path)
    for _ in range(2):
        with filled.by(broker.feed()) as run:
            until(lambda: run.count() >= 7, "some are landed")
    with filled.by(broker.feed()) as run:
        run.has(range(20))
    assert filled.ids() == list(range(20))


def test_what_is_landed_is_acknowledged_and_the_rest_is_kept(broker, tmp_path):
    broker.add(bodies(range(3)))
    backlog = lambda: broker.server.ask("GET", f"{broker.topic.replace('://', '/')}/stats")["subscriptions"]["own"]  # noqa: E731
    with Filled(tmp_path).by(broker.feed()) as run:
        run.has(range(3))
        until(lambda: backlog()["msgBacklog"] == 0, "all are acknowledged")
    broker.add(bodies([3]))
    until(lambda: backlog()["msgBacklog"] == 1, "what is new is kept")


def test_a_topic_that_ends_before_what_was_read_is_refused(broker, tmp_path):
    filled = Filled(tmp_path)
    broker.add(bodies([0]))
    with filled.by(broker.feed()) as run:
        run.has([0])
    stem = broker.topic
    broker.topic = f"{stem}-other"
    broker.add(bodies([7]))
    feed = broker.feed()
    broker.topic = stem
    with filled.topics() as topics:  # as if the cluster had been made anew, with other message ids
        landing = topics.landing(filled.spec, feed=broker.feed().identity, limit=1 << 60, read=lambda: 0)
        landing.append([], position=_further(landing.position()))
        landing.close()
    del feed
    with filled.by(broker.feed()) as run:
        until(run.failure, "it fails")
        assert isinstance(run.failure(), PositionLost)


def _further(stored):
    """Return the position of a feed with a ledger that is far away."""
    own = json.loads(stored[6:])
    moved = json.dumps({name: [at[0] + 10**9, *at[1:]] for name, at in own.items()}).encode()
    return stored[:1] + (len(moved) + 1).to_bytes(4, "big") + b"\x01" + moved


def test_a_second_feed_of_a_subscription_waits_for_the_first(broker, tmp_path):
    with Filled(tmp_path / "one").by(broker.feed()) as run:
        broker.add(bodies([0]))
        run.has([0])
        with Filled(tmp_path / "two").by(broker.feed()) as second:
            until(lambda: second.status()["state"] == "retrying", "it waits")
            assert "used by another process" in second.status()["error"]


@pytest.mark.prove
def test_a_server_that_was_killed_comes_back_with_what_it_stored(broker, tmp_path):
    filled = Filled(tmp_path)
    sink = for_rows(broker.sink())
    writer = sink.open(writer=WRITER, clock=ManualClock())
    writer.publish(0, iter([batch(range(5))]))
    writer.close()
    broker.add(bodies([0, 1]))
    with filled.by(broker.feed()) as run:
        run.has([0, 1])
        broker.server.restart()
        broker.add(bodies([2]))
        run.has([0, 1, 2])
    assert filled.ids() == [0, 1, 2]
    writer = sink.open(writer=WRITER, clock=ManualClock())
    writer.publish(0, iter([batch(range(5))]))  # the broker still knows what it has
    writer.close()
    assert [json.loads(body)["id"] for _, body in broker.taken()] == list(range(5))


@pytest.mark.prove
def test_kills_and_restarts_lose_nothing_and_repeat_nothing(broker, tmp_path):
    """100,000 messages, ten kills of ours, two of theirs."""
    kills_and_restarts(broker, broker.server, tmp_path, messages=100_000, kills=10, restarts=2)


def test_tls_and_a_password_of_the_environment(pulsar_of_the_run, tmp_path, monkeypatch):
    server, files = pulsar_of_the_run, certificate(tmp_path)
    gate = Gate(server.port, tls=files, at=server.gate + 1)
    monkeypatch.setenv("PULSAR_PASSWORD", "wonder")
    url = f"pulsar+ssl://ada:env:PULSAR_PASSWORD@localhost:{gate.port}?listener=gate"
    topic = f"persistent://public/default/t{uuid.uuid4().hex[:8]}"
    writer = for_rows(pulsar.producer(f"{url}&ca={files[0]}", topic)).open(writer=WRITER, clock=ManualClock())
    writer.publish(0, iter([batch([1])]))
    writer.close()
    with Filled(tmp_path / "log").by(pulsar.reader(f"{url}&ca={files[0]}", topic, subscription="s")) as run:
        run.has([1])
    with Filled(tmp_path / "other").by(pulsar.reader(url, topic, subscription="s")) as run:
        until(lambda: run.status()["state"] == "retrying", "it does not trust the server")
        assert "certificate verify failed" in run.status()["error"]
    refused = pulsar.reader(f"{url}&ca={files[0]}", f"{ONCE}/secret", subscription="s")
    refused.check()
    with pytest.raises(LoginRefused):
        pulsar.reader(url.replace("ada:env:PULSAR_PASSWORD", ":x") + f"&ca={files[0]}", topic, subscription="s").check()
    with Filled(tmp_path / "refused").by(refused) as run:
        until(run.failure, "ada may not")
        assert isinstance(run.failure(), AccessRefused)
    gate.shut()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n", b"\0\0\0\x08\0\0\0\x04\xff\xff\xff\xff", b""])
def test_what_does_not_speak_the_protocol_is_named(answer):
    import socket
    import threading

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            one, _ = listener.accept()
            one.recv(1000)
            one.sendall(answer)
            one.close()

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(BrokerFailed if answer else Unavailable):
            greeted(BrokerAddress(f"pulsar://127.0.0.1:{listener.getsockname()[1]}"))


def test_names_and_options_are_checked():
    with pytest.raises(InvalidArgument):
        pulsar.reader("pulsar://h", "non-persistent://public/default/t", subscription="s")
    with pytest.raises(InvalidArgument):
        pulsar.reader("pulsar://h", "t", subscription="")
    with pytest.raises(InvalidArgument):
        pulsar.reader("pulsar://h", "t", subscription="s", start="later")
    with pytest.raises(InvalidArgument):
        pulsar.producer("pulsar://h", "")
    with pytest.raises(InvalidPlan):
        pulsar.reader("http://h", "t", subscription="s")
    with pytest.raises(InvalidPlan, match="options that are not known: nosuch"):
        pulsar.producer("pulsar://h?nosuch=1", "t")
    with pytest.raises(InvalidPlan, match="topic"):
        pulsar.reader("pulsar://h", "t", subscription="s", metadata={"a": "topik"})
