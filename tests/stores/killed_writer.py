"""A writer of two databases in a process of its own, which kills itself at a step: `kill -9`, so it closes nothing."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

from crashing_sinks import WRITER, batches, epochs, for_rows

from headrace.base.time import ManualClock
from headrace.connect import mysql, postgres
from headrace.connect.two_phase import two_phase

PRELOADED = [
    "headrace.testing",
    "headrace.testing.connectors",
    "headrace.connect.mysql.storing.declared",
    "headrace.connect.postgres.storing.declared",
]


def opened(urls, fault):
    """Open the writer of a table `t` in each database."""
    stores = [(mysql if url.startswith("mysql") else postgres).upsert(url, "t") for url in urls]
    sinks = {f"s{n}": replace(for_rows(each, table=True), fault=fault) for n, each in enumerate(two_phase(*stores))}
    for sink in sinks.values():
        sink.prepare(clock=ManualClock())
    return sinks["s0"].open_together(sinks, writer=WRITER, clock=ManualClock())


def publish(writer, epoch):
    rows = epochs(table=True)[epoch]
    writer.publish(epoch, {name: batches(rows, table=True) for name in ("s0", "s1")})


def write_until(urls, epoch, number, points):
    """Write an epoch that is not there yet, and die at the step with a number; `points` gets the steps."""

    def die(point):
        nonlocal number
        points.send(point)
        number -= 1
        if number == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    writer = opened(urls, die)
    if writer.last_epoch() < epoch:
        publish(writer, epoch)
    writer.close()
