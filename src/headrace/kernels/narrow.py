"""Whole numbers and times in few bytes, for the way through pipes, exchanges, and files that are read once.

Most of what these carry are keys, counts and times near each other: counted from the least of their column they fit
into one, two or four bytes. That takes a fifth of the time of compressing them, to the same size.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.kernels.arrays import as_64_bits, as_128_bits

if TYPE_CHECKING:
    from collections.abc import Sequence

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

_SCHEMA, _LEAST = b"headrace.schema", b"headrace.least"
_KINDS = ((1 << 8, np.uint8), (1 << 16, np.uint16), (1 << 32, np.uint32))


def narrowed(table: pa.Table) -> pa.Table:
    """Return a table with 64 and 128 bits in fewer where that is possible; `widened` gives it back.

    Its narrow columns have other names: an older release finds none of them, where it would read wrong numbers.
    """
    least: dict[int, int] = {}
    columns = [column if (narrow := _narrow(column)) is None else narrow for column in table.columns]
    for at, column in enumerate(columns):
        if isinstance(column, tuple):
            columns[at], least[at] = column
    if not least:
        return table
    about = {_SCHEMA: table.schema.serialize().to_pybytes(), _LEAST: json.dumps(list(least.items())).encode()}
    names = [f"narrow {name}" if at in least else name for at, name in enumerate(table.column_names)]
    return pa.table(columns, names=names).replace_schema_metadata(about)


def is_narrow(kind: pa.DataType) -> bool:
    """Return whether a column may have been narrowed."""
    return kind in (pa.uint8(), pa.uint16(), pa.uint32())


def _narrow(column: pa.ChunkedArray) -> tuple[pa.Array, int] | None:
    if column.null_count or not len(column):
        return None
    parts = _numbers(column)
    if parts is None:
        return None
    least, most = min(int(part.min()) for part in parts), max(int(part.max()) for part in parts)
    for size, kind in _KINDS:
        if most - least < size:
            narrow = _together(np.subtract, parts, least, kind)
            return pa.Array.from_buffers(pa.from_numpy_dtype(kind), len(column), [None, narrow]), least
    return None


def _numbers(column: pa.ChunkedArray) -> list[Numbers] | None:
    """Return whole numbers, times and unscaled decimals as 64 bits, or None where they are something else, or more."""
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    if pa.types.is_int64(column.type) or pa.types.is_timestamp(column.type):
        return [chunk.view(pa.int64()).to_numpy() for chunk in chunks]
    if pa.types.is_decimal128(column.type):
        parts = [part for part in map(as_64_bits, chunks) if part is not None]
        return parts if len(parts) == len(chunks) else None
    return None


def _together(change: np.ufunc, parts: Sequence[np.ndarray], least: int, kind: type[np.generic]) -> pa.Buffer:
    """Write what becomes of all parts into memory of Arrow's, used again: new pages would cost more than the sums."""
    at = 0
    buffer = pa.allocate_buffer(sum(len(part) for part in parts) * np.dtype(kind).itemsize)
    numbers = np.frombuffer(buffer, kind)
    for part in parts:
        change(part, least, out=numbers[at : at + len(part)], dtype=np.int64, casting="unsafe")
        at += len(part)
    return buffer


def widened(table: pa.Table) -> pa.Table:
    """Return the table that was narrowed; any other one as it is."""
    about = table.schema.metadata or {}
    if _LEAST not in about:
        return table
    schema = pa.ipc.read_schema(pa.py_buffer(about[_SCHEMA]))
    columns = table.columns
    for at, least in json.loads(about[_LEAST]):
        wide = _together(np.add, [chunk.to_numpy() for chunk in columns[at].chunks], least, np.int64)
        columns[at] = _array(wide, schema.field(at).type)
    return pa.table(columns, schema=schema)


def _array(numbers: pa.Buffer, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        return as_128_bits(np.frombuffer(numbers, np.int64), kind)
    return pa.Array.from_buffers(kind, numbers.size // 8, [None, numbers])
