"""`statsd_ingest`: how many datagrams a second arrive without loss, in a durable topic and in StatsD's memory.

Expected: StatsD runs JavaScript for each datagram. We take hundreds with one call of the system, read them in columns,
and append what gathers while the disk syncs. A sender sends at a steady rate for two seconds, up to a hundred datagrams
with a call; the highest rate at which every datagram arrived counts, as far as this sender can send.
"""

from __future__ import annotations

import ctypes
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
SLOW = 0.7
"""A sender that reaches less of a rate cannot send faster."""
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
    """Return the highest rate without loss; a rate is tried twice, since the machine may be busy with other things.

    A rate counts as it was reached: a sender that is slower than it should be is the end of what can be measured.
    """
    best, rate = 0.0, float(FIRST)
    for _ in range(STEPS):
        reached = _lossless(port, count, rate)
        if reached < rate * SLOW:
            reached = max(reached, _lossless(port, count, rate))
        best = max(best, reached)
        if reached < rate * SLOW:
            break
        rate *= STEP
    return best


def _lossless(port: int, count: Callable[[], float], rate: float) -> float:
    """Send at a rate; return the rate that was reached, 0 if a datagram was lost."""
    before = count()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        sent, seconds = pool.apply(send, (port, rate))
    deadline = time.monotonic() + PATIENCE
    while (arrived := count() - before) < sent and time.monotonic() < deadline:
        time.sleep(0.05)
    return sent / seconds if arrived >= sent else 0.0


def send(port: int, rate: float) -> tuple[int, float]:
    """Send datagrams at a rate, many with a call of the system; return how many, and the seconds that it took."""
    metrics = [b"shop.requests.%d:1|c" % number for number in range(100)]
    sent, total, began = 0, int(rate * SECONDS), time.perf_counter()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect((LOOPBACK, port))
        vector = _vector(metrics)
        call = ctypes.CDLL(None, use_errno=True).sendmmsg
        while sent < total:
            due = min(total, int((time.perf_counter() - began) * rate) + 1)
            due = min(due, sent + int(rate * 2 * BURST_SECONDS) + 1)  # after a pause no burst, which no rate has
            while sent < due:
                got = call(sender.fileno(), vector, min(due - sent, len(metrics)), 0)
                if got < 0:
                    raise OSError(ctypes.get_errno(), "sendmmsg")
                sent += got
            time.sleep(BURST_SECONDS)
        return sent, time.perf_counter() - began


class _Part(ctypes.Structure):
    _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))


class _Message(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p), ("name_length", ctypes.c_uint32),
        ("parts", ctypes.POINTER(_Part)), ("part_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int), ("padding", ctypes.c_int),
        ("length", ctypes.c_uint32),
    )  # fmt: skip


def _vector(bodies: list[bytes]) -> ctypes.Array[_Message]:
    """Return messages as `sendmmsg` takes them."""
    vector = (_Message * len(bodies))()
    for message, body in zip(vector, bodies, strict=True):
        message.parts, message.part_count = ctypes.pointer(_Part(body, len(body))), 1
    return vector


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
