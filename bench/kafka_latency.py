"""`kafka_latency`: from topic to topic, the count of a key for each of 1,000 events a second and 1,000 keys.

Each output record has the time at which the latest event that it counts was sent; the latency is the time at which it
is read, with read_committed, less that. Ours and Kafka Streams are exactly once, Flink too, with a checkpoint a second;
Spark is at least once and starts a micro-batch when the one before has ended. Expected: 0.6 of Spark's and half of
Flink's, whose results wait for a checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import kafka_bids, kafka_peers
from bench.figure import Figure, Skipped, WrongAnswer, percentile
from bench.kafka_peers import RivalMissing
from bench.kafka_race import servers
from bench.kafka_spark import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.setting import Setting

RATE = KEYS = 1_000
WARM_SECONDS, SECONDS, QUICK_SECONDS = 15, 30, 10
START_SECONDS = 300
SPARK = "Spark with its connector, micro-batches as installed"

_PROGRAM = """
import headrace as hr

app = hr.App("latency", storage="{storage}", topics="kafka://{servers}", shards=2)
events = app.stream("{given}", "k bigint, ts bigint", key="k")
counts = events.group_by("k").agg(n="count(*)", ts="max(ts)").named("counts")
counts.to_topic("{counted}")
"""


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure it."""
    at = servers(setting)
    mine = {}
    for where, options in (("on Spark", []), ("in process", ["--local"])):
        if setting.spark_allowed or options:
            mine[where] = _latency(
                setting, at, f"ours, {where}", lambda given, counted, o=options: _ours(setting, at, given, counted, o)
            )
    rivals: list[tuple[str, str | None, Callable[[str, str], list[str]]]] = []
    if setting.spark_allowed:
        rivals.append((SPARK, "<= 0.6", lambda a, b: _spark(at, a, b)))
    rivals += [
        (
            "Flink, exactly once, a checkpoint a second",
            "<= 0.5",
            lambda a, b: _named(kafka_peers.flink_latency(at), a, b),
        ),
        (
            "Kafka Streams, exactly once, commits every 100 ms",
            None,
            lambda a, b: _named(kafka_peers.streams_latency(at, setting.fresh("streams")), a, b),
        ),
    ]
    found: list[Figure | Skipped] = []
    for rival, must, command in rivals:
        try:
            theirs = _latency(setting, at, rival, command)
        except RivalMissing as reason:
            found.append(Skipped(bench="kafka_latency", rival=rival, reason=str(reason)))
            continue
        found += [figure for where, ours in mine.items() for figure in figures(where, ours, rival, theirs, must)]
    return found


def figures(
    where: str,
    ours: Sequence[float],
    rival: str,
    theirs: Sequence[float],
    must: str | None,
    *,
    bench: str = "kafka_latency",
) -> list[Figure]:
    """Return the figures of latencies in milliseconds: median and p99, ours over theirs."""
    return [
        Figure(
            bench=bench,
            what=f"{name} of {len(ours):,} latencies, {where}: ours over theirs",
            rival=rival,
            ratio=percentile(ours, part) / percentile(theirs, part),
            must=must,
            ours=percentile(ours, part),
            theirs=percentile(theirs, part),
            unit="ms",
            runs=1,
        )
        for name, part in (("median", 0.5), ("p99", 0.99))
    ]


def spark(setting: Setting, at: str) -> list[float]:
    """Return the latencies of Spark with its connector, in micro-batches as installed."""
    return _latency(setting, at, SPARK, lambda given, counted: _spark(at, given, counted))


def _spark(at: str, given: str, counted: str) -> list[str]:
    return Job("latency", at, given, rocksdb=False, to=counted).command()


def _ours(setting: Setting, at: str, given: str, counted: str, options: Sequence[str]) -> list[str]:
    storage = setting.fresh("latency")
    storage.mkdir(parents=True)
    program = storage / "program.py"
    program.write_text(_PROGRAM.format(storage=storage / "app", servers=at, given=given, counted=counted), "utf-8")
    return [str(Path(sys.executable).with_name("headrace")), "run", str(program), *options]


def _named(command: Sequence[str], given: str, counted: str) -> list[str]:
    return [part.replace("{in}", given).replace("{out}", counted) for part in command]


def _latency(setting: Setting, at: str, who: str, command: Callable[[str, str], list[str]]) -> list[float]:
    """Start a program between two new topics, send events, and return latencies in milliseconds."""
    given, counted = (
        f"latency-{setting.fresh('topic').name}-{setting.folder.name[-6:]}-{end}" for end in ("in", "out")
    )
    started = command(given, counted)
    for topic, settings in ((given, {}), (counted, {"cleanup.policy": "compact"})):
        kafka_bids.create(at, topic, partitions=kafka_bids.PARTITIONS, **settings)
    try:
        return latencies(
            setting,
            who,
            started,
            send=lambda stop: _send(at, given, stop),
            read=lambda seconds, program: _read(at, counted, seconds, program),
        )
    finally:
        kafka_bids.delete(at, given, counted)


def latencies(
    setting: Setting,
    who: str,
    command: Sequence[str],
    *,
    send: Callable[[threading.Event], None],
    read: Callable[[float, subprocess.Popen[bytes]], list[float]],
) -> list[float]:
    """Start a program, send events until it has been read from for long enough, and return its latencies.

    Raises:
        WrongAnswer: nothing was read.

    """
    log = setting.fresh("said")
    with log.open("wb") as said:
        program = subprocess.Popen(
            command, cwd=Path(__file__).parents[1], stdout=said, stderr=said, start_new_session=True
        )
    stop = threading.Event()
    sender = threading.Thread(target=send, args=(stop,))
    sender.start()
    try:
        found = read(SECONDS if setting.scale >= 1 else QUICK_SECONDS, program)
    finally:
        stop.set()
        sender.join()
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
    if not found:
        raise WrongAnswer(
            f"{who} counted nothing within {START_SECONDS} s: {log.read_text('utf-8', 'replace')[-1500:]}"
        )
    setting.say(
        f"{who}: median {percentile(found, 0.5):.0f} ms, p99 {percentile(found, 0.99):.0f} ms of {len(found):,}"
    )
    return found


def _send(at: str, topic: str, stop: threading.Event) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": at, "linger.ms": 0, "partitioner": "murmur2_random"})
    began, sent = time.time(), 0
    while not stop.wait(0.001):
        while sent < (time.time() - began) * RATE:
            key = sent * 7919 % KEYS
            producer.produce(topic, f'{{"k": {key}, "ts": {int(time.time() * 1e6)}}}', str(key))
            sent += 1
        producer.poll(0)
    producer.flush()


def _read(at: str, topic: str, seconds: float, program: subprocess.Popen[bytes]) -> list[float]:
    """Return the latencies of what is read in so many seconds, after the program has worked for `WARM_SECONDS`."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": at,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 5,
        }
    )
    consumer.subscribe([topic])
    found: list[float] = []
    first, began = None, time.time()
    while time.time() < (began + START_SECONDS if first is None else first + WARM_SECONDS + seconds):
        if program.poll() is not None:
            break
        for message in consumer.consume(500, 0.01):
            now = time.time()
            if message.error() or message.value() is None:
                continue
            first = first or now
            if now > first + WARM_SECONDS:
                found.append((now - json.loads(message.value())["ts"] / 1e6) * 1000)
    consumer.close()
    return found
