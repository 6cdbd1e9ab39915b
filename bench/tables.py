"""A table on Spark that is filled from a topic and then updated row by row, with a copy of its rows for checks.

Rows have a number, a group and a value; at first all groups have the same size. An update gives a row another value
and, where rows move, one time in ten another group: then two groups change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import pyarrow as pa

from bench.fed_app import FedApp, Sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.setting import Setting
    from headrace.dsl import Table

SCHEMA = "id bigint, g bigint, v bigint"
TOPIC = "rows"
SEED = 11
VALUES = 1_000_000
_MOVED = 0.1


class Rows:
    """The current rows: `g` and `v` by `id`."""

    def __init__(self, rows: int, groups: int, *, moving: bool) -> None:
        self.groups = groups
        self.moving = moving
        self.random = np.random.default_rng(SEED)
        self.g = np.arange(rows, dtype=np.int64) % groups
        self.v = self.random.integers(0, VALUES, rows)

    def __len__(self) -> int:
        return len(self.g)

    def update(self, count: int) -> pa.Table:
        """Change `count` rows, evenly chosen, and return them."""
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


S = TypeVar("S", bound=Sink)


class TableApp(FedApp, Generic[S]):
    """An app on Spark over such a table, and its sink."""

    def __init__(self, setting: Setting, rows: Rows, sink: S, steps: Callable[[Table], Table]) -> None:
        super().__init__(setting, "table")
        self.sink = sink
        steps(self.table(TOPIC, SCHEMA, key="id", partitions=2)).to(sink)
        self.fill(TOPIC, len(rows), lambda first, last: rows.table(np.arange(first, last)))
        self.start()

    def epoch(self, change: Callable[[], pa.Table]) -> float:
        """Feed changed rows in one epoch; return the milliseconds that Spark reports.

        An epoch may begin between the appends to two partitions. Two epochs are no valid sample: then it tries again.
        """
        while True:
            epochs = self.feed(self.sink, {TOPIC: change()})
            if len(epochs) == 1:
                return self.took(epochs)
