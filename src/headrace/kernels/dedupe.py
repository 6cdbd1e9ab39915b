"""The first row of each key: which keys have been seen.

State is one row a key with the time of its first row, which it ages by. A key is forgotten once the watermark has
passed that time by more than `within`. A row that is so far behind the watermark itself is late: a key first seen at
that time would be forgotten by now, so nobody can tell whether the row is the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.kernels.firsts import earliest
from headrace.kernels.late import SplitLate
from headrace.kernels.op import StatefulOp, StepResult
from headrace.kernels.sql import with_nulls
from headrace.kernels.state.tables import Column, TableSpec
from headrace.kernels.zones import without_zones

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.delta import Delta
    from headrace.kernels.op import Context, Operator

    Indices = np.ndarray[Any, np.dtype[np.int64]]

SEEN = "seen"
FIRST = "_first"
INDEX = "_index"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedupe(StatefulOp):
    """The first row of each key, as long as the key is kept: until the watermark passes it by `within` microseconds."""

    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    within: int
    arrived: str | None = None
    """A column that is passed on: when each row was stored."""

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the keys that have been seen."""
        numbered = {name: (f"c{i}", kind) for i, (name, kind) in enumerate(self.columns)}
        keys = tuple(numbered[name] for name in self.keys)
        by = (tuple(name for name, _ in keys),)
        return (TableSpec(name=SEEN, keys=keys, values=((FIRST, "BIGINT"),), by=by, ages=FIRST),)

    def before_exchange(self, side: int, rows: int, *, output: int, late: int | None) -> Operator:
        """Split off the late rows."""
        del side
        return SplitLate(step=self.step, inputs=(rows,), output=output, late=late, reach=self.within)

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Forget keys, return the first row of each key that is new, and remember its key."""
        if context.watermark_moved is not None:
            context.keyed.expire(SEEN, context.watermark_moved - self.within)
        if not inputs[0].tables:
            return StepResult()
        return StepResult([DedupeRun(self, context).first_rows(inputs[0].tables)])


class DedupeRun:
    """One epoch of one dedupe in one shard, that has rows."""

    def __init__(self, op: Dedupe, context: Context) -> None:
        self.duck = context.duck
        self.state = context.keyed
        self.names = [name for name, _ in op.columns]
        self.passed = ["_time", *([op.arrived] if op.arrived else [])]
        self.keys = [name for name, _ in self.state.tables[SEEN].keys]

    def first_rows(self, parts: list[pa.Table]) -> pa.Table:
        """Return the first row of each new key as the step's delta, and remember the keys."""
        fresh = self._fresh(parts)
        self._remember(fresh)
        return self._named(fresh)

    def _fresh(self, parts: list[pa.Table]) -> pa.Table:
        """Return the first row of each new key, in order of event time; the least of several of one time.

        Columns are called `c0…`, whatever the user calls them.
        """
        numbered = [f"c{i}" for i in range(len(self.names))]
        renamed = [part.select([*self.names, *self.passed]).rename_columns([*numbered, *self.passed]) for part in parts]
        rows = without_zones(pa.concat_tables(renamed, promote_options="permissive").combine_chunks())
        first = self._unseen(rows, self._firsts(rows))
        return rows.take(pa.array(self._in_order(rows, first)))

    def _firsts(self, rows: pa.Table) -> Indices:
        """Return the index of the first row of each key."""
        found = earliest([rows.column(name) for name in self.keys], rows.column("_time").to_numpy())
        if found is None:
            return self._first_of_each(rows, np.arange(rows.num_rows))
        alone, shared = found
        return np.concatenate([alone, self._first_of_each(rows, shared)]) if len(shared) else alone

    def _first_of_each(self, rows: pa.Table, indices: Indices) -> Indices:
        """Return of some rows the index of the first of each key: of equal times the least row."""
        nth = f"row_number() OVER (PARTITION BY {', '.join(self.keys)} ORDER BY {self._order(rows)})"
        return self._indices(f"{self._at(rows, indices)} QUALIFY {nth} = 1")

    def _unseen(self, rows: pa.Table, indices: Indices) -> Indices:
        """Return of some rows the indices of those whose keys have not been seen."""
        if self.state.minimum(SEEN, FIRST) is None:
            return indices
        keys = rows.select(self.keys)
        probe = self._at(keys, indices)
        seen = self.state.lookup(SEEN, self.keys, probe)
        same = self.state.matching(SEEN, "d", "s", nulls=with_nulls([keys]))
        return self._indices(f"{probe} d ANTI JOIN {seen} s ON {same}")

    def _in_order(self, rows: pa.Table, indices: Indices) -> Indices:
        """Return the indices of some rows in order of time; SQL orders those of which others have the same time."""
        times = rows.column("_time").to_numpy()[indices]
        by = np.argsort(times)
        indices, times = indices[by], times[by]
        equal = times[1:] == times[:-1]
        tied = np.concatenate([equal, [False]]) | np.concatenate([[False], equal])
        if len(indices) and tied.any():
            indices[tied] = self._indices(f"{self._at(rows, indices[tied])} ORDER BY {self._order(rows)}")
        return indices

    def _at(self, rows: pa.Table, indices: Indices) -> str:
        """Return some rows as a relation, with their indices."""
        taken = pa.array(indices)
        return self.duck.register(rows.take(taken).append_column(INDEX, taken))

    def _indices(self, source: str) -> Indices:
        indices: Indices = self.duck.arrow(f"SELECT {INDEX} FROM {source}").column(0).to_numpy()
        return indices

    @staticmethod
    def _order(rows: pa.Table) -> str:
        whole = [f"{name} ASC NULLS FIRST" for name in rows.column_names if name != "_time"]
        return ", ".join(["_time", *whole])

    def _remember(self, fresh: pa.Table) -> None:
        columns = [*(fresh.column(name) for name in self.keys), fresh.column("_time")]
        self.state.append(SEEN, pa.table(columns, names=[*self.keys, FIRST]))

    def _named(self, fresh: pa.Table) -> pa.Table:
        """Return the rows as the step's delta."""
        weights = pa.repeat(pa.scalar(1, pa.int32()), fresh.num_rows)
        columns = [*(fresh.column(i) for i in range(len(self.names))), weights, *map(fresh.column, self.passed)]
        return pa.table(columns, names=[*self.names, "_weight", *self.passed])
