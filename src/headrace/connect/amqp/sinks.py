"""`amqp.destination(…)`: a sink whose epochs are transactions of a broker that speaks AMQP 1.0."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Unpack

import proton
from proton import Delivery, symbol

from headrace.base.broker_errors import BrokerFailed, MessageTooLarge
from headrace.base.errors import InvalidPlan
from headrace.connect.amqp.address import Refused, address_of, failures
from headrace.connect.amqp.connection import MOST_BYTES, Connection
from headrace.connect.amqp.transactions import Transactions, refusal
from headrace.connect.messages.writing import (
    KEY_HEADER,
    MessageSink,
    RestingWriter,
    WritingOptions,
    columns_in,
    writing,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proton import Sender

    from headrace.base.time import Clock
    from headrace.connect.messages.address import BrokerAddress
    from headrace.connect.messages.writing import Outgoing
    from headrace.connect.sink import Guarantee, SinkWriter

Kind = Literal["queue", "topic"]
_CONTENT_TYPES = {"json": "application/json", "text": "text/plain", "csv": "text/csv"}
_DUPLICATE_ID = "_AMQ_DUPL_ID"
"""The property by which Artemis recognises a message that it has."""
_JMS_DESTINATION = "x-opt-jms-dest"
"""Tells a broker that gets a message without a link of its own whether its address is a queue or a topic."""
_REPEATED = "Duplicate message detected"
_ARTEMIS = "apache-activemq-artemis"
_MICROS = 1_000_000


def destination(
    url: str,
    name: str,
    *,
    kind: Kind = "queue",
    transactions: bool = True,
    exactly_once: bool = False,
    **options: Unpack[WritingOptions],
) -> Destination:
    """Return a sink that sends each row to an address of a broker that speaks AMQP 1.0, an epoch as one transaction.

    So an epoch is there as a whole, or not at all. At least once: if the connection is lost, or we are killed, between
    the commit and its answer, the whole epoch is sent again, with the same `message-id` of each row. With
    `exactly_once` Artemis recognises such an epoch, and takes none of it. The key is the property `headrace-key`.

    Args:
        url: as `queue` has it.
        name: the address, in which `{column}` is replaced by the row's value.
        kind: whether it is a queue or a topic.
        transactions: False for a broker that has none: an epoch is then published when each message is accepted, and
            seen in parts until then.
        exactly_once: whether a repeated epoch is recognised by the broker, which has to be ActiveMQ Artemis.
        options: how messages are written.

    Raises:
        InvalidPlan: it is no address, an option is not known, or `exactly_once` is without transactions.

    """
    if kind not in ("queue", "topic"):
        raise InvalidPlan(f"kind={kind!r} is not known", hint="It is queue or topic.")
    if exactly_once and not transactions:
        raise InvalidPlan("exactly_once=True needs transactions: an epoch is recognised as a whole")
    how = writing(name, options)
    if exactly_once and any(header == _DUPLICATE_ID for header, _ in how.headers):
        raise InvalidPlan(f"exactly_once=True fills the property {_DUPLICATE_ID} itself", hint="Leave that header out.")
    return Destination(
        address=address_of(url),
        kind=kind,
        transactions=transactions,
        guarantee="exactly_once" if exactly_once else "at_least_once",
        how=how,
    )


@dataclass(frozen=True, kw_only=True)
class Destination(MessageSink):
    """A queue or topic; `destination` creates it."""

    address: BrokerAddress
    kind: Kind
    transactions: bool
    guarantee: Guarantee

    @property
    def where(self) -> str:
        """Broker and address."""
        return f'the {self.kind} "{self.how.address}" at {self.address.place}'

    @property
    def name(self) -> str:
        """The address."""
        return f"amqp:{self.how.address}"

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer, which connects when it has something to send."""
        return DestinationWriter(self, writer, clock)


class DestinationWriter(RestingWriter[Destination]):
    """Sends epochs to a broker."""

    _link: _Link | None = None

    def send(self, epoch: int, messages: Iterator[Sequence[Outgoing]]) -> None:
        """Send an epoch's messages, in a transaction where the sink has them."""
        del epoch
        link = None
        with failures(self.sink.where, self.sink.address, create="Create it in the broker."):
            for some in messages:
                if link is None:
                    link = self._link = self._link or _Link(self.sink)
                    link.begin()
                link.send(some)
            if link is not None:
                link.flush()
                self.sink.fault("before_commit")
                link.commit()

    def close(self) -> None:
        """Close the connection; a transaction that is not committed is undone by the broker."""
        link, self._link = self._link, None
        if link is not None:
            link.close()


class _Link:
    """A connection with a link to send on. After an error it is of no use."""

    def __init__(self, sink: Destination) -> None:
        self._sink = sink
        self._connection = Connection(sink.address)
        try:
            self._many = bool(columns_in(sink.how.address))
            self._check()
            self._transactions = Transactions(self._connection) if sink.transactions else None
            self._sender = self._attached()
        except BaseException:
            self.close()
            raise
        self._most = self._sender.remote_max_message_size
        self._encoder = proton.Message()
        self._under_way: deque[Delivery] = deque()
        self._begins = True

    def begin(self) -> None:
        """Begin an epoch."""
        self._begins = True
        if self._transactions is not None:
            self._transactions.begin()

    def send(self, messages: Sequence[Outgoing]) -> None:
        """Send messages, as far as the broker takes them; raises as `publish` does."""
        size = 0
        for message in messages:
            if size > MOST_BYTES:
                self._connection.work(0)
                size = 0
            if self._sender.credit <= 0:
                self._connection.until(lambda: self._sender.credit > 0, "what was sent")
                self._look()
            delivery = self._sender.delivery(self._sender.delivery_tag())
            size += self._sender.stream(self._encoded(message))
            if self._transactions is not None:
                self._transactions.add(delivery)
            self._sender.advance()
            self._under_way.append(delivery)
        self._connection.work(0)
        self._look()

    def flush(self) -> None:
        """Return when the broker has answered for each message; raises as `publish` does."""
        while self._under_way:
            self._connection.until(lambda: bool(self._under_way[0].remote_state), "what was sent")
            self._look()

    def commit(self) -> None:
        """Make the epoch visible, where it is a transaction."""
        if self._transactions is None:
            return
        try:
            self._transactions.commit()
        except Refused as error:
            if self._sink.guarantee != "exactly_once" or _REPEATED not in str(error):
                raise  # no other message of the epoch can be a duplicate for the broker

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _check(self) -> None:
        if self._sink.guarantee == "exactly_once" and self._connection.product != _ARTEMIS:
            raise BrokerFailed(
                f"{self._sink.where} is no ActiveMQ Artemis, so it does not recognise an epoch that is sent again",
                detail=f"It calls itself {self._connection.product or 'nothing'}.",
                hint="Leave exactly_once= out, and let the receiver drop what it has by its message-id.",
            )
        if self._many and "ANONYMOUS-RELAY" not in self._connection.offers:
            raise BrokerFailed(
                f"{self._sink.where} takes messages for one address a link", hint="Send to an address without {…}."
            )

    def _attached(self) -> Sender:
        sender = self._connection.session.sender("headrace")
        if not self._many:  # else each message has its address
            sender.target.address = self._sink.how.address
            sender.target.capabilities.put_object(symbol(self._sink.kind))
        self._connection.attach(sender)
        return sender

    def _encoded(self, message: Outgoing) -> bytes:
        about = self._encoder
        about.clear()
        about.id, about.address, about.body = message.id, message.address, message.body
        about.inferred = about.durable = True
        about.content_type = _CONTENT_TYPES.get(self._sink.how.format.name)
        about.properties = dict(message.headers)
        if message.key is not None:
            about.properties[KEY_HEADER] = message.key.decode("utf-8", "surrogateescape")
        if message.time is not None and message.time > 0:
            about.creation_time = message.time / _MICROS
        if self._many:
            about.annotations = {symbol(_JMS_DESTINATION): proton.byte(self._sink.kind == "topic")}
        if self._begins and self._sink.guarantee == "exactly_once":
            about.properties[_DUPLICATE_ID] = message.id
        self._begins = False
        data: bytes = about.encode()
        if self._most and len(data) > self._most:
            raise MessageTooLarge(self._sink.where, id=message.id, size=len(data), most=f"{self._most:,}")
        return data

    def _look(self) -> None:
        """Take the answers that are there.

        Raises:
            Refused: a message is refused.

        """
        while self._under_way and self._under_way[0].remote_state:
            delivery = self._under_way.popleft()
            refused = refusal(delivery, "a message")
            delivery.settle()
            if refused is not None:
                raise refused
