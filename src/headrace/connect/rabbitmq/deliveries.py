"""Reads deliveries from the bytes of a connection: pika makes some ten objects of a message, one is needed.

A message is a frame with the method `basic.deliver`, one with its properties, and those of its body. Frames of other
channels may be in between: these, and all other methods, are for pika.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from pika.exceptions import BodyTooLongError

if TYPE_CHECKING:
    from collections.abc import Callable

_FRAME = struct.Struct(">BHI")  # its kind, its channel, the length of what follows
_SIZE = struct.Struct(">Q")
_METHOD, _HEADER, _BODY, _HEARTBEAT = 1, 2, 3, 8
_KINDS = frozenset({_METHOD, _HEADER, _BODY, _HEARTBEAT})
_END = 0xCE
_DELIVER = b"\x00\x3c\x00\x3c"
_HAS_ID, _HAS_MORE_FLAGS = 0x80, 0x01  # of the second byte of properties
_TEXTS_BEFORE, _BYTES_BEFORE, _TEXTS_AFTER = (0x80, 0x40), (0x10, 0x08), (0x04, 0x02, 0x01)  # of the first one
_HAS_HEADERS = 0x20


class Deliveries:
    """The bytes of a connection, in order.

    Args:
        others: is called with whole frames that are no part of a delivery to `channel`.

    """

    def __init__(self, others: Callable[[bytes], None]) -> None:
        self._others = others
        self._channel = 0
        self._take: Callable[[bytes, bytes, bytes], None] | None = None
        self._held: list[bytes] = []
        self._missing = 0  # so many bytes more make the frame that has begun whole
        self._method: bytes | None = None
        self._properties = b""
        self._parts: list[bytes] = []
        self._left = self._length = 0

    def take_those_of(self, channel: int, take: Callable[[bytes, bytes, bytes], None]) -> None:
        """From now on call `take` with the method, the properties and the body of each message of a channel."""
        self._channel, self._take, self._method = channel, take, None

    def read(self, data: bytes) -> None:
        """Read what has arrived, which may end anywhere.

        Raises:
            BodyTooLongError: it is not AMQP; `others` raises where a frame is none.

        """
        if self._held:
            self._held.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return
            data, self._held = b"".join(self._held), []
        at, size = 0, len(data)
        while size - at > _FRAME.size:
            kind, channel, length = _FRAME.unpack_from(data, at)
            end = at + length + _FRAME.size + 1
            if kind not in _KINDS:  # the broker knows another version only
                self._others(data[at:])
                return
            if end > size:
                break
            if channel != self._channel or channel == 0 or data[end - 1] != _END or not self._read(kind, data, at, end):
                self._others(data[at:end])
            at = end
        if at < size:
            self._held = [data[at:]]
            self._missing = max(1, end - size) if size - at > _FRAME.size else 1

    def _read(self, kind: int, data: bytes, at: int, end: int) -> bool:
        """Read a frame of the channel; False: it is no part of a delivery."""
        first = at + _FRAME.size
        if kind == _METHOD:
            if data[first : first + 4] != _DELIVER:
                return False
            self._method = data[first + 4 : end - 1]
        elif self._method is None:
            return False
        elif kind == _HEADER:
            (self._length,) = _SIZE.unpack_from(data, first + 4)
            self._left, self._properties = self._length, data[first + 12 : end - 1]
            if not self._left:
                self._finish(b"")
        else:
            body = data[first : end - 1]
            self._left -= len(body)
            if self._left < 0:
                raise BodyTooLongError(self._length - self._left, self._length)
            if self._left or self._parts:
                self._parts.append(body)
            if not self._left:
                self._finish(b"".join(self._parts) if self._parts else body)
        return True

    def _finish(self, body: bytes) -> None:
        method, self._method, self._parts = self._method, None, []
        assert self._take is not None  # noqa: S101 -- there is a channel
        assert method is not None  # noqa: S101 -- it came first
        self._take(method, self._properties, body)


def number_of(method: bytes) -> int:
    """Return the delivery tag, which follows the tag of the consumer."""
    first: int = _SIZE.unpack_from(method, 1 + method[0])[0]
    return first


def is_plain(properties: bytes) -> bool:
    """Whether a message has no headers, so that `id_of` can read its id."""
    return not (properties[0] & _HAS_HEADERS or properties[1] & _HAS_MORE_FLAGS)


def id_of(properties: bytes) -> Any:
    """Return the id of a plain message: bytes where it is no text, as pika has it, None where there is none."""
    flags, at = properties[0], 2
    if not properties[1] & _HAS_ID:
        return None
    for flag in _TEXTS_BEFORE:
        if flags & flag:
            at += 1 + properties[at]
    for flag in _BYTES_BEFORE:
        if flags & flag:
            at += 1
    for flag in _TEXTS_AFTER:
        if flags & flag:
            at += 1 + properties[at]
    found = properties[at + 1 : at + 1 + properties[at]]
    try:
        return found.decode()
    except UnicodeDecodeError:
        return found
