"""The last numbered append of each producer: derived from the frames, with a snapshot at each new segment.

A snapshot `<offset>.producers` has the last appends before that offset, so they are known after their segments are
deleted. Every process that needs them reads the frames from there on. A cleaning also writes those that it may delete
into the layout.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import numpy as np

from headrace.base.crc import crc32
from headrace.log.segments import layout as layouts
from headrace.log.segments.frame import END, PRODUCED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from headrace.log.segments.head import PartitionState
    from headrace.log.segments.partition import Partition

NEVER = -(1 << 63)  # less than every sequence: the producer has not appended anything
SUFFIX = ".producers"
_KEPT = 2  # snapshots; the older one is used if the newer one is damaged


class LastAppend(NamedTuple):
    """A producer's last append in this partition."""

    sequence: int
    first: int
    end: int


class StaleSequence(Exception):
    """The producer's last sequence is not the one that the request expects."""

    def __init__(self, last: int) -> None:
        super().__init__(last)
        self.last = last


def is_sequence(value: object) -> TypeGuard[int]:
    """Tell whether a value is a valid sequence: an integer of 64 bits, greater than `NEVER`."""
    return isinstance(value, int) and not isinstance(value, bool) and NEVER < value < -NEVER


def identity(producer: str) -> bytes:
    """Return the 16 bytes that represent a producer's name in frames."""
    return blake2b(producer.encode(), digest_size=16).digest()


def first_of(partition: Partition, bounds: tuple[int, int], producers: Collection[str]) -> int | None:
    """Return the first offset in the bounds that one of the producers appended with a sequence; uses the index."""
    ids, state = {identity(name) for name in producers}, partition.state()
    start, end = max(bounds[0], state.start), min(bounds[1], state.end)
    for segment, index, _ in partition.indexed(start, end, state):
        numbered = (index["flags"] & PRODUCED == PRODUCED) & (index["next"] > start) & (index["base"] < end)
        for number in np.flatnonzero(numbered):
            frame = segment.frame(int(number))
            if frame.producer in ids:
                return max(frame.base, start)
    return None


def last_sequence(partitions: Iterable[Partition], producer: str) -> int | None:
    """Return the greatest sequence of a producer in these partitions, None if it has appended nothing."""
    name = identity(producer)
    found = (ProducerStates(partition).catch_up(partition.state()).get(name) for partition in partitions)
    return max((last.sequence for last in found if last is not None), default=None)


class ProducerStates:
    """The last append of each producer, brought up to date before each use."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._last_appends: dict[bytes, LastAppend] = {}
        self._offset = -1  # up to where frames were read; -1 before the snapshot was

    def forget(self) -> None:
        """Start again, after recovery changed the log."""
        self._last_appends, self._offset = {}, -1

    def catch_up(self, state: PartitionState) -> dict[bytes, LastAppend]:
        """Return the last append of each producer as of `state`."""
        if self._offset < max(self._partition.layout(state).upto, 0):  # the first time, or the frames may be deleted
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
        """Write a snapshot as of `state`, durably, and delete those that are no longer needed."""
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
    """Tell whether a snapshot matches its checksum."""
    raw = snapshot.read_bytes()
    return raw[:8] == b"%08x" % crc32(raw[8:])


def _snapshots(folder: Path) -> list[Path]:
    return sorted(folder.glob("*" + SUFFIX), reverse=True)


def _load(folder: Path, end: int) -> tuple[int, dict[bytes, LastAppend]]:
    """Return the newest intact snapshot that is not ahead of the log, with its offset."""
    layout = layouts.read(folder)
    for path in _snapshots(folder):
        offset, raw = int(path.stem), path.read_bytes()
        if layout.upto <= offset <= end and raw[:8] == b"%08x" % crc32(raw[8:]):
            last_appends = json.loads(raw[8:])
            return offset, {bytes.fromhex(producer): LastAppend(*last) for producer, last in last_appends.items()}
    return layout.upto, {bytes.fromhex(producer): LastAppend(*last) for producer, *last in layout.producers}
