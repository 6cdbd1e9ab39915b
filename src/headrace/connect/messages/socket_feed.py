"""Feeds of socket libraries whose messages are gone once they are received: ZeroMQ's and nng's.

PULL and SUB hand out a message and forget it: at most once. REQ waits for its answer: REP answers when the record is
durable, so a sender that asks again after a time-out has it at least once, and once with an id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self
from urllib.parse import urlsplit

from headrace.base.errors import InvalidPlan
from headrace.base.time import SystemClock, as_datetime
from headrace.connect.feed import Feed
from headrace.connect.messages.direct import FullOptions, run_direct, when_full
from headrace.connect.messages.reading import Message, MessageLanding, ReadingOptions, reading

if TYPE_CHECKING:
    import threading
    from contextlib import AbstractContextManager

    from headrace.base.buffer import SharedBuffer
    from headrace.connect.feed import Landing
    from headrace.connect.messages.direct import WhenFull
    from headrace.connect.messages.reading import Reading

KNOWN = ("topic", "received")
"""What `metadata=` may name."""
TAKEN, REFUSED = b"ok", b"refused: "
"""What a REP socket answers: that a record is durable, or why it is not."""
MOST = 1_000
_OVERHEAD = 200
_SCHEMES = ("tcp", "ipc", "inproc", "tls+tcp", "ws", "pgm", "epgm")
CLOCK = SystemClock()
Kind = Literal["pull", "sub", "rep"]


class SocketOptions(ReadingOptions, FullOptions, total=False):
    """The options of sockets that pull or subscribe."""


class Received(NamedTuple):
    """A message, and for SUB its topic."""

    body: bytes
    topic: bytes | None = None


class Receiving(Protocol):
    """An open socket."""

    def receive(self, most: int) -> list[Received]:
        """Return what has arrived, waiting a tenth of a second for the first."""
        ...

    def answer(self, body: bytes) -> None:
        """Answer the last message (REP)."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


def checked_url(url: str) -> str:
    """Return an address as it is.

    Raises:
        InvalidPlan: it is none.

    """
    if not isinstance(url, str) or urlsplit(url).scheme not in _SCHEMES or "@" in url:
        raise InvalidPlan(f"{url!r} is no address of a socket", hint='For example "tcp://127.0.0.1:5555".')
    return url


@dataclass(frozen=True, kw_only=True)
class SocketFeed(Feed):
    """A socket of a library; without `full` each message is answered."""

    library: ClassVar[str]

    url: str
    kind: Kind
    bind: bool
    full: WhenFull | None
    how: Reading
    topics: tuple[str, ...] = ()

    @classmethod
    def pulling(cls, url: str, options: SocketOptions, *, bind: bool) -> Self:
        """Return a feed of a socket that pulls.

        Raises:
            InvalidPlan: the address is none, or an option is not known.

        """
        how = reading(KNOWN, own_options(options))
        return cls(url=checked_url(url), kind="pull", bind=bind, full=when_full(options), how=how)

    @classmethod
    def subscribing(cls, url: str, topics: tuple[str, ...], options: SocketOptions, *, bind: bool) -> Self:
        """Return a feed of a socket that subscribes; raises as `pulling` does."""
        how, full = reading(KNOWN, own_options(options)), when_full(options)
        return cls(url=checked_url(url), kind="sub", bind=bind, full=full, how=how, topics=tuple(topics))

    @classmethod
    def replying(cls, url: str, options: ReadingOptions, *, bind: bool) -> Self:
        """Return a feed of a socket that answers; raises as `pulling` does."""
        return cls(url=checked_url(url), kind="rep", bind=bind, full=None, how=reading(KNOWN, own_options(options)))

    @property
    def identity(self) -> str:
        """The kind and the address."""
        return f"{self.library}:{self.kind}:{self.url}"

    def opened(self) -> AbstractContextManager[Receiving]:
        """Return the socket, open inside the block.

        Raises:
            Unavailable: the address cannot be used now.

        """
        raise NotImplementedError

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land messages until `stop` is set.

        Raises:
            Unavailable: the address cannot be used now.

        """
        with self.opened() as socket:
            run_socket(socket, landing, stop, how=self.how, full=self.full)


def run_socket(
    socket: Receiving, landing: Landing, stop: threading.Event, *, how: Reading, full: WhenFull | None
) -> None:
    """Land what a socket receives until `stop` is set; without `full` each message is answered.

    Raises:
        OSError: the socket fails.

    """
    messages = MessageLanding(landing, how)
    if full is None:
        _reply(socket, messages, stop)
        return

    def receive(waiting: SharedBuffer[list[Message]], ending: threading.Event) -> None:
        while not ending.is_set():
            if found := [_message(each) for each in socket.receive(MOST)]:
                weight = sum(len(each.body or b"") + _OVERHEAD for each in found)
                waiting.put(found, weight=weight, records=len(found))

    def land(received: list[list[Message]]) -> None:
        messages.land([each for some in received for each in some])

    run_direct(messages, stop, full, receive=receive, land=land)


def _reply(socket: Receiving, messages: MessageLanding, stop: threading.Event) -> None:
    while not stop.is_set():
        if not messages.has_room():
            stop.wait(0.1)  # who asks waits
            continue
        for received in socket.receive(1):
            wrong = messages.land([_message(received)], refuse=True)
            socket.answer(REFUSED + wrong[0].encode() if wrong else TAKEN)


def _message(received: Received) -> Message:
    return Message(received.body, about={"topic": received.topic, "received": as_datetime(CLOCK.now())})


def own_options(options: Any) -> Any:
    """Return the options of reading, without an id where none is named: these messages have none."""
    return {"id": None} | {name: each for name, each in options.items() if name not in FullOptions.__annotations__}
