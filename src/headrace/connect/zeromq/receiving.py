"""Sockets of ZeroMQ as sources: PULL, SUB and REP."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Unpack

from headrace.base.outside import Unavailable
from headrace.connect.direct import LOOK_SECONDS, when_full
from headrace.connect.feed import Feed
from headrace.connect.messages import ReadingOptions, reading
from headrace.connect.socket_feed import KNOWN, Received, SocketOptions, checked_url, own_options, run_socket

if TYPE_CHECKING:
    import threading

    from headrace.connect.direct import WhenFull
    from headrace.connect.feed import Landing
    from headrace.connect.messages import Reading

zmq: Any = import_module("zmq")  # its stubs do not name what it re-exports
Kind = Literal["pull", "sub", "rep"]
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
    how = reading(KNOWN, own_options(options))
    return ZeromqFeed(url=checked_url(url), kind="pull", bind=bind, full=when_full(options), how=how)


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
    how = reading(KNOWN, own_options(options))
    return ZeromqFeed(
        url=checked_url(url), kind="sub", bind=bind, full=when_full(options), how=how, topics=tuple(topics)
    )


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
    return ZeromqFeed(url=checked_url(url), kind="rep", bind=bind, full=None, how=reading(KNOWN, own_options(options)))


@dataclass(frozen=True, kw_only=True)
class ZeromqFeed(Feed):
    """A socket; `pull`, `subscribe` and `reply` create it."""

    url: str
    kind: Kind
    bind: bool
    full: WhenFull | None
    how: Reading
    topics: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """The kind and the address."""
        return f"zeromq:{self.kind}:{self.url}"

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land messages until `stop` is set.

        Raises:
            Unavailable: the address cannot be used now.

        """
        with zmq.Context() as context:
            socket = _Socket(context, self)
            try:
                run_socket(socket, landing, stop, how=self.how, full=self.full)
            finally:
                socket.close()


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
