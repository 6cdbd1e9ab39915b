"""Sockets of nng (nanomsg's successor) as sinks: push and pub."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import pynng

from headrace.base.outside import Unavailable
from headrace.connect.messages.socket_feed import checked_url
from headrace.connect.messages.socket_sink import SocketSink, SocketWriter
from headrace.connect.messages.writing import WritingOptions, writing

if TYPE_CHECKING:
    from headrace.base.time import Clock
    from headrace.connect.sink import SinkWriter

SEND_SECONDS = 10.0


def push(url: str, *, bind: bool = False, **options: Unpack[WritingOptions]) -> NngSink:
    """Return a sink that pushes each row to one of the pull sockets that are connected; it waits where none is.

    What is in nng's buffers when the app ends may be lost. An epoch that is published again is pushed again.

    Args:
        url: `tcp://host:port`, `ipc://path` or another transport of nng.
        bind: True: pullers dial.
        options: those of all brokers; messages have no headers and no key.

    Raises:
        InvalidPlan: the address is none, or an option is not known.

    """
    return NngSink(url=checked_url(url), bind=bind, publishes=False, how=writing("", options))


def publish(url: str, topic: str = "", *, bind: bool = True, **options: Unpack[WritingOptions]) -> NngSink:
    """Return a sink that publishes each row, its topic before its body. Who is not connected misses it.

    Args:
        url: as for `push`.
        topic: the topic; `{column}` is replaced by the column's text.
        bind: False: dial subscribers that listen.
        options: as for `push`.

    Raises:
        InvalidPlan: the address is none, or an option is not known.

    """
    return NngSink(url=checked_url(url), bind=bind, publishes=True, how=writing(topic, options))


@dataclass(frozen=True, kw_only=True)
class NngSink(SocketSink):
    """A socket; `push` and `publish` create it."""

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer.

        Raises:
            Unavailable: the address cannot be used now.

        """
        del clock
        return SocketWriter(self, writer, _Socket(self))


class _Socket:
    def __init__(self, sink: NngSink) -> None:
        self._where = sink.url
        kind: Any = pynng.Pub0 if sink.publishes else pynng.Push0
        self._socket = kind(send_timeout=int(SEND_SECONDS * 1000))
        try:
            if sink.bind:
                self._socket.listen(sink.url)
            else:
                self._socket.dial(sink.url, block=False)
        except pynng.NNGException as error:
            self._socket.close()
            raise Unavailable(f"the socket cannot be opened at {sink.url}: {error}") from error

    def send(self, topic: bytes | None, body: bytes) -> None:
        try:
            self._socket.send((topic or b"") + body)
        except pynng.Timeout:
            raise Unavailable(f"nobody pulls from {self._where}") from None

    def close(self) -> None:
        self._socket.close()
