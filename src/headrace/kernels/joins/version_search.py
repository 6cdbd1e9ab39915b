"""Which version was valid at a time, for many rows at once: one number for key and time, sorted once, and searched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.arrays import one_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    Numbers = np.ndarray[Any, np.dtype[np.int64]]
    Columns = Sequence[pa.ChunkedArray]

_MOST = 1 << 62
_DENSE = 1 << 31


def latest(probe: Columns, at: Numbers, keys: Columns, since: Numbers) -> Numbers | None:
    """Return for each probe row the index of the last version of its key that is not after it, or -1.

    Versions have no null in their keys, and no two of one key have the same time; a probe row with a null in its key
    matches none. None where only SQL can say which keys are equal.
    """
    found = np.full(len(at), -1, np.int64)
    if not len(since):
        return found
    coded = _coded(probe, keys)
    if coded is None:
        return None
    wanted, codes = coded
    keyed = np.flatnonzero(wanted >= 0)
    probes, versions = _numbered(wanted[keyed], at[keyed], codes, since)
    order, by = np.argsort(versions), np.argsort(probes)  # in order, each search begins where the last one ended
    index = np.searchsorted(versions[order], probes[by], side="right") - 1
    matched = index >= 0
    index, rows = order[index[matched]], keyed[by[matched]]
    same = codes[index] == wanted[rows]
    found[rows[same]] = index[same]
    return found


def _coded(probe: Columns, keys: Columns) -> tuple[Numbers, Numbers] | None:
    """Return a number for each row of both sides, the same for equal keys; -1 of one that no version has."""
    wanted = codes = np.zeros(1, np.int64)
    count = 1
    for column, key in zip(probe, keys, strict=True):
        kind = key.type
        if column.type != kind or pa.types.is_floating(kind) or kind.num_fields:
            return None
        try:
            encoded = one_array(key).dictionary_encode()
            index = one_array(pc.index_in(column, value_set=encoded.dictionary))
        except pa.ArrowNotImplementedError:
            return None
        size = len(encoded.dictionary)
        number = index.fill_null(-1).to_numpy(zero_copy_only=False)
        wanted = np.where((wanted < 0) | (number < 0), -1, wanted * size + number)
        codes = codes * size + encoded.indices.to_numpy(zero_copy_only=False)
        count *= size
        if count > _DENSE:
            values, codes = np.unique(codes, return_inverse=True)
            at = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
            wanted, count = np.where(values[at] == wanted, at, -1), len(values)
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
