"""A partition as readers see it: the state that the head publishes, and the segments.

Reading takes no lock between processes and changes nothing on disk.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.base.errors import (
    ArchiveMissing,
    CorruptBatch,
    InvalidArgument,
    OffsetOutOfRange,
    RecordsLost,
    TopicDeleted,
)
from headrace.log.segments import layout as layouts
from headrace.log.segments import recovery
from headrace.log.segments.head import NO_SEGMENT, HeadSnapshot, PartitionHead, PartitionState
from headrace.log.segments.segment import SEGMENT, Segment, TopicPartition, index_path, segment_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from headrace.log.segments.layout import Layout, SegmentEntry

HEAD_NAME = "head"


class Frames(NamedTuple):
    """The indexed frames of one segment, up to what is published."""

    segment: Segment
    frames: NDArray[np.void]
    reached: int  # records before this offset were read already, from files that a cleaning replaced


class Span(NamedTuple):
    """A segment and its offsets [base, end); it has an `entry` if a cleaning put it into the layout."""

    base: int
    end: int
    entry: SegmentEntry | None


class Partition:
    """The published records of a partition, by offset; many threads may use it."""

    def __init__(self, folder: Path, topic_partition: TopicPartition, *, durable: bool = True) -> None:
        """Open a partition on first use. `durable`: whether appends are synced, so that no power loss takes any."""
        self.durable = durable
        self.folder = folder
        self.topic_partition = topic_partition
        self._lock = threading.RLock()
        self._head: PartitionHead | None = None
        self._opened = False
        self._surveyed: tuple[HeadSnapshot, PartitionState] | None = None  # the last survey, and for which head
        self._layout_version = -1  # of the layout that `_spans` was read from
        self._layout = layouts.Layout()
        self._spans: list[Span] = []
        self._segments: dict[Path, Segment] = {}
        self._last: Segment | None = None  # the segment without an entry that was used last

    def close(self) -> None:
        """Close the files; batches that were read stay valid."""
        with self._lock:
            if self._head is not None:
                self._head.close()
            self._head, self._opened, self._surveyed = None, False, None
            self._layout_version, self._segments, self._spans, self._last = -1, {}, [], None

    def state(self) -> PartitionState:
        """Return the published state; it includes every record acknowledged before the call.

        Raises:
            TopicDeleted: the partition's folder was deleted.

        """
        with self._lock:
            if self._head is None:
                self._head = PartitionHead.open(self.folder / HEAD_NAME)
            snapshot = self._head.read() if self._head is not None else HeadSnapshot(None, trusted=False, busy=False)
            if snapshot.trusted and self._opened and snapshot.slot is not None:
                return self._with_start(snapshot.slot)
            return self._with_start(self._survey(snapshot))

    def _with_start(self, state: PartitionState) -> PartitionState:
        """Return the state with the start of the layout: a cleaner that died may not have published it."""
        if state.layout != self._layout_version:
            self._read_layout(state)
        return state if state.start >= self._layout.start else state._replace(start=self._layout.start)

    def _survey(self, snapshot: HeadSnapshot) -> PartitionState:
        """Return the state if the head alone does not prove it: at the first read, and after a power loss."""
        if self._surveyed is not None and self._surveyed[0] == snapshot and self._head is not None:
            return self._surveyed[1]
        try:
            if snapshot.trusted and snapshot.slot is not None:
                if snapshot.busy or recovery.is_complete(self.folder, snapshot.slot):
                    self._opened = True
                    return snapshot.slot
                if self._head is not None and self._head.read() != snapshot:  # a writer has just changed it
                    return self.state()
            slot = recovery.survey(self.folder, snapshot.slot, durable=self.durable).state
        except FileNotFoundError:
            raise self.gone() from None
        self._surveyed = (snapshot, slot)
        return slot

    def gone(self, error: FileNotFoundError | None = None) -> TopicDeleted | ArchiveMissing | CorruptBatch:
        """Return the error for a missing file."""
        topic, partition = self.topic_partition
        file = Path(error.filename) if error is not None and error.filename else self.folder
        if self.folder.exists():
            if file.suffix == SEGMENT and file.parent != self.folder and not file.parent.exists():
                return ArchiveMissing(topic, partition, folder=str(file.parent))
            return CorruptBatch(
                f'topic "{topic}", partition {partition}: a segment is missing',
                detail=f"File {file}." if file != self.folder else f"Folder {self.folder}.",
                hint="Restore it from a copy, or delete and create the topic.",
            )
        return TopicDeleted(f'the topic "{topic}" was deleted', hint="Ask the log for its topics again.")

    def missing(self, start: int, end: int) -> CorruptBatch:
        """Return the error for acknowledged records that no segment has."""
        topic, partition = self.topic_partition
        return CorruptBatch(
            f'topic "{topic}", partition {partition}: the records at offsets {start} to {end - 1} are missing',
            detail=f"No segment in the folder {self.folder} has them.",
            hint=f"Restore the folder from a copy, or read on from offset {end}.",
        )

    def lost(self, offsets: range) -> RecordsLost:
        """Return the error for acknowledged records that the last segment no longer has."""
        topic, partition = self.topic_partition
        return RecordsLost(topic, partition, offsets, folder=str(self.folder))

    def replaced(self) -> TopicDeleted:
        """Return the error for a topic that was deleted and created again."""
        name = self.topic_partition.topic
        return TopicDeleted(f'the topic "{name}" was deleted and created again', hint="Ask the log for it again.")

    def check(self, start: int, end: int) -> PartitionState:
        """Return the state if the offsets [start, end) can be read from it.

        Raises:
            OffsetOutOfRange: they were deleted, or do not exist yet.

        """
        if not (isinstance(start, Integral) and isinstance(end, Integral)):
            raise InvalidArgument(f"offsets {start!r} to {end!r} are not possible", hint="Give whole numbers.")
        state = self.state()
        if state.start <= start <= end <= state.end:
            return state
        raise self._out_of_range(start, end, state)

    def _out_of_range(self, start: int, end: int, state: PartitionState) -> OffsetOutOfRange:
        topic, partition = self.topic_partition
        offsets = f"offset {start}" if start == end else f"offsets {start} to {end}"
        return OffsetOutOfRange(
            f'topic "{topic}", partition {partition} cannot be read at {offsets}',
            detail=f"It has the offsets from {state.start} up to, not including, {state.end}.",
            hint=f"Read from {min(max(start, state.start), state.end)}.",
        )

    def between(self, start: int, end: int, state: PartitionState) -> Iterator[tuple[Segment, int, int]]:
        """Yield (segment, number of the frame, first offset wanted) for each frame that overlaps [start, end)."""
        for segment, index, reached in self.indexed(start, end, state):
            first = int(np.searchsorted(index["next"], reached, side="right"))
            last = int(np.searchsorted(index["base"], end, side="left"))
            for number in range(first, last):
                yield segment, number, reached

    def indexed(self, start: int, end: int, state: PartitionState) -> Iterator[Frames]:
        """Yield the segments that overlap the offsets [start, end), each mapped and with its index.

        If a cleaning deletes a segment meanwhile, reading goes on in those that replaced it.

        Raises:
            OffsetOutOfRange: retention deleted the rest of the range while it was read.
            CorruptBatch: a segment is missing.

        """
        reached = start
        while reached < end:
            try:
                for found, behind in self._indexed(reached, end, state):
                    yield found
                    reached = max(reached, behind)
            except FileNotFoundError as error:
                state = self._after_cleaning(state, reached, end, error)
            else:
                return

    def _indexed(self, start: int, end: int, state: PartitionState) -> Iterator[tuple[Frames, int]]:
        spans = self._current_spans(state)
        last = state.segment if state.segment != NO_SEGMENT else state.end
        covered = start
        for at in range(max(bisect_right(spans, start, key=lambda span: span.base) - 1, 0), len(spans)):
            span = spans[at]
            if span.base >= end or span.base > last:
                break
            if span.base > covered:
                if covered < self._layout.start:
                    raise FileNotFoundError(self.folder)
                raise self.missing(covered, span.base)
            found = self._frames(span, state, max(start, span.base))
            covered = int(found.frames["next"][-1]) if len(found.frames) else span.base
            yield found, covered
        if covered < end:
            raise self.missing(covered, end)

    def segment(self, base: int) -> Segment:
        """Return the segment that starts at `base` and is appended to."""
        with self._lock:
            last = self._last
            if last is None or last.base != base:
                last = self._last = self._segment(segment_path(self.folder, base), index_path(self.folder, base), base)
            return last

    def spans(self, state: PartitionState) -> list[Span]:
        """Return all segments as of a state, in order."""
        return self._current_spans(state)

    def layout(self, state: PartitionState) -> Layout:
        """Return the layout of the last cleaning, as of a state."""
        with self._lock:
            self._current_spans(state)
            return self._layout

    def size(self) -> int:
        """Return the bytes of all segments, archived ones included."""
        state = self.state()
        spans = self.spans(state)
        try:
            return sum(
                state.position if span.entry is None and span.base == state.segment else self.opened(span).size()
                for span in spans
            )
        except FileNotFoundError as error:
            raise self.gone(error) from None

    def opened(self, span: Span) -> Segment:
        """Return a segment."""
        if span.entry is None:
            return self.segment(span.base)
        return self._segment(span.entry.segment_path(self.folder), span.entry.index_path(self.folder), span.base)

    def _segment(self, path: Path, index: Path, base: int) -> Segment:
        with self._lock:
            if path not in self._segments:
                self._segments[path] = Segment(path, index, base, self.topic_partition)
            return self._segments[path]

    def _frames(self, span: Span, state: PartitionState, reached: int) -> Frames:
        segment = self.opened(span)
        if span.entry is not None:  # also if the state is older than the cleaning
            stop, end = span.entry.size, span.end
        elif span.base == state.segment:
            stop, end = state.position, state.end
        else:
            stop, end = segment.size(), span.end
        segment.hold(stop)
        return Frames(segment, segment.frames(stop, end), reached)

    def _after_cleaning(
        self, state: PartitionState, reached: int, end: int, error: FileNotFoundError
    ) -> PartitionState:
        """Return the state to read on from after a segment was deleted, or raise what its absence means."""
        with self._lock:
            before = self._spans
            current = self.state()
            self._read_layout(current)
            current = self._with_start(current)
            if reached < current.start:
                raise self._out_of_range(reached, end, current) from None
            if self._spans == before and current.layout == state.layout:
                raise self.gone(error) from None
            return current

    def _current_spans(self, state: PartitionState) -> list[Span]:
        """Return the segments; they are listed again if the layout has changed."""
        with self._lock:
            if self._layout_version != state.layout:
                self._read_layout(state)
            return self._spans

    def _read_layout(self, state: PartitionState) -> None:
        try:
            self._layout, live = layouts.listed(self.folder)
        except FileNotFoundError:
            raise self.gone() from None
        ends = [*live[1:], max(state.end, live[-1])] if live else []
        self._spans = [Span(entry.base, entry.end, entry) for entry in self._layout.entries]
        self._spans += [Span(base, end, None) for base, end in zip(live, ends, strict=True)]
        closed = {self.opened(span).path for span in self._spans[:-1]} if self._layout_version >= 0 else set()
        self._segments = {path: segment for path, segment in self._segments.items() if path in closed}
        self._layout_version, self._last = state.layout, None
