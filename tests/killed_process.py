"""Runs a feed, or publishes an epoch with a sink, and dies by SIGKILL at a point: see `broker_cases.killed`."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

from broker_cases import WRITER, batch
from headrace.base.time import ManualClock
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.messages.writing import MessageSink
from headrace.connect.topics import TopicSpec
from headrace.log import Log
from headrace.testing.connectors import COLUMNS


class KillAt:
    """Kills this process at a point."""

    def __init__(self, point):
        self.point = point

    def __call__(self, point):
        if point == self.point:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    given, point, log = pickle.loads(Path(sys.argv[1]).read_bytes())  # noqa: S301 -- the test wrote it
    fault = KillAt(point)
    if isinstance(given, MessageSink):
        writer = replace(given, fault=fault).open(writer=WRITER, clock=ManualClock())
        writer.publish(0, iter([batch([0, 1]), batch([2, 3])]))
        return
    topics = EmbeddedTopics(Log(Path(log), fsync=False), partitions=1, fault=fault)
    spec = TopicSpec(name="landed", schema=COLUMNS, key=("id",))
    given.run(topics.landing(spec, feed=given.identity, limit=1 << 60, read=lambda: 0), threading.Event())


if __name__ == "__main__":
    main()
