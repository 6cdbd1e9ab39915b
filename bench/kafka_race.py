"""What the Kafka benches share: the broker, our side on both carriers, and figures against many rivals.

A rival on a JVM of its own cannot take turns with us run by run: ours runs before and after all rivals, and medians
are compared.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from typing import TYPE_CHECKING

import headrace as hr
from bench import ours
from bench.figure import Figure, Skipped
from bench.kafka_peers import RivalMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from bench.kafka_bids import Bids
    from bench.setting import Setting

_STARTED = {}


def servers(setting: Setting) -> str:
    """Return the `host:port` of the broker: that of `HEADRACE_KAFKA`, else one of our own that ends with this process.

    Both sides use it, and it shares the machine with them.
    """
    named = os.environ.get("HEADRACE_KAFKA")
    if named:
        return named
    if "kafka" not in _STARTED:
        from scripts.broker.brokers import Kafka
        from scripts.broker.servers import Servers

        setting.say("starting a broker")
        kafka = Kafka(Servers(setting.fresh("kafka"), shared=True))
        kafka.start()
        _STARTED["kafka"] = kafka
    return str(_STARTED["kafka"].bootstrap)


def run(setting: Setting, bids: Bids, steps: Callable[[hr.App], object], *, on_spark: bool, options: str = "") -> float:
    """Run an app of these steps from its first epoch until it has caught up, on a new storage; return the seconds."""
    storage = setting.fresh("ours")
    app = hr.App("bench", storage=storage, topics=f"kafka://{bids.servers}{options}", shards=2)
    steps(app)
    if on_spark:
        return ours.caught_up(setting, app, storage).processing
    began = time.perf_counter()
    with app.start(carrier="in-process") as running:
        running.await_caught_up(timeout=900)
        seconds = time.perf_counter() - began
    shutil.rmtree(storage, ignore_errors=True)
    return seconds


def bids_of(app: hr.App, bids: Bids, schema: str) -> object:
    """Return the stream of bids with the columns of a schema: as the rivals do, a program declares what it needs."""
    timed = {"event_time": "dateTime", "out_of_order": "4 seconds"} if "dateTime" in schema else {}
    return app.stream(bids.topic, schema, **timed)


class Race:
    """Our times, and the figures of one rival after another."""

    def __init__(self, setting: Setting, bench: str, what: str, mine: Callable[[bool], float]) -> None:
        """`mine` measures one run of ours, on Spark or in process, and checks its answer."""
        self.setting, self.bench, self.what, self.mine = setting, bench, what, mine
        self.carriers = [True, False] if setting.spark_allowed else [False]
        self.times: dict[bool, list[float]] = {carrier: [] for carrier in self.carriers}
        self.rivals: list[tuple[str, str | None, Sequence[float] | str]] = []

    def run(self, count: int, *, warm: bool = False) -> None:
        """Measure ours some times on each carrier; `warm`: without keeping what was measured."""
        for carrier in self.carriers:
            for _ in range(count):
                seconds = self.mine(carrier)
                self.setting.say(f"ours, {_where(carrier)}: {seconds:.2f} s{' (not kept)' if warm else ''}")
                if not warm:
                    self.times[carrier].append(seconds)

    def against(self, rival: str, must: str | None, measure: Callable[[], Sequence[float]]) -> None:
        """Measure a rival; it may be missing."""
        try:
            seconds = measure()
        except RivalMissing as reason:
            self.setting.say(f"{rival}: skipped: {reason}")
            self.rivals.append((rival, must, str(reason)))
            return
        self.setting.say(f"{rival}: {', '.join(f'{each:.2f}' for each in seconds)} s")
        self.rivals.append((rival, must, seconds))

    def figures(self) -> Iterator[Figure | Skipped]:
        """Return a figure for each rival and carrier; the targets are those of Spark's, where we run on it."""
        for rival, must, theirs in self.rivals:
            if isinstance(theirs, str):
                yield Skipped(bench=self.bench, rival=rival, reason=theirs)
                continue
            for carrier in self.carriers:
                mine, their = self.times[carrier], statistics.median(theirs)
                yield Figure(
                    bench=self.bench,
                    what=f"{self.what}, {_where(carrier)}",
                    rival=rival,
                    ratio=their / statistics.median(mine),
                    spread=(min(theirs) / max(mine), max(theirs) / min(mine)),
                    must=must,
                    ours=statistics.median(mine),
                    theirs=their,
                    unit="s",
                    runs=len(mine),
                )


def python_rival(folder: Path, measure: Callable[[Path], float]) -> list[float]:
    """Return the seconds of one run of a rival in Python, which keeps its files in a folder."""
    folder.mkdir(parents=True)
    try:
        return [measure(folder)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _where(on_spark: bool) -> str:  # noqa: FBT001 -- it is the name of a carrier
    return "on Spark" if on_spark else "in process"
