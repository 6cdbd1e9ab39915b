"""Sockets of nng (nanomsg's successor) as sources: pull, sub and rep."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Unpack

import pynng

from headrace.base.outside import Unavailable
from headrace.connect.messages.direct import LOOK_SECONDS
from headrace.connect.messages.socket_feed import Received, SocketFeed, SocketOptions

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from headrace.connect.messages.reading import ReadingOptions
    from headrace.connect.messages.socket_feed import Receiving

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
    return NngFeed.pulling(url, options, bind=bind)


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
    return NngFeed.subscribing(url, topics, options, bind=bind)


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
    return NngFeed.replying(url, options, bind=bind)


class NngFeed(SocketFeed):
    """A socket; `pull`, `subscribe` and `reply` create it."""

    library = "nng"

    def opened(self) -> AbstractContextManager[Receiving]:
        """Return the socket, open inside the block."""
        return closing(_Socket(self))


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
