"""`group_read`: a group of two processes reads a topic of 2 M records of 200 bytes and commits after each batch.

Kafka: confluent-kafka, `consume` of up to 10,000 records, an asynchronous commit after each, two partitions for each
member; a record's id is the first 8 bytes of its value. Ours: `poll` and `commit`. Both add up the ids, so each record
is read once. From the moment when both members are ready to join until the last record; the time in which the members
of the group find each other counts on both sides, and a second figure leaves it out.
Expected: 3 times its speed, since ours maps the segments, and theirs makes a Python object of each record.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scripts.broker.jars import Unavailable
from scripts.broker.servers import NotStarted

from bench.figure import Figure, Skipped, compare_times, same
from bench.kafka_bids import create, delete
from bench.kafka_race import servers
from bench.rabbit import body
from bench.workers import Task, Worked, seconds, together
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.setting import Setting

MEMBERS, PARTITIONS, SIZE, MOST = 2, 4, 200, 10_000
RECORDS = 2_000_000
_RIVAL = "Kafka with confluent-kafka"
_IDLE_SECONDS = 2.0


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure it in turn."""
    records = setting.rows(RECORDS)
    try:
        address = servers(setting)
    except (Unavailable, NotStarted) as reason:
        return [Skipped(bench="group_read", rival=_RIVAL, reason=str(reason))]
    topic = f"group-{setting.folder.name[-8:]}"
    create(address, topic, partitions=PARTITIONS)
    _fill_theirs(address, topic, records)
    path = setting.fresh("log")
    _fill_ours(path, records)
    ours, theirs = [], []
    for number in range(setting.runs(5, 3)):
        group = f"g{number}"
        ours.append(_timed(Task(_our_member, (path, group)), records))
        theirs.append(_timed(Task(_their_member, (address, topic, f"{topic}-{group}")), records))
        setting.say(f"run {number}: ours {ours[-1][0]:.2f} s, theirs {theirs[-1][0]:.2f} s (with joining)")
    delete(address, topic)
    what = f"{records:,} records of {SIZE} bytes read by a group of {MEMBERS}"
    return [
        compare_times(
            "group_read",
            what=f"{what}, {name}",
            rival=_RIVAL,
            must=must,
            ours=[each[at] for each in ours],
            theirs=[each[at] for each in theirs],
            unit="s",
        )
        for name, at, must in (("from the first record to the last", 1, ">= 3"), ("joining included", 0, None))
    ]


def _timed(task: Task, records: int) -> tuple[float, float]:
    """Return the seconds with and without joining the group."""
    began = time.monotonic()
    worked = together(task, MEMBERS)
    reading = seconds(worked, records)
    same("members that read", sum(each.count > 0 for each in worked) >= 1, True)  # noqa: FBT003
    return max(each.ended for each in worked) - began, reading


def _our_member(begin: Callable[[], object], number: int, path: Path, group: str) -> Worked:
    del number
    count, ids, first = 0, 0, 0.0
    with Log(path) as log, log.consumer(group, "records") as consumer:
        begin()
        ended = time.monotonic()
        while time.monotonic() - ended < _IDLE_SECONDS:
            found = consumer.poll(MOST, wait="100 milliseconds")
            for each in found:
                first = first or time.monotonic()
                count, ids = count + each.rows.num_rows, ids + (pc.sum(each.rows.column("id")).as_py() or 0)
            if found:
                consumer.commit()
                ended = time.monotonic()
    return Worked(count, ids, first or ended, ended if count else 0.0)


def _their_member(begin: Callable[[], object], number: int, address: str, topic: str, group: str) -> Worked:
    del number
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"enable.auto.commit": False, "log_level": 0})
    begin()
    consumer.subscribe([topic])
    count, ids, first, ended, began = 0, 0, 0.0, 0.0, time.monotonic()
    while time.monotonic() - (ended or began + 15) < _IDLE_SECONDS:
        found = consumer.consume(MOST, 0.1)
        for message in found:
            if message.error():
                raise RuntimeError(str(message.error()))
        if found:
            first = first or time.monotonic()
            count, ids = count + len(found), ids + sum(int.from_bytes(each.value()[:8], "big") for each in found)
            consumer.commit(asynchronous=True)
            ended = time.monotonic()
    consumer.close()
    return Worked(count, ids, first or time.monotonic(), ended)


def _fill_ours(path: Path, records: int) -> None:
    with Log(path) as log:
        topic = log.create_topic("records", "id bigint, text string", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            ids = np.arange(partition, records, PARTITIONS)
            for some in np.array_split(ids, max(1, len(ids) // MOST)):
                topic.append(pa.table({"id": some, "text": ["x" * (SIZE - 8)] * len(some)}), partition=partition)


def _fill_theirs(address: str, topic: str, records: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "linger.ms": 50, "queue.buffering.max.messages": 2_000_000})
    for number in range(records):
        producer.produce(topic, body(number, SIZE), partition=number % PARTITIONS)
        if number % MOST == 0:
            producer.poll(0)
    producer.flush()
