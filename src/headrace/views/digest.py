"""The digest of a view: the sum of its rows' hashes, modulo 2**64.

A sum has no order, so each delta changes it by the sum of its own rows, and a view that was read again must have the
digest that its deltas made. Hashes are those of `base.hashing`, but of floats every bit counts (0.0 is not -0.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.hashing import hash_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

EMPTY = 0


def digest(rows: pa.Table | pa.RecordBatch, weights: NDArray[np.int64] | None = None) -> int:
    """Return the sum of the rows' hashes, each as often as its weight says (default: once)."""
    if not rows.num_rows:
        return EMPTY
    hashes = row_hashes(rows)
    if weights is not None:
        hashes = hashes * weights.view(np.uint64)
    return int(hashes.sum(dtype=np.uint64))


def row_hashes(rows: pa.Table | pa.RecordBatch) -> NDArray[np.uint64]:
    """Return the hash of each row."""
    return hash_columns([_bits(column) for column in rows.columns], rows.num_rows)


def added(before: int, change: int) -> int:
    """Return a digest after a change."""
    return (before + change) & 0xFFFFFFFFFFFFFFFF


def _bits(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return floats as the integers of their bits, all NaN as one; other columns as they are."""
    if not pa.types.is_floating(column.type):
        return column
    numbers = column.cast(pa.float64())
    same_nan = pc.if_else(pc.is_nan(numbers), pa.scalar(float("nan")), numbers)
    return same_nan.view(pa.int64()) if isinstance(same_nan, pa.Array) else _viewed(same_nan)


def _viewed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())
