"""The codecs of record batches: gzip, snappy (as Java and as librdkafka write it), lz4 and zstd."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import cramjam

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16


def _snappy(data: memoryview) -> Buffer:
    """Decompress one block, or Java's frame of blocks (xerial), each with its length before it."""
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return cramjam.snappy.decompress_raw(data)
    blocks, at = [], _XERIAL_HEADER
    while at < len(data):
        size = struct.unpack_from(">i", data, at)[0]
        if size < 0 or at + 4 + size > len(data):
            raise ValueError("a block of the snappy frame ends behind the frame")
        blocks.append(bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size])))
        at += 4 + size
    return b"".join(blocks)


_CODECS: dict[int, tuple[str, Callable[[memoryview], Buffer]]] = {
    1: ("gzip", cramjam.gzip.decompress),
    2: ("snappy", _snappy),
    3: ("lz4", cramjam.lz4.decompress),
    4: ("zstd", cramjam.zstd.decompress),
}


def decompress(codec: int, data: memoryview) -> Buffer:
    """Return the records of a batch, by the number of the codec in its attributes.

    Raises:
        ValueError: there is no such codec, or the bytes are not what it writes.

    """
    if codec not in _CODECS:
        raise ValueError(f"there is no compression codec {codec}")
    name, function = _CODECS[codec]
    try:
        return function(data)
    except (cramjam.DecompressionError, struct.error, OverflowError) as error:
        raise ValueError(f"{name} cannot decompress it: {error}") from error
