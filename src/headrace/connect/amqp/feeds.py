"""`amqp.queue(…)` and `amqp.topic(…)`: feeds of the messages of a queue, and of a durable subscription."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

import proton
from proton import Delivery, Described, MessageException, Terminus, symbol

from headrace.base.errors import InvalidArgument
from headrace.connect.amqp.address import address_of, failures
from headrace.connect.amqp.connection import MOST_BYTES, Connection
from headrace.connect.feed import Feed
from headrace.connect.messages.reading import (
    Message,
    MessageLanding,
    Reading,
    ReadingOptions,
    key_of,
    reading,
    time_of,
)
from headrace.connect.messages.writing import ID_HEADER, KEY_HEADER

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection

    from proton import Receiver

    from headrace.connect.feed import Landing
    from headrace.connect.messages.address import BrokerAddress

_FIELDS = {
    "address": "address",
    "subject": "subject",
    "correlation_id": "correlation_id",
    "reply_to": "reply_to",
    "content_type": "content_type",
    "group": "group_id",
    "user_id": "user_id",
    "priority": "priority",
    "failed_deliveries": "delivery_count",
}
KNOWN = (*_FIELDS, "time")
"""What messages have as metadata."""
PREFETCH, MOST_PREFETCH = 2_000, 20_000
_SELECTOR = "apache.org:selector-filter:string"
_WAIT_SECONDS = 0.2


def queue(
    url: str, queue: str, *, selector: str | None = None, prefetch: int = PREFETCH, **options: Unpack[ReadingOptions]
) -> Subscription:
    """Return a feed of a queue of a broker that speaks AMQP 1.0: ActiveMQ Artemis and others.

    A message is accepted when it is durable here. It is known by its `message-id`, or its property `headrace-id`: then
    it is landed exactly once, if it comes again within `remember` messages; without one at least once.

    Args:
        url: `amqp://user:password@host:port`, or `amqps://…?ca=FILE`; the password may be `env:NAME`.
        queue: the address, as the broker has it: "orders".
        selector: of which messages, as JMS has it: "city = 'Kiel' and size > 2"; others stay in the queue.
        prefetch: so many messages are received before they are accepted, or some 16 MB.
        options: how messages are read. `metadata` knows also: "address", "subject", "time" (its sender's),
            "correlation_id", "reply_to", "content_type", "group", "user_id", "priority", "failed_deliveries".

    Raises:
        InvalidPlan: it is no address, or an option is not known.
        InvalidArgument: `prefetch` is out of bounds.

    """
    return _subscription(url, queue, (selector, None), prefetch, options)


def topic(
    url: str,
    topic: str,
    *,
    subscription: str,
    selector: str | None = None,
    prefetch: int = PREFETCH,
    **options: Unpack[ReadingOptions],
) -> Subscription:
    """Return a feed of a topic of such a broker, by a durable subscription: the broker keeps what is sent meanwhile.

    Messages that were sent before the feed ran for the first time are not in it. Else as `queue`.

    Args:
        url: as `queue` has it.
        topic: the address, as the broker has it: "prices".
        subscription: the name of the subscription, and of its client: it is this feed's alone.
        selector: as `queue` has it; the broker keeps what matches. Another one makes the subscription anew.
        prefetch: as `queue` has it.
        options: as `queue` has them.

    Raises:
        InvalidPlan: it is no address, or an option is not known.
        InvalidArgument: the subscription has no name, or `prefetch` is out of bounds.

    """
    if not subscription:
        raise InvalidArgument("subscription= is a name, not empty")
    return _subscription(url, topic, (selector, subscription), prefetch, options)


def _subscription(
    url: str, source: str, named: tuple[str | None, str | None], prefetch: int, options: ReadingOptions
) -> Subscription:
    if not 1 <= prefetch <= MOST_PREFETCH:
        raise InvalidArgument(f"prefetch= is a number from 1 to {MOST_PREFETCH}, not {prefetch!r}")
    return Subscription(
        address=address_of(url),
        source=source,
        selector=named[0],
        subscription=named[1],
        prefetch=prefetch,
        how=reading(KNOWN, options),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription(Feed):
    """The messages of a queue, or with `subscription` those of a topic; `queue` and `topic` create it."""

    address: BrokerAddress
    source: str
    selector: str | None
    subscription: str | None
    prefetch: int
    how: Reading

    @property
    def identity(self) -> str:
        """The queue, or topic and subscription: a broker may move."""
        return f"amqp:{self.source}" + (f":{self.subscription}" if self.subscription else "")

    @property
    def where(self) -> str:
        """Broker and address."""
        return f'the {"topic" if self.subscription else "queue"} "{self.source}" at {self.address.place}'

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land messages until `stop` is set.

        Raises:
            Unavailable: the broker does not answer.
            LoginRefused, AccessRefused: user, password or rights are wrong.
            QueueMissing: the broker has no such address, and makes none.

        """
        messages = MessageLanding(landing, self.how)
        create = "Create it in the broker, or let the broker create addresses."
        with (
            failures(self.where, self.address, create=create),
            closing(Connection(self.address, container=self.subscription)) as connection,
        ):
            incoming = _Incoming(connection, self._receiver(connection), self.prefetch, self.how.needs)
            while not stop.is_set():
                connection.work(_WAIT_SECONDS)
                if not messages.has_room():
                    stop.wait(_WAIT_SECONDS)
                    continue
                if received := incoming.receive():
                    messages.land(received)
                    incoming.accept()

    def _receiver(self, connection: Connection) -> Receiver:
        receiver = connection.session.receiver(self.subscription or "headrace")
        source = receiver.source
        source.address = self.source
        source.capabilities.put_object(symbol("topic" if self.subscription else "queue"))
        if self.selector is not None:
            source.filter.put_object({symbol("selector"): Described(symbol(_SELECTOR), self.selector)})
        if self.subscription is not None:
            source.durability, source.expiry_policy = Terminus.DELIVERIES, Terminus.EXPIRE_NEVER
        connection.attach(receiver)
        return receiver


class _Incoming:
    """Receives from a link, and accepts all that was received.

    Args:
        connection: to the broker.
        receiver: the link.
        prefetch: so many messages are received before they are accepted.
        needs: the metadata that messages are to have.

    """

    def __init__(self, connection: Connection, receiver: Receiver, prefetch: int, needs: Collection[str]) -> None:
        self._connection, self._receiver, self._needs = connection, receiver, needs
        self._unsettled: list[Delivery] = []
        self._partial = bytearray()
        self._decoder = proton.Message()
        receiver.flow(prefetch)

    def receive(self) -> list[Message]:
        """Return what has arrived, up to some bytes; the rest waits."""
        found: list[Message] = []
        size, working = 0, True
        while working and size < MOST_BYTES:
            while size < MOST_BYTES and (data := self._next()) is not None:
                size += len(data)
                found.append(self._message(data))
            working = self._connection.work(0)
        return found

    def accept(self) -> None:
        """Accept what was received, and let as many more come."""
        for each in self._unsettled:
            each.update(Delivery.ACCEPTED)
            each.settle()
        self._receiver.flow(len(self._unsettled))
        self._unsettled.clear()

    def _next(self) -> bytes | None:
        """Return the next whole message, None if there is none yet."""
        current = self._receiver.current
        if current is None:
            return None
        if current.pending:
            self._partial += self._receiver.recv(current.pending)
        if current.partial:
            return None
        data = bytes(self._partial)
        self._partial.clear()
        self._unsettled.append(current)
        self._receiver.advance()
        return data

    def _message(self, data: bytes) -> Message:
        message = self._decoder
        try:
            message.decode(data)
        except MessageException:  # it is no message of AMQP: its format says what becomes of it
            return Message(data)
        headers = {str(name): _plain(value) for name, value in (message.properties or {}).items()}
        found = headers.get(ID_HEADER) or _plain(message.id)
        key = headers.get(KEY_HEADER) or message.group_id or None
        about = {name: _plain(getattr(message, _FIELDS[name])) for name in self._needs if name in _FIELDS}
        if "time" in self._needs:
            about["time"] = time_of(message.creation_time) if message.creation_time else None
        return Message(
            _body(message.body),
            None if found is None else str(found),
            key_of(key),
            headers,
            about,
        )


def _plain(value: Any) -> Any:
    """Return a value as Python has it, None for an empty text."""
    if isinstance(value, memoryview):
        return bytes(value) or None
    return str(value) or None if isinstance(value, str | UUID) else value


def _body(body: Any) -> bytes:
    """Return the body of a message: bytes and texts as they are, anything else as JSON."""
    if body is None:
        return b""
    if isinstance(body, bytes | memoryview):
        return bytes(body)
    return (body if isinstance(body, str) else json.dumps(body, default=lambda each: str(_plain(each)))).encode()
