"""What a COPY sends, taken from the connection's socket as a whole: libpq's own way is a call and a copy a row.

The server answers a query by the head of a COPY, rows, their end, and that the command is complete. libpq gets the last
of these alone, so to it this was a command without rows. What is no row is left in the socket, an error too. On a
connection that is encrypted the first byte is none of these, nothing is taken, and libpq does it all.
"""

from __future__ import annotations

import os
import socket
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.waiting import readable
from headrace.connect.compiled import compiled

if TYPE_CHECKING:
    import numpy.typing as npt
    from psycopg.pq.abc import PGconn

    Bytes = npt.NDArray[np.uint8]

_HEAD, _ROW, _END = ord("H"), ord("d"), ord("c")
_FRAME = 5
"""Bytes before the content of a message: its kind and its length."""
_AT_ONCE = 1 << 20


def taken(pg: PGconn) -> tuple[Bytes, int] | None:
    """Take the rows of a COPY, of which nothing was read yet; None: the answer is none that can be taken.

    Returns:
        The contents of its messages one behind the other, and how many they are. Afterwards libpq has the result of the
        command, or its error: that of a COPY that was cut off, too.

    """
    with closing(socket.socket(fileno=os.dup(pg.socket))) as wire:
        buffer = bytearray(_AT_ONCE)
        first = _peeked(wire, buffer, _FRAME)
        if len(first) < _FRAME or first[0] != _HEAD:
            return None
        _received(wire, bytearray(1 + _length(first)))
        rows = _Rows()
        while True:
            seen = _peeked(wire, buffer, _AT_ONCE)
            used = rows.add(seen)
            if used:
                _received(wire, memoryview(buffer)[:used])
            elif len(seen) and seen[0] == _ROW:  # it is not all there
                frame = _received(wire, bytearray(_FRAME))
                rows.add(bytes(frame) + _received(wire, bytearray(_length(frame) - 4)))
            else:
                if len(seen) and seen[0] == _END:
                    _received(wire, bytearray(_FRAME))
                return rows.content[: rows.filled], rows.count


class _Rows:
    """The contents of messages, one behind the other."""

    def __init__(self) -> None:
        self.content: Bytes = np.empty(_AT_ONCE, np.uint8)
        self.filled = self.count = 0

    def add(self, seen: bytes | bytearray | memoryview) -> int:
        """Take what is whole; return how many bytes that was."""
        if self.filled + len(seen) > len(self.content):
            larger = np.empty(2 * len(self.content) + len(seen), np.uint8)
            larger[: self.filled] = self.content[: self.filled]
            self.content = larger
        used, filled, count = _contents(np.frombuffer(seen, np.uint8), self.content[self.filled :])
        self.filled += filled
        self.count += count
        return int(used)


def _length(frame: bytes | bytearray | memoryview) -> int:
    return int.from_bytes(frame[1:_FRAME], "big")


def _peeked(wire: socket.socket, buffer: bytearray, most: int) -> memoryview:
    """Return what has arrived, at least a byte, and leave it there; nothing if the connection has ended."""
    while True:
        readable(wire)
        with suppress(BlockingIOError):
            return memoryview(buffer)[: wire.recv_into(buffer, most, socket.MSG_PEEK)]


def _received(wire: socket.socket, found: bytearray | memoryview) -> bytearray | memoryview:
    """Fill it; return less if the connection has ended."""
    filled = 0
    while filled < len(found):
        with suppress(BlockingIOError):
            got = wire.recv_into(memoryview(found)[filled:])
            if not got:
                break
            filled += got
            continue
        readable(wire)
    return found[:filled] if filled < len(found) else found


@compiled
def _contents(seen: Bytes, content: Bytes) -> tuple[int, int, int]:
    """Copy the contents of whole rows behind each other; return the bytes used and filled, and the number of rows."""
    at, filled, count = 0, 0, 0
    while at + _FRAME <= len(seen) and seen[at] == _ROW:
        size = 0
        for place in range(at + 1, at + _FRAME):
            size = size << 8 | np.int64(seen[place])  # type: ignore[assignment] # a number to the compiler
        end = at + 1 + size
        if end > len(seen):
            break
        start, target = np.uint64(at + _FRAME), np.uint64(filled)
        for place in range(np.uint64(size - 4)):
            content[target + place] = seen[start + place]
        filled += size - 4
        count += 1
        at = end
    return at, filled, count
