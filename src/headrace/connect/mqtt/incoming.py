"""In: the messages of topics, by a session that the broker keeps while nobody is connected.

QoS 2 is exactly once because the numbers of its packets are stored with each append. A message is landed, and then its
PUBREC is sent; from then on the broker asks for its release (PUBREL), which is stored before it is answered (PUBCOMP).
A packet that comes again with a number that was landed and not released is the same message.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Unpack

from headrace.base.broker_errors import QueueMissing
from headrace.base.errors import InvalidArgument
from headrace.base.time import duration
from headrace.connect.feed import Feed
from headrace.connect.messages.reading import Message, MessageLanding, Reading, ReadingOptions, reading
from headrace.connect.messages.writing import ID_HEADER, KEY_HEADER
from headrace.connect.mqtt import packets
from headrace.connect.mqtt.connection import Connection, mqtt_address
from headrace.connect.mqtt.packets import Kind, Property

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence
    from datetime import timedelta

    from headrace.connect.feed import Landing
    from headrace.connect.messages.address import BrokerAddress
    from headrace.connect.mqtt.packets import Packet, Published

KNOWN = ("topic", "qos", "retained", "repeated", "content_type")
UNACKNOWLEDGED = 1_000
EXACTLY_ONCE = 2
WAIT_SECONDS = 0.2
_FOREVER = (1 << 32) - 1
_MICROS = 1_000_000
_SHARED = "$share/"


def subscription(
    url: str,
    topics: str | Sequence[str],
    *,
    session: str,
    qos: Literal[1, 2] = 1,
    expiry: str | timedelta = "7 days",
    **options: Unpack[ReadingOptions],
) -> MqttSubscription:
    """Return a feed of topics of a broker of MQTT 5.

    Messages that are sent with QoS 2 are landed exactly once with `qos=2`. With QoS 1 they are landed at least once,
    and once if they have an id. What is sent with QoS 0 comes at most once.

    Metadata: "topic", "qos", "retained", "repeated" (the broker sent it before), "content_type". The "id" is the user
    property `headrace-id`, the "key" is `headrace-key`, else the last level of the topic; `header:NAME` is the user
    property NAME.

    Args:
        url: `mqtt://user:password@host:port`, or `mqtts://`.
        topics: filters, with the wildcards `+` and `#`, also `$share/group/filter`.
        session: the id of the client, one for each feed: the broker keeps its messages under it.
        qos: at most with which QoS the broker delivers.
        expiry: for how long the broker keeps messages while nobody is connected; the broker may allow less.
        options: as all brokers have.

    Raises:
        InvalidPlan: it is no address, or an option is not known.
        InvalidArgument: a topic or the session is empty, or `qos` is neither 1 nor 2.

    """
    some = (topics,) if isinstance(topics, str) else tuple(topics)
    if not some or not all(some):
        raise InvalidArgument("a subscription needs a topic", hint='For example "sensors/+/temperature".')
    if not session:
        raise InvalidArgument("session= is the id under which the broker keeps messages, and cannot be empty")
    if qos not in {1, 2}:
        raise InvalidArgument(f"qos is 1 or 2, not {qos!r}")
    seconds = duration(expiry, what="expiry") // _MICROS
    if seconds < 1:
        raise InvalidArgument(f"expiry is a second at least, not {expiry!r}")
    how = reading(KNOWN, options)
    return MqttSubscription(
        address=mqtt_address(url), topics=some, session=session, qos=qos, expiry=min(seconds, _FOREVER), how=how
    )


@dataclass(frozen=True, kw_only=True)
class MqttSubscription(Feed):
    """The messages of topics; `subscription` creates it."""

    address: BrokerAddress
    topics: tuple[str, ...]
    session: str
    qos: int
    expiry: int
    how: Reading

    @property
    def identity(self) -> str:
        """Broker and session: topics may be added."""
        return f"{self.address.place}#{self.session}"

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land messages until `stop` is set.

        Raises:
            Unavailable: the broker does not answer.
            LoginRefused: it does not accept user and password.
            QueueMissing: it does not accept a topic.

        """
        messages = MessageLanding(landing, self.how)
        connection = Connection(self.address, self.session, session=self.expiry, receive=UNACKNOWLEDGED)
        try:
            _Session(self, connection, messages).run(stop)
        finally:
            connection.close()


class _Session:
    """A session of a broker; `landed`: the packets that were landed, and that the broker has not released."""

    def __init__(self, feed: MqttSubscription, connection: Connection, messages: MessageLanding) -> None:
        self.feed, self.connection, self.messages = feed, connection, messages
        stored = messages.position
        self.landed: set[int] = set(json.loads(stored)["landed"]) if stored is not None else set()
        if not connection.has_session:
            self._begin(again=stored is not None)
        self._subscribe()

    def run(self, stop: threading.Event) -> None:
        """Land messages until `stop` is set."""
        while not stop.is_set():
            if not self.messages.has_room():
                stop.wait(WAIT_SECONDS)
                self.connection.keep()
                continue
            self.take(self._received())

    def _received(self) -> list[Packet]:
        """Return packets: the first wait for more, as long as they come and are not too many."""
        found = list(self.connection.receive(WAIT_SECONDS))
        while found and len(found) < UNACKNOWLEDGED and (more := self.connection.receive(0)):
            found += more
        return found

    def take(self, received: Sequence[Packet]) -> None:
        """Land messages and releases with one append, then answer all of them."""
        landed, fresh = set(self.landed), list[Message]()
        answers = bytearray()
        for each in received:
            if each.kind == Kind.PUBLISH:
                one = packets.published(each)
                if one.qos < EXACTLY_ONCE or one.packet not in landed:
                    fresh.append(_message(one))
                if one.qos == EXACTLY_ONCE:
                    landed.add(one.packet)
                    answers += packets.answer(Kind.PUBREC, one.packet)
                elif one.qos == 1:
                    answers += packets.answer(Kind.PUBACK, one.packet)
            elif each.kind == Kind.PUBREL:
                released = packets.answered(each.body).packet
                landed.discard(released)
                answers += packets.answer(Kind.PUBCOMP, released)
        if fresh or landed != self.landed:
            self.messages.land(fresh, position=_position(landed))
            self.landed = landed
        if answers:
            self.connection.send(bytes(answers))

    def _begin(self, *, again: bool) -> None:
        """Forget the packets of an older session: numbers begin anew. It is durable before a message is taken."""
        lost = len(self.landed)
        self.landed = set()
        if again:
            reason = (
                f"the broker no longer had the session {self.feed.session}: messages since the last connection are lost"
                if not lost
                else f"the broker no longer had the session {self.feed.session}, with {lost} messages not yet released"
            )
            self.messages.lose(reason, position=_position(self.landed))
        else:
            self.messages.land([], position=_position(self.landed))

    def _subscribe(self) -> None:
        feed, place = self.feed, self.feed.address.place
        self.connection.send(packets.subscribe(1, feed.topics, qos=feed.qos))
        granted = packets.subscribed(self.connection.expect(Kind.SUBACK).body)
        for topic, code in zip(feed.topics, granted, strict=True):
            if code >= packets.FAILED:
                raise self.connection.refused(code, f"the topic {topic}")
            if code < feed.qos:
                raise QueueMissing(
                    f"{place} delivers {topic} with QoS {code} at most, and {feed.qos} is asked for",
                    hint="Ask for less, or let the broker allow it.",
                )


def _position(landed: set[int]) -> bytes:
    return json.dumps({"landed": sorted(landed)}).encode()


def _message(one: Published) -> Message:
    key = one.user.get(KEY_HEADER, one.topic.rpartition("/")[2])
    about: dict[str, object] = {"topic": one.topic, "qos": one.qos, "retained": one.retained, "repeated": one.repeated}
    content = one.properties.get(Property.CONTENT_TYPE)
    if content is not None:
        about["content_type"] = content
    return Message(one.payload, id=one.user.get(ID_HEADER), key=key.encode(), headers=one.user, about=about)
