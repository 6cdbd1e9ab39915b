"""Columns and tables as single arrays, which numpy reads without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.base.memory import task_memory
from headrace.kernels.spool import MEMORY_SHARE
from headrace.kernels.zones import without_zones

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.state.runs import Positions


NEVER = np.iinfo(np.int64).min
"""The time of what has none; the greatest of several times leaves it out, as SQL does."""


_SIGN = 63
_MOST = 1 << 30
"""An array of texts has at most 2 GB."""


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array if it fits, else (text of 2 GB) as it is; no copy where it is one already."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def room() -> int:
    """Return how many bytes of rows a task computes in memory; what is more is left to DuckDB, which spills."""
    return min(task_memory() // MEMORY_SHARE, _MOST)


def as_one(parts: Sequence[pa.Table], schema: pa.Schema) -> pa.Table | None:
    """Return the columns of a schema of several tables as one; None where types differ, or there is no room."""
    tables = [without_zones(part.select(schema.names)) for part in parts]
    if sum(part.nbytes for part in tables) > room() or not all(part.schema.equals(schema) for part in tables):
        return None
    return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()


def micros(times: pa.ChunkedArray) -> Positions:
    """Return times as numbers; null is `NEVER`."""
    numbers: Positions = times.fill_null(int(NEVER)).to_numpy()
    return numbers


def nullable(times: Positions) -> pa.Array:
    """Return numbers as times."""
    never = times == NEVER
    return pa.array(times, pa.int64(), mask=never if never.any() else None)


def as_64_bits(numbers: pa.Array) -> Positions | None:
    """Return the unscaled numbers of decimals as 64 bits, nulls as whatever is there; None where one has more."""
    words = np.frombuffer(numbers.buffers()[1], np.int64)[2 * numbers.offset : 2 * (numbers.offset + len(numbers))]
    low, high = words[::2], words[1::2]
    return None if (high != low >> _SIGN).any() else low


def as_128_bits(numbers: Positions, kind: pa.DataType) -> pa.Array:
    """Return unscaled numbers as decimals of a type."""
    words = np.column_stack((numbers, numbers >> _SIGN))
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(words)])
