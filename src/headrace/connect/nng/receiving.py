"""Sockets of nng (nanomsg's successor) as sources: pull, sub and rep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Unpack

import pynng

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

Kind = Literal["pull", "sub", "rep"]
_KINDS: dict[str, Any] = {"pull": pynng.Pull0, "sub": pynng.Sub0, "rep": pynng.Rep0}


def pull(url: str, *, bind: bool = True, **options: Unpack[SocketOptions]) -> NngFeed:
    """Return a feed of what is pushed to a pull socket: at most once. Several pushers may dial.

    Args:
        url: `tcp://host:port`, `ipc://path` or another transport of nng.
        bind: False: dial a pusher that listens.
        options: those of all brokers, and of direct sources; `metadata=` knows "received".

    Raises:
        InvalidPlan: the address is none, or an option is not known.

    """
    how = reading(KNOWN, own_options(options))
    return NngFeed(url=checked_url(url), kind="pull", bind=bind, full=when_full(options), how=how)


def subscribe(
    url: str, topics: tuple[str, ...] = ("",), *, bind: bool = False, **options: Unpack[SocketOptions]
) -> NngFeed:
    """Return a feed of what is published to a sub socket: at most once, from the moment when it is connected.

    A message begins with its topic, which is one of `topics` here: the longest that it begins with is taken off.

    Args:
        url: as for `pull`.
        topics: with what messages begin; all by default.
        bind: True: publishers dial.
        options: as for `pull`; `metadata=` knows "topic" and "received".

    Raises:
        InvalidPlan: the address is none, or an option is not known.

    """
    how = reading(KNOWN, own_options(options))
    return NngFeed(url=checked_url(url), kind="sub", bind=bind, full=when_full(options), how=how, topics=tuple(topics))


def reply(url: str, *, bind: bool = True, **options: Unpack[ReadingOptions]) -> NngFeed:
    """Return a feed of requests to a rep socket: each is answered with `ok` when its record is durable.

    At least once: nng asks again by itself while there is no answer. One that cannot be decoded is answered with
    `refused: ` and the reason, and not landed.

    Args:
        url: as for `pull`.
        bind: False: dial who asks.
        options: those of all brokers.

    Raises:
        InvalidPlan: the address is none, or an option is not known.

    """
    return NngFeed(url=checked_url(url), kind="rep", bind=bind, full=None, how=reading(KNOWN, own_options(options)))


@dataclass(frozen=True, kw_only=True)
class NngFeed(Feed):
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
        return f"nng:{self.kind}:{self.url}"

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land messages until `stop` is set.

        Raises:
            Unavailable: the address cannot be used now.

        """
        socket = _Socket(self)
        try:
            run_socket(socket, landing, stop, how=self.how, full=self.full)
        finally:
            socket.close()


class _Socket:
    def __init__(self, feed: NngFeed) -> None:
        self._topics = sorted((topic.encode() for topic in feed.topics), key=len, reverse=True)
        self._socket = _KINDS[feed.kind](recv_timeout=int(LOOK_SECONDS * 1000))
        for topic in self._topics:
            self._socket.subscribe(topic)
        try:
            if feed.bind:
                self._socket.listen(feed.url)
            else:
                self._socket.dial(feed.url, block=False)
        except pynng.NNGException as error:
            self._socket.close()
            raise Unavailable(f"the socket cannot be opened at {feed.url}: {error}") from error

    def receive(self, most: int) -> list[Received]:
        found = list[Received]()
        while len(found) < most:
            try:
                body = self._socket.recv(block=not found)
            except (pynng.Timeout, pynng.TryAgain):
                break
            topic = next((each for each in self._topics if body.startswith(each)), None)
            found.append(Received(body if topic is None else body[len(topic) :], topic))
        return found

    def answer(self, body: bytes) -> None:
        self._socket.send(body)

    def close(self) -> None:
        self._socket.close()
