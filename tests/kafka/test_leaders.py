"""Three brokers: leaders change, and an unclean election loses what was read. Proofs, since a cluster starts slowly."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from reading import created, producer, ranges, read_by, source, table

from headrace.base.outside import OffsetsBeyondEnd
from headrace.base.time import ManualClock, SystemClock
from headrace.connect.source import OffsetRange

pytestmark = pytest.mark.prove


def sent(broker, topic, values, **options):
    """Write records, and wait until they are there, whoever leads."""
    writer, failed = producer(broker, **options), []
    for value in values:
        writer.produce(topic, b"%d" % value, partition=0, on_delivery=lambda error, _: failed.append(error))
    writer.flush(60)
    assert [each for each in failed if each is not None] == []


def leader(broker, topic, *, other_than=None):
    """Return which broker leads the topic's first partition, once there is one (another one)."""
    admin, clock = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0}), SystemClock()
    until = clock.monotonic() + 60
    while clock.monotonic() < until:
        try:
            found = admin.list_topics(topic, timeout=2).topics[topic].partitions[0].leader
        except (KafkaException, KeyError):
            found = -1
        if found >= 0 and found != other_than:
            return found
        clock.sleep(0.1)
    raise AssertionError("there is no leader")


def values(broker, reader):
    return [int(row["value"]) for row in read_by(broker, reader, columns=("value",)).to_pylist()]


@pytest.mark.parametrize("reader", ["fast", "librdkafka"])
def test_reading_goes_on_where_a_leader_is_killed(cluster, reader):
    """Every record once and in order, with the leader killed between two parts of a range, and again."""
    topic = created(cluster)
    sent(cluster, topic, range(6_000), batch_num_messages=50)
    with closing(source(cluster, reader=reader).open(clock=ManualClock())) as opened:
        (whole,) = ranges(opened)
        found = []
        for number, part in enumerate(whole.split(12)):
            if number in (3, 8):
                lost = leader(cluster, topic)
                cluster.kafka.kill(lost)
            found += table(opened, [part], ["value"]).to_pylist()
            if number in (3, 8):
                leader(cluster, topic, other_than=lost)
                cluster.kafka.restart(lost)
        assert [int(row["value"]) for row in found] == list(range(6_000))
        assert opened.bounds().end == {"0": whole.end}


def test_records_that_an_unclean_election_has_lost_are_noticed(cluster):
    """At once where the partition is shorter, and by their leaders' epochs where it has grown since."""
    first, second, _ = cluster.kafka.brokers
    settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    topic = cluster.topic("t")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=1, replica_assignment=[[first, second]], config=settings)])[
        topic
    ].result()
    assert leader(cluster, topic) == first
    sent(cluster, topic, range(10))
    cluster.kafka.kill(second)
    sent(cluster, topic, range(10, 20))
    with closing(source(cluster).open(clock=ManualClock())) as reader:
        (part,) = ranges(reader)
        assert table(reader, [part], ["value"]).num_rows == part.end == 20
        worker = source(cluster).open(clock=ManualClock())  # it reads what others plan
        assert table(worker, [part], ["value"]).num_rows == 20
        before = reader.mark("0", 20)
        with closing(source(cluster).open(clock=ManualClock())) as other:
            assert other.mark("0", 20) == before, "a process that did not read it says the same"
        cluster.kafka.kill(first)
        cluster.kafka.restart(second)  # it has the first ten records only
        assert leader(cluster, topic, other_than=first) == second
        with pytest.raises(OffsetsBeyondEnd, match="has read up to offset 20, and it ends at offset 10"):
            reader.bounds()
        sent(cluster, topic, range(100, 120))
        with pytest.raises(OffsetsBeyondEnd, match="has read up to offset 20"), closing(worker):
            list(worker.read(OffsetRange(source="s", partition="0", start=20, end=30), ["value"]))
        with closing(source(cluster).open(clock=ManualClock())) as other:
            assert other.mark("0", 20) != before, "whoever asks now knows that the record is another one"
            assert other.mark("0", 10) == before
        assert values(cluster, "fast") == values(cluster, "librdkafka") == [*range(10), *range(100, 120)]
