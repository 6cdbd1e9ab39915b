"""`servicebus.queue(…)` and `servicebus.subscription(…)`: feeds by peek-lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from azure.servicebus.exceptions import MessageAlreadySettled, MessageLockLostError

from headrace.base.errors import InvalidArgument
from headrace.connect.feed import Feed
from headrace.connect.messages import Message, MessageLanding, Reading, ReadingOptions, reading
from headrace.connect.outgoing import KEY_HEADER
from headrace.connect.servicebus.namespace import Namespace, failures

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage, ServiceBusReceiver

    from headrace.connect.feed import Landing

_FIELDS: Mapping[str, str] = {
    "sequence": "sequence_number",
    "time": "enqueued_time_utc",
    "subject": "subject",
    "correlation_id": "correlation_id",
    "session": "session_id",
    "content_type": "content_type",
    "reply_to": "reply_to",
    "deliveries": "delivery_count",
}
KNOWN = tuple(_FIELDS)
"""What messages have as metadata."""
PREFETCH, MOST_PREFETCH = 500, 5_000
_WAIT_SECONDS = 0.5


def queue(
    connection: str,
    queue: str,
    *,
    prefetch: int = PREFETCH,
    **options: Unpack[ReadingOptions],
) -> Entity:
    """Return a feed of a queue of Azure Service Bus, by peek-lock: a message is completed when it is durable here.

    Messages with a `message_id` are landed exactly once, if they come again within `remember` messages; others at
    least once. Queues that require sessions are not read.

    Args:
        connection: a connection string, or `env:NAME` for that of the environment variable.
        queue: the queue's name.
        prefetch: so many messages are received at once; their locks have to last until they are landed.
        options: how messages are read. `metadata` knows also: "sequence", "time" (when the service got it), "subject",
            "correlation_id", "session", "content_type", "reply_to", "deliveries".

    Raises:
        InvalidPlan: it is no connection string, or an option is not known.
        InvalidArgument: `prefetch` is out of bounds.

    """
    return _entity(connection, (queue, None), prefetch, options)


def subscription(
    connection: str,
    topic: str,
    subscription: str,
    *,
    prefetch: int = PREFETCH,
    **options: Unpack[ReadingOptions],
) -> Entity:
    """Return a feed of a subscription of a topic; else as `queue`."""
    return _entity(connection, (topic, subscription), prefetch, options)


def _entity(connection: str, path: tuple[str, str | None], prefetch: int, options: ReadingOptions) -> Entity:
    if not 1 <= prefetch <= MOST_PREFETCH:
        raise InvalidArgument(f"prefetch= is a number from 1 to {MOST_PREFETCH}, not {prefetch!r}")
    return Entity(
        namespace=Namespace.parse(connection),
        entity=path[0],
        subscription=path[1],
        prefetch=prefetch,
        how=reading(KNOWN, options),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity(Feed):
    """A queue, or a subscription of a topic; `queue` and `subscription` create it."""

    namespace: Namespace
    entity: str
    subscription: str | None
    prefetch: int
    how: Reading

    @property
    def path(self) -> str:
        """The name of the entity in its namespace."""
        return self.entity if self.subscription is None else f"{self.entity}/Subscriptions/{self.subscription}"

    @property
    def identity(self) -> str:
        """The entity: a namespace may move."""
        return f"servicebus:{self.path}"

    @property
    def where(self) -> str:
        """Namespace and entity."""
        return f'"{self.path}" of the Service Bus at {self.namespace.place}'

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land messages until `stop` is set.

        Raises:
            Unavailable: the service does not answer.
            LoginRefused: the key is wrong, or may not listen.
            QueueMissing: there is no such entity.

        """
        messages = MessageLanding(landing, self.how)
        with failures(self.where), self.namespace.client() as client, self._receiver(client) as receiver:
            while not stop.is_set():
                if not messages.has_room():
                    stop.wait(_WAIT_SECONDS)
                    continue
                received = receiver.receive_messages(max_message_count=self.prefetch, max_wait_time=_WAIT_SECONDS)
                if received:
                    messages.land([self._message(each) for each in received])
                    _complete(receiver, received)

    def _receiver(self, client: ServiceBusClient) -> ServiceBusReceiver:
        if self.subscription is None:
            return client.get_queue_receiver(self.entity)
        return client.get_subscription_receiver(self.entity, self.subscription)

    def _message(self, received: ServiceBusReceivedMessage) -> Message:
        headers = {_text(name): value for name, value in (received.application_properties or {}).items()}
        key: Any = headers.get(KEY_HEADER, received.session_id or received.partition_key)
        about = {name: getattr(received, _FIELDS[name]) for name in self.how.needs if name in _FIELDS}
        found = received.message_id
        return Message(
            b"".join(received.body or ()),
            None if found is None else str(found),
            key.encode() if isinstance(key, str) else key,
            headers,
            about,
        )


def _complete(receiver: ServiceBusReceiver, received: list[ServiceBusReceivedMessage]) -> None:
    for each in received:
        try:
            receiver.complete_message(each)
        except (MessageLockLostError, MessageAlreadySettled):  # it is delivered again, and is known by its id
            continue


def _text(name: str | bytes) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name
