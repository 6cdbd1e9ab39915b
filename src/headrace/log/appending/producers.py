"""Who numbered appends, and which number came last: derived from the frames, kept in a snapshot at each new segment.

A snapshot `<offset>.producers` holds what the frames before that offset say, so it is still known when their
segments are gone. The frames from there on are read again, by every process that needs to know. A cleaning puts what
it may take away into the layout as well.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, TypeGuard
from zlib import crc32

import numpy as np

from headrace.log.segments import layout as layouts
from headrace.log.segments.frame import END, PRODUCED

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from headrace.log.segments.head import PartitionState
    from headrace.log.segments.partition import Partition

NEVER = -(1 << 63)  # less than every sequence: the producer has appended nothing
SUFFIX = ".producers"
_KEPT = 2  # snapshots; the older one serves when the newer one is damaged


class LastAppend(NamedTuple):
    """A producer's last append in this partition."""

    sequence: int
    first: int
    end: int


class StaleSequence(Exception):
    """The producer's last sequence is not the one that the append was made for."""

    def __init__(self, last: int) -> None:
        super().__init__(last)
        self.last = last


def is_sequence(value: object) -> TypeGuard[int]:
    """Tell whether a value can number an append: a whole number of 64 bits, above `NEVER`."""
    return isinstance(value, int) and not isinstance(value, bool) and NEVER < value < -NEVER


def identity(producer: str) -> bytes:
    """Return the 16 bytes that stand for a producer's name in frames."""
    return blake2b(producer.encode(), digest_size=16).digest()


def first_of(partition: Partition, bounds: tuple[int, int], producers: Collection[str]) -> int | None:
    """Return the first offset inside the bounds that one of the producers appended with a number, from the index."""
    ids, state = {identity(name) for name in producers}, partition.state()
    start, end = max(bounds[0], state.start), min(bounds[1], state.end)
    for segment, index, _ in partition.indexed(start, end, state):
        numbered = (index["flags"] & PRODUCED == PRODUCED) & (index["next"] > start) & (index["base"] < end)
        for number in np.flatnonzero(numbered):
            frame = segment.frame(int(number))
            if frame.producer in ids:
                return max(frame.base, start)
    return None


class ProducerStates:
    """The last append of each producer, brought up to date before each use."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._last_appends: dict[bytes, LastAppend] = {}
        self._offset = -1  # up to where frames were read; -1 before the snapshot

    def forget(self) -> None:
        """Start anew, after recovery changed what the log holds."""
        self._last_appends, self._offset = {}, -1

    def catch_up(self, state: PartitionState) -> dict[bytes, LastAppend]:
        """Return the last append of each producer as of `state`."""
        if self._offset < max(self._partition.layout(state).upto, 0):  # at first, or the frames may be gone
            self._offset, self._last_appends = _load(self._partition.folder, state.end)
        for segment, index, _ in self._partition.indexed(max(self._offset, state.start), state.end, state):
            numbered = (index["flags"] & (END | PRODUCED)) == (END | PRODUCED)
            fresh = (index["base"] >= self._offset) & (index["next"] <= state.end)
            for number in np.flatnonzero(numbered & fresh):
                frame = segment.frame(int(number))
                self._last_appends[frame.producer] = LastAppend(frame.sequence, frame.first, frame.next)
        self._offset = state.end
        return self._last_appends

    def save(self, state: PartitionState) -> None:
        """Write a snapshot as of `state`, durably, and drop those that are no longer of use."""
        last_appends = {producer.hex(): last for producer, last in self.catch_up(state).items()}
        body = json.dumps(last_appends, separators=(",", ":")).encode()
        path = self._partition.folder / f"{state.end:020d}{SUFFIX}"
        draft = path.with_suffix(".draft")
        with draft.open("wb") as file:
            file.write(b"%08x%s" % (crc32(body), body))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        for old in _snapshots(self._partition.folder)[_KEPT:]:
            old.unlink(missing_ok=True)


def is_intact(snapshot: Path) -> bool:
    """Tell whether a snapshot is what was written."""
    raw = snapshot.read_bytes()
    return raw[:8] == b"%08x" % crc32(raw[8:])


def _snapshots(folder: Path) -> list[Path]:
    return sorted(folder.glob("*" + SUFFIX), reverse=True)


def _load(folder: Path, end: int) -> tuple[int, dict[bytes, LastAppend]]:
    """Return the newest snapshot that is whole and not ahead of the log, with its offset."""
    layout = layouts.read(folder)
    for path in _snapshots(folder):
        offset, raw = int(path.stem), path.read_bytes()
        if layout.upto <= offset <= end and raw[:8] == b"%08x" % crc32(raw[8:]):
            last_appends = json.loads(raw[8:])
            return offset, {bytes.fromhex(producer): LastAppend(*last) for producer, last in last_appends.items()}
    return layout.upto, {bytes.fromhex(producer): LastAppend(*last) for producer, *last in layout.producers}
