"""Record batches: columns of records -> the bytes that brokers store (format 2), in compiled code.

Layout: KIP-98, and "Record Batch" in Kafka's documentation of its protocol.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.connect.compiled import compiled
from headrace.connect.kafka.crc32c import crc32c
from headrace.connect.kafka.writing.partitioner import buffers

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from headrace.connect.kafka.writing.records import Records

HEAD = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, format, checksum, attributes, last offset, first and greatest time, the id and the
epoch of the producer, first sequence number, records."""
_HEAD_SIZE = HEAD.size
_FORMAT = 2
_TRANSACTIONAL = 0x10
_LENGTH_AT, _CHECKSUM_AT, _CHECKED_FROM = 8, 17, 21
_AROUND = 12  # bytes before what the length counts
_MOST_AROUND = 40  # bytes of a record besides key, value and headers, at most
_LZ4_BLOCK, _LZ4_PLAIN = 4 << 20, 0x80000000
_LZ4_HEAD = bytes.fromhex("04224d18 60 70 73")  # version 1, independent blocks of at most 4 MB; its checksum
_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@dataclass(frozen=True, slots=True)
class Producer:
    """Who writes: the id and the epoch that the cluster gave."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Columns:
    """Records as flat arrays: bytes and offsets of keys, values and encoded headers, and which are absent."""

    keys: npt.NDArray[np.uint8]
    key_offsets: npt.NDArray[np.int32]
    no_key: npt.NDArray[np.bool_]
    values: npt.NDArray[np.uint8]
    value_offsets: npt.NDArray[np.int32]
    no_value: npt.NDArray[np.bool_]
    headers: npt.NDArray[np.uint8]
    header_offsets: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]

    @staticmethod
    def of(records: Records) -> Columns:
        """Return records as flat arrays."""
        key_offsets, keys = buffers(records.keys)
        value_offsets, values = buffers(records.values)
        headers, header_offsets = _headers(records)
        no_key, no_value = _absent(records.keys), _absent(records.values)
        return Columns(
            keys, key_offsets, no_key, values, value_offsets, no_value, headers, header_offsets, records.times
        )


def batches(
    columns: Columns, rows: npt.NDArray[np.int64], *, producer: Producer, sequence: int, most: int, codec: str = "none"
) -> Iterator[tuple[bytes, int]]:
    """Yield record batches of some of the records, in their order, each with the number of its records.

    Args:
        columns: the records.
        rows: which of them.
        producer: who writes.
        sequence: the sequence number of the first one.
        most: no batch of several records has more bytes, before compression.
        codec: how batches are compressed: none, gzip, lz4, zstd.

    """
    start = 0
    lengths = _lengths(rows, columns.key_offsets, columns.value_offsets, columns.header_offsets)
    ends = np.cumsum(lengths)
    while start < len(rows):
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + most - HEAD.size, side="right")), start + 1)
        part = rows[start:end]
        out = np.empty(HEAD.size + int(ends[end - 1]) - before, np.uint8)
        yield _batch(out, columns, part, (producer, sequence + start), codec), end - start
        start = end


def _batch(
    out: npt.NDArray[np.uint8],
    columns: Columns,
    rows: npt.NDArray[np.int64],
    numbered: tuple[Producer, int],
    codec: str,
) -> bytes:
    """Return a batch, built in `out`; `numbered`: who writes, and the first sequence number."""
    producer, sequence = numbered
    times = columns.times[rows]
    first, greatest = int(times[0]), int(times.max())
    keys = columns.keys, columns.key_offsets, columns.no_key
    values = columns.values, columns.value_offsets, columns.no_value
    headers = columns.headers, columns.header_offsets
    end = _records(out, rows, (first, columns.times), keys, values, headers)
    if codec != "none":
        packed = np.frombuffer(_compressed(codec, out.data[HEAD.size : end]), np.uint8)
        out = np.concatenate([out[: HEAD.size], packed])
        end = len(out)
    attributes = _TRANSACTIONAL | _CODECS[codec]
    # sequence numbers wrap around
    HEAD.pack_into(
        out.data,
        0,
        0,
        end - _AROUND,
        -1,
        _FORMAT,
        0,
        attributes,
        len(rows) - 1,
        first,
        greatest,
        producer.id,
        producer.epoch,
        sequence & 0x7FFFFFFF,
        len(rows),
    )
    struct.pack_into(">I", out.data, _CHECKSUM_AT, crc32c(out, _CHECKED_FROM, end) & 0xFFFFFFFF)
    return out[:end].tobytes()


def _compressed(codec: str, data: memoryview) -> bytes:
    import cramjam

    if codec == "lz4":
        return _lz4(data)
    return bytes({"gzip": cramjam.gzip, "zstd": cramjam.zstd}[codec].compress(data))


def _lz4(data: memoryview) -> bytes:
    """Return a frame of LZ4 whose blocks are independent: brokers take no others."""
    import cramjam

    blocks = []
    for start in range(0, len(data), _LZ4_BLOCK):
        block = data[start : start + _LZ4_BLOCK]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        smaller = len(packed) < len(block)
        size = len(packed) if smaller else len(block) | _LZ4_PLAIN
        blocks += [struct.pack("<I", size), packed if smaller else bytes(block)]
    return b"".join([_LZ4_HEAD, *blocks, b"\0\0\0\0"])


def _absent(values: pa.Array) -> npt.NDArray[np.bool_]:
    if not values.null_count:
        return np.zeros(len(values), np.bool_)
    return np.asarray(values.is_null())


def _headers(records: Records) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the encoded headers of each record, one after another, and where each begins."""
    if records.headers is None:
        return np.zeros(1, np.uint8), np.zeros(len(records) + 1, np.int64)
    encoded = [_encoded(each or ()) for each in records.headers.to_pylist()]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(each) for each in encoded], out=offsets[1:])
    return np.frombuffer(b"".join(encoded) + b"\0", np.uint8), offsets


def _encoded(headers: list[dict[str, str | bytes | None]] | tuple[()]) -> bytes:
    parts = [_varint(len(headers))]
    for each in headers:
        name, value = str(each["name"]).encode(), each["value"]
        parts += [_varint(len(name)), name]
        parts += [_varint(-1)] if value is None else [_varint(len(value)), bytes(value)]  # type: ignore[arg-type]
    return b"".join(parts)


def _varint(value: int) -> bytes:
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:  # noqa: PLR2004 -- 7 bits a byte
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


@compiled
def _lengths(
    rows: npt.NDArray[np.int64],
    key_offsets: npt.NDArray[np.int32],
    value_offsets: npt.NDArray[np.int32],
    header_offsets: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return for each row how many bytes its record may have."""
    found = np.empty(len(rows), np.int64)
    for at in range(len(rows)):
        row = rows[at]
        found[at] = (
            _MOST_AROUND
            + (key_offsets[row + 1] - key_offsets[row])
            + (value_offsets[row + 1] - value_offsets[row])
            + (header_offsets[row + 1] - header_offsets[row])
        )
    return found


@compiled
def _put(out: npt.NDArray[np.uint8], at: int, value: int) -> int:
    """Write a zigzag varint, and return where it ends."""
    left = np.uint64((np.int64(value) << np.int64(1)) ^ (np.int64(value) >> np.int64(63)))
    while left > np.uint64(0x7F):
        out[at] = np.uint8((left & np.uint64(0x7F)) | np.uint64(0x80))
        left >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(left)
    return at + 1


@compiled
def _size(value: int) -> int:
    left = np.uint64((np.int64(value) << np.int64(1)) ^ (np.int64(value) >> np.int64(63)))
    size = 1
    while left > np.uint64(0x7F):
        left >>= np.uint64(7)
        size += 1
    return size


@compiled
def _records(out, rows, timing, keys, values, headers):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202, PLR0917
    """Write records after the head, and return where they end."""
    at = _HEAD_SIZE
    first, times = timing
    key_data, key_offsets, no_key = keys
    value_data, value_offsets, no_value = values
    header_data, header_offsets = headers
    for number in range(len(rows)):
        row = rows[number]
        key_start, value_start, header_start = key_offsets[row], value_offsets[row], header_offsets[row]
        key_size = np.int64(-1) if no_key[row] else np.int64(key_offsets[row + 1] - key_start)
        value_size = np.int64(-1) if no_value[row] else np.int64(value_offsets[row + 1] - value_start)
        header_size = header_offsets[row + 1] - header_start
        late = times[row] - first
        body = 1 + _size(late) + _size(number) + _size(key_size) + _size(value_size)
        key_bytes, value_bytes = max(key_size, np.int64(0)), max(value_size, np.int64(0))
        body += key_bytes + value_bytes + max(header_size, np.int64(1))
        at = _put(out, at, body)
        out[at] = 0
        at = _put(out, at + 1, late)
        at = _put(out, at, number)
        at = _put(out, at, key_size)
        for place in range(key_bytes):
            out[at + place] = key_data[key_start + place]
        at += key_bytes
        at = _put(out, at, value_size)
        for place in range(value_bytes):
            out[at + place] = value_data[value_start + place]
        at += value_bytes
        if header_size == 0:
            out[at] = 0
            at += 1
        for place in range(header_size):
            out[at + place] = header_data[header_start + place]
        at += header_size
    return at
