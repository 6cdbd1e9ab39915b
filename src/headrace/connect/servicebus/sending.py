"""`servicebus.sender(…)`: a sink that sends rows to a queue or topic."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from headrace.base.broker_errors import MessageTooLarge
from headrace.connect.messages.writing import KEY_HEADER, MessageSink, MessageWriter, WritingOptions, writing
from headrace.connect.servicebus.namespace import Namespace, failures

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from azure.servicebus import ServiceBusClient, ServiceBusSender

    from headrace.base.time import Clock
    from headrace.connect.messages.writing import Outgoing
    from headrace.connect.sink import SinkWriter


def sender(connection: str, entity: str, *, sessions: bool = False, **options: Unpack[WritingOptions]) -> Sender:
    """Return a sink that sends each row to a queue or a topic of Azure Service Bus.

    At least once; exactly once where the entity detects duplicates, within its window: the `message_id` of a row is the
    same each time.

    Args:
        connection: as `queue` has it.
        entity: the name of the queue or topic.
        sessions: whether the key of a row is also the id of its session, as an entity with sessions needs it.
        options: how messages are written.

    Raises:
        InvalidPlan: it is no connection string, or an option is not known.

    """
    return Sender(namespace=Namespace.parse(connection), entity=entity, sessions=sessions, how=writing("", options))


@dataclass(frozen=True, kw_only=True)
class Sender(MessageSink):
    """A queue or topic; `sender` creates it."""

    namespace: Namespace
    entity: str
    sessions: bool

    @property
    def where(self) -> str:
        """Namespace and entity."""
        return f'"{self.entity}" of the Service Bus at {self.namespace.place}'

    @property
    def name(self) -> str:
        """The entity."""
        return f"servicebus:{self.entity}"

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer, which connects when it has something to send."""
        del clock
        return SendingWriter(self, writer)


class SendingWriter(MessageWriter[Sender]):
    """Sends epochs to an entity."""

    _client: ServiceBusClient | None = None
    _sender: ServiceBusSender | None = None

    def send(self, epoch: int, messages: Iterator[Sequence[Outgoing]]) -> None:
        """Send an epoch's messages, and wait until the service has all of them."""
        del epoch
        with failures(self.sink.where):
            for some in messages:
                self._send(some)

    def _send(self, messages: Sequence[Outgoing]) -> None:
        """Send messages in as few batches as their sizes allow."""
        if self._client is None or self._sender is None:
            self._client = self.sink.namespace.client()
            self._sender = self._client.get_queue_sender(self.sink.entity)  # the same for a topic
        batch = self._sender.create_message_batch()
        for message in messages:
            sent = self._message(message)
            try:
                batch.add_message(sent)
            except MessageSizeExceededError:
                if len(batch):
                    self._sender.send_messages(batch)
                batch = self._sender.create_message_batch()
                self._add(batch, sent, message)
        if len(batch):
            self._sender.send_messages(batch)

    def _add(self, batch: Any, sent: ServiceBusMessage, message: Outgoing) -> None:
        try:
            batch.add_message(sent)
        except MessageSizeExceededError as error:
            most = f"{batch.max_size_in_bytes:,} bytes"
            raise MessageTooLarge(self.sink.where, id=message.id, size=len(message.body), most=most) from error

    def _message(self, message: Outgoing) -> ServiceBusMessage:
        headers: dict[Any, Any] = dict(message.headers)
        session = None
        if message.key is not None:
            headers[KEY_HEADER] = message.key
            session = message.key.decode("utf-8", "replace") if self.sink.sessions else None
        return ServiceBusMessage(
            message.body, message_id=message.id, application_properties=headers or None, session_id=session
        )

    def close(self) -> None:
        """Close the connection."""
        client, self._client, self._sender = self._client, None, None
        if client is not None:
            with suppress(ServiceBusError, OSError):
                client.close()
