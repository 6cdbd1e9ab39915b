"""The order in which rows arrived, as a column: SQL keeps none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.kernels.op import Operator, StepResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.delta import Delta
    from headrace.kernels.op import Context

ORDER = "_order"
_TASK_BITS = 40  # a task has fewer rows than this, and an epoch fewer tasks than the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberArrivals(Operator):
    """Rows with `_order`: how they arrived, whatever an exchange does to them."""

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Return the rows, numbered."""
        return StepResult(numbered(inputs[0].tables, task=context.task))


def numbered(parts: list[pa.Table], *, task: int = 0) -> list[pa.Table]:
    """Return rows with `_order`: by task, then as they are in the tables.

    Tasks are numbered along the partitions that they read, so rows of one partition keep the order of their offsets.
    """
    tables, first = [], task << _TASK_BITS
    for part in parts:
        numbers = np.arange(first, first + part.num_rows, dtype=np.int64)
        tables.append(part.append_column(ORDER, pa.array(numbers)))
        first += part.num_rows
    return tables


def in_order(rows: pa.Table, count: int) -> pa.Table:
    """Return the first `count` columns of rows, in the order of the column after those: a join may lose it."""
    numbers = rows.column(count).to_numpy()
    columns = rows.select(list(range(count)))
    ordered = np.all(numbers[:-1] <= numbers[1:])
    return columns if ordered else columns.take(pa.array(np.argsort(numbers, kind="stable")))
