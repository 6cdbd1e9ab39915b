"""Chunks and islands by whole columns: sorted once by key and time, where windows in SQL sort twice and carry rows.

Keys whose equality numpy does not decide as SQL does (floating point, nested values) are left to SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.base.names import quote
from headrace.kernels.arrays import one_array
from headrace.kernels.codes import MOST, coded
from headrace.kernels.groups.gaps import CHUNK, FIRST, SessionSql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.duck import Duck
    from headrace.kernels.groups.windows import Session

    Numbers = np.ndarray[Any, np.dtype[np.int64]]


def chunked(duck: Duck, session: Session, rows: str, keys: Sequence[str]) -> str:
    """Return a relation of rows with their chunks: `_time` no more than the gap behind the row before."""
    table = duck.arrow(f"SELECT * FROM {rows}")
    runs = runs_of(table, keys, first="_time", last="_time", gap=session.gap)
    if runs is None:
        quoted = [quote(name) for name in keys]
        table = duck.arrow(f"SELECT * FROM {SessionSql(session).chunked(duck.register(table), quoted)}")
    else:
        table = table.append_column(CHUNK, pa.array(runs.starts_of_rows()))
    return duck.register(table)


def islands(duck: Duck, session: Session, spans: pa.Table, keys: Sequence[str]) -> str:
    """Return a relation of spans from `_pane` to `_last` with `_first`, the start of the session that they make."""
    runs = runs_of(spans, keys, first="_pane", last="_last", gap=session.gap)
    if runs is None:
        return f"({SessionSql(session).islands(f'SELECT * FROM {duck.register(spans)}', keys)})"
    return duck.register(spans.append_column(FIRST, pa.array(runs.starts_of_rows())))


@dataclass(frozen=True)
class Runs:
    """Rows in runs: `order` is by key and time, runs begin in it at `begins`; `starts` are the times of the rows."""

    order: Numbers
    begins: Numbers
    starts: Numbers

    def of_rows(self, values: Numbers) -> Numbers:
        """Return for each row the value of its run."""
        found: Numbers = np.empty(len(self.order), np.int64)
        found[self.order] = np.repeat(values, np.diff(self.begins, append=len(self.order)))
        return found

    @property
    def firsts(self) -> Numbers:
        """The first row of each run."""
        firsts: Numbers = self.order[self.begins]
        return firsts

    def starts_of_rows(self) -> Numbers:
        """Return for each row the time at which its run begins."""
        return self.of_rows(self.starts[self.firsts])


def runs_of(table: pa.Table, keys: Sequence[str], *, first: str, last: str, gap: int) -> Runs | None:
    """Return the runs of rows: one begins with a row that is more than the gap behind the reach of all before it.

    None where only SQL can tell which keys are equal.
    """
    if not table.num_rows:
        nothing = np.zeros(0, np.int64)
        return Runs(nothing, nothing, nothing)
    starts, ends = (one_array(table.column(name)).to_numpy(zero_copy_only=False) for name in (first, last))
    earliest = int(starts.min())
    span = int(ends.max()) - earliest + 1 + gap  # so that another key is always more than the gap behind
    codes = coded([table.column(name) for name in keys], table.num_rows, most=MOST // span)
    if codes is None:
        return None
    codes *= span
    codes -= earliest  # from here on one number for key and time
    at = codes + starts if first != last else np.add(codes, starts, out=codes)
    order = np.argsort(at)
    reached = at = at[order]
    if first != last:
        reached = np.add(codes, ends, out=codes)[order]
        np.maximum.accumulate(reached, out=reached)
    begins = np.flatnonzero(at[1:] - reached[:-1] > gap) + 1
    return Runs(order, np.concatenate([[0], begins]), starts)
