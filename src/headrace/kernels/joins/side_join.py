"""Rows with those of a small table that match them; the table never changes, and every task has it.

A row keeps its place. Many rows are looked up in one pass of Arrow's hash table, few by binary searches in an index
that a process makes once: both find what is equal, and null equals nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.arrays import one_array
from headrace.kernels.op import Operator, StepResult
from headrace.kernels.state.matches import Probe, together
from headrace.kernels.state.runs import Run
from headrace.kernels.zones import without_zones

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.delta import Delta
    from headrace.kernels.op import Context
    from headrace.kernels.state.matches import Matches
    from headrace.kernels.state.runs import Positions

FEW = 4
"""Where more than one row is looked up for so many of the table, a hash table of all is made sooner."""


class Side(Protocol):
    """Where the table's rows are; equal ones have equal rows."""

    def whole(self) -> pa.Table:
        """Return all rows, in their order."""
        ...

    def __hash__(self) -> int:
        """Return a hash of what they are."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SideJoin(Operator):
    """Rows with the rows of `side` that agree in `on`, pairs of a column of theirs and one of the table.

    `key` identifies a row of the table: of equal keys the last one is it. `columns` are those of the result: a name,
    the column of the row, or of the table, and the type. `passed` are further columns of a row. `left`: a row without
    a match is kept, with nulls.
    """

    side: Side
    key: tuple[str, ...]
    on: tuple[tuple[str, str], ...]
    left: bool
    columns: tuple[tuple[str, str | None, str | None, pa.DataType], ...]
    passed: tuple[str, ...]

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Return the rows with their matches, in their order."""
        del context
        return StepResult([self.joined(part) for part in inputs[0].tables])

    def joined(self, rows: pa.Table) -> pa.Table:
        """Return rows with their matches."""
        run = _kept(self.side, self.key, tuple(theirs for _, theirs in self.on))
        which, at = self._found(run, rows)
        if which is not None:
            rows = rows.take(pa.array(which))
        theirs = [name for _, _, name, _ in self.columns if name is not None]
        found = run.rows.select(list(dict.fromkeys(theirs))).take(at) if theirs else run.rows
        columns = {name: rows.column(name) for name in self.passed}
        for name, ours, other, kind in self.columns:
            column = rows.column(ours) if ours is not None else found.column(other)
            columns[name] = column if column.type == kind else column.cast(kind)
        names = [*(name for name, *_ in self.columns), *self.passed]
        return pa.table([columns[name] for name in names], names=names)

    def _found(self, run: Run, rows: pa.Table) -> tuple[Positions | None, pa.Array]:
        """Return the rows (None: all, in their order), and for each the place of its match in the table, or null."""
        keys = [one_array(rows.column(ours)) for ours, _ in self.on]
        by = [theirs for _, theirs in self.on]
        if set(self.key) <= set(by):
            there = one_array(run.rows.column(by[0]))
            if len(by) == 1 and keys[0].type == there.type and rows.num_rows * FEW > run.rows.num_rows:
                at = pc.index_in(keys[0], value_set=there, skip_nulls=True)
            else:
                matches = _matches(run, keys, by)
                places = np.full(rows.num_rows, -1)
                places[matches.probe] = matches.ids
                at = pa.array(places, mask=places < 0)
            if self.left or not at.null_count:
                return None, at
            return np.flatnonzero(at.is_valid().to_numpy(zero_copy_only=False)), at.drop_null()
        return self._pairs(_matches(run, keys, by), rows.num_rows)

    def _pairs(self, matches: Matches, count: int) -> tuple[Positions, pa.Array]:
        """Return all pairs that match, for each row those of the table in its order."""
        which, at = matches.probe, matches.ids
        if self.left:
            alone = np.setdiff1d(np.arange(count), which)
            which, at = np.concatenate([which, alone]), np.concatenate([at, np.full(len(alone), -1)])
        order = np.lexsort((at, which))
        at = at[order]
        return which[order], pa.array(at, mask=at < 0)


def _matches(run: Run, keys: Sequence[pa.Array], by: Sequence[str]) -> Matches:
    return together(Probe(keys, nulls=False).among([run], 0, by), run.rows.schema)


@lru_cache(maxsize=16)
def _kept(side: Side, key: tuple[str, ...], on: tuple[str, ...]) -> Run:
    """Return the rows that may match something, with their index; a process makes it once."""
    rows = without_zones(side.whole())
    numbers = pa.array(np.arange(rows.num_rows))
    last = rows.select(key).append_column("", numbers).group_by(list(key)).aggregate([("", "max")]).column("_max")
    return Run.of(0, rows.take(last.take(pc.sort_indices(last))), (on,))
