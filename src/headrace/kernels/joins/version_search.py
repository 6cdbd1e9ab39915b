"""Which version was valid at a time, for many rows at once: one number for key and time, sorted once, and searched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.call import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    Numbers = np.ndarray[Any, np.dtype[np.int64]]
    Columns = Sequence[pa.ChunkedArray]

_MOST = 1 << 62
_DENSE = 1 << 31


def latest(asking: Columns, at: Numbers, keys: Columns, since: Numbers) -> Numbers | None:
    """Return for each asking row the place of the last version of its key that is not after it, or -1.

    Versions have no null in their keys, and no two of one key have the same time; an asking row with a null in its own
    meets none. None where only SQL can say which keys are equal.
    """
    found = np.full(len(at), -1, np.int64)
    if not len(since):
        return found
    coded = _coded(asking, keys)
    if coded is None:
        return None
    wanted, codes = coded
    known = np.flatnonzero(wanted >= 0)
    asked, there = _numbered(wanted[known], at[known], codes, since)
    order, by = np.argsort(there), np.argsort(asked)  # asked in order, each search begins where the last one ended
    place = np.searchsorted(there[order], asked[by], side="right") - 1
    met = place >= 0
    place, rows = order[place[met]], known[by[met]]
    same = codes[place] == wanted[rows]
    found[rows[same]] = place[same]
    return found


def _coded(asking: Columns, keys: Columns) -> tuple[Numbers, Numbers] | None:
    """Return a number for each row of both sides, the same for equal keys; -1 of one that nobody on the right has."""
    wanted = codes = np.zeros(1, np.int64)
    count = 1
    for ask, key in zip(asking, keys, strict=True):
        kind = key.type
        if ask.type != kind or pa.types.is_floating(kind) or kind.num_fields:
            return None
        try:
            encoded = whole(key).dictionary_encode()
            place = whole(pc.index_in(ask, value_set=encoded.dictionary))
        except pa.ArrowNotImplementedError:
            return None
        size = len(encoded.dictionary)
        number = place.fill_null(-1).to_numpy(zero_copy_only=False)
        wanted = np.where((wanted < 0) | (number < 0), -1, wanted * size + number)
        codes = codes * size + encoded.indices.to_numpy(zero_copy_only=False)
        count *= size
        if count > _DENSE:
            values, codes = np.unique(codes, return_inverse=True)
            near = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
            wanted, count = np.where(values[near] == wanted, near, -1), len(values)
    return wanted, codes


def _numbered(wanted: Numbers, at: Numbers, codes: Numbers, since: Numbers) -> tuple[Numbers, Numbers]:
    """Return one number for key and time of both sides, in their order; it needs no more than 62 bits."""
    first, last = int(since.min()), int(since.max())
    if (last - first + 2) * (int(codes.max()) + 1) > _MOST:
        times, since = np.unique(since, return_inverse=True)
        at, first, last = np.searchsorted(times, at, side="right") - 1, 0, len(times) - 1
    at = np.clip(at, first - 1, last)
    span = last - first + 2
    return wanted * span + (at - (first - 1)), codes * span + (since - (first - 1))
