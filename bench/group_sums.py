"""The count and the sum of each group of an updated table: a sink that adds up deltas, and its check."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bench.figure import same

if TYPE_CHECKING:
    import pyarrow as pa

    from bench.tables import Rows

AGGREGATES = {"n": "count(*)", "total": "sum(v)"}


@dataclass
class GroupSums:
    """Adds up the deltas of `AGGREGATES` by group, insertions and withdrawals."""

    groups: int
    name: str = "group_sums"
    epochs: list[int] = field(default_factory=list)
    rows_out: int = 0

    def __post_init__(self) -> None:
        self.rows, self.n, self.total = (np.zeros(self.groups, np.int64) for _ in range(3))

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Receive the delta of an epoch."""
        self.epochs.append(epoch)
        self.rows_out += rows.num_rows
        g, n, total, weight = (rows.column(name).to_numpy() for name in ("g", "n", "total", "_weight"))
        weight = weight.astype(np.int64)
        np.add.at(self.rows, g, weight)
        np.add.at(self.n, g, n * weight)
        np.add.at(self.total, g, total * weight)

    def check(self, rows: Rows) -> None:
        """Check every group against a plain count of the rows."""
        n = np.bincount(rows.g, minlength=self.groups)
        total = np.zeros(self.groups, np.int64)
        np.add.at(total, rows.g, rows.v)
        same("groups with one row each", int((self.rows == (n > 0)).sum()), self.groups)
        same("groups with the right count", int((self.n == n).sum()), self.groups)
        same("groups with the right sum", int((self.total == total).sum()), self.groups)
