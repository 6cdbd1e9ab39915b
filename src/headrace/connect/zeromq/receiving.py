"""Sockets of ZeroMQ as sources: PULL, SUB and REP."""

from __future__ import annotations

from contextlib import closing, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Unpack

from headrace.base.outside import Unavailable
from headrace.connect.messages.direct import LOOK_SECONDS
from headrace.connect.messages.socket_feed import Received, SocketFeed, SocketOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.connect.messages.reading import ReadingOptions
    from headrace.connect.messages.socket_feed import Receiving

zmq: Any = import_module("zmq")  # its stubs do not name what it re-exports
_KINDS = {"pull": zmq.PULL, "sub": zmq.SUB, "rep": zmq.REP}


def pull(url: str, *, bind: bool = True, **options: Unpack[SocketOptions]) -> ZeromqFeed:
    """Return a feed of what is pushed to a PULL socket: at most once. Several pushers may connect.

    With `on_full="block"` pushers wait when the high-water marks are reached.

    Args:
        url: `tcp://host:port`, `ipc://path` or another transport of ZeroMQ.
        bind: False: connect to a pusher that binds.
        options: those of all brokers, and of direct sources; `metadata=` knows "received".

    Raises:
        InvalidPlan: the address is none, or an option is not known.

    """
    return ZeromqFeed.pulling(url, options, bind=bind)


def subscribe(
    url: str, topics: tuple[str, ...] = ("",), *, bind: bool = False, **options: Unpack[SocketOptions]
) -> ZeromqFeed:
    """Return a feed of what is published to a SUB socket: at most once, from the moment when it is connected.

    A message of several parts has its topic first; one of a single part is its body, which begins with the topic.

    Args:
        url: as for `pull`.
        topics: with what topics begin; all by default.
        bind: True: publishers connect.
        options: as for `pull`; `metadata=` knows "topic" and "received".

    Raises:
        InvalidPlan: the address is none, or an option is not known.

    """
    return ZeromqFeed.subscribing(url, topics, options, bind=bind)


def reply(url: str, *, bind: bool = True, **options: Unpack[ReadingOptions]) -> ZeromqFeed:
    """Return a feed of requests to a REP socket: each is answered with `ok` when its record is durable.

    At least once: who gets no answer asks again. One that cannot be decoded is answered with `refused: ` and the
    reason, and not landed.

    Args:
        url: as for `pull`.
        bind: False: connect to who asks.
        options: those of all brokers.

    Raises:
        InvalidPlan: the address is none, or an option is not known.

    """
    return ZeromqFeed.replying(url, options, bind=bind)


class ZeromqFeed(SocketFeed):
    """A socket; `pull`, `subscribe` and `reply` create it."""

    library = "zeromq"

    @contextmanager
    def opened(self) -> Iterator[Receiving]:
        """Return the socket, open inside the block."""
        with zmq.Context() as context, closing(_Socket(context, self)) as socket:
            yield socket


class _Socket:
    """An open socket. One thread at a time uses it."""

    def __init__(self, context: Any, feed: ZeromqFeed) -> None:
        self._socket = context.socket(_KINDS[feed.kind])
        self._socket.linger = 0
        for topic in feed.topics:
            self._socket.subscribe(topic.encode())
        try:
            (self._socket.bind if feed.bind else self._socket.connect)(feed.url)
        except zmq.ZMQError as error:
            self._socket.close()
            raise Unavailable(f"the socket cannot be opened at {feed.url}: {error}") from error

    def receive(self, most: int) -> list[Received]:
        found = list[Received]()
        if not self._socket.poll(int(LOOK_SECONDS * 1000)):
            return found
        while len(found) < most:
            try:
                *topic, body = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            found.append(Received(body, topic[0] if topic else None))
        return found

    def answer(self, body: bytes) -> None:
        self._socket.send(body)

    def close(self) -> None:
        self._socket.close()
