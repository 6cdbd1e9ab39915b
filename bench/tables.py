"""A table on Spark that is updated: filled from a topic, then changed row by row; what it holds is known here too.

Rows have a number, a group and a value, and every group has equally many at first. An update gives a row another value
and, one time in ten where groups may change, another group: then two groups change, not one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import pyarrow as pa

from bench.fed import Fed, Sink

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


S = TypeVar("S", bound=Sink)


class Side(Fed, Generic[S]):
    """An app on Spark over such a table, and the sink that it feeds."""

    def __init__(self, setting: Setting, rows: Rows, sink: S, steps: Callable[[Table], Table]) -> None:
        super().__init__(setting, "table")
        self.sink = sink
        steps(self.table(TOPIC, SCHEMA, key="id", partitions=2)).to(sink)
        self.fill(TOPIC, len(rows), lambda first, last: rows.table(np.arange(first, last)))
        self.start()

    def epoch(self, change: Callable[[], pa.Table]) -> float:
        """Let the app take in changed rows in one epoch, and return its milliseconds by Spark's own account.

        An append to two partitions may be seen between them; what came in two epochs is no sample, and is done again.
        """
        while True:
            made = self.feed(self.sink, {TOPIC: change()})
            if len(made) == 1:
                return self.took(made)
