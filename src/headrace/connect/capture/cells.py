"""Cells of rows that a database sent, as columns. A cell is a place in the bytes and a length. No Python per row.

A length is `NULL`, or `UNCHANGED` where the server did not send a value that was not changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.connect.compiled import compiled

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Longs = npt.NDArray[np.int64]

NULL, UNCHANGED = -1, -2


def texts(data: npt.NDArray[np.uint8], starts: Longs, sizes: Longs) -> pa.Array:
    """Return cells as a column of texts; nulls, and what was not sent, are null."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(np.maximum(sizes, 0), out=offsets[1:])
    content = np.empty(int(offsets[-1]), np.uint8)
    gather(data, np.ascontiguousarray(starts), offsets, content)
    valid = pa.array(sizes >= 0).buffers()[1]
    kind, ends = (pa.string(), offsets.astype(np.int32)) if offsets[-1] < 2**31 else (pa.large_string(), offsets)
    return pa.Array.from_buffers(kind, len(starts), [valid, pa.py_buffer(ends), pa.py_buffer(content)])


@compiled
def moved(
    data: Bytes, new: tuple[Longs, Longs], old: tuple[Longs, Longs], key: Longs, found: npt.NDArray[np.bool_]
) -> None:
    """Say for each row that has both tuples whether a column of the key differs."""
    for row in range(len(found)):
        for column in key:
            size, before = new[1][row, column], old[1][row, column]
            if size < NULL or before < NULL:
                continue
            if size != before:
                found[row] = True
                break
            start, was = new[0][row, column], old[0][row, column]
            for place in range(max(size, 0)):
                if data[start + place] != data[was + place]:
                    found[row] = True
                    break
            if found[row]:
                break


@compiled
def gather(data: Bytes, starts: Longs, offsets: Longs, out: Bytes) -> None:
    """Copy the cells of a column behind each other; `offsets` says where each begins."""
    for row in range(len(starts)):
        # a signed place might be counted from the end: the compiler could not copy many bytes at once
        start, target = np.uint64(starts[row]), np.uint64(offsets[row])
        for place in range(np.uint64(offsets[row + 1]) - target):
            out[target + place] = data[start + place]
