"""Rows as partial groups of their own, where grouping them before the exchange would leave nearly as many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.hashing import hash_columns
from headrace.kernels.groups.accumulated import numbers
from headrace.kernels.state.runs import each_once
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.groups.windows import Panes

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

SAMPLE = 1 << 14
"""So many rows say how many groups there are."""
SHRUNK = 0.7
"""With more groups for each row, grouping costs more than the rows that it saves the exchange and the merge."""

LARGE = 0.05
"""A group with so large a part of the rows would make its shard wait."""


def shrinks(rows: pa.Table, keys: Sequence[str], panes: Panes | None) -> bool:
    """Return whether rows have so few groups that it pays to group them; `_at` is their time.

    The groups that a random sample has once and twice say how many all rows have: few large groups do not change that.
    """
    count = rows.num_rows
    chosen = each_once(np.random.default_rng(count).integers(0, count, SAMPLE))
    sample = rows.take(pa.array(chosen))
    columns = [sample.column(name) for name in keys]
    if panes is not None:
        columns.append(pa.chunked_array([_starts(sample, panes)]))
    found = np.sort(hash_columns(columns, len(chosen)))
    begins = np.flatnonzero(np.concatenate([[True], found[1:] != found[:-1]]))
    sizes = np.diff(begins, append=len(found))
    one_is_large = int(sizes.max()) > LARGE * len(found)
    return one_is_large or _groups(sizes, len(found), count) < SHRUNK * count


def _groups(sizes: Numbers, sampled: int, rows: int) -> float:
    """Return how many groups rows are expected to have, from the sizes of those in a sample.

    The extrapolation of Chao et al., "Rarefaction and extrapolation with Hill numbers", 2014, for the number of kinds.
    """
    once, twice = int(np.count_nonzero(sizes == 1)), int(np.count_nonzero(sizes == 2))  # noqa: PLR2004 -- as it says
    if not once:
        return float(len(sizes))
    unseen = once**2 / (2 * twice) if twice else once * (once - 1) / 2
    more = -np.expm1(-(rows - sampled) * once / (sampled * unseen + once))
    return float(len(sizes) + unseen * more)


def each_alone(rows: pa.Table, keys: Sequence[str], given: Sequence[tuple[str, str]], panes: Panes | None) -> pa.Table:
    """Return a partial group for each row: its keys, its pane or else its time, a count of 1, its accumulators.

    Args:
        rows: the rows, with the columns of accumulators and the time `_at`.
        keys: the columns of their keys.
        given: for each accumulator its function and its column.
        panes: those of the windows, if there are any.

    """
    columns: dict[str, Any] = {name: rows.column(name) for name in keys}
    if panes is not None:
        columns["_pane"] = _starts(rows, panes)
    columns[COUNT] = np.ones(rows.num_rows, np.int64)
    columns |= {f"p{i}": _accumulator(how, rows.column(name)) for i, (how, name) in enumerate(given)}
    if panes is None:
        columns["_time"] = rows.column("_at")
    return pa.table(columns)


def _starts(rows: pa.Table, panes: Panes) -> pa.Array:
    """Return the starts of the panes that rows are in."""
    at: Numbers = numbers(rows.column("_at")) - panes.offset
    return pa.array(at // panes.pane * panes.pane + panes.offset)


def _accumulator(how: str, column: pa.ChunkedArray) -> Any:
    if how == "count":
        return pc.is_valid(column).cast(pa.int64())
    if how == "sum":
        return column.cast(pa.int64()).fill_null(0) if column.null_count else column.cast(pa.int64())
    return column
