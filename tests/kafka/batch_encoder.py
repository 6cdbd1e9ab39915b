"""Record batches written byte by byte after Kafka's documentation: nothing here is shared with what reads them."""

from __future__ import annotations

import gzip
import struct
from typing import NamedTuple

NO_CODEC, GZIP, SNAPPY, LZ4, ZSTD = range(5)
APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20


class Record(NamedTuple):
    """A record: its place in the batch, and what it has."""

    delta: int
    key: bytes | None = None
    value: bytes | None = None
    passed: int = 0
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def varint(value: int) -> bytes:
    """Return a zigzag varint."""
    value = (value << 1) ^ (value >> 63)
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def sized(data: bytes | None) -> bytes:
    """Return bytes with their length before them; null is the length -1."""
    return varint(-1) if data is None else varint(len(data)) + data


def record(each: Record) -> bytes:
    """Return a record with its length before it."""
    body = b"\0" + varint(each.passed) + varint(each.delta) + sized(each.key) + sized(each.value)
    body += varint(len(each.headers))
    for name, value in each.headers:
        body += varint(len(name)) + name + sized(value)
    return varint(len(body)) + body


def crc32c(data: bytes) -> int:
    """Return the checksum, bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def batch(
    base: int,
    records: list[Record],
    *,
    attributes: int = 0,
    first_time: int = 1_000,
    last_time: int | None = None,
    producer: int = -1,
    last: int | None = None,
    payload: bytes | None = None,
    magic: int = 2,
) -> bytes:
    """Return a batch. `last`: the last offset where the last records are compacted away; `payload`: as it is stored."""
    body = b"".join(record(each) for each in records)
    if payload is None:
        payload = gzip.compress(body) if attributes & 7 == GZIP else body
    latest = max((first_time + each.passed for each in records), default=first_time) if last_time is None else last_time
    ending = (records[-1].delta if records else 0) if last is None else last - base
    fields = struct.pack(
        ">hiqqqhii", attributes, ending, first_time, latest, producer, 0 if producer >= 0 else -1, -1, len(records)
    )
    inside = fields + payload
    head = struct.pack(">ibI", 7, magic, crc32c(inside))
    return struct.pack(">qi", base, len(head + inside)) + head + inside


def marker(base: int, producer: int, *, abort: bool) -> bytes:
    """Return the control batch that ends a transaction."""
    key = struct.pack(">hh", 0, 0 if abort else 1)
    value = struct.pack(">hi", 0, 0)
    return batch(base, [Record(0, key, value)], attributes=TRANSACTIONAL | CONTROL, producer=producer)
