"""Sinks of socket libraries: a row is a message that is handed to the library, which sends it as it can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.connect.messages.writing import MessageSink, MessageWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.connect.messages.writing import Outgoing


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


class SocketWriter(MessageWriter[SocketSink]):
    """Sends epochs."""

    def __init__(self, sink: SocketSink, writer: str, socket: Sending) -> None:
        super().__init__(sink, writer)
        self.socket = socket

    def send(self, epoch: int, messages: Iterator[Sequence[Outgoing]]) -> None:
        """Send an epoch's messages."""
        del epoch
        for some in messages:
            for message in some:
                self.socket.send(message.address.encode() if self.sink.publishes else None, message.body)

    def drop(self) -> None:
        """Keep the socket: its library connects again."""

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
