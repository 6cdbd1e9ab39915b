"""What a COPY sends, taken from the connection's socket as a whole: libpq's own way is a call and a copy a row.

The server answers a query by the head of a COPY, rows, their end, and that the command is complete. libpq gets the last
of these alone, so to it this was a command without rows. What is no row is left in the socket, an error too. On a
connection that is encrypted the first byte is none of these, nothing is taken, and libpq does it all.
"""

from __future__ import annotations

import os
import select
import socket
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import numpy as np

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
        first = _peeked(wire, bytearray(_FRAME))
        if len(first) < _FRAME or first[0] != _HEAD:
            return None
        _received(wire, 1 + _length(first))
        parts: list[Bytes] = []
        messages = 0
        buffer = bytearray(_AT_ONCE)
        while True:
            seen = np.frombuffer(_peeked(wire, buffer), np.uint8)
            content = np.empty(len(seen), np.uint8)
            used, filled, count = _contents(seen, content)
            messages += count
            parts.append(content[:filled])
            if used:
                _received(wire, used)
            elif len(seen) and seen[0] == _ROW:  # it is not all there
                parts.append(_long_row(wire))
                messages += 1
            else:
                if len(seen) and seen[0] == _END:
                    _received(wire, _FRAME)
                return np.concatenate(parts), messages


def _long_row(wire: socket.socket) -> Bytes:
    return np.frombuffer(_received(wire, _length(_received(wire, _FRAME)) - 4), np.uint8)


def _length(frame: bytes | bytearray | memoryview) -> int:
    return int.from_bytes(frame[1:_FRAME], "big")


def _peeked(wire: socket.socket, buffer: bytearray) -> memoryview:
    """Return what has arrived, at least a byte, and leave it there; nothing if the connection has ended."""
    while True:
        select.select([wire], [], [])
        with suppress(BlockingIOError):
            return memoryview(buffer)[: wire.recv_into(buffer, flags=socket.MSG_PEEK)]


def _received(wire: socket.socket, count: int) -> bytearray:
    """Return so many bytes, less if the connection has ended."""
    found = bytearray(count)
    filled = 0
    while filled < count:
        select.select([wire], [], [])
        with suppress(BlockingIOError):
            got = wire.recv_into(memoryview(found)[filled:])
            if not got:
                break
            filled += got
    return found[:filled]


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
        for place in range(at + _FRAME, end):
            content[filled] = seen[place]
            filled += 1
        count += 1
        at = end
    return at, filled, count
