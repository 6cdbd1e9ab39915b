"""Out: rows become messages of topics, each acknowledged by the broker."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal, Unpack
from uuid import uuid4

from headrace.base.broker_errors import BrokerFailed, MessageTooLarge
from headrace.base.errors import InvalidArgument
from headrace.base.outside import Unavailable
from headrace.connect.messages.writing import (
    ID_HEADER,
    MessageSink,
    MessageWriter,
    WritingOptions,
    key_header,
    one_line,
    writing,
)
from headrace.connect.mqtt import packets
from headrace.connect.mqtt.connection import ANSWER_SECONDS, Connection, mqtt_address
from headrace.connect.mqtt.packets import Kind, Property

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.base.time import Clock
    from headrace.connect.messages.address import BrokerAddress
    from headrace.connect.messages.writing import Outgoing
    from headrace.connect.sink import SinkWriter

UNACKNOWLEDGED = 1_000


def topic(
    url: str, topic: str, *, qos: Literal[1, 2] = 1, retain: bool = False, **options: Unpack[WritingOptions]
) -> MqttTopic:
    """Return a sink whose rows are messages of MQTT 5: at least once, with an id that is the same in a repetition.

    The id is the user property `headrace-id`, the key `headrace-key`. With QoS 2 a message is repeated only if its
    epoch is sent again; with QoS 1 the broker may repeat it, too.

    Args:
        url: `mqtt://user:password@host:port`, or `mqtts://`.
        topic: the topic; `{column}` is the column's text: "cities/{city}".
        qos: with which QoS messages are sent.
        retain: whether the broker keeps the last message of each topic for who subscribes later. A row of a table that
            is deleted has an empty body, which removes it.
        options: as all brokers have.

    Raises:
        InvalidPlan: it is no address, or an option is not known.
        InvalidArgument: it is no topic, or `qos` is neither 1 nor 2.

    """
    if not topic or set(topic) & set("+#\0"):
        raise InvalidArgument(f"{topic!r} is no topic that can be sent to", hint='For example "cities/{city}".')
    if qos not in {1, 2}:
        raise InvalidArgument(f"qos is 1 or 2, not {qos!r}")
    return MqttTopic(address=mqtt_address(url), how=writing(topic, options), qos=qos, retain=retain)


@dataclass(frozen=True, kw_only=True)
class MqttTopic(MessageSink):
    """Messages of topics; `topic` creates it."""

    address: BrokerAddress
    qos: int
    retain: bool

    @property
    def where(self) -> str:
        """Broker and topic."""
        return f"{self.address.place} ({self.how.address})"

    @property
    def name(self) -> str:
        """What tells it from the other sinks of an app."""
        return f"{self.address.place}#{self.how.address}"

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer; it connects when it has something to send."""
        del clock
        return _Writer(self, writer)


class _Writer(MessageWriter[MqttTopic]):
    """Sends epochs."""

    _connection: Connection | None = None

    def send(self, epoch: int, messages: Iterator[Sequence[Outgoing]]) -> None:
        """Send an epoch's messages; the broker has acknowledged them when it returns."""
        del epoch
        for some in messages:
            connection = self._connected()
            window = min(UNACKNOWLEDGED, connection.limit(Property.RECEIVE_MAXIMUM, 65_535))
            waiting = iter(some)
            while part := list(islice(waiting, window)):
                self._sent(connection, part)

    def close(self) -> None:
        """Close the connection."""
        self._closed(orderly=True)

    def drop(self) -> None:
        """Close a connection that failed, without a word to the broker."""
        self._closed(orderly=False)

    def _closed(self, *, orderly: bool) -> None:
        if self._connection is not None:
            self._connection.close(orderly=orderly)
            self._connection = None

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self.sink.address, f"headrace-{uuid4().hex[:12]}", session=None)
            most = self._connection.limit(Property.MAXIMUM_QOS, 2)
            if most < self.sink.qos:
                raise BrokerFailed(f"{self.sink.address.place} takes QoS {most} at most, and qos is {self.sink.qos}")
            if self.sink.retain and not self._connection.limit(Property.RETAIN_AVAILABLE, 1):
                raise BrokerFailed(f"{self.sink.address.place} retains no messages, and retain is asked for")
        return self._connection

    def _sent(self, connection: Connection, messages: Sequence[Outgoing]) -> None:
        """Send messages, and return when each is acknowledged: with QoS 2 released, too."""
        waiting = dict(enumerate(messages, start=1))
        for name, each in waiting.items():
            connection.send(self._packet(connection, name, each))
        last = Kind.PUBACK if self.sink.qos == 1 else Kind.PUBCOMP
        silence = 0.0
        while waiting:
            received = connection.receive(1.0)
            silence = 0.0 if received else silence + 1.0
            if silence > ANSWER_SECONDS:
                raise Unavailable(f"{self.sink.address.place} does not acknowledge messages")
            for one in received:
                if one.kind not in {Kind.PUBACK, Kind.PUBREC, Kind.PUBCOMP}:
                    continue
                answer = packets.answered(one.body)
                if answer.reason >= packets.FAILED:
                    raise connection.refused(answer.reason, f"a message for {self.sink.how.address}")
                if one.kind == last:
                    waiting.pop(answer.packet, None)
                elif one.kind == Kind.PUBREC:
                    connection.send(packets.answer(Kind.PUBREL, answer.packet))

    def _packet(self, connection: Connection, name: int, each: Outgoing) -> bytes:
        sink, address = self.sink, each.address
        user = {header: one_line(text) for header, text in each.headers.items()}
        user |= key_header(each, sink.where) | {ID_HEADER: each.id}
        if not address or set(address) & set("+#") or one_line(address) != address:
            raise BrokerFailed(f"{address!r} is no topic that can be sent to", detail=f"Its message is {each.id}.")
        longest = max(len(text.encode()) for text in (address, *user.values()))
        if longest > packets.MOST_TEXT:
            texts = f"topics and properties of {packets.MOST_TEXT:,} bytes"
            raise MessageTooLarge(sink.where, id=each.id, size=longest, most=texts)
        data = packets.publish(address, each.body, qos=sink.qos, name=name, retain=sink.retain, user=user)
        most = connection.limit(Property.MAXIMUM_PACKET_SIZE, packets.MOST_PACKET)
        if len(data) > most:
            raise MessageTooLarge(sink.where, id=each.id, size=len(each.body), most=f"packets of {most:,} bytes")
        return data
