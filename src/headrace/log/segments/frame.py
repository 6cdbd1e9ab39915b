"""A frame: a header of 128 bytes, then one Arrow record batch, filled up to 64 bytes.

The header carries its own checksum, the payload's, and its own position, so that bytes which only look like a
frame (a segment stored as a binary value) are never taken for one. Everything is little-endian.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.base.crc import crc32
from headrace.log.segments import column_sums

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from mmap import mmap

    from numpy.typing import NDArray

MAGIC = b"HRF\x01"
VERSION = 1
ALIGN = 64
HEADER_SIZE = 128

END = 1  # the last frame of its append: without it, none of the append counts
TIMES = 2  # the payload has a column `_time`
DELETED = 4  # the payload has a column `_deleted`
HEADERS = 8  # the payload has a column `_headers`
OFFSETS = 16  # the payload has a column `_offset`: compaction left gaps
PRODUCED = 32  # a producer that numbers its appends wrote it
SUMS = 64  # the payload ends with a table of its columns' checksums
HOLE = 1 << 15  # never on disk: represents damaged bytes

NO_MIN, NO_MAX = (1 << 63) - 1, -(1 << 63)  # event times of a frame that has none
NO_PRODUCER = bytes(16)

_LAYOUT = struct.Struct("<4sHHIIqqqqqIIqqqq16sqq")
_SKIPPED = slice(8, 12)  # the header's own checksum
FIELDS = np.dtype(
    {
        "names": ["flags", "base", "next", "rows", "append_time", "min_time", "max_time", "due"],
        "formats": ["<u2", "<i8", "<i8", "<u4", "<i8", "<i8", "<i8", "<i8"],
        "offsets": [6, 40, 48, 56, 64, 72, 80, 120],
        "itemsize": HEADER_SIZE,
    }
)  # fmt: skip


class Frame(NamedTuple):
    """The fields of a header; offsets and times as in `Topic`, positions and lengths in bytes."""

    flags: int
    payload_crc: int
    length: int  # of the payload with its filling
    position: int  # of the header in its segment
    synced: int  # up to where the segment was known to be safe on disk when this was written
    base: int
    next: int
    rows: int
    schema: int
    append_time: int
    min_time: int
    max_time: int
    first: int  # the first offset of the append that this frame belongs to
    producer: bytes
    sequence: int
    due: int = 0  # when compaction may remove its tombstones; 0 before it first kept them

    @property
    def end(self) -> int:
        """Return the position after the frame."""
        return self.position + HEADER_SIZE + self.length


def pack(frame: Frame) -> bytes:
    """Return a header's 128 bytes, checksum included."""
    flags, payload_crc, *rest = frame
    raw = _LAYOUT.pack(MAGIC, VERSION, flags, 0, payload_crc, *rest)
    return raw[:8] + crc32(raw).to_bytes(4, "little") + raw[12:]


def parse(data: bytes | mmap, position: int) -> Frame | None:
    """Return the frame that starts at `position`, or None if no valid header of that position is there."""
    raw = data[position : position + HEADER_SIZE]
    if len(raw) < HEADER_SIZE or raw[:4] != MAGIC:
        return None
    if crc32(raw[:8] + b"\0\0\0\0" + raw[12:]) != int.from_bytes(raw[_SKIPPED], "little"):
        return None
    frame = unpack(raw)
    return frame if frame.position == position else None


def unpack(raw: bytes) -> Frame:
    """Return the fields of a header, without checking it."""
    _, _, flags, _, *rest = _LAYOUT.unpack(raw)
    return Frame(flags, *rest)


def hole(position: int, until: int, *, base: int, following: int) -> bytes:
    """Return a header that represents damaged bytes: the records in [base, following) are lost."""
    return pack(Frame(HOLE, 0, until - position - HEADER_SIZE, position, 0, base, following, 0, 0, 0,
                      NO_MIN, NO_MAX, base, NO_PRODUCER, 0))  # fmt: skip


def payload_is_whole(data: memoryview, frame: Frame, columns: Collection[int] | None = None) -> bool:
    """Tell whether the payload's bytes are those that were written; of a frame with `SUMS` perhaps of some columns."""
    if frame.end > len(data):
        return False
    payload = data[frame.position + HEADER_SIZE : frame.end]
    return crc32(payload) == frame.payload_crc if columns is None else column_sums.is_whole(payload, columns)


def following(data: mmap, position: int, stop: int) -> Iterator[Frame]:
    """Search for every valid header after `position` and yield it; used where the chain is broken."""
    at = data.find(MAGIC, position + 1, stop)
    while at >= 0:
        frame = parse(data, at) if at % ALIGN == 0 else None
        if frame is not None and frame.end <= stop:
            yield frame
            at = frame.end - 1
        at = data.find(MAGIC, at + 1, stop)


def walk(data: mmap, start: int, stop: int, *, offset: int, end: int) -> list[bytes]:
    """Return the headers in [start, stop), which hold the offsets [offset, end); damaged stretches become holes."""
    found: list[bytes] = []
    position = start
    while position < stop:
        frame = parse(data, position)
        if frame is None or frame.end > stop or not offset <= frame.base <= frame.next <= end:
            behind = next((f for f in following(data, position, stop) if offset <= f.base <= f.next <= end), None)
            until, base = (behind.position, behind.base) if behind else (stop, end)
            found.append(hole(position, until, base=offset, following=base))
            position, offset = until, base
            continue
        found.append(data[position : position + HEADER_SIZE])
        position, offset = frame.end, frame.next
    return found


def as_array(headers: bytes) -> NDArray[np.void]:
    """Return consecutive headers as an array with the fields that lookups need."""
    return np.frombuffer(headers, dtype=FIELDS)
