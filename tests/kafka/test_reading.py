"""The fast reader and librdkafka read the same, whatever is in a topic."""

from __future__ import annotations

import random
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from reading import created, producer, ranges, read_by, read_twice, source, table

from broker_cases import until
from headrace.base.broker_errors import LoginRefused, TopicMissing
from headrace.base.errors import InvalidPlan
from headrace.base.outside import OffsetsBeyondEnd, OffsetsLost, SourceReplaced, Unavailable
from headrace.base.time import ManualClock, SystemClock
from headrace.connect import kafka
from headrace.connect.kafka import source as kafka_source
from headrace.connect.kafka.address import KafkaAddress
from headrace.connect.kafka.client.administration import Cluster, cluster
from headrace.connect.kafka.client.settings import wire_settings
from headrace.connect.kafka.client.wire import Connection
from headrace.connect.kafka.source import KafkaSource
from headrace.connect.source import OffsetRange
from headrace.connect.topics import TopicSpec
from headrace.testing import check_source
from headrace.testing.connectors import COLUMNS

READERS = ("fast", "librdkafka")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_reads_the_same(broker, codec):
    topic, draw = created(broker, partitions=2), random.Random(codec)  # noqa: S311 -- seeded
    writer = producer(broker, compression_type=codec, batch_num_messages=300)
    for number in range(2_000):
        value = bytes(draw.choices(b"abcd", k=draw.randrange(200)))
        writer.produce(topic, value, key=f"{number}", partition=number % 2, timestamp=1_700_000_000_000 + number)
    writer.flush()
    rows = read_twice(broker)
    assert len(rows) == 2_000
    assert [row["_key"] for row in rows] == [b"%d" % number for each in (0, 1) for number in range(each, 2_000, 2)]


def test_nulls_empty_values_headers_and_large_records_read_the_same(broker):
    topic, writer = created(broker), producer(broker)
    headers = [("a", b"1"), ("a", None), ("é", b""), ("b", bytes(range(256)))]
    writer.produce(topic, None, key="deleted")
    writer.produce(topic, b"", key=b"")
    writer.produce(topic, None)
    writer.produce(topic, bytes(range(256)) * 3_600, key="large", headers=headers)
    writer.produce(topic, "ü".encode(), headers=[("only", "text")])
    writer.flush()
    rows = read_twice(broker)
    assert [(row["_key"], row["value"], row["_deleted"]) for row in rows[:3]] == [
        (b"deleted", None, True),
        (b"", b"", False),
        (None, None, True),
    ]
    assert [(each["name"], each["value"]) for each in rows[3]["_headers"]] == headers
    assert [len(row["_headers"]) for row in rows] == [0, 0, 0, 4, 1]


def test_times_before_1970_read_the_same(broker):
    topic, writer = created(broker), producer(broker)
    for millis in (-5, -(10**12), 7):
        writer.produce(topic, b"", timestamp=millis)
    writer.flush()
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    times = [(row["_time"] - epoch).total_seconds() * 1_000 for row in read_twice(broker)]
    assert times == [-5, -(10**12), 7]


def test_many_small_batches_read_the_same(broker):
    topic, writer = created(broker), producer(broker, linger_ms=0, batch_num_messages=1)
    for number in range(1_500):
        writer.produce(topic, b"%d" % number)
    writer.flush()
    assert [row["value"] for row in read_twice(broker)] == [b"%d" % number for number in range(1_500)]


def transaction(writer, topic, values, *, commit):
    writer.begin_transaction()
    for value in values:
        writer.produce(topic, value)
    writer.flush()
    if commit is not None:
        (writer.commit_transaction if commit else writer.abort_transaction)()


def test_aborted_and_open_transactions_are_not_seen(broker):
    """The end is that of what is decided; with read_uncommitted everything is there, except the markers."""
    topic = created(broker)
    first, second = (producer(broker, transactional_id=broker.topic(name)) for name in "ab")
    first.init_transactions()
    second.init_transactions()
    transaction(first, topic, ["1", "2"], commit=True)
    transaction(second, topic, ["3"], commit=None)
    transaction(first, topic, ["4"], commit=False)
    second.produce(topic, "5")
    second.flush()
    second.abort_transaction()
    transaction(first, topic, ["6"], commit=True)
    transaction(second, topic, ["open"], commit=None)
    transaction(first, topic, ["behind the open one"], commit=True)
    assert [row["value"] for row in read_twice(broker)] == [b"1", b"2", b"6"]
    everything = read_twice(broker, isolation="read_uncommitted")
    assert [row["value"] for row in everything] == [b"1", b"2", b"3", b"4", b"5", b"6", b"open", b"behind the open one"]
    second.commit_transaction()
    until(lambda: read_by(broker, "fast").num_rows > 3, "the mark of the commit in the partition")  # written afterwards
    assert [row["value"] for row in read_twice(broker)] == [b"1", b"2", b"6", b"open", b"behind the open one"]


OF_CONSUMERS = {"isolation.level": "read_uncommitted", "auto.offset.reset": "latest", "enable.partition.eof": "false"}
"""Options that people have in the settings of their consumers."""


@pytest.mark.parametrize("option", OF_CONSUMERS)
def test_an_option_of_consumers_changes_nothing_of_what_is_guaranteed(broker, option):
    """Aborted records are not seen, records that are gone are not skipped, and the end of a range is found."""
    topic, writer = created(broker), producer(broker, transactional_id=broker.topic("w"))
    writer.init_transactions()
    transaction(writer, topic, ["1", "2"], commit=True)
    transaction(writer, topic, ["3"], commit=False)
    place = KafkaAddress.parse(f"{broker.address}&{option}={OF_CONSUMERS[option]}")
    with closing(KafkaSource(address=place, topic="t").open(clock=ManualClock())) as reader:
        (whole,) = ranges(reader)
        assert [row["value"] for row in table(reader, [whole]).to_pylist()] == [b"1", b"2"]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_records([TopicPartition(topic, 0, 1)])[TopicPartition(topic, 0)].result(10)
        with pytest.raises(OffsetsLost):
            table(reader, [whole])


def test_any_part_of_a_range_with_aborted_transactions_reads_the_same(broker):
    topic, draw = created(broker), random.Random(7)  # noqa: S311 -- seeded
    writer = producer(broker, transactional_id=broker.topic("w"))
    writer.init_transactions()
    for number in range(30):
        transaction(writer, topic, [f"{number}-{each}" for each in range(5)], commit=draw.random() < 0.5)
    opened = [source(broker, reader=each).open(clock=ManualClock()) for each in READERS]
    (whole,) = ranges(opened[0])
    rows = table(opened[0], [whole]).to_pylist()
    for _ in range(15):
        start = draw.randrange(whole.end)
        part = OffsetRange(source="s", partition="0", start=start, end=draw.randrange(start, whole.end + 1))
        expected = [row for row in rows if part.start <= row["_offset"] < part.end]
        found = table(opened[0], [part]).to_pylist()
        assert [row["_offset"] for row in found] == [row["_offset"] for row in expected], part
    assert table(opened[1], [whole]).to_pylist() == rows
    for each in opened:
        each.close()


def test_gaps_of_compaction_read_the_same_and_nothing_counts_as_lost(broker):
    settings = {"cleanup_policy": "compact", "segment_ms": 100, "min_cleanable_dirty_ratio": 0.001}
    topic, writer, clock = created(broker, **settings), producer(broker, batch_num_messages=10), SystemClock()
    for number in range(400):
        writer.produce(topic, b"%d" % number, key=f"{number % 7}")
    writer.flush()
    until, rows = clock.monotonic() + 30, []
    while not 0 < len(rows) < 100 and clock.monotonic() < until:
        clock.sleep(0.2)
        writer.produce(topic, b"new", key="rolls the segment")
        writer.flush()
        rows = read_by(broker, "fast").to_pylist()
    before = None
    while rows != before and clock.monotonic() < until:  # until the cleaner has nothing more to do
        clock.sleep(1)
        rows, before = read_by(broker, "fast").to_pylist(), rows
    assert read_twice(broker) == rows
    assert len(rows) < 100
    assert {row["_key"]: row["value"] for row in rows if row["value"] != b"new"} == {
        b"%d" % (number % 7): b"%d" % number for number in range(393, 400)
    }
    with closing(source(broker).open(clock=ManualClock())) as reader:
        assert reader.lost("0", 0, 300) == 0


def test_the_broker_dates_records_of_a_topic_that_is_created(broker):
    """`_appended` is the broker's clock there, whatever time a producer says."""
    made = source(broker, spec=TopicSpec(name="t", schema=COLUMNS, upserts=True), partitions=3)
    assert made.instance() == ""
    made.prepare(clock=ManualClock())
    made.prepare(clock=ManualClock())
    settings = cluster(made.address).settings(made.name)
    assert (settings["message.timestamp.type"], settings["cleanup.policy"]) == ("LogAppendTime", "compact")
    with closing(made.open(clock=ManualClock())) as reader:
        assert len(reader.bounds().end) == 3
    writer, before = producer(broker), SystemClock().now()
    writer.produce(made.name, b"v", key="k", timestamp=1_000)
    writer.flush()
    (row,) = read_twice(broker)
    assert before - 1_000_000 < row["_appended"].timestamp() * 1_000_000 < SystemClock().now() + 1_000_000
    assert row["_time"] == row["_appended"]


def test_without_the_brokers_dates_the_arrival_is_the_greatest_time_so_far(broker):
    topic, writer = created(broker), producer(broker)
    for time in (5_000, 2_000, 9_000, 8_000):
        writer.produce(topic, b"v", timestamp=time)
        writer.flush()
    rows = read_twice(broker, columns=("_time", "_appended"))
    assert [row["_time"].timestamp() for row in rows] == [5, 2, 9, 8]
    assert [row["_appended"].timestamp() for row in rows] == [5, 5, 9, 9]


class Topic:
    """A topic to read."""

    columns = ("value", "_key", "_offset", "_time", "_headers")

    def __init__(self, broker, reader):
        self.source = source(broker, spec=TopicSpec(name="t", schema=COLUMNS), partitions=3, reader=reader)
        self.producer, self.admin = producer(broker), AdminClient({"bootstrap.servers": broker.bootstrap})
        self.count = 0

    def add(self, count):
        for number in range(self.count, self.count + count):
            self.producer.produce(self.source.name, b"%d" % number, key=f"k{number}", headers=[("n", b"%d" % number)])
        self.producer.flush()
        self.count += count

    def expire(self):
        parts = [TopicPartition(self.source.name, number, 1) for number in range(3)]
        for future in self.admin.delete_records(parts).values():
            future.exception()


@pytest.mark.parametrize("reader", READERS)
def test_a_topic_of_kafka_is_a_source(broker, reader):
    check_source(lambda: Topic(broker, reader))


@pytest.mark.parametrize("reader", READERS)
def test_a_topic_that_is_deleted_or_created_again_is_another_one(broker, reader):
    topic, admin = created(broker), cluster(KafkaAddress.parse(broker.address))
    first = source(broker).instance()
    with closing(source(broker, reader=reader).open(clock=ManualClock())) as gone:
        assert gone.bounds().end == {"0": 0}
        admin.delete(topic)
        gone._described = float("-inf")
        with pytest.raises(SourceReplaced, match="is gone"):
            gone.bounds()
    with closing(source(broker, reader=reader).open(clock=ManualClock())) as none:
        assert none.bounds().end == {}
        created(broker)
        none._described = float("-inf")
        assert none.bounds().end == {"0": 0}
        admin.delete(topic)
        created(broker, partitions=2)
        none._described = float("-inf")
        with pytest.raises(SourceReplaced, match="created again"):
            none.bounds()
    assert first not in ("", source(broker).instance())


def test_a_topic_that_was_replaced_is_noticed_by_who_reads_it(broker):
    """Its records are asked for by the topic's id, so no record of the new one is taken for one of the old one."""
    topic, writer = created(broker), producer(broker)
    writer.produce(topic, b"old")
    writer.flush()
    with closing(source(broker, reader="fast").open(clock=ManualClock())) as reader:
        (part,) = ranges(reader)
        cluster(KafkaAddress.parse(broker.address)).delete(topic)
        created(broker)
        writer.produce(topic, b"new")
        writer.flush()
        with pytest.raises(SourceReplaced, match="created again"):
            list(reader.read(part, ["value"]))


@pytest.mark.parametrize("reader", READERS)
def test_what_was_removed_and_what_is_not_there_yet_is_said(broker, reader):
    topic, writer = created(broker), producer(broker)
    for number in range(10):
        writer.produce(topic, b"%d" % number)
    writer.flush()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([TopicPartition(topic, 0, 4)])[TopicPartition(topic, 0)].result()
    with closing(source(broker, reader=reader).open(clock=ManualClock())) as opened:
        assert opened.bounds() == ({"0": 4}, {"0": 10})
        assert opened.lost("0", 0, 4) == 4
        with pytest.raises(OffsetsLost, match="the records 0 to 3 are gone") as lost:
            list(opened.read(OffsetRange(source="s", partition="0", start=0, end=10), ["value"]))
        assert lost.value.earliest == 4
        with pytest.raises(OffsetsBeyondEnd, match="it ends at offset 10"):
            list(opened.read(OffsetRange(source="s", partition="0", start=20, end=30), ["value"]))


@pytest.mark.parametrize("reader", READERS)
def test_new_partitions_appear(broker, reader):
    topic = created(broker)
    with closing(source(broker, reader=reader).open(clock=ManualClock())) as opened:
        assert opened.bounds().end == {"0": 0}
        cluster(opened.source.address).add_partitions(topic, 3)
        opened._described = float("-inf")
        clock, until = SystemClock(), SystemClock().monotonic() + 10
        while len(opened.bounds().end) < 3 and clock.monotonic() < until:
            clock.sleep(0.05)
            opened._described = float("-inf")
        assert opened.bounds().end == {"0": 0, "1": 0, "2": 0}


def test_a_group_shows_how_far_an_app_has_read(broker):
    created(broker, partitions=2)
    with closing(source(broker, group="app").open(clock=ManualClock())) as reader:
        reader.committed({"0": 3, "1": 4})
        reader.committed({"0": 5, "1": 4})
    stored = cluster(KafkaAddress.parse(broker.address)).group_offsets(broker.topic("app"))
    assert stored == {(broker.topic("t"), 0): 5, (broker.topic("t"), 1): 4}


def test_a_group_that_could_not_be_written_for_a_while_is_written_without_another_epoch(broker, monkeypatch):
    created(broker, partitions=1)
    failures, store = [Unavailable("no answer")], Cluster.set_group_offsets

    def fails_once(*given):
        if failures:
            raise failures.pop()
        store(*given)

    monkeypatch.setattr(Cluster, "set_group_offsets", fails_once)
    monkeypatch.setattr(kafka_source, "_DESCRIBED_SECONDS", 0.0)
    with closing(source(broker, group="app").open(clock=ManualClock())) as reader:
        reader.committed({"0": 3})
        at = cluster(KafkaAddress.parse(broker.address))
        until(lambda: reader.bounds() and at.group_offsets(broker.topic("app")) == {(broker.topic("t"), 0): 3})


def test_a_group_is_not_put_back_by_a_process_that_tries_again_after_another_took_over(broker, monkeypatch):
    created(broker, partitions=2)
    failing, failed, store = threading.Event(), threading.Event(), Cluster.set_group_offsets

    def refused(*given):
        if failing.is_set():
            failed.set()
            raise Unavailable("no answer")
        store(*given)

    def group():
        found = cluster(KafkaAddress.parse(broker.address)).group_offsets(broker.topic("app"))
        return {partition: end for (_, partition), end in found.items()}

    monkeypatch.setattr(Cluster, "set_group_offsets", refused)
    monkeypatch.setattr(kafka_source, "_DESCRIBED_SECONDS", 0.0)
    with closing(source(broker, group="app").open(clock=ManualClock())) as older:
        failing.set()
        older.committed({"0": 3, "1": 4})
        assert failed.wait(60)
        until(lambda: older._progress._failed)
        failing.clear()
        with closing(source(broker, group="app").open(clock=ManualClock())) as newer:
            newer.committed({"0": 5})
        assert group() == {0: 5}
        older.bounds()  # as its status asks for
    assert group() == {0: 5, 1: 4}, "what nobody has stored is stored"


@pytest.mark.parametrize("reader", READERS)
def test_a_start_before_1970_is_the_first_record(broker, reader):
    created(broker)
    writer = producer(broker)
    writer.produce(broker.topic("t"), b"v", timestamp=1_000)
    writer.flush()
    for time in ("1960-01-01", "1969-12-31 23:59:59.999"):
        place = kafka.topic(broker.address, "t", start=time, reader=reader)
        with closing(place.open(clock=ManualClock())) as opened:
            assert opened.starts(["0"], fresh=True) == {"0": 0}


def test_a_record_that_comes_while_the_start_is_looked_up_is_read(broker, monkeypatch):
    topic, writer, asked = created(broker), producer(broker), Cluster.offsets

    def offsets(*args, **more):
        found = asked(*args, **more)
        monkeypatch.setattr(Cluster, "offsets", asked)
        writer.produce(topic, b"v")
        writer.flush()
        return found

    place = kafka.topic(broker.address, "t", start="2026-01-01", reader="librdkafka")
    with closing(place.open(clock=ManualClock())) as opened:
        monkeypatch.setattr(Cluster, "offsets", offsets)
        assert opened.starts(["0"], fresh=True) == {"0": 0}


def test_a_topic_that_nobody_declares_must_exist(broker):
    with pytest.raises(TopicMissing, match="has no topic"):
        source(broker).prepare(clock=ManualClock())


def at(address, **options):
    return KafkaSource(address=KafkaAddress.parse(address), topic="t", **options)


def test_the_fast_reader_logs_in_and_encrypts(broker):
    topic, writer = created(broker), producer(broker)
    writer.produce(topic, b"v")
    writer.flush()
    for address in (broker.kafka.sasl_address("ada"), broker.kafka.tls_address):
        joined = f"{address}{'&' if '?' in address else '?'}prefix={broker.prefix}"
        with closing(at(joined, reader="fast").open(clock=ManualClock())) as reader:
            assert table(reader, ranges(reader), ["value"]).to_pylist() == [{"value": b"v"}], joined


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_fast_reader_logs_in_without_sending_the_password(broker, mechanism):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    how = ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], 4096)
    user = broker.prefix.rstrip(".")
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, how, b"se=cr,et")])[user].result()
    servers = broker.kafka.sasl_address().partition("?")[0]
    options = f"security.protocol=SASL_PLAINTEXT&sasl.mechanism={mechanism}&sasl.username={user}"
    place = at(f"{servers}?{options}&sasl.password=se%3Dcr%2Cet", reader="fast").address
    host, port = place.servers.rsplit(":", 1)
    connection = Connection(host, int(port), wire_settings(place.configuration()))
    assert connection.alive
    connection.close()
    wrong = wire_settings(dict(place.configuration()) | {"sasl.password": "another"})
    with pytest.raises(LoginRefused, match="refuses the login"):
        Connection(host, int(port), wrong)


@pytest.mark.parametrize("reader", ["fast", pytest.param("librdkafka", marks=pytest.mark.prove)])
def test_a_refused_login_says_so_and_shows_no_secret(broker, reader):
    address = broker.kafka.sasl_address("ada", password="not-this-one")  # noqa: S106 -- a wrong one
    with closing(at(address, reader=reader).open(clock=ManualClock())) as opened, pytest.raises(LoginRefused) as error:
        opened.bounds()
    assert "not-this-one" not in str(error.value)


def test_what_the_fast_reader_does_not_know_librdkafka_reads():
    address = "kafka://localhost:1?socket.keepalive.enable=true"
    with pytest.raises(InvalidPlan, match="does not know the option"):
        at(address, reader="fast").open(clock=ManualClock()).bounds()
    assert type(at(address).open(clock=ManualClock()).topic).__name__ == "LibrdkafkaTopic"
    assert type(at("kafka://localhost:1").open(clock=ManualClock()).topic).__name__ == "FastTopic"


def test_without_a_compiler_librdkafka_reads(monkeypatch):
    """Numba has no wheel for some platforms; whoever insists on the fast reader is told."""
    for name in ("numba", "headrace.connect.kafka.reading.fetching", "headrace.connect.kafka.reading.record_batches"):
        monkeypatch.setitem(sys.modules, name, None)
    opened = at("kafka://localhost:1").open(clock=ManualClock())
    assert type(opened.topic).__name__ == "LibrdkafkaTopic"
    with pytest.raises(InvalidPlan, match="it does not know this Python"):
        at("kafka://localhost:1", reader="fast").open(clock=ManualClock()).bounds()


def test_a_connection_that_is_not_of_the_right_kind_says_what_to_set(broker, tmp_path):
    """TLS to a listener without it, an unknown authority, a file that is not there."""
    plain = f"kafka://{broker.bootstrap}?security.protocol=SSL"
    host, port = broker.bootstrap.split(":")
    with pytest.raises(Unavailable, match="See security"):
        Connection(host, int(port), wire_settings(KafkaAddress.parse(plain).configuration()))
    trusting_others = broker.kafka.tls_address.split("&")[0]
    with (
        closing(at(trusting_others).open(clock=ManualClock())) as opened,
        pytest.raises(LoginRefused, match="certificate"),
    ):
        opened.bounds()
    missing = f"{plain}&ssl.ca.location={tmp_path}/none.pem"
    with pytest.raises(InvalidPlan, match="cannot be read"):
        at(missing).open(clock=ManualClock()).bounds()
    with pytest.raises(InvalidPlan, match=r"socket.timeout.ms=soon of a Kafka address is no number"):
        at("kafka://localhost?socket.timeout.ms=soon").open(clock=ManualClock()).bounds()
