"""Sockets of ZeroMQ as sinks: PUSH and PUB."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Unpack

from headrace.base.outside import Unavailable
from headrace.connect.messages.socket_feed import checked_url
from headrace.connect.messages.socket_sink import SocketSink, SocketWriter
from headrace.connect.messages.writing import WritingOptions, writing

if TYPE_CHECKING:
    from headrace.base.time import Clock
    from headrace.connect.sink import SinkWriter

zmq: Any = import_module("zmq")  # its stubs do not name what it re-exports
SEND_SECONDS, LINGER_SECONDS = 10.0, 10.0


def push(url: str, *, bind: bool = False, **options: Unpack[WritingOptions]) -> ZeromqSink:
    """Return a sink that pushes each row to one of the PULL sockets that are connected.

    It waits where none is. What a puller has taken is as safe as the puller; an epoch that is published again is pushed
    again.

    Args:
        url: `tcp://host:port`, `ipc://path` or another transport of ZeroMQ.
        bind: True: pullers connect.
        options: those of all brokers; messages have no headers and no key.

    Raises:
        InvalidPlan: the address is none, or an option is not known.

    """
    return ZeromqSink(url=checked_url(url), bind=bind, publishes=False, how=writing("", options))


def publish(url: str, topic: str = "", *, bind: bool = True, **options: Unpack[WritingOptions]) -> ZeromqSink:
    """Return a sink that publishes each row, in two parts: topic and body. Who is not connected misses it.

    Args:
        url: as for `push`.
        topic: the topic; `{column}` is replaced by the column's text.
        bind: False: connect to subscribers that bind.
        options: as for `push`.

    Raises:
        InvalidPlan: the address is none, or an option is not known.

    """
    return ZeromqSink(url=checked_url(url), bind=bind, publishes=True, how=writing(topic, options))


@dataclass(frozen=True, kw_only=True)
class ZeromqSink(SocketSink):
    """A socket; `push` and `publish` create it."""

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer.

        Raises:
            Unavailable: the address cannot be used now.

        """
        del clock
        return SocketWriter(self, writer, _Socket(self))


class _Socket:
    def __init__(self, sink: ZeromqSink) -> None:
        self._where = sink.url
        self._context: Any = zmq.Context()
        self._socket = self._context.socket(zmq.PUB if sink.publishes else zmq.PUSH)
        self._socket.linger = int(LINGER_SECONDS * 1000)
        self._socket.sndtimeo = int(SEND_SECONDS * 1000)
        if not sink.publishes:
            self._socket.immediate = True  # nothing is queued for a puller that is not there
        try:
            (self._socket.bind if sink.bind else self._socket.connect)(sink.url)
        except zmq.ZMQError as error:
            self.close()
            raise Unavailable(f"the socket cannot be opened at {sink.url}: {error}") from error

    def send(self, topic: bytes | None, body: bytes) -> None:
        try:
            self._socket.send_multipart([body] if topic is None else [topic, body])
        except zmq.Again:
            raise Unavailable(f"nobody pulls from {self._where}") from None

    def close(self) -> None:
        self._socket.close()
        self._context.term()
