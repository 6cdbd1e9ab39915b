"""A partition as readers see it: what the head publishes, and the segments behind it.

Reading takes no lock between processes and changes nothing on disk.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.base.errors import CorruptBatch, OffsetOutOfRange, TopicDeleted
from headrace.log import recovery
from headrace.log.head import NO_SEGMENT, Head, Reading, Slot
from headrace.log.segment import Place, Segment, bases

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

HEAD_NAME = "head"


class Frames(NamedTuple):
    """The indexed frames of one segment, up to what is published."""

    segment: Segment
    frames: NDArray[np.void]


class Partition:
    """Published records by offset; may be used by many threads."""

    def __init__(self, folder: Path, place: Place) -> None:
        self.folder = folder
        self.place = place
        self._lock = threading.RLock()
        self._head: Head | None = None
        self._opened = False
        self._believed: tuple[Reading, Slot] | None = None  # what a survey found for a head that is in doubt
        self._layout = -1
        self._segments: dict[int, Segment] = {}
        self._bases: list[int] = []

    def close(self) -> None:
        """Let go of the files; batches that were handed out stay valid."""
        with self._lock:
            if self._head is not None:
                self._head.close()
            self._head, self._opened, self._believed = None, False, None
            self._layout, self._segments, self._bases = -1, {}, []

    def state(self) -> Slot:
        """Return the published state: what was acknowledged before the call is in it.

        Raises:
            TopicDeleted: the partition's folder is gone.

        """
        with self._lock:
            if self._head is None:
                self._head = Head.open(self.folder / HEAD_NAME)
            reading = self._head.read() if self._head is not None else Reading(None, trusted=False, busy=False)
            if reading.trusted and self._opened and reading.slot is not None:
                return reading.slot
            return self._doubted(reading)

    def _doubted(self, reading: Reading) -> Slot:
        """Return the state when the head alone does not prove it: at first sight, and after a power loss."""
        if self._believed is not None and self._believed[0] == reading and self._head is not None:
            return self._believed[1]
        try:
            if reading.trusted and reading.slot is not None:
                if reading.busy or recovery.is_complete(self.folder, reading.slot):
                    self._opened = True
                    return reading.slot
                if self._head is not None and self._head.read() != reading:  # a writer was just at it
                    return self.state()
            slot = recovery.survey(self.folder, reading.slot)
        except FileNotFoundError:
            raise self.gone() from None
        self._believed = (reading, slot)
        return slot

    def gone(self) -> TopicDeleted | CorruptBatch:
        """Return the error for a file that is not there."""
        topic, partition = self.place
        if self.folder.exists():
            return CorruptBatch(
                f'topic "{topic}", partition {partition}: a segment is missing',
                detail=f"Folder {self.folder}.",
                hint="Restore it from a copy, or delete and create the topic.",
            )
        return TopicDeleted(f'the topic "{topic}" was deleted', hint="Ask the log for its topics again.")

    def missing(self, start: int, end: int) -> CorruptBatch:
        """Return the error for records that no segment holds, though they were acknowledged."""
        topic, partition = self.place
        return CorruptBatch(
            f'topic "{topic}", partition {partition}: the records at offsets {start} to {end - 1} are missing',
            detail=f"No segment in the folder {self.folder} holds them.",
            hint=f"Restore the folder from a copy, or read on from offset {end}.",
        )

    def replaced(self) -> TopicDeleted:
        """Return the error for a topic in whose place another one stands."""
        name = self.place.topic
        return TopicDeleted(f'the topic "{name}" was deleted and created anew', hint="Ask the log for it again.")

    def check(self, start: int, end: int) -> Slot:
        """Return the state if the offsets [start, end) can be read from it.

        Raises:
            OffsetOutOfRange: they are not there any more, or not yet.

        """
        state = self.state()
        if state.start <= start <= end <= state.end or (start == end and state.start <= start <= state.end):
            return state
        topic, partition = self.place
        asked = f"offset {start}" if start == end else f"offsets {start} to {end}"
        raise OffsetOutOfRange(
            f'topic "{topic}", partition {partition} cannot be read at {asked}',
            detail=f"It holds the offsets from {state.start} up to, not including, {state.end}.",
            hint=f"Read from {min(max(start, state.start), state.end)}.",
        )

    def between(self, start: int, end: int, state: Slot) -> Iterator[tuple[Segment, int]]:
        """Yield (segment, number of the frame) for each frame that overlaps the offsets [start, end)."""
        for segment, index in self.indexed(start, end, state):
            first = int(np.searchsorted(index["next"], start, side="right"))
            last = int(np.searchsorted(index["base"], end, side="left"))
            for number in range(first, last):
                yield segment, number

    def indexed(self, start: int, end: int, state: Slot) -> Iterator[Frames]:
        """Yield the segments that overlap the offsets [start, end), each with its index."""
        if start >= end:
            return
        last = state.segment if state.segment != NO_SEGMENT else state.end
        known = self._layed_out(state)
        reached = start
        for at in range(max(bisect_right(known, start) - 1, 0), len(known)):
            base = known[at]
            if base >= end or base > last:
                break
            if base > reached:
                raise self.missing(reached, base)
            try:
                found = self._frames(base, known[at + 1] if at + 1 < len(known) else state.end, state)
            except FileNotFoundError:
                raise self.gone() from None
            yield found
            reached = int(found.frames["next"][-1]) if len(found.frames) else base
        if reached < end:
            raise self.missing(reached, end)

    def segment(self, base: int) -> Segment:
        """Return the segment that starts at `base`."""
        with self._lock:
            if base not in self._segments:
                self._segments[base] = Segment(self.folder, base, self.place)
            return self._segments[base]

    def _frames(self, base: int, end: int, state: Slot) -> Frames:
        segment = self.segment(base)
        if base == state.segment:
            return Frames(segment, segment.frames(state.position, state.end))
        return Frames(segment, segment.frames(segment.size(), end))

    def _layed_out(self, state: Slot) -> list[int]:
        """Return the first offsets of the segments, read anew when the set of them has changed."""
        with self._lock:
            if self._layout != state.layout:
                try:
                    known = bases(self.folder)
                except FileNotFoundError:
                    raise self.gone() from None
                closed = {base: segment for base, segment in self._segments.items() if base in known[:-1]}
                self._segments = closed if self._layout >= 0 else {}
                self._bases, self._layout = known, state.layout
            return self._bases
