"""`rabbitmq.stream(…)`: a feed of the messages of a stream, by their offsets."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Unpack

from headrace.base.errors import InvalidArgument
from headrace.connect.feed import Feed
from headrace.connect.messages.reading import MessageLanding, Reading, ReadingOptions, reading
from headrace.connect.rabbitmq.address import address_of
from headrace.connect.rabbitmq.consuming import KNOWN, OFFSET, WAIT_SECONDS, Consumer
from headrace.connect.rabbitmq.link import connected
from headrace.connect.rabbitmq.queues import MOST_PREFETCH, PREFETCH

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from headrace.connect.feed import Landing
    from headrace.connect.messages.address import BrokerAddress
    from headrace.connect.messages.reading import Message
    from headrace.connect.rabbitmq.link import Link

logger = logging.getLogger("headrace.rabbitmq")
Start = Literal["first", "last", "next"] | int | datetime
_WORDS = ("first", "last", "next")


def stream(
    url: str, stream: str, *, start: Start = "first", prefetch: int = PREFETCH, **options: Unpack[ReadingOptions]
) -> Stream:
    """Return a feed of a stream of RabbitMQ, which exists: exactly once, by the offset stored with each append.

    What the stream's retention removes before it was read is lost: a warning in `status` says from where to where.

    Args:
        url: as `queue` has it: the port of AMQP, not that of the stream protocol.
        stream: the stream's name.
        start: where it begins that has read nothing yet: "first", "last" (the last chunk), "next" (what is sent from
            now on), an offset, or a time.
        prefetch: so many messages are received before they are acknowledged, or some 16 MB.
        options: as `queue` has them; `metadata` knows also "offset". By default no message is known by its id.

    Raises:
        InvalidPlan: it is no address, or an option is not known.
        InvalidArgument: `start` or `prefetch` is out of bounds.

    """
    if not 1 <= prefetch <= MOST_PREFETCH:
        raise InvalidArgument(f"prefetch= is a number from 1 to {MOST_PREFETCH}, not {prefetch!r}")
    is_offset = isinstance(start, int) and not isinstance(start, bool) and start >= 0
    if not (is_offset or isinstance(start, datetime) or start in _WORDS):
        raise InvalidArgument(f"start= is one of {', '.join(_WORDS)}, an offset or a datetime, not {start!r}")
    how = reading((*KNOWN, "offset"), {"id": None, **options})
    return Stream(address=address_of(url), stream=stream, start=start, prefetch=prefetch, how=how)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream(Feed):
    """The messages of a stream; `stream` creates it."""

    address: BrokerAddress
    stream: str
    start: Start
    prefetch: int
    how: Reading

    @property
    def identity(self) -> str:
        """The stream and its virtual host: a broker may move."""
        return f"rabbitmq:{self.address.path or '/'}:{self.stream}"

    @property
    def where(self) -> str:
        """Broker and stream."""
        return f'the stream "{self.stream}" of RabbitMQ at {self.address.place}'

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land messages until `stop` is set; raises as a queue does."""
        messages = MessageLanding(landing, self.how)
        create = (
            f"Declare it: rabbitmqadmin declare queue name={self.stream} durable=true "
            '\'arguments={"x-queue-type": "stream"}\'; then start again.'
        )
        with connected(self.address, self.where, create=create) as link:
            at = self._start() if messages.position is None else int(messages.position)
            if messages.position is not None:
                self._check_removed(link, messages, int(messages.position))
            consumer = self._consumer(link, self.prefetch, at)
            while not stop.is_set():
                if consumer.is_full and not messages.has_room():
                    stop.wait(WAIT_SECONDS)
                    continue
                received = consumer.receive()
                if received and messages.has_room():
                    self._land(messages, received)
                    consumer.acknowledge()

    def _consumer(self, link: Link, prefetch: int, start: Any) -> Consumer:
        return Consumer(link, self.stream, prefetch=prefetch, needs=self.how.needs, arguments={OFFSET: start})

    def _land(self, messages: MessageLanding, received: Sequence[Message]) -> None:
        """Land what was not landed yet: a broker may begin before the offset that was asked for."""
        first = int(messages.position or 0)
        after = max(first, _offset(received[-1]) + 1)
        new = [each for each in received if _offset(each) >= first]
        messages.land(new, position=str(after).encode())

    def _check_removed(self, link: Link, messages: MessageLanding, expected: int) -> None:
        """Say what retention has removed. Offsets have gaps, so only the first one of the stream tells."""
        consumer = self._consumer(link, 1, "first")
        received = consumer.receive()
        consumer.close()
        first = _offset(received[0]) if received else 0
        if first > expected:
            gone = f"offsets {expected} to {first - 1} of {self.where} were removed before they were read"
            logger.warning("%s", gone)
            messages.report(warning=gone)

    def _start(self) -> Any:
        """Return it as the broker takes it: a time in UTC without its zone."""
        start = self.start
        return start.astimezone(UTC) if isinstance(start, datetime) else start


def _offset(message: Message) -> int:
    return int(str(message.headers[OFFSET]))
