"""The first row of each key among many: one number for key and time, sorted once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.kernels.codes import MOST, coded

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    Positions = np.ndarray[Any, np.dtype[np.int64]]


def earliest(keys: Sequence[pa.ChunkedArray], times: Positions) -> tuple[Positions, Positions] | None:
    """Return the positions of the only rows with the least time of their key, and of rows that share theirs.

    Null is a key. None where only SQL can tell which keys are equal.
    """
    found = _numbered(keys, times)
    if found is None:
        return None
    numbers, codes = found
    order = np.argsort(numbers)
    numbers, codes = numbers[order], codes[order]
    heads = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
    ends = np.append(numbers, -1)
    shared = ends[heads + 1] == numbers[heads]
    begin, several = heads[shared], heads[shared]
    if len(several):
        counts = np.searchsorted(numbers, numbers[begin], side="right") - begin
        several = np.repeat(begin - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    return order[heads[~shared]], order[several]


def distinct(keys: Sequence[pa.ChunkedArray], times: Positions) -> bool:
    """Return whether no two rows have the same key and time; also false where only SQL can tell."""
    found = _numbered(keys, times)
    return found is not None and bool((np.diff(np.sort(found[0])) > 0).all())


def _numbered(keys: Sequence[pa.ChunkedArray], times: Positions) -> tuple[Positions, Positions] | None:
    """Return one number for key and time of each row, in their order, and one for the key."""
    first = int(times.min())
    span = int(times.max()) - first + 1
    codes = coded(keys, len(times), most=MOST // span)
    return None if codes is None else (codes * span + (times - first), codes)
