"""`rabbitmq.queue(…)`: a feed of the messages of a queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from headrace.base.errors import InvalidArgument
from headrace.connect.feed import Feed
from headrace.connect.messages.reading import MessageLanding, Reading, ReadingOptions, reading
from headrace.connect.rabbitmq.address import address_of
from headrace.connect.rabbitmq.consuming import KNOWN, WAIT_SECONDS, Consumer
from headrace.connect.rabbitmq.link import connected

if TYPE_CHECKING:
    import threading

    from headrace.connect.feed import Landing
    from headrace.connect.messages.address import BrokerAddress

PREFETCH = 5_000
MOST_PREFETCH = 65_535


def queue(url: str, queue: str, *, prefetch: int = PREFETCH, **options: Unpack[ReadingOptions]) -> Queue:
    """Return a feed of a queue of RabbitMQ, which exists: classic or quorum.

    A message is acknowledged when it is durable here. Messages with a `message_id` are landed exactly once, if
    `remember` is at least `prefetch`; others at least once. Order is that of the queue, but what the broker delivers
    again comes later.

    Args:
        url: `amqp://user:password@host:port/vhost`, or `amqps://…?cafile=…`; the password may be `env:NAME`.
        queue: the queue's name.
        prefetch: so many messages are received before they are acknowledged, or some 16 MB.
        options: how messages are read. `metadata` knows also: "routing_key", "exchange", "redelivered", "time" (its
            sender's, in seconds), "type", "correlation_id", "reply_to", "content_type", "user_id", "app_id",
            "priority".

    Raises:
        InvalidPlan: it is no address, or an option is not known.
        InvalidArgument: `prefetch` is not from 1 to 65535.

    """
    if not 1 <= prefetch <= MOST_PREFETCH:
        raise InvalidArgument(f"prefetch= is a number from 1 to {MOST_PREFETCH}, not {prefetch!r}")
    return Queue(address=address_of(url), queue=queue, prefetch=prefetch, how=reading(KNOWN, options))


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue(Feed):
    """The messages of a queue; `queue` creates it."""

    address: BrokerAddress
    queue: str
    prefetch: int
    how: Reading

    @property
    def identity(self) -> str:
        """The queue and its virtual host: a broker may move."""
        return f"rabbitmq:{self.address.path or '/'}:{self.queue}"

    @property
    def where(self) -> str:
        """Broker and queue."""
        return f'the queue "{self.queue}" of RabbitMQ at {self.address.place}'

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land messages until `stop` is set.

        Raises:
            Unavailable: the broker does not answer.
            LoginRefused, AccessRefused: user, password, virtual host or rights are wrong.
            QueueMissing: there is no such queue.

        """
        messages = MessageLanding(landing, self.how)
        create = f"Declare it: rabbitmqadmin declare queue name={self.queue} durable=true; then start again."
        with connected(self.address, self.where, create=create) as link:
            consumer = Consumer(link, self.queue, prefetch=self.prefetch, needs=self.how.needs)
            while not stop.is_set():
                if consumer.is_full and not messages.has_room():
                    stop.wait(WAIT_SECONDS)  # memory is bounded; a broker that misses heart-beats delivers again
                    continue
                received = consumer.receive()
                if received and messages.has_room():
                    messages.land(received)
                    consumer.acknowledge()
