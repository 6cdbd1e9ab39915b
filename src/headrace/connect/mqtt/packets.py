"""Packets of MQTT 5 as bytes, those that a client needs: https://docs.oasis-open.org/mqtt/mqtt/v5.0/mqtt-v5.0.html."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from headrace.base.broker_errors import BrokerFailed


class Kind(IntEnum):
    """The first half byte of a packet."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14


class Property(IntEnum):
    """The properties that are read or written here by name."""

    CONTENT_TYPE = 3
    SESSION_EXPIRY = 17
    RECEIVE_MAXIMUM = 33
    REASON = 31
    MAXIMUM_QOS = 36
    RETAIN_AVAILABLE = 37
    USER = 38
    MAXIMUM_PACKET_SIZE = 39


_BYTE, _TWO, _FOUR, _NUMBER, _TEXT, _PAIR = "byte", "two", "four", "number", "text", "pair"
_TYPES = {
    **dict.fromkeys((1, 23, 25, 36, 37, 40, 41, 42), _BYTE),
    **dict.fromkeys((19, 33, 34, 35), _TWO),
    **dict.fromkeys((2, 17, 24, 39), _FOUR),
    11: _NUMBER,
    **dict.fromkeys((3, 8, 9, 18, 21, 22, 26, 28, 31), _TEXT),
    38: _PAIR,
}
FAILED = 0x80
"""Reasons from here on are failures."""
MOST_PACKET = 256 << 20
MOST_TEXT = 65_535
"""The bytes of a text in a packet."""


class Packet(NamedTuple):
    """A packet: its kind, the other half of its first byte, and what follows its length."""

    kind: int
    flags: int
    body: bytes


class Published(NamedTuple):
    """A message. `packet`: its number, 0 with QoS 0. `properties`: by number what was sent; `user` by name."""

    topic: str
    payload: bytes
    qos: int
    packet: int
    repeated: bool
    retained: bool
    properties: dict[int, object]
    user: dict[str, str]


class Answer(NamedTuple):
    """An acknowledgement: of which packet, and the reason."""

    packet: int
    reason: int


class Accepted(NamedTuple):
    """The answer to CONNECT."""

    has_session: bool
    reason: int
    properties: dict[int, object]


def number(value: int) -> bytes:
    """Return a number of one to four bytes."""
    data = bytearray()
    while True:
        value, low = divmod(value, 128)
        data.append(low | (128 if value else 0))
        if not value:
            return bytes(data)


def text(value: str | bytes) -> bytes:
    """Return text or bytes after their length."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(data)) + data


def packet(kind: Kind, body: bytes = b"", *, flags: int = 0) -> bytes:
    """Return a packet."""
    return bytes([kind << 4 | flags]) + number(len(body)) + body


def connect(client: str, *, keep_alive: int, login: tuple[str, str], session: int | None, receive: int) -> bytes:
    """Return CONNECT.

    Args:
        client: the client's id.
        keep_alive: seconds.
        login: user and password, empty where there are none.
        session: for how many seconds the broker keeps the session; None: begin a new one that ends at once.
        receive: how many messages may be unacknowledged.

    """
    user, password = login
    flags = (2 if session is None else 0) | (128 if user else 0) | (64 if password else 0)
    properties = struct.pack(">BIBH", Property.SESSION_EXPIRY, session or 0, Property.RECEIVE_MAXIMUM, receive)
    properties += struct.pack(">BI", Property.MAXIMUM_PACKET_SIZE, MOST_PACKET)
    body = text("MQTT") + struct.pack(">BBH", 5, flags, keep_alive) + number(len(properties)) + properties
    body += text(client) + (text(user) if user else b"") + (text(password) if password else b"")
    return packet(Kind.CONNECT, body)


def subscribe(name: int, filters: tuple[str, ...], *, qos: int) -> bytes:
    """Return SUBSCRIBE: retained messages are sent for a new subscription, and not again for one that exists."""
    some = b"".join(text(each) + bytes([qos | 1 << 4]) for each in filters)
    return packet(Kind.SUBSCRIBE, struct.pack(">H", name) + b"\0" + some, flags=2)


def publish(topic: str, payload: bytes, *, qos: int, name: int, retain: bool, user: dict[str, str]) -> bytes:
    """Return PUBLISH."""
    properties = b"".join(bytes([Property.USER]) + text(key) + text(value) for key, value in user.items())
    body = text(topic) + struct.pack(">H", name) + number(len(properties)) + properties + payload
    return packet(Kind.PUBLISH, body, flags=qos << 1 | int(retain))


def answer(kind: Kind, name: int) -> bytes:
    """Return PUBACK, PUBREC, PUBREL or PUBCOMP, of success."""
    return packet(kind, struct.pack(">H", name), flags=2 if kind == Kind.PUBREL else 0)


def read_packets(data: bytearray) -> list[Packet]:
    """Take the whole packets from the front of what was received.

    Raises:
        BrokerFailed: it is no packet.

    """
    found, at = [], 0
    while at + 2 <= len(data):
        body, size = at + 1, 0
        for shift in (0, 7, 14, 21):
            if body >= len(data):
                size = -1
                break
            low, body = data[body], body + 1
            size |= (low & 127) << shift
            if low < 128:
                break
        else:
            raise BrokerFailed("what the broker sent is no packet of MQTT")
        if size < 0 or body + size > len(data):
            break
        found.append(Packet(data[at] >> 4, data[at] & 15, bytes(data[body : body + size])))
        at = body + size
    del data[:at]
    return found


def accepted(body: bytes) -> Accepted:
    """Read CONNACK."""
    properties, _, _ = _properties(body, 2)
    return Accepted(bool(body[0] & 1), body[1], properties)


def answered(body: bytes) -> Answer:
    """Read PUBACK, PUBREC, PUBREL or PUBCOMP."""
    return Answer(struct.unpack_from(">H", body)[0], body[2] if len(body) > 2 else 0)


def subscribed(body: bytes) -> list[int]:
    """Read SUBACK: for each filter the QoS, or a failure."""
    _, _, at = _properties(body, 2)
    return list(body[at:])


def published(one: Packet) -> Published:
    """Read PUBLISH."""
    qos, body = one.flags >> 1 & 3, one.body
    topic, at = _text(body, 0)
    name = 0
    if qos:
        (name,) = struct.unpack_from(">H", body, at)
        at += 2
    properties, user, at = _properties(body, at)
    flags = one.flags
    return Published(topic.decode(), body[at:], qos, name, bool(flags & 8), bool(flags & 1), properties, user)


def _text(body: bytes, at: int) -> tuple[bytes, int]:
    (size,) = struct.unpack_from(">H", body, at)
    return body[at + 2 : at + 2 + size], at + 2 + size


def _number(body: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        low, at = body[at], at + 1
        value |= (low & 127) << shift
        shift += 7
        if low < 128:
            return value, at


def _properties(body: bytes, at: int) -> tuple[dict[int, object], dict[str, str], int]:
    """Return properties by their numbers, those of users by their names, and where they end."""
    found: dict[int, object] = {}
    user: dict[str, str] = {}
    if at >= len(body):
        return found, user, at
    size, at = _number(body, at)
    end = at + size
    while at < end:
        which, at = _number(body, at)
        kind = _TYPES.get(which)
        if kind == _PAIR:
            name, at = _text(body, at)
            value, at = _text(body, at)
            user[name.decode(errors="replace")] = value.decode(errors="replace")
        elif kind == _TEXT:
            found[which], at = _text(body, at)
        elif kind == _NUMBER:
            found[which], at = _number(body, at)
        elif kind is None:
            raise BrokerFailed(f"the broker sent a property that MQTT 5 does not have: {which}")
        else:
            form = {_BYTE: ">B", _TWO: ">H", _FOUR: ">I"}[kind]
            (found[which],) = struct.unpack_from(form, body, at)
            at += struct.calcsize(form)
    return found, user, end
