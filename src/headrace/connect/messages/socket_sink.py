"""Sinks of socket libraries: a row is a message that is handed to the library, which sends it as it can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.connect.messages.writing import MessageSink, outgoing
from headrace.connect.sink import SinkWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


class Sending(Protocol):
    """An open socket."""

    def send(self, topic: bytes | None, body: bytes) -> None:
        """Send a message; waits where nobody takes one.

        Raises:
            Unavailable: nobody took it.

        """
        ...

    def close(self) -> None:
        """Close it, when what was sent is on its way."""
        ...


@dataclass(frozen=True, kw_only=True)
class SocketSink(MessageSink):
    """A socket that pushes, or publishes with a topic, which is the address of a message."""

    url: str
    bind: bool
    publishes: bool

    @property
    def where(self) -> str:
        """The address."""
        return self.url


class SocketWriter(SinkWriter):
    """Sends epochs."""

    def __init__(self, sink: SocketSink, writer: str, socket: Sending) -> None:
        self.sink, self.writer, self.socket = sink, writer, socket

    def last_epoch(self) -> int | None:
        """Return None: nobody can tell."""
        return None

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Send an epoch's rows.

        Raises:
            Unavailable: nobody takes them.

        """
        for messages in outgoing(self.sink, self.writer, epoch, rows):
            for message in messages:
                self.socket.send(message.address.encode() if self.sink.publishes else None, message.body)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
