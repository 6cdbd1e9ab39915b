"""Python objects and Arrow tables through a socket between two of our own processes."""

from __future__ import annotations

import pickle
import socket
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

_LENGTH = struct.Struct(">Q")


class Channel:
    """One end of a socket. What is received is unpickled: the other end is a process that this program started.

    Raises:
        OSError: the other end is closed, in each of its functions; `EOFError`: in the middle of a message, or before.

    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, words: object, tables: Sequence[pa.Table] = ()) -> None:
        """Send an object and tables; it waits until the other end has taken nearly all."""
        encoded = [_encoded(table) for table in tables]
        head = pickle.dumps((words, [data.size for data in encoded]))
        self._end.sendall(_LENGTH.pack(len(head)) + head)
        for data in encoded:
            self._end.sendall(data)

    def receive(self) -> tuple[Any, list[pa.Table]]:
        """Wait for the next message, and return its object and its tables."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        words, sizes = pickle.loads(self._read(length))  # noqa: S301 -- of a process of ours
        return words, [_decoded(self._read(size)) for size in sizes]

    def close(self) -> None:
        """Close this end."""
        self._end.close()

    def _read(self, size: int) -> pa.Buffer:
        buffer = pa.allocate_buffer(size)
        view, got = memoryview(buffer), 0
        while got < size:
            received = self._end.recv_into(view[got:], size - got, socket.MSG_WAITALL)
            if not received:
                raise EOFError
            got += received
        return buffer


def _encoded(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _decoded(data: pa.Buffer) -> pa.Table:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
