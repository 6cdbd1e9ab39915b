"""Results of windows that overlap, by running sums: a window's sum is the difference of two of them.

A frame that slides over the panes costs a window function per result; here a pane costs one addition, and a result one
subtraction, however many panes its window has. That is right for whole numbers alone, of which none overflows: other
accumulators, and keys that have no numbers, are left to frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.codes import MOST, coded
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from headrace.kernels.groups.grouping import Grouping

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

FIRST, LAST = "_first", "_last"
_WHOLE = ("BIGINT", "HUGEINT")


def covers(grouping: Grouping) -> bool:
    """Return whether all that a grouping keeps are sums of whole numbers, in windows that slide."""
    panes = grouping.panes
    added = all(each.fold == "sum" and each.type in _WHOLE for each in grouping.accumulators)
    return added and panes is not None and not panes.cumulating and not grouping.multisets


def columns(grouping: Grouping) -> list[str]:
    """Return the columns, as SQL over kept groups, that `window_sums` needs beside the keys and `_pane`."""
    sums = (f"TRY_CAST(p{i} AS BIGINT) AS p{i}" for i in range(len(grouping.accumulators)))
    return [COUNT, *sums]


def window_sums(panes: pa.Table, keys: list[str], *, size: int, every: int) -> pa.Table | None:
    """Return each closing window of each key once, with the sums over its panes; windows without rows are left out.

    Args:
        panes: the panes of the closing windows: `keys`, `_pane` (where it starts), `_first` and `_last` (the ends of
            the first and the last closing window that have it), and what to add up.
        keys: the columns of the key.
        size: of a window.
        every: from one window to the next.

    Returns:
        `keys`, `_window` (its end), and the sums; None where they might overflow, or the keys have no numbers.

    """
    summed = [name for name in panes.column_names if name not in (*keys, "_pane", FIRST, LAST)]
    starts = panes["_pane"].to_numpy()
    least = starts.min()
    width = int(starts.max() - least) + size + 1
    codes = coded([panes[key] for key in keys], len(starts), most=MOST // width)
    if codes is None or not all(_fits(panes[name]) for name in summed):
        return None
    at = codes * width + (starts - least)  # where a pane is among the panes of all keys
    order = np.argsort(at, kind="stable")
    at, codes, starts = at[order], codes[order], starts[order]
    nexts = np.where(np.diff(codes, append=-1) == 0, np.roll(starts, -1), MOST)
    first, last = panes[FIRST].to_numpy()[order], np.minimum(panes[LAST].to_numpy()[order], nexts)
    windows = np.maximum((last - first) // every + 1, 0)  # those of which it is the last pane
    of = np.repeat(np.arange(len(at)), windows)
    ends = first[of] + (np.arange(len(of)) - np.repeat(np.cumsum(windows) - windows, windows)) * every
    begun = np.searchsorted(at, (at - starts)[of] + ends - size)
    found = pa.array(order[of])
    columns: dict[str, Any] = {key: panes[key].take(found) for key in keys} | {"_window": ends}
    for name in summed:
        upto: Numbers = np.concatenate([[0], np.cumsum(panes[name].to_numpy()[order])])
        columns[name] = upto[of + 1] - upto[begun]
    result = pa.table(columns)
    return result.filter(pc.greater(result[COUNT], 0))


def _fits(column: pa.ChunkedArray) -> bool:
    """Return whether no sum of some of these numbers overflows, and none is missing."""
    if column.null_count:
        return False
    numbers = column.to_numpy()
    return float(np.abs(numbers.astype(np.float64)).max()) * len(numbers) < MOST
