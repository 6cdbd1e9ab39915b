"""UDP and multicast: a datagram is a message; out, a message is a datagram. At most once.

from headrace.connect import udp

app.stream("ticks", "symbol string, price double", source=udp.datagrams("udp://239.1.2.3:5000?interface=10.0.0.7"))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from headrace.base.broker_errors import MessageTooLarge
from headrace.base.errors import InvalidPlan
from headrace.base.time import SystemClock, as_datetime
from headrace.connect.feed import Feed
from headrace.connect.messages.datagrams import Datagrams, lost, receiving_socket, sending_socket, udp_address
from headrace.connect.messages.direct import FullOptions, run_direct, when_full, without_full
from headrace.connect.messages.reading import Message, MessageLanding, ReadingOptions, reading
from headrace.connect.messages.writing import MessageSink, WritingOptions, outgoing, writing
from headrace.connect.sink import SinkWriter

if TYPE_CHECKING:
    import socket
    import threading
    from collections.abc import Iterator

    import pyarrow as pa

    from headrace.base.buffer import SharedBuffer
    from headrace.base.time import Clock
    from headrace.connect.feed import Landing
    from headrace.connect.messages.datagrams import UdpAddress
    from headrace.connect.messages.direct import WhenFull
    from headrace.connect.messages.reading import Reading

KNOWN = ("remote", "received", "sequence")
"""What `metadata=` may name."""
MOST_BYTES = 65_507
_SIZES = (1, 2, 4, 8)
_OVERHEAD = 200
CLOCK = SystemClock()
_Received = tuple[list[bytes], "list[str] | None", int]


class UdpOptions(ReadingOptions, FullOptions, total=False):
    """The options of `datagrams`."""


def datagrams(url: str, *, sequence: tuple[int, int] | None = None, **options: Unpack[UdpOptions]) -> UdpFeed:
    """Return a feed of the datagrams that arrive at an address: at most once.

    What the kernel drops since it is not read fast enough is counted as `lost` in `status`, where the kernel says so.

    Args:
        url: `udp://host:port`, of this machine; or a multicast group, with `?interface=` for the address of a network
            card that it is joined on.
        sequence: the offset and size (1, 2, 4 or 8) of a big-endian number in each datagram that grows by one, for each
            sender. Missing numbers are counted as `gaps` in `status`; one that comes late is taken back from them.
        options: those of all brokers and of direct sources; `metadata=` knows "remote", "received" and "sequence".

    Raises:
        InvalidPlan: the address is none, or an option is not known.

    """
    if sequence is not None and (sequence[0] < 0 or sequence[1] not in _SIZES):
        raise InvalidPlan(f"sequence={sequence!r} is no place of a number", hint="(offset, 1, 2, 4 or 8 bytes)")
    own: Any = {"id": None} | without_full(options)
    return UdpFeed(address=udp_address(url), sequence=sequence, full=when_full(options), how=reading(KNOWN, own))


@dataclass(frozen=True, kw_only=True)
class UdpFeed(Feed):
    """Datagrams; `datagrams` creates it."""

    address: UdpAddress
    sequence: tuple[int, int] | None
    full: WhenFull
    how: Reading

    @property
    def identity(self) -> str:
        """The address."""
        return f"udp:{self.address.host}:{self.address.port}"

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land datagrams until `stop` is set.

        Raises:
            OSError: nobody can listen at the address.

        """
        messages, gaps = MessageLanding(landing, self.how), Gaps()
        wants = {what for _, what in self.how.metadata}
        bound = receiving_socket(self.address)
        box = Datagrams(bound)

        def receive(waiting: SharedBuffer[_Received], ending: threading.Event) -> None:
            named = self.sequence is not None or "remote" in wants
            while not ending.is_set():
                if count := box.receive():
                    bodies = [bytes(each) for each in box.each(count)]
                    senders = box.senders(count) if named else None
                    weight = sum(map(len, bodies)) + _OVERHEAD * count
                    waiting.put((bodies, senders, CLOCK.now()), weight=weight, records=count)

        def land(received: list[_Received]) -> None:
            found = list[Message]()
            for bodies, senders, now in received:
                numbers = [self._number(body, gaps, senders, at) for at, body in enumerate(bodies)]
                for at, body in enumerate(bodies):
                    about = {
                        "remote": senders[at] if senders else None,
                        "received": as_datetime(now),
                        "sequence": numbers[at],
                    }
                    found.append(Message(body, about=about))
            messages.land(found)

        def counts() -> dict[str, int]:
            return {"lost": lost(bound), "gaps": gaps.missing}

        try:
            run_direct(messages, stop, self.full, receive=receive, land=land, counts=counts)
        finally:
            box.close()

    def _number(self, body: bytes, gaps: Gaps, senders: list[str] | None, at: int) -> int | None:
        if self.sequence is None or senders is None or len(body) < sum(self.sequence):
            return None
        offset, size = self.sequence
        number = int.from_bytes(body[offset : offset + size], "big")
        gaps.see(senders[at], number, 1 << 8 * size)
        return number


class Gaps:
    """Counts missing numbers, by sender. A number less than half a circle ahead is new, any other one late."""

    def __init__(self) -> None:
        self.missing = 0
        self._next: dict[str, int] = {}

    def see(self, sender: str, number: int, circle: int) -> None:
        """Note a number of a sender; after `circle - 1` follows 0."""
        expected = self._next.get(sender)
        if expected is None:
            self._next[sender] = (number + 1) % circle
            return
        ahead = (number - expected) % circle
        if ahead < circle // 2:
            self.missing += ahead
            self._next[sender] = (number + 1) % circle
        elif self.missing:
            self.missing -= 1  # late, or there twice


def send(url: str, **options: Unpack[WritingOptions]) -> UdpSink:
    """Return a sink that sends each row as a datagram: nobody knows whether it arrives, and a crash repeats some.

    Args:
        url: `udp://host:port`; of a multicast group with `?interface=` for the address of the card to send by.
        options: those of all brokers; datagrams have no headers and no key.

    Raises:
        InvalidPlan: the address is none, or an option is not known.

    """
    if options.get("headers"):
        raise InvalidPlan("datagrams have no headers", hint="Leave headers= out.")
    return UdpSink(how=writing(url, options), address_of=udp_address(url))


@dataclass(frozen=True, kw_only=True)
class UdpSink(MessageSink):
    """Datagrams to an address; `send` creates it."""

    address_of: UdpAddress

    @property
    def where(self) -> str:
        """The address."""
        return f"udp://{self.address_of.host}:{self.address_of.port}"

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer."""
        del clock
        return UdpWriter(self, writer, sending_socket(self.address_of))


class UdpWriter(SinkWriter):
    """Sends epochs."""

    def __init__(self, sink: UdpSink, writer: str, sender: socket.socket) -> None:
        self.sink, self.writer, self.socket = sink, writer, sender

    def last_epoch(self) -> int | None:
        """Return None: nobody can tell."""
        return None

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Send an epoch's rows.

        Raises:
            MessageTooLarge: a row does not fit into a datagram.

        """
        target = (self.sink.address_of.host, self.sink.address_of.port)
        for messages in outgoing(self.sink, self.writer, epoch, rows):
            for message in messages:
                if len(message.body) > MOST_BYTES:
                    size = len(message.body)
                    raise MessageTooLarge(self.sink.where, id=message.id, size=size, most=f"{MOST_BYTES:,}")
                self.socket.sendto(message.body, target)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
