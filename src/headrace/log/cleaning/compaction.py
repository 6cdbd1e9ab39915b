"""Compaction: of the records in closed segments, the last one of each key stays, at its offset and in its order.

A tombstone stays too, until `delete_retention` after the compaction that first kept it: who reads from the start to
the head within that time has seen it. There are two passes over the segments, in bulk: one finds the last record of
each key, by grouping; one copies what stays. In memory are the keys of a share of the records, one byte a record, and
a segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.cleaning.latest import latest
from headrace.log.cleaning.rewriting import CompactionPlan, Rewriter
from headrace.log.segments import payload as payloads
from headrace.log.segments.frame import DELETED, HOLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from headrace.log.meta import Meta
    from headrace.log.segments.frame import Frame
    from headrace.log.segments.layout import SegmentEntry
    from headrace.log.segments.segment import Segment

    Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class CompactionInput:
    """A closed segment, and which of its records stay."""

    entry: SegmentEntry
    segment: Segment
    index: NDArray[np.void]
    keep: Mask

    @property
    def is_unchanged(self) -> bool:
        """Tell whether the segment needs no rewriting: every record stays, and no tombstone gets a date to go."""
        waiting = (self.index["flags"] & DELETED != 0) & (self.index["due"] == 0)
        return bool(self.keep.all()) and not waiting.any()

    @property
    def expected(self) -> int:
        """Return about how many bytes will remain."""
        return self.entry.size * int(self.keep.sum()) // max(len(self.keep), 1)

    def frames(self) -> Iterator[tuple[int, Frame, Mask]]:
        """Yield (number, frame, which of its records stay) for each frame."""
        first = 0
        for number, rows in enumerate(self.index["rows"].tolist()):
            yield number, self.segment.frame(number), self.keep[first : first + rows]
            first += rows


def compact(closed: Sequence[tuple[SegmentEntry, Segment]], plan: CompactionPlan) -> list[SegmentEntry]:
    """Write what stays of closed segments to new files and return their entries; the old files stay as well.

    Raises:
        CorruptBatch: a segment is damaged.

    """
    inputs = _inputs(closed, plan)
    entries: list[SegmentEntry] = []
    for group in _grouped(inputs, plan.segment_bytes):
        if len(group) == 1 and group[0].is_unchanged:
            entries.append(group[0].entry._replace(cleaned=True))
        else:
            entries += _rewritten(group, plan)
    return entries


def decoded(segment: Segment, number: int, meta: Meta) -> pa.RecordBatch:
    """Return a frame's batch as it was stored."""
    frame = segment.frame(number)
    return payloads.decode(segment.payload(number), payloads.stored_schema(meta.schema_of(frame.schema), frame.flags))


def _inputs(closed: Sequence[tuple[SegmentEntry, Segment]], plan: CompactionPlan) -> list[CompactionInput]:
    """Return the closed segments, each with the mask of the records that stay."""
    indexes = []
    for entry, segment in closed:
        index = segment.frames(entry.size, entry.end)
        holes = np.flatnonzero(index["flags"] & HOLE)
        if holes.size:
            raise segment.corrupt(segment.frame(int(holes[0])), "no valid batch starts here")
        indexes.append(index)
    bounds = np.cumsum([0, *(int(index["rows"].sum()) for index in indexes)])
    keep = latest(lambda: key_batches(closed, indexes, plan.meta), int(bounds[-1]), plan.meta)
    inputs = [
        CompactionInput(entry, segment, index, keep[first:end])
        for (entry, segment), index, first, end in zip(closed, indexes, bounds[:-1], bounds[1:], strict=True)
    ]
    for compacted in inputs:
        _drop_markers(compacted, plan)
    if len(keep):
        keep[-1] = True  # so that reading from any offset finds a record before the end
    return inputs


def key_batches(
    closed: Sequence[tuple[SegmentEntry, Segment]], indexes: Sequence[NDArray[np.void]], meta: Meta
) -> Iterator[pa.RecordBatch | None]:
    """Yield the key columns of all frames, and None at the end of a segment, whose memory is released next."""
    for (_, segment), index in zip(closed, indexes, strict=True):
        for number in range(len(index)):
            yield decoded(segment, number, meta).select(list(meta.key))
        yield None
        segment.let_go()


def _drop_markers(compacted: CompactionInput, plan: CompactionPlan) -> None:
    """Remove the tombstones that are due."""
    for number, frame, keep in compacted.frames():
        if frame.flags & DELETED and 0 < frame.due <= plan.now and keep.any():
            markers = decoded(compacted.segment, number, plan.meta).column("_deleted")
            keep[markers.to_numpy(zero_copy_only=False)] = False


def _grouped(inputs: Sequence[CompactionInput], limit: int) -> Iterator[list[CompactionInput]]:
    """Yield the segments in groups whose remaining records fill about one segment each."""
    group: list[CompactionInput] = []
    size = 0
    for compacted in inputs:
        if group and size + compacted.expected > limit:
            yield group
            group, size = [], 0
        group.append(compacted)
        size += compacted.expected
    if group:
        yield group


def _rewritten(group: Sequence[CompactionInput], plan: CompactionPlan) -> list[SegmentEntry]:
    writer = Rewriter(plan, base=group[0].entry.base)
    for compacted in group:
        for number, frame, keep in compacted.frames():
            if not keep.any():
                writer.skip(frame)
                continue
            batch = decoded(compacted.segment, number, plan.meta)
            writer.add(batch if keep.all() else batch.filter(pa.array(keep)), frame, _offsets(batch, frame, keep))
        compacted.segment.let_go()
    return writer.close()


def _offsets(batch: pa.RecordBatch, frame: Frame, keep: Mask) -> pa.Array:
    offsets = payloads.offsets(batch, frame)
    return offsets if keep.all() else pc.array_filter(offsets, pa.array(keep))
