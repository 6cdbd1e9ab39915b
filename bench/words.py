"""Random texts, made in columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def words(random: np.random.Generator, count: int, low: int, high: int) -> pa.Array:
    """Return `count` words of `low` to `high` small letters."""
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(random.integers(low, high + 1, count), out=offsets[1:])
    letters = random.integers(97, 123, int(offsets[-1]), dtype=np.uint8)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))


def join(*parts: pa.Array | str) -> pa.Array:
    """Return texts put together, row by row."""
    return pc.binary_join_element_wise(*parts, "")
