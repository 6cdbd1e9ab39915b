"""Columns of rows before an exchange or behind it, where nothing is computed: no statement of DuckDB copies them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.kernels.op import Operator, StepResult
from headrace.kernels.zones import without_zones

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.delta import Delta
    from headrace.kernels.op import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename(Operator):
    """Rows with these columns alone: `names` are pairs of an old name and a new one. Nothing is copied."""

    names: tuple[tuple[str, str], ...]

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Return the renamed rows."""
        del context
        old, new = ([pair[i] for pair in self.names] for i in (0, 1))
        return StepResult([part.select(old).rename_columns(new) for part in inputs[0].tables])


FEW_ROWS = 1 << 14
"""Parts of fewer rows are put together: each is looked at by itself where rows are spread over the shards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(Operator):
    """The records of a stream as they were read, each inserted: these `columns`, `_weight` and `_time`."""

    columns: tuple[str, ...]

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Return the rows; instants are readings in UTC, as everywhere in a level."""
        del context
        return StepResult([self._inserted(part) for part in inputs[0].tables])

    def _inserted(self, part: pa.Table) -> pa.Table:
        rows = without_zones(part.select([*self.columns, "_time"]))
        chunks = max((column.num_chunks for column in rows.columns), default=1)
        if rows.num_rows < chunks * FEW_ROWS:
            rows = rows.combine_chunks()
        weights = pa.repeat(pa.scalar(1, pa.int32()), rows.num_rows)
        return rows.add_column(len(self.columns), "_weight", weights)
