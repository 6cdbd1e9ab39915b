"""`statsd_ingest`: how many datagrams a second arrive without loss, in a durable topic and in StatsD's memory.

Expected: StatsD runs JavaScript for each datagram. We take hundreds with one call of the system, read them in columns,
and append what gathers while the disk syncs. A sender sends at a steady rate for two seconds; the highest rate at which
every datagram arrived counts.
"""

from __future__ import annotations

import multiprocessing
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from scripts.broker.servers import LOOPBACK, Servers, free_ports
from scripts.servers.npm import modules
from scripts.servers.packages import Unavailable
from scripts.servers.statsd import PACKAGE, Statsd

from bench.figure import Figure, Skipped, paired
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.setting import Setting

FIRST, STEP, STEPS = 5_000, 1.5, 14
SECONDS = 2.0
BURST_SECONDS = 0.002
PATIENCE = 5.0
BENCH = "statsd_ingest"
FEED = """
import sys, threading
from headrace.connect import statsd
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.topics import TopicSpec
from headrace.log import Log
feed = statsd.metrics(sys.argv[1])
topics = EmbeddedTopics(Log(sys.argv[2]), partitions=1, fault=lambda point: None)
landing = topics.landing(TopicSpec(name="metrics", schema=statsd.METRICS), feed="f", limit=1 << 60, read=lambda: 0)
feed.run(landing, threading.Event())
"""


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure both in turn."""
    rival = "StatsD 0.9 on Node.js, counters in memory"
    try:
        modules(PACKAGE)
    except Unavailable as error:
        return [Skipped(bench=BENCH, rival=rival, reason=str(error))]
    ours, theirs = [], []
    for number in range(setting.runs(3, 1)):
        with _ours(setting) as (port, count):
            ours.append(_highest(port, count))
        with _theirs(setting) as (port, count):
            theirs.append(_highest(port, count))
        setting.say(f"run {number}: {ours[-1]:,.0f} datagrams/s, StatsD {theirs[-1]:,.0f}")
    ratio, spread = paired(ours, theirs)
    return [
        Figure(
            bench=BENCH,
            what="datagrams of one metric a second without loss, into a durable topic",
            rival=rival,
            ratio=ratio,
            spread=spread,
            must=">= 3",
            ours=sorted(ours)[len(ours) // 2],
            theirs=sorted(theirs)[len(theirs) // 2],
            unit="datagrams/s",
            runs=len(ours),
        )
    ]


def _highest(port: int, count: Callable[[], float]) -> float:
    """Return the highest rate without loss; a rate is tried twice, since the machine may be busy with other things."""
    best, rate = 0.0, float(FIRST)
    for _ in range(STEPS):
        if not any(_arrived(port, count, rate) for _ in range(2)):
            break
        best, rate = rate, rate * STEP
    return best


def _arrived(port: int, count: Callable[[], float], rate: float) -> bool:
    before = count()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        sent = pool.apply(send, (port, rate))
    deadline = time.monotonic() + PATIENCE
    while (arrived := count() - before) < sent and time.monotonic() < deadline:
        time.sleep(0.05)
    return arrived >= sent


def send(port: int, rate: float) -> int:
    """Send datagrams at a rate; return how many. One that cannot be sent fast enough takes longer."""
    metrics = [b"shop.requests.%d:1|c" % number for number in range(100)]
    sent, total, began = 0, int(rate * SECONDS), time.perf_counter()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect((LOOPBACK, port))
        while sent < total:
            due = min(total, int((time.perf_counter() - began) * rate) + 1)
            due = min(due, sent + int(rate * 2 * BURST_SECONDS) + 1)  # after a pause no burst, which no rate has
            while sent < due:
                sender.send(metrics[sent % 100])
                sent += 1
            time.sleep(BURST_SECONDS)
    return sent


@contextmanager
def _ours(setting: Setting) -> Iterator[tuple[int, Callable[[], float]]]:
    folder, port = setting.fresh("log"), free_ports(1)
    process = subprocess.Popen([sys.executable, "-c", FEED, f"statsd://{LOOPBACK}:{port}", str(folder)])
    try:
        deadline = time.monotonic() + 60
        while not (folder / "topics" / "metrics").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1.0)  # the port is opened right after
        with Log(folder) as log:
            yield port, lambda: float(sum(log.topic("metrics").end_offsets().values()))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@contextmanager
def _theirs(setting: Setting) -> Iterator[tuple[int, Callable[[], float]]]:
    folder = setting.fresh("statsd")
    folder.mkdir(parents=True)
    server = Statsd(Servers(folder, shared=False))
    server.start()
    try:
        yield server.port, lambda: server.counter("statsd.packets_received")
    finally:
        server.stop()
