"""Compiled loops over record batches: Kafka's message format 2, as a fetch returns it.

A batch has a header of 61 bytes and records with lengths as varints. Nothing here is per record in Python. A kernel
never reads beyond its buffer, whatever the bytes are: it returns a negative number where they make no sense.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace.connect.compiled import compiled
from headrace.connect.kafka.crc32c import crc32c

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Longs = npt.NDArray[np.int64]

HEADER = 61
POSITION, END, BASE, LAST, ATTRIBUTES, FIRST_TIME, LAST_TIME, PRODUCER, COUNT, EPOCH, MARKER = range(11)
"""Columns of what `scan` finds of a batch: where its records are, its first and last offset, its header's fields."""
FIELDS = 11
CODEC_BITS, APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
"""Bits of the attributes."""
BROKEN, OLD_FORMAT, WRONG_CHECKSUM = -1, -2, -3
ABORT, COMMIT, NO_MARKER = 0, 1, -1
_LENGTH_AT, _MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT = 8, 16, 17, 21
_BEFORE_LENGTH = 12
_MARKER_BYTES = 4
_BITS, _MORE = 64, 0x80
_MAGIC = 2
NO_TIME = -1
_FARTHEST = 9_223_372_036_854_775  # milliseconds that are microseconds of 64 bits


@compiled
def _big(data: Bytes, at: int, size: int) -> int:
    """Return a signed integer in network order."""
    value = np.int64(0)
    for place in range(size):
        value = (value << 8) | np.int64(data[at + place])
    spare = 64 - 8 * size
    return (value << spare) >> spare  # type: ignore[return-value]


@compiled
def count_batches(data: Bytes) -> int:
    """Return how many whole batches there are; a last one that was cut off does not count."""
    at, found, size = 0, 0, len(data)
    while at + HEADER <= size:
        length = _big(data, at + _LENGTH_AT, 4)
        if length < HEADER - _BEFORE_LENGTH and _big(data, at + _MAGIC_AT, 1) == _MAGIC:
            return BROKEN
        if length < 0:
            return BROKEN
        at += _BEFORE_LENGTH + length
        if at > size:
            break
        found += 1
    return found


@compiled
def scan(data: Bytes, found: Longs) -> int:
    """Fill a row of `found` for each batch; return 0, or what is wrong, with the batch's offset in `found[0, BASE]`."""
    at = 0
    for number in range(len(found)):
        end = at + _BEFORE_LENGTH + _big(data, at + _LENGTH_AT, 4)
        base = _big(data, at, 8)
        magic = _big(data, at + _MAGIC_AT, 1)
        if magic != _MAGIC:
            found[0, BASE] = base
            return OLD_FORMAT if 0 <= magic < _MAGIC else BROKEN
        crc = _big(data, at + _CRC_AT, 4) & 0xFFFFFFFF
        if crc32c(data, at + _ATTRIBUTES_AT, end) != crc:
            found[0, BASE] = base
            return WRONG_CHECKSUM
        row = found[number]
        row[POSITION], row[END], row[BASE] = at + HEADER, end, base
        row[LAST] = base + _big(data, at + 23, 4)
        row[ATTRIBUTES] = _big(data, at + _ATTRIBUTES_AT, 2)
        row[FIRST_TIME], row[LAST_TIME] = _big(data, at + 27, 8), _big(data, at + 35, 8)
        row[PRODUCER], row[COUNT] = _big(data, at + 43, 8), _big(data, at + 57, 4)
        row[EPOCH] = _big(data, at + 12, 4)
        row[MARKER] = NO_MARKER
        if row[ATTRIBUTES] & CONTROL:
            row[MARKER] = _marker(data, at + HEADER, end)
        if row[COUNT] < 0 or row[LAST] < base:
            found[0, BASE] = base
            return BROKEN
        at = end
    return 0


@compiled
def _marker(data: Bytes, at: int, end: int) -> int:
    """Return which control record a batch has: its key is a version and a type, of 16 bits each."""
    head = np.zeros(5, np.int64)  # length, time delta, offset delta, length of the key
    _, at = _varint(data, at, end)
    at += 1  # its attributes
    for place in range(3):
        head[place], at = _varint(data, at, end)
    if at < 0 or head[2] < _MARKER_BYTES or at + _MARKER_BYTES > end:
        return NO_MARKER
    return _big(data, at + 2, 2)  # type: ignore[no-any-return]


@compiled
def _varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return a zigzag varint and the place behind it; the place is -1 where there is none."""
    if at < 0:
        return np.int64(0), -1  # type: ignore[return-value]
    value, shift = np.uint64(0), np.uint64(0)
    while at < end and shift < _BITS:
        byte = data[at]
        at += 1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < _MORE:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at  # type: ignore[return-value]
        shift += np.uint64(7)
    return np.int64(0), -1  # type: ignore[return-value]


@compiled
def visible(batches: Longs, producers: Longs, firsts: Longs, shown: npt.NDArray[np.bool_]) -> None:
    """Mark the batches whose records a reader sees: no control batches, and none of aborted transactions.

    Args:
        batches: what `scan` found.
        producers: the producers of aborted transactions, in the order of `firsts`.
        firsts: the first offsets of these transactions, ascending.
        shown: the marks.

    """
    open_ = np.zeros(len(producers), np.bool_)  # by place: the transaction began, and its abort has not come
    next_ = 0
    for number in range(len(batches)):
        row = batches[number]
        while next_ < len(firsts) and firsts[next_] <= row[LAST]:
            open_[next_] = True
            next_ += 1
        if row[ATTRIBUTES] & CONTROL:
            if row[MARKER] == ABORT:
                for place in range(next_):
                    if producers[place] == row[PRODUCER]:
                        open_[place] = False
            continue
        shown[number] = True
        if row[ATTRIBUTES] & TRANSACTIONAL:
            for place in range(next_):
                if open_[place] and producers[place] == row[PRODUCER]:
                    shown[number] = False


@compiled
def _fields(data: Bytes, at: int, end: int) -> tuple[int, ...]:
    """Return of a record: the place behind it, the deltas of time and offset, and place and size of its three parts.

    The parts are key, value and headers; a null has the size -1. The first place is -1 where the bytes make no sense.
    """
    length, at = _varint(data, at, end)
    stop = at + length
    if at < 0 or length < 1 or stop > end:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0
    at += 1  # attributes, which nobody uses
    passed, at = _varint(data, at, stop)
    delta, at = _varint(data, at, stop)
    key_size, at = _varint(data, at, stop)
    if at < 0 or key_size > stop - at:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0
    key_from = at
    value_size, at = _varint(data, at + max(key_size, 0), stop)
    if at < 0 or value_size > stop - at:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0
    value_from = at
    headers, at = _varint(data, at + max(value_size, 0), stop)
    if at < 0 or headers < 0 or headers > stop - at:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0
    return stop, passed, delta, key_from, max(key_size, -1), value_from, max(value_size, -1), at, headers


@compiled
def _copied(data: Bytes, start: int, size: int, into: Bytes, at: int) -> int:
    """Copy bytes; return the place behind the copy. A null has no bytes."""
    for place in range(size):
        into[at + place] = data[start + place]
    return at + max(size, 0)


@compiled
def parse(  # noqa: PLR0917 -- it is compiled, and takes no keywords
    data: Bytes,
    batches: Longs,
    bounds: Longs,
    wanted: npt.NDArray[np.bool_],
    fixed: Longs,
    parts: tuple[Bytes, npt.NDArray[np.int32], Bytes, npt.NDArray[np.int32]],
    nulls: Bytes,
) -> int:
    """Take the records of batches apart; return how many there are, or BROKEN.

    Args:
        data: the records of the batches, not compressed; `POSITION` and `END` are places in it.
        batches: the batches that are shown.
        bounds: the first offset, and the one after the last, of the records that are wanted.
        wanted: whether keys and values are.
        fixed: receives by row: offset, time (milliseconds), place of the headers, number of headers.
        parts: receive the keys' bytes, their ends (Arrow's offsets), the values' bytes, their ends.
        nulls: receives by row: bit 0 a null key, bit 1 a null value.

    """
    keys, key_ends, values, value_ends = parts
    row, key_at, value_at = 0, 0, 0
    for number in range(len(batches)):
        batch = batches[number]
        at, end = batch[POSITION], batch[END]
        for _ in range(batch[COUNT]):
            at, passed, delta, key_from, key_size, value_from, value_size, headers_from, headers = _fields(
                data, at, end
            )
            if at < 0:
                return BROKEN
            offset = batch[BASE] + delta
            if offset < bounds[0] or offset >= bounds[1]:
                continue
            time = batch[LAST_TIME] if batch[ATTRIBUTES] & APPEND_TIME else batch[FIRST_TIME] + passed
            fixed[row, 0] = offset
            fixed[row, 1] = min(max(time, -_FARTHEST), _FARTHEST)
            fixed[row, 2], fixed[row, 3] = headers_from, headers
            nulls[row] = (1 if key_size < 0 else 0) | (2 if value_size < 0 else 0)
            if wanted[0]:
                key_at = _copied(data, key_from, key_size, keys, key_at)
                key_ends[row + 1] = key_at
            if wanted[1]:
                value_at = _copied(data, value_from, value_size, values, value_at)
                value_ends[row + 1] = value_at
            row += 1
    return row


@compiled
def parse_headers(
    data: Bytes,
    fixed: Longs,
    parts: tuple[Bytes, npt.NDArray[np.int32], Bytes, npt.NDArray[np.int32]],
    nulls: Bytes,
) -> int:
    """Take the headers of records apart, whose places are in `fixed`; return how many, or BROKEN.

    `parts` receive the bytes of names, their ends, the bytes of values, their ends; `nulls` 1 where a value is null.
    """
    names, name_ends, values, value_ends = parts
    row, name_at, value_at, size = 0, 0, 0, len(data)
    for record in range(len(fixed)):
        at = fixed[record, 2]
        for _ in range(fixed[record, 3]):
            length, at = _varint(data, at, size)
            if at < 0 or length < 0 or length > min(size - at, len(names) - name_at):
                return BROKEN
            for place in range(length):
                names[name_at + place] = data[at + place]
            name_at += length
            length, at = _varint(data, at + length, size)
            if at < 0 or length > min(size - at, len(values) - value_at):
                return BROKEN
            for place in range(length):
                values[value_at + place] = data[at + place]
            value_at += max(length, 0)
            at += max(length, 0)
            nulls[row] = 1 if length < 0 else 0
            row += 1
            name_ends[row], value_ends[row] = name_at, value_at
    return row
