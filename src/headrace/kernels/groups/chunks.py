"""Chunks and islands by whole columns: sorted once by key and time, where windows in SQL sort twice and carry rows.

Keys whose equality numpy does not decide as SQL does (floating point, nested values) are left to SQL.
"""

from __future__ import annotations

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
    begins = _begins(table, keys, first="_time", last="_time", gap=session.gap)
    if begins is None:
        quoted = [quote(name) for name in keys]
        table = duck.arrow(f"SELECT * FROM {SessionSql(session).chunked(duck.register(table), quoted)}")
    else:
        table = table.append_column(CHUNK, pa.array(begins))
    return duck.register(table)


def islands(duck: Duck, session: Session, spans: str, keys: Sequence[str]) -> str:
    """Return spans from `_pane` to `_last` with `_first`, the start of the session that they make together."""
    table = duck.arrow(spans)
    begins = _begins(table, keys, first="_pane", last="_last", gap=session.gap)
    if begins is None:
        return f"({SessionSql(session).islands(f'SELECT * FROM {duck.register(table)}', keys)})"
    return duck.register(table.append_column(FIRST, pa.array(begins)))


def _begins(table: pa.Table, keys: Sequence[str], *, first: str, last: str, gap: int) -> Numbers | None:
    """Return for each row where its run begins: a row that is more than the gap behind the reach of all before it.

    None where only SQL can tell which keys are equal.
    """
    if not table.num_rows:
        return np.zeros(0, np.int64)
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
    begins = np.concatenate([[0], begins])
    begin_of: Numbers = np.empty_like(at)
    begin_of[order] = np.repeat(starts[order[begins]], np.diff(begins, append=len(at)))
    return begin_of
