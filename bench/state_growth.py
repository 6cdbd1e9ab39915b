"""`state_growth`: the cost of an epoch depends on its delta, not on the size of the state.

Expected: at most 1.3 times as long on a state ten times larger. Two storages are filled, then the same small deltas
go to both in turn. The groups are chosen evenly from the state, so they are not close to each other. The same of one
group whose different values are counted: each value is kept, and an epoch looks at those that come.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from bench import ours, sums
from bench.fed_app import FedApp
from bench.figure import Figure, paired, same
from headrace.base.time import SystemClock
from headrace.engine.engine import Engine
from headrace.engine.epoch import Settings
from headrace.engine.inprocess import InProcess

if TYPE_CHECKING:
    from bench.setting import Setting

SCHEMA = "k bigint, v bigint"
DELTA = 1_000
WARM = 5
SMALL, LARGE = 200_000, 1_000_000
SEED = 7


def run(setting: Setting) -> list[Figure]:
    """Measure it in process and on Spark, from 200 k groups and from a million; and from 200 k values of a group."""
    figures = []
    for groups in (setting.rows(SMALL), setting.rows(LARGE)):
        figures.append(_measure(setting, groups, _InProcess))
        if setting.spark_allowed:
            figures.append(_measure(setting, groups, _OnSpark))
    figures.append(_measure(setting, setting.rows(SMALL), _OfValues))
    return figures


def _measure(setting: Setting, groups: int, app_class: type[_GrowthApp]) -> Figure:
    epochs = setting.runs(40, 15)
    setting.say(f"{app_class.label}: filling states of {groups:,} and {groups * 10:,} {app_class.kept}")
    with app_class(setting, groups) as small, app_class(setting, groups * 10) as large:
        took = [(small.epoch(), large.epoch()) for _ in range(WARM + epochs)][WARM:]
        small.check(WARM + epochs)
        large.check(WARM + epochs)
    less, more = ([pair[position] for pair in took] for position in (0, 1))
    setting.say(
        f"{app_class.label}: {statistics.median(less):.1f} ms, on ten times as much {statistics.median(more):.1f} ms"
    )
    ratio, spread = paired(more, less)
    return Figure(
        bench="state_growth",
        what=f"{app_class.label}: epoch of {DELTA} rows on {groups * 10:,} {app_class.kept}",
        rival=f"itself on {groups:,} {app_class.kept}",
        ratio=ratio,
        spread=spread,
        must="<= 1.3",
        ours=statistics.median(more),
        theirs=statistics.median(less),
        unit="ms",
        runs=epochs,
    )


class _GrowthApp(FedApp):
    """An app whose state has `groups` groups, each of one row."""

    label, kept, key = "", "groups", "k"
    aggregates: ClassVar = ours.AGGREGATES

    def __init__(self, setting: Setting, groups: int) -> None:
        super().__init__(setting, "growth")
        self.groups = groups
        self.sink = sums.Sums()
        self.app.stream("rows", SCHEMA).group_by(self.key).agg(**self.aggregates).to(self.sink)
        self.random = np.random.default_rng(SEED)
        self.log.create_topic("rows", SCHEMA, partitions=2)
        self.fill("rows", groups, lambda first, last: _table(np.arange(first, last, dtype=np.int64)))
        self.start()

    def epoch(self) -> float:
        """Run one epoch on the next delta and return its milliseconds."""
        raise NotImplementedError

    def delta(self) -> pa.Table:
        """Return rows of groups that are in the state."""
        return _table(self.random.integers(0, self.groups, DELTA))

    def check(self, epochs: int) -> None:
        """Check the output against the input."""
        same("groups", self.sink.rows, self.groups)
        same("rows counted", self.sink.n, self.groups + epochs * DELTA)


class _InProcess(_GrowthApp):
    label = "in process"

    def start(self) -> None:
        """Run in this process; the engine opens the log itself."""
        self.log.close()
        settings = Settings(storage=self.storage, topics=None, shards=2, clock=SystemClock())
        self.engine = Engine(self.app.plan(), settings)
        self.carrier = InProcess(self.engine)
        while not self.engine.needs_no_epoch:
            self.carrier.step()

    def stop(self) -> None:
        """Close the engine."""
        self.carrier.close()
        self.engine.close()

    def epoch(self) -> float:
        self.engine.outside.log.topic("rows").append(self.delta())
        began = time.perf_counter()
        self.carrier.step()
        return (time.perf_counter() - began) * 1000


class _OnSpark(_GrowthApp):
    label = "on Spark"

    def epoch(self) -> float:
        """Return the time that Spark reports for the batch, as in `tiny_epoch`."""
        (epoch,) = self.feed(self.sink, {"rows": self.delta()})
        return self.took([epoch])


class _OfValues(_InProcess):
    label, kept, key = "in process", "different values of a group", "v"
    aggregates: ClassVar = {"n": "count(*)", "total": "count(distinct k)"}

    def check(self, epochs: int) -> None:
        same("groups", self.sink.rows, 1)
        same("different values", self.sink.total, self.groups)
        same("rows counted", self.sink.n, self.groups + epochs * DELTA)


def _table(keys: np.ndarray) -> pa.Table:  # type: ignore[type-arg]
    return pa.table({"k": keys, "v": np.ones(len(keys), dtype=np.int64)})
