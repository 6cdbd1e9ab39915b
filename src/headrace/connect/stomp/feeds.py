"""`stomp.queue(…)` and `stomp.topic(…)`: feeds of the messages of a queue, and of a durable subscription."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from headrace.base.errors import InvalidArgument
from headrace.connect.feed import Feed
from headrace.connect.messages.reading import Message, MessageLanding, Reading, ReadingOptions, reading, time_of
from headrace.connect.messages.writing import ID_HEADER, KEY_HEADER
from headrace.connect.stomp.address import BrokerSaid, address_of, failures
from headrace.connect.stomp.connection import Connection

if TYPE_CHECKING:
    import threading

    from stomp.utils import Frame

    from headrace.connect.feed import Landing
    from headrace.connect.messages.address import BrokerAddress

_HEADERS = {
    "destination": "destination",
    "redelivered": "redelivered",
    "type": "type",
    "priority": "priority",
    "correlation_id": "correlation-id",
    "reply_to": "reply-to",
    "content_type": "content-type",
}
KNOWN = (*_HEADERS, "time")
"""What messages have as metadata."""
DUPLICATE_ID = "_AMQ_DUPL_ID"
MOST_MESSAGES, MOST_BYTES = 2_000, 16 << 20
WINDOW = 1 << 20
"""So many bytes, and messages, a broker sends before they are acknowledged."""
_WAIT_SECONDS = 0.2


def queue(url: str, queue: str, *, selector: str | None = None, **options: Unpack[ReadingOptions]) -> Subscription:
    """Return a feed of a queue of a STOMP broker: ActiveMQ Artemis, ActiveMQ Classic and others.

    A message is acknowledged when it is durable here. It is known by the header `headrace-id` or `_AMQ_DUPL_ID`, else
    by the broker's own id and time. With an id of the sender it is landed exactly once; else at least once, since a
    broker that was killed may give it another id.

    Args:
        url: `stomp://user:password@host:port`, or `stomp+ssl://…?ca=FILE`; the password may be `env:NAME`.
        queue: the destination, as the broker has it: "orders" (Artemis), "/queue/orders" (Classic).
        selector: of which messages, as JMS has it: "city = 'Kiel'"; others stay in the queue. Headers of
            STOMP are texts.
        options: how messages are read. `metadata` knows also: "destination", "redelivered", "time", "type",
            "priority", "correlation_id", "reply_to", "content_type".

    Raises:
        InvalidPlan: it is no address, or an option is not known.

    """
    return Subscription(address=address_of(url), source=queue, selector=selector, how=reading(KNOWN, options))


def topic(
    url: str, topic: str, *, subscription: str, selector: str | None = None, **options: Unpack[ReadingOptions]
) -> Subscription:
    """Return a feed of a topic of a STOMP broker, by a durable subscription: the broker keeps what is sent meanwhile.

    Messages that were sent before the feed ran for the first time are not in it. Else as `queue`.

    Args:
        url: as `queue` has it.
        topic: the destination, as the broker has it: "prices" (Artemis), "/topic/prices" (Classic).
        subscription: the name of the subscription, and of its client: it is this feed's alone.
        selector: as `queue` has it; the broker keeps what matches.
        options: as `queue` has them.

    Raises:
        InvalidPlan: it is no address, or an option is not known.
        InvalidArgument: the subscription has no name.

    """
    if not subscription:
        raise InvalidArgument("subscription= is a name, not empty")
    how = reading(KNOWN, options)
    return Subscription(address=address_of(url), source=topic, selector=selector, how=how, subscription=subscription)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription(Feed):
    """The messages of a queue, or with `subscription` those of a topic; `queue` and `topic` create it."""

    address: BrokerAddress
    source: str
    selector: str | None
    how: Reading
    subscription: str | None = None

    @property
    def identity(self) -> str:
        """The queue, or topic and subscription: a broker may move."""
        return f"stomp:{self.source}" + (f":{self.subscription}" if self.subscription else "")

    @property
    def where(self) -> str:
        """Broker and destination."""
        return f'the {"topic" if self.subscription else "queue"} "{self.source}" at {self.address.place}'

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land messages until `stop` is set.

        Raises:
            Unavailable: the broker does not answer.
            LoginRefused, AccessRefused: user, password or rights are wrong.
            QueueMissing: the broker has no such destination, and makes none.

        """
        messages = MessageLanding(landing, self.how)
        with failures(self.where, self.address, create="Create it in the broker, or let the broker create addresses."):
            connection = Connection(self.address, client_id=self.subscription)
            try:
                connection.ask("SUBSCRIBE", self._headers())
                while not stop.is_set():
                    self._land(connection, messages, stop)
                with suppress(BrokerSaid, OSError):
                    connection.ask("DISCONNECT", {})
            finally:
                connection.close()

    def _land(self, connection: Connection, messages: MessageLanding, stop: threading.Event) -> None:
        """Land what has arrived, and acknowledge it."""
        if not messages.has_room():
            connection.beat()
            stop.wait(_WAIT_SECONDS)
            return
        frames, size = connection.messages(_WAIT_SECONDS), 0
        while frames and len(frames) < MOST_MESSAGES and size < MOST_BYTES:
            more = connection.messages(0)
            if not more:
                break
            frames += more
            size += sum(len(each.body or b"") for each in more)
        if frames:
            messages.land([self._message(each) for each in frames])
            connection.send("ACK", {"id": frames[-1].headers["ack"]})  # and all before it

    def _headers(self) -> dict[str, str]:
        headers = {
            "id": "0",
            "destination": self.source,
            "ack": "client",
            "subscription-type": "MULTICAST" if self.subscription else "ANYCAST",
            "consumer-window-size": str(WINDOW),
            "activemq.prefetchSize": str(MOST_MESSAGES),
        }
        if self.selector is not None:
            headers["selector"] = self.selector
        if self.subscription is not None:
            headers |= dict.fromkeys(("durable-subscription-name", "activemq.subscriptionName"), self.subscription)
        return headers

    def _message(self, frame: Frame) -> Message:
        headers = frame.headers
        found = headers.get(ID_HEADER) or headers.get(DUPLICATE_ID)
        if found is None:  # a broker whose data are new begins its ids anew, so its time is a part of it
            found = f"{headers.get('message-id')}@{headers.get('timestamp')}"
        key = headers.get(KEY_HEADER)
        about = {name: headers.get(_HEADERS[name]) for name in self.how.needs if name in _HEADERS}
        if "time" in self.how.needs:
            about["time"] = _time(headers.get("timestamp"))
        return Message(frame.body or b"", found, None if key is None else key.encode(), headers, about)


def _time(stamp: str | None) -> object:
    if not stamp or not stamp.isdecimal() or stamp == "0":
        return None
    return time_of(int(stamp), in_second=1_000)
