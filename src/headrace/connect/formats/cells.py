"""Columns as encoded cells, and records as cells one behind the other: compiled loops. Importing this imports numba.

A cell is what a row has of a column in its record. Each kind of cell has bytes before a value (`before`), and what
stands for a value that is not there (`absent`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.connect.compiled import compiled
from headrace.connect.formats.fields import bytes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Longs = npt.NDArray[np.int64]
    Words = npt.NDArray[np.uint64]
    Flags = npt.NDArray[np.bool_]

_LONGEST = 10
"""Bytes of a number of 64 bits, seven bits a byte."""
_WIDEST = 17
"""Bytes of a decimal of 128 bits with its sign."""
NO_LENGTH, PLAIN, ZIGZAG = -1, 0, 1
"""How the length of a cell is written before it: not at all, or as a number that is shifted so far."""


class NotInColumns(Exception):
    """Values are none that compiled code writes: they are written one by one, which also says what is wrong."""


class Cells(NamedTuple):
    """The cells of a column: `offsets` say where each begins and ends in `data`."""

    offsets: Longs
    data: Bytes


class Around(NamedTuple):
    """Which rows have a value, what stands before it, and what stands for none."""

    present: Flags
    before: bytes = b""
    absent: bytes = b""

    def room(self) -> int:
        """Return the bytes that all this may take."""
        return len(self.present) * max(len(self.before), len(self.absent))

    def parts(self) -> tuple[Flags, Bytes, Bytes]:
        """Return it for compiled code."""
        return self.present, _raw(self.before), _raw(self.absent)


def _raw(content: bytes) -> Bytes:
    return np.frombuffer(content, np.uint8)


def _empty(around: Around, room: int) -> tuple[Longs, Bytes]:
    return np.zeros(len(around.present) + 1, np.int64), np.empty(around.room() + room, np.uint8)


def numbers(values: Longs, around: Around) -> Cells:
    """Return numbers of 64 bits without a sign, seven bits a byte, the lowest first."""
    offsets, data = _empty(around, _LONGEST * len(values))
    end = _numbers(values.view(np.uint64), around.parts(), offsets, data)
    return Cells(offsets, data[:end])


def zigzag(values: Longs) -> Longs:
    """Return numbers with a sign as ones without: small ones stay small."""
    return (values << 1) ^ (values >> 63)


def fixed(values: npt.NDArray[np.generic], around: Around) -> Cells:
    """Return values of one size, the lowest byte first."""
    offsets, data = _empty(around, values.nbytes)
    raw = np.ascontiguousarray(values).view(np.uint8)
    end = _fixed(raw, values.dtype.itemsize, around.parts(), offsets, data)
    return Cells(offsets, data[:end])


def texts(column: pa.Array, around: Around, *, length: int) -> Cells:
    """Return texts or bytes, each with its length before it."""
    content, ends, _ = bytes_of(column)
    return wrapped(Cells(ends.astype(np.int64), content), around, length=length)


def wrapped(inner: Cells, around: Around, *, length: int) -> Cells:
    """Return cells with something before each, and perhaps its length."""
    size = int(inner.offsets[-1] - inner.offsets[0])
    offsets, data = _empty(around, size + _LONGEST * len(around.present))
    end = _wrapped(inner.offsets, inner.data, length, around.parts(), offsets, data)
    return Cells(offsets, data[:end])


def decimals(column: pa.Array, around: Around) -> Cells:
    """Return decimals as whole numbers of their steps: the highest byte first, their number of bytes before them."""
    wide = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset : 2 * (column.offset + len(column))]
    offsets, data = _empty(around, (_WIDEST + 1) * len(column))
    end = _decimals(wide.reshape(-1, 2), around.parts(), offsets, data)
    return Cells(offsets, data[:end])


def joined(parts: Sequence[Cells], count: int, head: bytes = b"") -> Cells:
    """Return for each row the cells of all columns, behind `head`."""
    sizes = np.full(count, len(head), np.int64)
    for each in parts:
        sizes += np.diff(each.offsets)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    places = offsets[:-1].copy()
    _placed(np.arange(count + 1, dtype=np.int64) * len(head), _raw(head * count), places, data)
    for each in parts:
        _placed(each.offsets, each.data, places, data)
    return Cells(offsets, data)


def array(cells: Cells) -> pa.Array:
    """Return cells as a column of records.

    Raises:
        NotInColumns: they are more than a column of Arrow has room for.

    """
    if cells.offsets[-1] >= 2**31:
        raise NotInColumns
    ends = pa.py_buffer(cells.offsets.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(cells.offsets) - 1, [None, ends, pa.py_buffer(cells.data)])


def whole(column: pa.Array) -> Longs:
    """Return numbers, dates, times or booleans as whole numbers of 64 bits, 0 where there is none."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_timestamp(kind):
        column = column.view(pa.int64())
    elif pa.types.is_date(kind):
        column = column.view(pa.int32())
    found: Longs = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return found


def present(column: pa.Array) -> Flags:
    """Return which rows have a value."""
    return np.asarray(column.is_valid())


@compiled
def _put(content: Bytes, data: Bytes, at: int) -> int:
    for place in range(len(content)):
        data[at + place] = content[place]
    return at + len(content)


@compiled
def _number(value: int, data: Bytes, at: int) -> int:
    left = np.uint64(value)
    while left > np.uint64(0x7F):
        data[at] = np.uint8((left & np.uint64(0x7F)) | np.uint64(0x80))
        left >>= np.uint64(7)
        at += 1
    data[at] = np.uint8(left)
    return at + 1


@compiled
def _numbers(values: Words, around: tuple[Flags, Bytes, Bytes], offsets: Longs, data: Bytes) -> int:
    there, before, absent = around
    at = 0
    for row in range(len(values)):
        at = _number(values[row], data, _put(before, data, at)) if there[row] else _put(absent, data, at)
        offsets[row + 1] = at
    return at


@compiled
def _fixed(raw: Bytes, size: int, around: tuple[Flags, Bytes, Bytes], offsets: Longs, data: Bytes) -> int:
    there, before, absent = around
    at = 0
    for row in range(len(there)):
        if there[row]:
            at = _put(before, data, at)
            for place in range(size):
                data[at + place] = raw[row * size + place]
            at += size
        else:
            at = _put(absent, data, at)
        offsets[row + 1] = at
    return at


@compiled
def _wrapped(
    ends: Longs, content: Bytes, length: int, around: tuple[Flags, Bytes, Bytes], offsets: Longs, data: Bytes
) -> int:
    there, before, absent = around
    at = 0
    for row in range(len(there)):
        if there[row]:
            at = _put(before, data, at)
            start, size = ends[row], ends[row + 1] - ends[row]
            if length >= 0:
                at = _number(size << length, data, at)
            for place in range(size):
                data[at + place] = content[start + place]
            at += size
        else:
            at = _put(absent, data, at)
        offsets[row + 1] = at
    return at


@compiled
def _decimals(wide: npt.NDArray[np.int64], around: tuple[Flags, Bytes, Bytes], offsets: Longs, data: Bytes) -> int:
    there, before, absent = around
    at = 0
    for row in range(len(there)):
        if there[row]:
            at = _put(before, data, at)
            low, high = np.uint64(wide[row, 0]), np.uint64(wide[row, 1])
            negative = wide[row, 1] < 0
            size_low, size_high = low, high
            if negative:  # without its sign
                size_low = ~low + np.uint64(1)
                size_high = ~high + np.uint64(1 if size_low == 0 else 0)
            bits = 0
            while size_high > np.uint64(0):
                size_high >>= np.uint64(1)
                bits += 1
            if bits:
                bits += 64
            else:
                while size_low > np.uint64(0):
                    size_low >>= np.uint64(1)
                    bits += 1
            size = (bits + 8) // 8
            data[at] = size << 1
            at += 1
            for place in range(size - 1, -1, -1):
                if place >= 16:
                    data[at] = 0xFF if negative else 0
                elif place >= 8:
                    data[at] = np.uint8((high >> np.uint64(8 * (place - 8))) & np.uint64(0xFF))
                else:
                    data[at] = np.uint8((low >> np.uint64(8 * place)) & np.uint64(0xFF))
                at += 1
        else:
            at = _put(absent, data, at)
        offsets[row + 1] = at
    return at


@compiled
def _placed(ends: Longs, content: Bytes, places: Longs, data: Bytes) -> None:
    for row in range(len(places)):
        start, at = ends[row], places[row]
        size = ends[row + 1] - start
        for place in range(size):
            data[at + place] = content[start + place]
        places[row] = at + size
