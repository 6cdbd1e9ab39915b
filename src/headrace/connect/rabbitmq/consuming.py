"""Receives messages of a queue or a stream, and acknowledges them in groups."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.base.outside import Unavailable
from headrace.connect.messages.reading import NO_METADATA, Message
from headrace.connect.messages.writing import KEY_HEADER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pika import BlockingConnection
    from pika.spec import Basic, BasicProperties

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
    """Receives from one queue, on a channel of its own.

    Args:
        connection: to the broker.
        queue: the queue's name.
        prefetch: so many messages are received before they are acknowledged.
        needs: the metadata that messages are to have.
        arguments: of the consumer.

    """

    def __init__(
        self,
        connection: BlockingConnection,
        queue: str,
        *,
        prefetch: int,
        needs: Collection[str],
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self._connection = connection
        self._needs = [name for name in needs if name in (*KNOWN, "offset")]
        self._most = max(1, prefetch // 2)  # the broker sends the other half meanwhile
        self._received: list[Message] = []
        self._bytes = self._last = 0
        self._channel = connection.channel()
        self._channel.basic_qos(prefetch_count=prefetch)
        self._channel.basic_consume(queue, self._on_message, arguments=dict(arguments or {}))

    @property
    def is_full(self) -> bool:
        """Whether so many bytes are held that nothing more is to be received before they are acknowledged."""
        return self._bytes >= MOST_BYTES

    def receive(self, *, seconds: float = WAIT_SECONDS) -> list[Message]:
        """Return what has arrived, within some seconds; it stays received until it is acknowledged.

        Raises:
            Unavailable: the broker has closed the channel, or has deleted the queue.

        """
        self._connection.process_data_events(time_limit=seconds)
        known = 0
        while known < len(self._received) < self._most and not self.is_full:
            known = len(self._received)
            self._connection.process_data_events(time_limit=0)
        if not self._channel.is_open or not self._channel.consumer_tags:
            raise Unavailable("the broker has ended the delivery")  # trying again says why
        return self._received

    def acknowledge(self) -> None:
        """Acknowledge all that was received."""
        if self._received:
            self._channel.basic_ack(self._last, multiple=True)
            self._received, self._bytes = [], 0

    def close(self) -> None:
        """Receive nothing more; what was received and not acknowledged is delivered again."""
        self._channel.close()

    def _on_message(self, _: object, method: Basic.Deliver, about: BasicProperties, body: bytes) -> None:
        self._last = method.delivery_tag
        self._received.append(self._message(method, about, body))
        self._bytes += len(body)

    def _message(self, method: Basic.Deliver, about: BasicProperties, body: bytes) -> Message:
        headers: dict[str, Any] = about.headers or {}
        if not headers and not self._needs:
            return Message(body, about.message_id)
        key = headers.get(KEY_HEADER)
        metadata = {name: _metadata(name, method, about) for name in self._needs} if self._needs else NO_METADATA
        return Message(body, about.message_id, key.encode() if isinstance(key, str) else key, headers, metadata)


def _metadata(name: str, method: Basic.Deliver, about: BasicProperties) -> object:
    if name == "time":
        return None if about.timestamp is None else datetime.fromtimestamp(about.timestamp, UTC)
    if name == "offset":
        return (about.headers or {}).get(OFFSET)
    return getattr(method if name in _OF_DELIVERY else about, name)
