"""Checksums of a batch's columns: who reads some columns checks the bytes of these alone, and touches no others.

A large payload ends with a table: for what is before the first column (the message's own description), and for each
column, where its bytes end and their CRC-32; then the number of entries and the table's own CRC-32. The frame's
checksum is that of the whole payload, as without a table: readers that do not know tables check that.
"""

from __future__ import annotations

import struct
from functools import cache, reduce
from operator import xor
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from headrace.base.crc import crc32

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    Tables = tuple[tuple[int, ...], ...]

LARGE = 1 << 21
"""A payload of so many bytes has a table: 0.1 ms to write, where checking all of it takes 0.4 ms each time."""
_POLYNOMIAL = 0xEDB88320
_BITS = 32
_ENTRY = struct.Struct("<QI")
_END = struct.Struct("<II")


class Part(NamedTuple):
    """The bytes of a payload before `end`, behind those of the part before it."""

    end: int
    checksum: int


def parts_of(payload: pa.Buffer, schema: pa.Schema) -> list[Part]:
    """Return the parts of a payload with their checksums: its description, then each column."""
    batch = pa.ipc.read_record_batch(payload, schema)
    ends, end = [], payload.size
    for column in reversed(batch.columns):
        ends.append(end)
        end = min([end, *(buffer.address - payload.address for buffer in column.buffers() if buffer and buffer.size)])
    parts, start, view = [], 0, memoryview(payload)
    for at in [end, *reversed(ends)]:
        parts.append(Part(at, crc32(view[start:at])))
        start = at
    return parts


def packed(parts: Sequence[Part]) -> bytes:
    """Return the table of parts."""
    entries = b"".join(_ENTRY.pack(*part) for part in parts)
    return entries + _END.pack(len(parts), crc32(entries))


def is_whole(payload: memoryview, columns: Collection[int]) -> bool:
    """Return whether these columns, and what is needed to read them, are the bytes that were written."""
    count, checksum = _END.unpack(payload[-_END.size :])
    first = len(payload) - _END.size - count * _ENTRY.size
    if first < 0 or crc32(payload[first : -_END.size]) != checksum:
        return False
    start = 0
    for number, (end, found) in enumerate(_ENTRY.iter_unpack(payload[first : -_END.size])):
        if (number == 0 or number - 1 in columns) and crc32(payload[start:end]) != found:
            return False
        start = end
    return True


def checksum_of(parts: Sequence[Part]) -> int:
    """Return the CRC-32 of all parts together, from their own: what follows a part moves its checksum, linearly."""
    checksum = start = 0
    for end, found in parts:
        for first, second, third, fourth in _moves(end - start):
            low, high = checksum & 0xFFFF, checksum >> 16
            checksum = first[low & 255] ^ second[low >> 8] ^ third[high & 255] ^ fourth[high >> 8]
        checksum ^= found
        start = end
    return checksum


def _moves(size: int) -> Iterator[Tables]:
    """Yield what moves a checksum by so many bytes, in steps that are powers of two."""
    for power in range(size.bit_length()):
        if size >> power & 1:
            yield _moved_by(power)


@cache
def _moved_by(power: int) -> Tables:
    """Return what becomes of each byte of a checksum when 2 to this power bytes follow."""
    if not power:
        moved = [_followed(1 << bit) for bit in range(_BITS)]
    else:
        half = _moved_by(power - 1)
        moved = [_apply(half, _apply(half, 1 << bit)) for bit in range(_BITS)]
    return tuple(tuple(_linear(moved[at : at + 8], byte) for byte in range(256)) for at in range(0, _BITS, 8))


def _followed(checksum: int) -> int:
    """Return a checksum, without what is before and behind it, when a byte of zeros follows."""
    for _ in range(8):
        checksum = checksum >> 1 ^ (_POLYNOMIAL if checksum & 1 else 0)
    return checksum


def _linear(moved: Sequence[int], byte: int) -> int:
    return reduce(xor, (each for bit, each in enumerate(moved) if byte >> bit & 1), 0)


def _apply(tables: Tables, checksum: int) -> int:
    return reduce(xor, (table[checksum >> 8 * at & 255] for at, table in enumerate(tables)))
