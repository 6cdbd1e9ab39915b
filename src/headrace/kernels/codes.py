"""Numbers for keys: the same for equal ones, as SQL sees them, so that numpy can sort rows and tell them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.arrays import one_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

MOST = 1 << 62
"""A number that combines two stays below this."""
_DENSE = 1 << 31


def coded(columns: Sequence[pa.ChunkedArray], rows: int, *, most: int = _DENSE) -> Numbers | None:
    """Return a number below `most` for each row, the same for equal keys; null is a key.

    The array is new: the caller may change it. None where there are no such numbers: different values are equal, or
    there are too many keys.
    """
    if len(columns) == 1 and (plain := _plain(columns[0], most)) is not None:
        return plain
    codes, count = np.zeros(rows, np.int64), 1
    for column in columns:
        kind, values = column.type, one_array(column)
        if pa.types.is_floating(kind) or kind.num_fields or isinstance(values, pa.ChunkedArray):
            return None
        try:
            encoded = values.dictionary_encode(null_encoding="encode")
        except pa.ArrowNotImplementedError:
            return None
        codes = codes * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy(zero_copy_only=False)
        count *= max(len(encoded.dictionary), 1)
        if count > _DENSE:
            found, codes = np.unique(codes, return_inverse=True)
            count = len(found)
    return codes if count <= most else None


def _plain(column: pa.ChunkedArray, most: int) -> Numbers | None:
    """Return whole numbers as they are, counted from the least, where these are few enough."""
    if not pa.types.is_signed_integer(column.type) or column.null_count or not len(column):
        return None
    span = pc.min_max(column).as_py()
    if span["max"] - span["min"] >= most:
        return None
    numbers: Numbers = np.subtract(column.to_numpy(), span["min"], dtype=np.int64)
    return numbers
