"""Others agree: Kafka's own tools in Java read what we wrote, choose the same partitions, and show our lag."""

from __future__ import annotations

import json
import random
import subprocess
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
import writing

from headrace.connect.kafka.address import KafkaAddress
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.source import KafkaSource
from headrace.connect.kafka.writing.partitioner import murmur2, partitions_of

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def test_a_java_consumer_reads_what_is_committed_and_nothing_of_a_crash(broker):
    def fault(point):
        if epochs and point == "before_transaction_ends":
            raise KeyboardInterrupt

    epochs = []
    writer = writing.opened(writing.sink(broker, changelog=True, partitions=1, fault=fault))
    writer.publish(0, {"out": writing.rows(1, 2, deleted=[2])})
    epochs.append(1)
    with pytest.raises(KeyboardInterrupt):
        writer.publish(1, {"out": writing.rows(3)})
    again = writing.opened(writing.sink(broker, changelog=True))
    again.publish(1, {"out": writing.rows(4)})
    again.close()
    told = broker.kafka.tool(
        CONSUMER,
        *("--bootstrap-server", broker.bootstrap, "--topic", broker.topic("out"), "--from-beginning"),
        *("--isolation-level", "read_committed", "--max-messages", "3", "--timeout-ms", "20000"),
        *("--property", "print.key=true", "--property", "print.timestamp=true"),
    )
    lines = [line.split("\t") for line in told.splitlines() if "\t" in line]
    at = writing.AT // 1_000
    assert [line[:2] for line in lines] == [[f"CreateTime:{at + 1_000 * n}", str(n)] for n in (1, 2, 4)]
    assert [json.loads(line[2]) for line in lines] == [{"id": 1, "text": "t1"}, None, {"id": 4, "text": "t4"}]


def test_java_chooses_the_partitions_that_we_choose(broker):
    draw = random.Random(7)  # noqa: S311 -- seeded
    letters = "abcdefghijklmnopqrstuvwxyzäöü漢字😀0123456789-_ "
    keys = sorted({"".join(draw.choices(letters, k=draw.randrange(1, 30))) for _ in range(2_000)})
    cluster(KafkaAddress.parse(broker.address)).create(broker.topic("out"), partitions=7)
    text = "".join(f"{key}\t1\n" for key in keys)
    run = subprocess.run(
        broker.kafka._java(
            PRODUCER,
            *("--bootstrap-server", broker.bootstrap, "--topic", broker.topic("out")),
            *("--property", "parse.key=true", "--property", "key.separator=\t"),
        ),
        input=text.encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert not run.returncode, run.stderr
    found = {each["_key"]: part for part, records in writing.records(broker).items() for each in records}
    assert len(found) == len(keys)
    chosen = partitions_of(pa.array([key.encode() for key in keys], pa.binary()), 7)
    assert found == {key.encode(): int(part) for key, part in zip(keys, chosen, strict=True)}


def test_hashes_of_keys_are_those_of_kafkas_own_tests():
    """Of `UtilsTest.testMurmur2` in Kafka's source."""
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {key: murmur2(key) for key in known} == known


def test_keys_in_any_part_of_a_column_have_the_same_partition_and_absent_keys_are_spread():
    keys = pa.array([None if n % 5 == 0 else f"key-{n}".encode() for n in range(100)], pa.binary())
    whole = partitions_of(keys, 4, first=2)
    present = np.array([n % 5 != 0 for n in range(100)])
    for start in (0, 1, 37):
        assert (partitions_of(keys.slice(start), 4)[present[start:]] == whole[start:][present[start:]]).all()
    assert sorted(np.bincount(whole[~present]).tolist()) == [5, 5, 5, 5]


def test_kafkas_tool_shows_how_far_an_app_has_read(broker):
    writer = writing.opened(writing.sink(broker, partitions=1))
    writer.publish(0, {"out": writing.rows(*range(10))})
    writer.close()
    address = KafkaAddress.parse(broker.address)
    with closing(KafkaSource(address=address, topic="out", group="shop").open(clock=writing.CLOCK)) as reader:
        reader.bounds()
        reader.committed({"0": 4})
    told = broker.kafka.tool(
        GROUPS, "--bootstrap-server", broker.bootstrap, "--describe", "--group", broker.topic("shop")
    )
    (line,) = [line.split() for line in told.splitlines() if broker.topic("out") in line]
    assert line[:6] == [broker.topic("shop"), broker.topic("out"), "0", "4", "11", "7"]  # the transaction's end counts
