"""`latency`: `kafka_latency` with our topics in the embedded log, exactly once; Spark's stay in Kafka.

A program counts 1,000 events a second of 1,000 keys. Each output record has the time at which the latest event that it
counts was sent; the latency is the time at which it is read, less that. Records are on the disk before they are read,
on both ends. Spark has no topics of its own: its rival is its connector, at least once, in micro-batches as installed.
Expected: half of it on Spark, where a batch costs what it costs, and 0.15 in process.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import headrace as hr
from bench.kafka_latency import KEYS, RATE, SPARK, START_SECONDS, WARM_SECONDS, figures, latencies
from bench.kafka_latency import spark as spark_latencies
from bench.kafka_race import servers

if TYPE_CHECKING:
    import subprocess
    import threading

    from bench.figure import Figure, Skipped
    from bench.setting import Setting

_MICROS = 1_000_000
_PAUSE_SECONDS = 0.002
_PROGRAM = """
import headrace as hr

app = hr.App("latency", storage="{storage}", shards=2)
events = app.stream("events", "k bigint, ts bigint", key="k")
counts = events.group_by("k").agg(n="count(*)", ts="max(ts)").named("counts")
counts.to_topic("counts")
"""


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure it."""
    ways = [("in process", "<= 0.15", ["--local"]), *([("on Spark", "<= 0.5", [])] if setting.spark_allowed else [])]
    ours = [(where, must, _ours(setting, where, options)) for where, must, options in ways]
    if not setting.spark_allowed:
        return []
    theirs = spark_latencies(setting, servers(setting))
    return [
        figure
        for where, must, mine in ours
        for figure in figures(where, mine, f"{SPARK}, over Kafka", theirs, must, bench="latency")
    ]


def _ours(setting: Setting, where: str, options: list[str]) -> list[float]:
    folder = setting.fresh("latency")
    folder.mkdir(parents=True)
    program, storage = folder / "program.py", folder / "app"
    program.write_text(_PROGRAM.format(storage=storage), "utf-8")
    with hr.Log(storage / "log") as log:
        log.create_topic("events", "k bigint, ts bigint", key="k", partitions=2)
        return latencies(
            setting,
            f"ours, {where}",
            [str(Path(sys.executable).with_name("headrace")), "run", str(program), *options],
            send=lambda stop: _send(log, stop),
            read=lambda seconds, started: _read(log, seconds, started),
        )


def _send(log: hr.Log, stop: threading.Event) -> None:
    with log.producer() as producer:
        began, sent = time.time(), 0
        while not stop.wait(0.001):
            while sent < (time.time() - began) * RATE:
                producer.send("events", {"k": sent * 7919 % KEYS, "ts": int(time.time() * _MICROS)})
                sent += 1


def _read(log: hr.Log, seconds: float, program: subprocess.Popen[bytes]) -> list[float]:
    """Return the latencies of what is read in so many seconds, after the program has worked for `WARM_SECONDS`."""
    found: list[float] = []
    first, began = None, time.time()
    at: dict[int, int] = {}
    while time.time() < (began + START_SECONDS if first is None else first + WARM_SECONDS + seconds):
        if program.poll() is not None:
            break
        sent = _arrived(log, at)
        now = time.time()
        first = first or (now if sent else None)
        if first is not None and now > first + WARM_SECONDS:
            found += [(now - each / _MICROS) * 1000 for each in sent]
        time.sleep(_PAUSE_SECONDS)
    return found


def _arrived(log: hr.Log, at: dict[int, int]) -> list[int]:
    """Return the times of the events that new output records count; `at` are the offsets, which move on."""
    if "counts" not in log.topics():
        return []
    topic = log.topic("counts")
    times: list[int] = []
    for partition, end in topic.end_offsets().items():
        if end > at.get(partition, 0):
            rows = topic.read(partition, at.get(partition, 0), end)
            times += [each for each in rows["ts"].to_pylist() if each is not None]
            at[partition] = end
    return times
