"""Kept rows that match the rows of a probe, exactly: found by hash, then compared column by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.base.hashing import hash_columns
from headrace.kernels.arrays import one_array
from headrace.kernels.equal import equal, is_valid
from headrace.kernels.state.runs import UNBOUNDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.state.runs import Positions, Run


@dataclass(frozen=True, slots=True)
class Matches:
    """For each match the number of the row of the probe, the id of the kept row, and the row."""

    probe: Positions
    ids: Positions
    rows: pa.Table

    def only(self, which: Positions) -> Matches:
        """Return some of them, by a mask or by their numbers."""
        if which.dtype == np.bool_:
            which = np.flatnonzero(which)
        return Matches(self.probe[which], self.ids[which], self.rows.take(pa.array(which)))

    def aligned(self, count: int) -> Positions:
        """Return for each of `count` rows of the probe the number of its match, or -1; none has several."""
        at = np.full(count, -1)
        at[self.probe] = np.arange(len(self.probe))
        return at


@dataclass(frozen=True, slots=True)
class Probe:
    """Rows to find matches of: an array for each column, of a type that `equal.comparable` knows."""

    columns: Sequence[pa.Array]
    nulls: bool
    """Whether null equals null; else it equals nothing."""
    rows: int = 0
    """How many there are, where no column says so; all of them are alike then."""

    def among(self, runs: Sequence[Run], index: int, by: Sequence[str], *, most: int = UNBOUNDED) -> list[Matches]:
        """Return the matches among the live rows of runs, whose columns are `by`; `index` is the number of their index.

        Raises:
            TooMany: they are more than `most` bytes.

        """
        if not runs:
            return []
        hashes = hash_columns(self.columns, len(self.columns[0]) if self.columns else self.rows)
        order = np.argsort(hashes)
        if not self.nulls and any(column.null_count for column in self.columns):
            there = np.logical_and.reduce([is_valid(column) for column in self.columns])
            order = order[there[order]]
        hashes, matches = hashes[order], []
        for run in runs:
            which, at = run.pairs(index, hashes, most // run.row_bytes)
            most -= len(which) * run.row_bytes
            if len(which):
                matches.append(self._compared(run, order[which], at, by))
        return matches

    def _compared(self, run: Run, which: Positions, at: Positions, by: Sequence[str]) -> Matches:
        """Return which rows match among those whose hashes do."""
        rows, numbers = run.rows.take(pa.array(at)), pa.array(which)
        if not self.columns:
            return Matches(which, run.ids(at), rows)
        kept = [one_array(rows.column(name)) for name in by]
        pairs = zip(kept, self.columns, strict=True)
        same = np.logical_and.reduce([equal(one, other.take(numbers), nulls=self.nulls) for one, other in pairs])
        matches = Matches(which, run.ids(at), rows)
        return matches if same.all() else matches.only(same)


def together(parts: Sequence[Matches], schema: pa.Schema) -> Matches:
    """Return the matches of several runs as one; `schema` is that of their rows."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Matches(np.empty(0, np.int64), np.empty(0, np.int64), schema.empty_table())
    probe, ids = np.concatenate([part.probe for part in parts]), np.concatenate([part.ids for part in parts])
    return Matches(probe, ids, pa.concat_tables([part.rows for part in parts]).combine_chunks())
