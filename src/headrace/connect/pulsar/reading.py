"""In: the messages of a topic, in the order of each partition; the last message ids are stored with each append.

Two of Pulsar's consumers work for a partition. A reader begins after the message id that was landed last, so what is
received is what is missing, whatever was acknowledged. A subscription keeps messages in the topic until they are
acknowledged, when they are durable here: what no subscription wants, Pulsar deletes. Its consumer takes no messages.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack

import pulsar

from headrace.base.broker_errors import PositionLost
from headrace.base.errors import InvalidArgument
from headrace.base.outside import Unavailable
from headrace.base.time import SystemClock
from headrace.connect.feed import Feed
from headrace.connect.messages.reading import Message, MessageLanding, Reading, ReadingOptions, reading, time_of
from headrace.connect.messages.writing import ID_HEADER
from headrace.connect.pulsar.greeting import greeted
from headrace.connect.pulsar.session import Session, check_topic, pulsar_address

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence

    from headrace.connect.feed import Landing
    from headrace.connect.messages.address import BrokerAddress

KNOWN = ("topic", "message", "time", "event_time", "producer")
TOGETHER, TOGETHER_BYTES = 1_000, 16 << 20
WAIT_MILLIS = 100
AWAY_SECONDS = 2.0
"""So long the client may be without a connection before it is said; it connects again by itself."""
PARTITIONS_SECONDS = 30.0
_CLOCK = SystemClock()
Start = Literal["first", "next"] | datetime


def reader(
    url: str, topic: str, *, subscription: str, start: Start = "first", **options: Unpack[ReadingOptions]
) -> PulsarTopic:
    """Return a feed of a topic of Apache Pulsar: each message is landed exactly once, in order by partition.

    The topic is created if brokers do so. Partitions that are added are read from their first message.

    Metadata: "topic" (with its partition), "message" (the message id), "time" (when it was published), "event_time",
    "producer". The "id" is the property headrace-id, the "key" is the message's key, and `header:NAME` the property
    NAME. A message with an empty body deletes its key's row where there is `key=`.

    Args:
        url: `pulsar://host:port` or `pulsar+ssl://`; `:token@` or `user:password@` before the host. `?listener=NAME` is
            the listener of the brokers that is used.
        topic: its name, as "orders" or "persistent://tenant/namespace/orders".
        subscription: keeps what is not durable here yet; one for each feed.
        start: where a new feed begins: "first" (what the topic has), "next" (what is published from now on), or a time.
        options: as all brokers have; `id` is None here: message ids are enough.

    Raises:
        InvalidPlan: it is no address, or an option is not known.
        InvalidArgument: it is no topic or subscription, or `start` is another.

    """
    if not subscription:
        raise InvalidArgument("a subscription has a name")
    if start not in {"first", "next"} and not isinstance(start, datetime):
        raise InvalidArgument(f'start is "first", "next" or a time, not {start!r}')
    return PulsarTopic(
        address=pulsar_address(url),
        topic=check_topic(topic),
        subscription=subscription,
        start=start,
        how=reading(KNOWN, {"id": None, **options}),
    )


@dataclass(frozen=True, kw_only=True)
class PulsarTopic(Feed):
    """The messages of a topic; `reader` creates it."""

    address: BrokerAddress
    topic: str
    subscription: str
    start: Start
    how: Reading

    @property
    def identity(self) -> str:
        """The topic: brokers of a cluster have different addresses."""
        return f"pulsar:{self.topic}"

    def check(self) -> None:
        """Log in.

        Raises:
            Unavailable: the broker does not answer.
            LoginRefused, AccessRefused: the token, user or password is wrong or has too few rights.

        """
        greeted(self.address)

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land messages until `stop` is set.

        Raises:
            Unavailable: the broker does not answer, or another process uses the subscription.
            QueueMissing: there is no such topic.
            PositionLost: the topic ends before what was read.
            LoginRefused, AccessRefused: the token, user or password is wrong or has too few rights.

        """
        messages = MessageLanding(landing, self.how)
        session = Session(self.address)
        try:
            _Topic(self, session, messages).run(stop)
        finally:
            session.close()


class _At(NamedTuple):
    """A message id within a partition. `batch` is -1 where the message was sent alone, `entry` before the first."""

    ledger: int
    entry: int
    batch: int

    @staticmethod
    def of(found: Any) -> _At:
        return _At(found.ledger_id(), found.entry_id(), found.batch_index())

    @property
    def id(self) -> Any:
        return pulsar.MessageId(-1, *self) if self.entry >= 0 else pulsar.MessageId.earliest


class _Topic:
    """Reads all partitions in one session."""

    def __init__(self, feed: PulsarTopic, session: Session, messages: MessageLanding) -> None:
        self.feed, self.session, self.messages = feed, session, messages
        self.place = {name: _At(*at) for name, at in json.loads(messages.position or b"{}").items()}
        self.partitions: dict[str, _Partition] = {}
        self.looked = _CLOCK.monotonic()
        self._look(new=messages.position is None)

    def run(self, stop: threading.Event) -> None:
        away = 0.0
        while not stop.is_set():
            if _CLOCK.monotonic() - self.looked > PARTITIONS_SECONDS:
                self._look(new=False)
            if not self.messages.has_room():
                stop.wait(WAIT_MILLIS / 1000)
                continue
            if self._receive() or all(each.connected for each in self.partitions.values()):
                away = 0.0
            elif not away:
                away = _CLOCK.monotonic()
            elif _CLOCK.monotonic() - away > AWAY_SECONDS:
                raise Unavailable(f"{self.feed.address.place} has ended the connection")

    def _receive(self) -> bool:
        """Land what has arrived, acknowledge it, and return whether there was anything."""
        wait = WAIT_MILLIS // len(self.partitions) or 1
        received = {name: each.receive(wait) for name, each in self.partitions.items()}
        received = {name: some for name, some in received.items() if some}
        if received:
            self.place |= {name: _At.of(some[-1].message_id()) for name, some in received.items()}
            self.messages.land([_message(each) for some in received.values() for each in some], position=self._stored())
            for name, some in received.items():
                self.partitions[name].acknowledge(some[-1])
        return bool(received)

    def _look(self, *, new: bool) -> None:
        """Open the partitions that are not open; of a feed that begins with what is next, say where that is."""
        for name in self.session.partitions(self.feed.topic):
            if name not in self.partitions:
                one = _Partition(self.feed, self.session, name, self.place.get(name))
                self.partitions[name] = one
                if new and self.feed.start == "next":
                    self.place[name] = one.last
        if new and self.place:
            self.messages.land([], position=self._stored())  # a crash does not move the beginning
        for name, each in self.partitions.items():
            each.open(self.place.get(name))
        self.looked = _CLOCK.monotonic()

    def _stored(self) -> bytes:
        return json.dumps(self.place).encode()


class _Partition:
    """A partition: its subscription, then its reader."""

    def __init__(self, feed: PulsarTopic, session: Session, name: str, at: _At | None) -> None:
        self.feed, self.session, self.name = feed, session, name
        first = pulsar.InitialPosition.Latest if feed.start == "next" else pulsar.InitialPosition.Earliest
        with session.failures(name):
            self._keeper = session.client.subscribe(
                name, feed.subscription, initial_position=first, receiver_queue_size=0
            )
            self.last = _At.of(self._keeper.get_last_message_id())
        self._reader: Any = None
        if at is not None and self.last < at:
            raise PositionLost(f"{name} at {feed.address.place}", read=_text(at), now=f"its end is {_text(self.last)}")

    @property
    def connected(self) -> bool:
        connected: bool = self._reader.is_connected()
        return connected

    def open(self, at: _At | None) -> None:
        """Let the reader begin after a message, or where a new feed begins; it goes on if it is open."""
        if self._reader is not None:
            return
        first = pulsar.MessageId.earliest if at is None else at.id
        with self.session.failures(self.name):
            self._reader = self.session.client.create_reader(self.name, first, receiver_queue_size=TOGETHER)
            if at is None and isinstance(self.feed.start, datetime):
                self._reader.seek(int(self.feed.start.timestamp() * 1000))

    def receive(self, millis: int) -> Sequence[Any]:
        """Return what has arrived; wait some milliseconds for the first message."""
        received: list[Any] = []
        size = 0
        with self.session.failures(self.name):
            while len(received) < TOGETHER and size < TOGETHER_BYTES:
                try:
                    one = self._reader.read_next(1 if received else millis)
                except pulsar.Timeout:
                    break
                received.append(one)
                size += len(one.data())
        return received

    def acknowledge(self, message: Any) -> None:
        with self.session.failures(self.name):
            self._keeper.acknowledge_cumulative(message.message_id())


def _message(each: Any) -> Message:
    headers: Mapping[str, object] = each.properties()
    happened = each.event_timestamp()
    about = {
        "topic": each.topic_name(),
        "message": _text(_At.of(each.message_id())),
        "time": _time(each.publish_timestamp()),
        "event_time": _time(happened) if happened else None,
        "producer": each.producer_name(),
    }
    found, key = headers.get(ID_HEADER), each.partition_key()
    body = None if each.has_null_value() else each.data()
    return Message(
        body, id=str(found) if found else None, key=key.encode() if key else None, headers=headers, about=about
    )


def _time(millis: int) -> object:
    return time_of(millis, in_second=1_000)


def _text(at: _At) -> str:
    return ":".join(str(each) for each in (at if at.batch >= 0 else at[:2]))
