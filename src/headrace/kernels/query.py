"""Stateless steps as SQL: composed, and computed only where rows are needed."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from headrace.base.errors import InvalidQuery
from headrace.kernels.blame import duckdb_text
from headrace.kernels.duck import Duck, typed
from headrace.kernels.op import Operator, StepResult
from headrace.kernels.staging import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.delta import Delta
    from headrace.kernels.op import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Operator):
    """SQL over the rows of one delta or, all treated alike, of several: `before`, the rows, `after`.

    `shared` results are computed once. `passes`, where each row of its input is one of the result, in its place: the
    columns that it has as they are, pairs of a name in the input and one in the result; `computes`: it has others.
    `inserts`: these rows are insertions all, and their `_weight` is among what it computes.
    """

    before: str
    after: str
    shared: bool
    passes: tuple[tuple[str, str], ...] = ()
    computes: bool = True
    inserts: bool = False

    def passed(self, inputs: Sequence[Delta]) -> list[pa.Table]:
        """Return the columns that the result has of its input as they are, where they are known."""
        known = inputs[0].known if len(inputs) == 1 else None
        old, new = ([pair[i] for pair in self.passes] for i in (0, 1))
        if not old or known is None or not set(old) <= set(known[0].column_names):
            return []
        passed = [part.select(old).rename_columns(new) for part in known]
        return [part.append_column(WEIGHT, _weights(part.num_rows)) for part in passed] if self.inserts else passed

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Return the SQL, or what it computes; rows of which only columns are chosen are not copied."""
        if not self.computes and len(inputs) == 1 and inputs[0].computed and (passed := self.passed(inputs)):
            return StepResult(passed)
        sources = [rows for delta in inputs if (rows := delta.relation) is not None]
        if not sources:
            return StepResult()
        sql = f"({' UNION ALL '.join(f'{self.before} {rows} {self.after}' for rows in sources)})"
        return StepResult([context.duck.arrow(f"SELECT * FROM {sql}")] if self.shared else sql)


_SHARED_ROWS = 1 << 20


def _weights(rows: int) -> pa.Array:
    """Return the weights of insertions; up to a million are a slice of one array."""
    return _shared_ones().slice(0, rows) if rows <= _SHARED_ROWS else _ones(rows)


@cache
def _shared_ones() -> pa.Array:
    return _ones(_SHARED_ROWS)


def _ones(rows: int) -> pa.Array:
    return pa.array(np.ones(rows, np.int32), WEIGHT.type)  # five times as fast as to repeat a scalar


def computed(sql: str, schema: pa.Schema) -> pa.Table:
    """Return the rows of SQL that reads no table, in the types of a schema.

    Raises:
        InvalidQuery: it cannot be computed.

    """
    with closing(Duck()) as duck:
        try:
            return typed(duck.arrow(sql), schema)
        except duckdb.Error as error:
            raise InvalidQuery(f"values cannot be computed: {duckdb_text(error)}") from None
