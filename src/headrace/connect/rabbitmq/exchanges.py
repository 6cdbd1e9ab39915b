"""`rabbitmq.exchange(…)`: a sink that sends rows to an exchange."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from pika.exceptions import AMQPError, ChannelClosedByBroker

from headrace.base.broker_errors import MessageTooLarge, QueueMissing
from headrace.base.outside import Unavailable
from headrace.connect.messages.writing import MessageSink, MessageWriter, WritingOptions, writing
from headrace.connect.rabbitmq.address import address_of, ours
from headrace.connect.rabbitmq.link import connected
from headrace.connect.rabbitmq.publishing import Publisher

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.base.blame import HeadraceError
    from headrace.base.time import Clock
    from headrace.connect.messages.address import BrokerAddress
    from headrace.connect.messages.writing import Outgoing
    from headrace.connect.sink import SinkWriter

_CONTENT_TYPES = {"json": "application/json", "text": "text/plain", "csv": "text/csv"}
_SETTLES_SECONDS = 30.0
"""A broker that has just started returns messages to queues that it has not opened yet."""
_TOO_LARGE = re.compile(r"larger than (?:configured )?max size (\d+)")


def exchange(
    url: str, exchange: str, *, routing_key: str = "", mandatory: bool = True, **options: Unpack[WritingOptions]
) -> Exchange:
    """Return a sink that sends each row to an exchange of RabbitMQ, which exists, as a persistent message.

    An epoch is published when the broker has confirmed all of it. At least once: the `message_id` of a row is the same
    each time, so a receiver that remembers ids has it once. The headers' key is `headrace-key`.

    Args:
        url: as `queue` has it.
        exchange: the exchange's name; "" is the default one, which sends to the queue that the routing key names.
        routing_key: a text in which `{column}` is replaced by the row's value.
        mandatory: whether the app stops where a message reaches no queue; else it is dropped there.
        options: how messages are written.

    Raises:
        InvalidPlan: it is no address, or an option is not known.

    """
    return Exchange(address=address_of(url), exchange=exchange, mandatory=mandatory, how=writing(routing_key, options))


@dataclass(frozen=True, kw_only=True)
class Exchange(MessageSink):
    """An exchange; `exchange` creates it."""

    address: BrokerAddress
    exchange: str
    mandatory: bool

    @property
    def where(self) -> str:
        """Broker and exchange."""
        named = f'the exchange "{self.exchange}"' if self.exchange else "the default exchange"
        return f"{named} of RabbitMQ at {self.address.place}"

    @property
    def name(self) -> str:
        """Exchange and routing key, in the virtual host."""
        return f"rabbitmq:{self.address.path or '/'}:{self.exchange}:{self.how.address}"

    @property
    def create(self) -> str:
        """How to make what is missing."""
        return f"Declare it: rabbitmqadmin declare exchange name={self.exchange} type=topic; then start again."

    def prepare(self, *, clock: Clock) -> None:
        """Check that the exchange is there.

        Raises:
            QueueMissing: it is not.
            LoginRefused, AccessRefused: user, password, virtual host or rights are wrong.
            Unavailable: the broker does not answer.

        """
        del clock
        with connected(self.address, self.where, create=self.create) as link:
            if self.exchange:
                link.ask(link.channel().exchange_declare, self.exchange, passive=True)

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer, which connects when it has something to send."""
        return ExchangeWriter(self, writer, clock)


class ExchangeWriter(MessageWriter[Exchange]):
    """Sends epochs to an exchange."""

    def __init__(self, sink: Exchange, writer: str, clock: Clock) -> None:
        super().__init__(sink, writer)
        self.clock = clock
        self._publisher: Publisher | None = None
        self._lost = -_SETTLES_SECONDS
        """When the broker did not answer last."""

    def send(self, epoch: int, messages: Iterator[Sequence[Outgoing]]) -> None:
        """Send an epoch's messages, and wait until all of them are confirmed."""
        del epoch
        try:
            publisher = self._publisher = self._publisher or self._opened()
            for some in messages:
                publisher.send(some)
            publisher.flush()
            self._check_returned(publisher)
        except (AMQPError, OSError) as error:
            found = self._ours(error, self._publisher)
            if isinstance(found, Unavailable):
                self._lost = self.clock.monotonic()
            raise found from error

    def _opened(self) -> Publisher:
        sink = self.sink
        content_type = _CONTENT_TYPES.get(sink.how.format.name)
        return Publisher(sink.address, sink.exchange, content_type=content_type, mandatory=sink.mandatory)

    def _check_returned(self, publisher: Publisher) -> None:
        if publisher.returned is None:
            return
        found, about = publisher.returned
        if self.clock.monotonic() - self._lost < _SETTLES_SECONDS:
            raise Unavailable(f"{self.sink.where} answers again, and returns messages: {about.reply_text}")
        raise QueueMissing(
            f'{self.sink.where} sends messages with the routing key "{about.routing_key}" to no queue: '
            f"{about.reply_text}",
            detail=f"The message with the id {found} was returned. The rows of its epoch are staged.",
            hint="Bind a queue for it, and start the app again; or say mandatory=False, and it is dropped there.",
        )

    def _ours(self, error: BaseException, publisher: Publisher | None) -> HeadraceError:
        sink = self.sink
        if isinstance(error, ChannelClosedByBroker) and publisher is not None and publisher.under_way:
            found = _TOO_LARGE.search(error.reply_text)
            if found:
                largest = max(publisher.under_way, key=lambda each: len(each.body))
                return MessageTooLarge(sink.where, id=largest.id, size=len(largest.body), most=f"{found[1]} bytes")
        return ours(error, sink.where, sink.address, create=sink.create)

    def close(self) -> None:
        """Close the connection."""
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None
