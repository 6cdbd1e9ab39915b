"""`servicebus.queue(…)` and `servicebus.subscription(…)`: feeds by peek-lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusSubQueue
from azure.servicebus.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    OperationTimeoutError,
    SessionLockLostError,
)

from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.time import SystemClock
from headrace.connect.feed import Feed
from headrace.connect.messages.reading import Message, MessageLanding, Reading, ReadingOptions, key_of, reading
from headrace.connect.messages.writing import KEY_HEADER
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
    "dead_letter_reason": "dead_letter_reason",
    "dead_letter_description": "dead_letter_error_description",
    "dead_letter_source": "dead_letter_source",
}
KNOWN = tuple(_FIELDS)
"""What messages have as metadata."""
PREFETCH, MOST_PREFETCH = 500, 5_000
_WAIT_SECONDS = 0.5
SESSION_WAIT_SECONDS = 5.0
"""So long the service is asked for a session before it is asked again."""
SESSION_SECONDS = 10.0
"""A session that has messages all the time is given back after so long, so that others have their turn."""
_MACHINE = SystemClock()


class EntityOptions(ReadingOptions, total=False):
    """The options of an entity, and those of all brokers.

    `prefetch`: so many messages are received at once, 500 by default; their locks have to last until they are landed.
    `sessions`: whether the entity requires sessions: one after the other is received in order, until it is empty or
    after ten seconds. `dead_letter`: whether its dead-letter queue is read instead.
    """

    prefetch: int
    sessions: bool
    dead_letter: bool


def queue(connection: str, queue: str, **options: Unpack[EntityOptions]) -> Entity:
    """Return a feed of a queue of Azure Service Bus, by peek-lock: a message is completed when it is durable here.

    Messages with a `message_id` are landed exactly once, if they come again within `remember` messages; others at
    least once.

    Args:
        connection: a connection string, or `env:NAME` for that of the environment variable.
        queue: the queue's name.
        options: `prefetch`, `sessions`, `dead_letter`, and how messages are read. `metadata` knows also: "sequence",
            "time" (when the service got it), "subject", "correlation_id", "session", "content_type", "reply_to",
            "deliveries", and of dead letters "dead_letter_reason", "dead_letter_description", "dead_letter_source".

    Raises:
        InvalidPlan: it is no connection string, an option is not known, or dead letters are to have sessions.
        InvalidArgument: `prefetch` is out of bounds.

    """
    return _entity(connection, (queue, None), options)


def subscription(connection: str, topic: str, subscription: str, **options: Unpack[EntityOptions]) -> Entity:
    """Return a feed of a subscription of a topic; else as `queue`."""
    return _entity(connection, (topic, subscription), options)


def _entity(connection: str, path: tuple[str, str | None], options: EntityOptions) -> Entity:
    prefetch, sessions = options.pop("prefetch", PREFETCH), options.pop("sessions", False)
    dead_letter = options.pop("dead_letter", False)
    if not 1 <= prefetch <= MOST_PREFETCH:
        raise InvalidArgument(f"prefetch= is a number from 1 to {MOST_PREFETCH}, not {prefetch!r}")
    if sessions and dead_letter:
        raise InvalidPlan("a dead-letter queue has no sessions", hint="Leave sessions= out.")
    return Entity(
        namespace=Namespace.parse(connection),
        entity=path[0],
        subscription=path[1],
        prefetch=prefetch,
        sessions=sessions,
        dead_letter=dead_letter,
        how=reading(KNOWN, options),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity(Feed):
    """A queue, or a subscription of a topic; `queue` and `subscription` create it."""

    namespace: Namespace
    entity: str
    subscription: str | None
    prefetch: int
    sessions: bool
    dead_letter: bool
    how: Reading

    @property
    def path(self) -> str:
        """The name of the entity in its namespace."""
        path = self.entity if self.subscription is None else f"{self.entity}/Subscriptions/{self.subscription}"
        return f"{path}/$DeadLetterQueue" if self.dead_letter else path

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
        with failures(self.where), self.namespace.client() as client:
            if self.sessions:
                while not stop.is_set():
                    if messages.has_room():
                        self._land_session(client, messages, stop)
                    else:
                        stop.wait(_WAIT_SECONDS)
            else:
                with self._receiver(client) as receiver:
                    while not stop.is_set():
                        self._land(receiver, messages, stop)

    def _land(self, receiver: ServiceBusReceiver, messages: MessageLanding, stop: threading.Event) -> bool:
        """Land what has arrived, and complete it; return whether something has."""
        if not messages.has_room():
            stop.wait(_WAIT_SECONDS)
            return False
        received = receiver.receive_messages(max_message_count=self.prefetch, max_wait_time=_WAIT_SECONDS)
        if received:
            messages.land([self._message(each) for each in received])
            _complete(receiver, received)
        return bool(received)

    def _land_session(self, client: ServiceBusClient, messages: MessageLanding, stop: threading.Event) -> None:
        """Take a session, and land its messages until there are none, others have to have their turn, or it is lost."""
        try:
            with self._receiver(client) as receiver:
                until = _MACHINE.monotonic() + SESSION_SECONDS
                while self._land(receiver, messages, stop) and not stop.is_set() and _MACHINE.monotonic() < until:
                    pass
        except OperationTimeoutError:  # nobody has sent anything, or others have all sessions
            return
        except SessionLockLostError:  # what was not completed is delivered again, and is known by its id
            stop.wait(_WAIT_SECONDS)

    def _receiver(self, client: ServiceBusClient) -> ServiceBusReceiver:
        about: dict[str, Any] = {"sub_queue": ServiceBusSubQueue.DEAD_LETTER} if self.dead_letter else {}
        if self.sessions:
            about |= {"session_id": NEXT_AVAILABLE_SESSION, "max_wait_time": SESSION_WAIT_SECONDS}
        if self.subscription is None:
            return client.get_queue_receiver(self.entity, **about)
        return client.get_subscription_receiver(self.entity, self.subscription, **about)

    def _message(self, received: ServiceBusReceivedMessage) -> Message:
        headers = {_text(name): value for name, value in (received.application_properties or {}).items()}
        key: Any = headers.get(KEY_HEADER, received.session_id or received.partition_key)
        about = {name: getattr(received, _FIELDS[name]) for name in self.how.needs if name in _FIELDS}
        found = received.message_id
        return Message(
            b"".join(received.body or ()),
            None if found is None else str(found),
            key_of(key),
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
