"""Texts from places in a buffer, in compiled code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.connect.compiled import inlined
from headrace.connect.formats.json_bytes import unescaped

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def gather(data: Array, starts: Array, lengths: Array, read: Array, escaped: Array) -> pa.Array:
    """Return texts, null where they are not `read`; where they are `escaped`, as JSON's strings are.

    Raises:
        ArrowInvalid: together they have more than 2 GB.

    """
    total = int(lengths[read].sum())
    if total >= 2**31:
        raise pa.ArrowInvalid("a column of text has more than 2 GB in one batch")
    out, offsets = np.empty(max(total, 1), np.uint8), np.empty(len(read) + 1, np.int32)
    _copy(data, (starts, lengths, read, escaped), out, offsets)
    valid = None if read.all() else pa.py_buffer(np.packbits(read, bitorder="little"))
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(out[: offsets[-1]])]
    return pa.Array.from_buffers(pa.string(), len(read), buffers)


@inlined
def _copy(data: Array, places: Any, out: Array, offsets: Array) -> None:
    starts, lengths, read, escaped = places
    to = 0
    for row in range(len(read)):
        offsets[row] = to
        if not read[row]:
            continue
        start, length = starts[row], lengths[row]
        if escaped[row]:
            to = unescaped(data, (start, start + length), out, to)
        else:
            for at in range(length):
                out[to + at] = data[start + at]
            to += length
    offsets[len(read)] = to
