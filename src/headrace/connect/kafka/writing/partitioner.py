"""Which partition a record goes to: as Java's default partitioner decides, so that all clients agree on a key's place.

A key's partition is its murmur2 hash, without the sign, modulo the number of partitions. Records without a key are
spread evenly, in runs, so that batches stay large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace.connect.compiled import compiled

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

_SEED, _FACTOR, _SHIFT = 0x9747B28C, 0x5BD1E995, 24
_POSITIVE = 0x7FFFFFFF


def partitions_of(keys: pa.Array, count: int, *, first: int = 0) -> npt.NDArray[np.int32]:
    """Return the partition of each record, as int32.

    Args:
        keys: the keys as binary; null is no key.
        count: how many partitions there are.
        first: where to begin with records without a key: another one each time spreads few records, too.

    """
    offsets, data = buffers(keys)
    hashed: npt.NDArray[np.int32] = _partitions(data, offsets, count)
    if keys.null_count:
        absent = np.asarray(keys.is_null())
        hashed[absent] = _spread(int(absent.sum()), count, first)
    return hashed


def murmur2(key: bytes) -> int:
    """Return the hash of a key, signed, as `org.apache.kafka.common.utils.Utils.murmur2` does."""
    value = int(_murmur2(np.frombuffer(key, np.uint8), 0, len(key)))
    return value - (1 << 32) if value > _POSITIVE else value


def buffers(values: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Return the offsets (one more than values) and the bytes of a binary array, without a copy."""
    _, starts, data = values.buffers()
    if starts is None or not len(values):
        return np.zeros(len(values) + 1, np.int32), np.zeros(0, np.uint8)
    offsets = np.frombuffer(starts, np.int32)[values.offset : values.offset + len(values) + 1]
    return offsets, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def _spread(rows: int, count: int, first: int) -> npt.NDArray[np.int64]:
    return (np.arange(rows, dtype=np.int64) * count // max(rows, 1) + first) % count


@compiled
def _murmur2(data: npt.NDArray[np.uint8], start: int, end: int) -> np.uint32:
    length = end - start
    factor = np.uint32(_FACTOR)
    value = np.uint32(_SEED) ^ np.uint32(length)
    whole = length // 4
    for word in range(whole):
        at = start + 4 * word
        part = (
            np.uint32(data[at])
            | np.uint32(data[at + 1]) << np.uint32(8)
            | np.uint32(data[at + 2]) << np.uint32(16)
            | np.uint32(data[at + 3]) << np.uint32(24)
        )
        part = np.uint32(part * factor)
        part ^= part >> np.uint32(_SHIFT)
        part = np.uint32(part * factor)
        value = np.uint32(np.uint32(value * factor) ^ part)
    rest, at = length - 4 * whole, start + 4 * whole
    if rest == 3:  # noqa: PLR2004 -- of four bytes
        value ^= np.uint32(data[at + 2]) << np.uint32(16)
    if rest >= 2:  # noqa: PLR2004
        value ^= np.uint32(data[at + 1]) << np.uint32(8)
    if rest >= 1:
        value = np.uint32(np.uint32(value ^ np.uint32(data[at])) * factor)
    value ^= value >> np.uint32(13)
    value = np.uint32(value * factor)
    value ^= value >> np.uint32(15)
    return value


@compiled
def _partitions(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32], count: int) -> npt.NDArray[np.int32]:
    found = np.empty(len(offsets) - 1, np.int32)
    for row in range(len(found)):
        found[row] = np.int64(_murmur2(data, offsets[row], offsets[row + 1]) & np.uint32(_POSITIVE)) % count
    return found
