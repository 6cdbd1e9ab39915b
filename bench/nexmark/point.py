"""One query at one size, in a process of its own, so that its cores and its memory are its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.processes import processes_of, resident

from bench.nexmark import racing
from bench.nexmark.answers import Weights
from bench.nexmark.queries import QUERIES
from bench.setting import Setting

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOK_SECONDS = 0.2
IN_PROCESS, ON_SPARK = "in process", "on Spark"


@dataclass(frozen=True)
class Point:
    """What is run. `log` and `warm` are logs with the events, and with few of them for a run that does not count."""

    query: str
    carrier: str
    cores: int
    shards: int
    log: str
    warm: str
    folder: str


@dataclass(frozen=True)
class Measured:
    """Seconds until it has caught up; rows by weight in the end; GB that all its processes had at most, together."""

    seconds: float
    rows: int
    memory: float


@dataclass(frozen=True)
class Scaled:
    """A point of the table: `events` of all streams, rate in million events a second, memory in GB."""

    query: str
    carrier: str
    cores: int
    events: int
    shards: int
    rate: float
    memory: float


def measure(point: Point) -> Measured:
    """Run it in a new process that may use so many cores.

    Raises:
        subprocess.CalledProcessError: it failed; what it said is on standard error.

    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[: point.cores])
    try:  # a child inherits the cores
        child = subprocess.Popen(
            [sys.executable, "-m", "bench.nexmark.point", json.dumps(asdict(point))],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    finally:
        os.sched_setaffinity(0, allowed)
    most = 0
    with child:
        while child.poll() is None:
            most = max(most, sum(resident(pid) for pid in processes_of(child.pid)))
            time.sleep(LOOK_SECONDS)
        said = child.stdout.read() if child.stdout else ""
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, child.args)
    return Measured(**json.loads(said), memory=most / 1e9)


def main(arguments: Sequence[str]) -> int:
    """Run the point that the argument describes, and print what it took."""
    point = Point(**json.loads(arguments[0]))
    setting = Setting(scale=1.0, folder=Path(point.folder), cores=point.cores)
    query, sink = QUERIES[point.query], Weights()
    try:
        if point.carrier == ON_SPARK:
            racing.ours_on_spark(setting, query, Path(point.warm), Weights(), shards=point.shards)
            seconds = racing.ours_on_spark(setting, query, Path(point.log), sink, shards=point.shards).processing
        else:
            racing.ours_in_process(setting, query, Path(point.warm), Weights(), shards=point.shards)
            seconds, _ = racing.ours_in_process(setting, query, Path(point.log), sink, shards=point.shards)
    finally:
        setting.close()
    print(json.dumps({"seconds": seconds, "rows": sink.rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
