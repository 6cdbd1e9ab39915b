"""Cells as columns: what the log and the text protocol send becomes Arrow arrays, the same whichever way it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.capture.cells import texts
from headrace.connect.capture.errors import ValueDoesNotFit
from headrace.connect.mysql import kernels
from headrace.connect.mysql import table_map as maps

if TYPE_CHECKING:
    from headrace.connect.capture.cells import Bytes, Longs
    from headrace.connect.mysql.table_map import MappedColumn

_NO_TYPE = (
    "Declare the column as string, with a new topic, or correct the row: dates with zeros (0000-00-00) have no type."
)
_LONGEST_MOMENT = 27
_MOMENTS = (maps.DATE, maps.TIMESTAMP2, maps.DATETIME2, maps.TIME2)


def logged(data: Bytes, starts: Longs, sizes: Longs, column: MappedColumn) -> pa.Array:
    """Return cells of the log as a column: numbers, bytes, or texts as the server prints them."""
    starts, sizes = np.ascontiguousarray(starts), np.ascontiguousarray(sizes)
    kind, null = column.kind, sizes < 0
    if kind in maps.INTEGERS:
        return _integers(data, starts, sizes, big=False, signed=not column.unsigned)
    if kind in (maps.FLOAT, maps.DOUBLE):
        return _floats(data, starts, sizes, np.dtype("<f4" if kind == maps.FLOAT else "<f8"))
    if kind == maps.YEAR:
        years = _integers(data, starts, sizes, big=False, signed=False).cast(pa.int64())
        return pc.if_else(pc.equal(years, 0), years, pc.add(years, 1900))
    if kind == maps.BIT:
        return _integers(data, starts, sizes, big=True, signed=False)
    if kind == maps.DECIMAL:
        most = sum(column.detail) + 3
        return _printed(kernels.decimals, data, starts, sizes, (column.detail, most))
    if kind in _MOMENTS:
        return _printed(kernels.moments, data, starts, sizes, ((kind, column.detail[0]), _LONGEST_MOMENT))
    if kind in (maps.ENUM, maps.SET):
        numbers = _integers(data, starts, sizes, big=False, signed=False)
        return _named(numbers, column.values, several=kind == maps.SET)
    if column.charset == maps.BINARY:
        if kind == maps.STRING:
            starts, sizes, data = _padded(data, starts, sizes, np.where(null, sizes, column.detail[0]))
        return _bytes(texts(data, starts, sizes))
    found = texts(data, starts, sizes)
    return found if not column.charset else _decoded(found, column.charset)


def as_type(column: pa.Array, kind: pa.DataType, *, table: str, name: str) -> pa.Array:
    """Return a column as values of a type.

    Raises:
        ValueDoesNotFit: one is none.

    """
    try:
        return _converted(column, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise ValueDoesNotFit(table, name, str(kind), str(error).splitlines()[0], hint=_NO_TYPE) from error


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    here = column.type
    if here == kind:
        return column
    is_text = pa.types.is_string(here) or pa.types.is_large_string(here)
    if is_text and pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us")).cast(kind)
    if is_text and pa.types.is_binary(kind):
        return _bytes(column)
    if pa.types.is_boolean(kind):
        return pc.not_equal(column.cast(pa.int64()), 0)
    if pa.types.is_decimal(kind) and pa.types.is_integer(here):
        return column.cast(pa.string()).cast(kind)
    return column.cast(kind)


def _bytes(column: pa.Array) -> pa.Array:
    return column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())


def _integers(data: Bytes, starts: Longs, sizes: Longs, *, big: bool, signed: bool) -> pa.Array:
    out = np.empty(len(starts), np.int64)
    kernels.integers(data, starts, sizes, (big, signed), out)
    whole = not signed and len(sizes) and int(sizes.max()) == np.dtype(np.int64).itemsize
    return pa.array(out.view(np.uint64) if whole else out, mask=sizes < 0)


def _floats(data: Bytes, starts: Longs, sizes: Longs, kind: np.dtype[Any]) -> pa.Array:
    filled = np.where(sizes < 0, 0, starts)[:, None] + np.arange(kind.itemsize)
    found = data[np.minimum(filled, len(data) - 1)].view(kind).reshape(-1)
    return pa.array(found, mask=sizes < 0)


def _printed(kernel: object, data: Bytes, starts: Longs, sizes: Longs, how: tuple[tuple[int, int], int]) -> pa.Array:
    form, longest = how
    offsets, out = np.zeros(len(starts) + 1, np.int64), np.empty(len(starts) * longest, np.uint8)
    kernel(data, starts, sizes, form, (offsets, out))  # type: ignore[operator]
    valid = pa.array(sizes >= 0).buffers()[1]
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(out[: offsets[-1]])]
    return pa.Array.from_buffers(pa.large_string(), len(starts), buffers).cast(pa.string())


def _padded(data: Bytes, starts: Longs, sizes: Longs, wanted: Longs) -> tuple[Longs, Longs, Bytes]:
    """Return cells of BINARY(n) with the zeros at their end, which the log leaves out."""
    if (sizes == wanted).all() or not len(sizes):
        return starts, sizes, data
    width = int(wanted.max())
    place = np.arange(width)
    inside = place < sizes[:, None]
    whole = np.where(inside, data[np.minimum(starts[:, None] + place, len(data) - 1)], 0).astype(np.uint8)
    return np.arange(len(starts), dtype=np.int64) * width, wanted.astype(np.int64), whole.reshape(-1)


def _named(numbers: pa.Array, names: tuple[str, ...], *, several: bool) -> pa.Array:
    """Return names by their numbers: of an enum the place (0: an invalid value, which is empty), of a set the bits."""
    if several:
        found = pc.dictionary_encode(numbers)
        named = [
            ",".join(name for place, name in enumerate(names) if int(each) >> place & 1)
            for each in found.dictionary.to_pylist()
        ]
        return pa.DictionaryArray.from_arrays(found.indices, pa.array(named, pa.string())).dictionary_decode()
    return pa.array(["", *names], pa.string()).take(numbers)


def _decoded(column: pa.Array, charset: str) -> pa.Array:
    """Return texts of another charset."""
    if len(charset) != maps.LETTERS:
        found = _bytes(column).dictionary_encode()
        texts_of = [maps.spelled(each, charset) for each in found.dictionary.to_pylist()]
        return pa.DictionaryArray.from_arrays(found.indices, pa.array(texts_of, pa.string())).dictionary_decode()
    widths = np.array([len(each.encode()) for each in charset], np.int64)
    column = column.cast(pa.large_string())
    valid, offsets, content = column.buffers()
    raw = np.frombuffer(content, np.uint8) if content is not None and content.size else np.empty(0, np.uint8)
    ends = np.concatenate([[0], np.cumsum(widths[raw])])[np.frombuffer(offsets, np.int64)[: len(column) + 1]]
    content = raw.tobytes().decode("latin-1").translate(dict(enumerate(charset))).encode()
    buffers = [valid, pa.py_buffer(ends), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.large_string(), len(column), buffers).cast(pa.string())
