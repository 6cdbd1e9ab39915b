"""Records of Amazon's Producer Library, which packs many into one: a magic number, a protobuf message, and its MD5."""

from __future__ import annotations

from hashlib import md5
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST = 16
_VARINT, _BYTES = 0, 2
_KEYS, _RECORDS = 1, 3
_KEY_INDEX, _DATA = 1, 3


def unpacked(data: bytes, key: str) -> list[tuple[bytes, str]]:
    """Return the records in a record, with their partition keys: itself where it is no packed one."""
    body = data[len(MAGIC) : -_DIGEST]
    if not data.startswith(MAGIC) or md5(body, usedforsecurity=False).digest() != data[-_DIGEST:]:
        return [(data, key)]
    keys, found = list[str](), list[tuple[bytes, str]]()
    for number, value in _fields(body):
        if number == _KEYS and isinstance(value, bytes):
            keys.append(value.decode())
        elif number == _RECORDS and isinstance(value, bytes):
            fields = dict(_fields(value))
            at, packed = fields.get(_KEY_INDEX, 0), fields.get(_DATA, b"")
            if isinstance(at, int) and isinstance(packed, bytes):
                found.append((packed, keys[at]))
    return found


def _fields(body: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: numbers and bytes, which are all that it has."""
    at = 0
    while at < len(body):
        tag, at = _varint(body, at)
        value, at = _varint(body, at)
        if tag & 7 == _BYTES:
            yield tag >> 3, body[at : at + value]
            at += value
        elif tag & 7 == _VARINT:
            yield tag >> 3, value
        else:
            raise ValueError(f"a packed record has a field of wire type {tag & 7}")


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        low, at = body[at], at + 1
        value |= (low & 127) << shift
        shift += 7
        if low < 128:  # noqa: PLR2004 -- the highest bit says that there is more
            return value, at
