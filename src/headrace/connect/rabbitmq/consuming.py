"""Receives messages of a queue or a stream, and acknowledges them in groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pika.spec import Basic, BasicProperties

from headrace.base.outside import Unavailable
from headrace.connect.messages.reading import NO_METADATA, Message, key_of, time_of
from headrace.connect.messages.writing import KEY_HEADER
from headrace.connect.rabbitmq.deliveries import id_of, is_plain, number_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from headrace.connect.rabbitmq.link import Link

KNOWN = (
    *("routing_key", "exchange", "redelivered", "time", "type", "correlation_id", "reply_to", "content_type"),
    *("user_id", "app_id", "priority"),
)
"""What messages have as metadata."""
_OF_DELIVERY = ("routing_key", "exchange", "redelivered")
OFFSET = "x-stream-offset"
MOST_BYTES = 16 << 20
WAIT_SECONDS = 0.2


class Consumer:
    """Receives from one queue, on a channel of its own. A link has one consumer at a time.

    Args:
        link: to the broker.
        queue: the queue's name.
        prefetch: so many messages are received before they are acknowledged.
        needs: the metadata that messages are to have.
        arguments: of the consumer.

    """

    def __init__(
        self,
        link: Link,
        queue: str,
        *,
        prefetch: int,
        needs: Collection[str],
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self._link = link
        self._needs = [name for name in needs if name in (*KNOWN, "offset")]
        self._most = max(1, prefetch // 2)  # the broker sends the other half meanwhile
        self._received: list[Message] = []
        self._bytes = self._last = 0
        self._channel = link.channel()
        self._channel.add_on_cancel_callback(lambda _: link.fail(Unavailable("the broker has ended the delivery")))
        self._channel.basic_qos(prefetch_count=prefetch)
        link.deliveries.take_those_of(self._channel.channel_number, self._take)
        link.ask(self._channel.basic_consume, queue, self._on_message, arguments=dict(arguments or {}))

    @property
    def is_full(self) -> bool:
        """Whether so many bytes are held that nothing more is to be received before they are acknowledged."""
        return self._bytes >= MOST_BYTES

    def receive(self, *, seconds: float = WAIT_SECONDS) -> list[Message]:
        """Return what has arrived, within some seconds; it stays received until it is acknowledged.

        Raises:
            Unavailable: the broker has closed the channel, or has deleted the queue; trying again says why.

        """
        known = len(self._received)
        self._link.until(lambda: len(self._received) > known, seconds=seconds)
        while known < len(self._received) < self._most and not self.is_full:
            known = len(self._received)
            self._link.until(self._is_enough, seconds=0)
        return self._received

    def acknowledge(self) -> None:
        """Acknowledge all that was received."""
        if self._received:
            self._channel.basic_ack(self._last, multiple=True)
            self._received, self._bytes = [], 0

    def close(self) -> None:
        """Receive nothing more; what was received and not acknowledged is delivered again."""
        self._channel.close()
        self._link.wait(lambda: self._channel.is_closed)

    def _is_enough(self) -> bool:
        return len(self._received) >= self._most or self.is_full

    def _take(self, method: bytes, properties: bytes, body: bytes) -> None:
        """Read a message; one with headers, or of which more is needed, as pika does."""
        if self._needs or not is_plain(properties):
            about = BasicProperties().decode(properties)
            self._add(Basic.Deliver().decode(method), about, body)
        else:
            self._last = number_of(method)
            self._received.append(Message(body, id_of(properties)))
            self._bytes += len(body)
        self._link.look()

    def _on_message(self, _: object, method: Basic.Deliver, about: BasicProperties, body: bytes) -> None:
        """Take a message that pika has read."""
        self._add(method, about, body)
        self._link.look()

    def _add(self, method: Basic.Deliver, about: BasicProperties, body: bytes) -> None:
        headers: dict[str, Any] = about.headers or {}
        key = headers.get(KEY_HEADER)
        metadata = {name: _metadata(name, method, about) for name in self._needs} if self._needs else NO_METADATA
        self._last = method.delivery_tag
        self._received.append(Message(body, about.message_id, key_of(key), headers, metadata))
        self._bytes += len(body)


def _metadata(name: str, method: Basic.Deliver, about: BasicProperties) -> object:
    if name == "time":
        return None if about.timestamp is None else time_of(about.timestamp)
    if name == "offset":
        return (about.headers or {}).get(OFFSET)
    return getattr(method if name in _OF_DELIVERY else about, name)
