"""A table on Spark that is updated: filled from a topic, then changed row by row; what it holds is known here too.

Rows have a number, a group and a value, and every group has equally many at first. An update gives a row another value
and, one time in ten where groups may change, another group: then two groups change, not one.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa

import headrace as hr
from bench import ours
from bench.progress import epochs_ms, processing

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from bench.setting import Setting
    from headrace.dsl.table import Table

SCHEMA = "id bigint, g bigint, v bigint"
TOPIC = "rows"
SEED = 11
VALUES = 1_000_000
_CHUNK = 500_000
_MOVED = 0.1


class Rows:
    """The rows as they are now: `g` and `v` by `id`."""

    def __init__(self, rows: int, groups: int, *, moving: bool) -> None:
        self.groups = groups
        self.moving = moving
        self.random = np.random.default_rng(SEED)
        self.g = np.arange(rows, dtype=np.int64) % groups
        self.v = self.random.integers(0, VALUES, rows)

    def __len__(self) -> int:
        return len(self.g)

    def update(self, count: int) -> pa.Table:
        """Change so many rows, evenly chosen, and return them."""
        ids = self.random.choice(len(self), count, replace=False)
        self.v[ids] = self.random.integers(0, VALUES, count)
        if self.moving:
            moved = ids[: round(count * _MOVED)]
            self.g[moved] = self.random.integers(0, self.groups, len(moved))
        return self.table(ids)

    def table(self, ids: np.ndarray | None = None) -> pa.Table:  # type: ignore[type-arg]
        """Return some of the rows, or all."""
        ids = np.arange(len(self), dtype=np.int64) if ids is None else ids
        return pa.table({"id": ids, "g": self.g[ids], "v": self.v[ids]})


class Sink(Protocol):
    """A sink of ours that knows which epochs it was given."""

    name: str
    epochs: list[int]

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Take an epoch's delta."""
        ...


S = TypeVar("S", bound=Sink)


class Side(Generic[S]):
    """An app on Spark over such a table, and the sink that it feeds."""

    def __init__(self, setting: Setting, rows: Rows, sink: S, steps: Callable[[Table], Table]) -> None:
        self.rows = rows
        self.sink = sink
        self.storage = setting.fresh("table")
        self.app = hr.App("table", storage=self.storage, shards=2)
        steps(self.app.table(TOPIC, SCHEMA, key="id", partitions=2)).to(sink)
        self.log = hr.Log(self.storage / "log")
        topic = self.log.create_topic(TOPIC, SCHEMA, key="id", cleanup="compact", partitions=2)
        for first in range(0, len(rows), _CHUNK):
            topic.append(rows.table(np.arange(first, min(first + _CHUNK, len(rows)))))
        self.running = self.app.start(setting.spark)
        self.running.await_caught_up(timeout=3_600)
        seconds, epochs = processing(ours.progress(self.running))
        setting.say(f"ours: a table of {len(rows):,} rows filled in {seconds:.1f} s, {epochs} epochs")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.running.stop()
        self.log.close()
        shutil.rmtree(self.storage, ignore_errors=True)

    def epoch(self, change: Callable[[], pa.Table]) -> float:
        """Let the app take in changed rows in one epoch, and return its milliseconds by Spark's own account.

        An append to two partitions may be seen between them; what came in two epochs is no sample, and is done again.
        """
        while True:
            known = set(self.sink.epochs)
            self.log.topic(TOPIC).append(change())
            self.running.await_caught_up(timeout=600)
            made = set(self.sink.epochs) - known
            if len(made) == 1:
                return self._took(made.pop())

    def _took(self, epoch: int) -> float:
        until = time.monotonic() + 60
        while not (took := [batch for batch in ours.progress(self.running) if batch["batchId"] == epoch]):
            if time.monotonic() > until:
                raise TimeoutError("the epoch does not end")
            time.sleep(0.01)
        return epochs_ms(took)[-1]
