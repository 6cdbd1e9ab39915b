"""Compaction: of the closed segments' records, the last of each key stays, at its offset and in its place.

A delete marker stays too, until `delete_retention` has passed since the compaction that first kept it: who reads from
the start and reaches the head within that time has seen it. Two passes over the segments in bulk: one finds the last
record of each key, by grouping; one copies what stays. Memory holds the keys of a share of the records, one byte a
record, and a segment.
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
    from headrace.log.segments.layout import Piece
    from headrace.log.segments.segment import Segment

    Kept = NDArray[np.bool_]


@dataclass(frozen=True)
class Source:
    """A closed segment, and which of its records stay."""

    piece: Piece
    segment: Segment
    index: NDArray[np.void]
    kept: Kept

    @property
    def is_single_task(self) -> bool:
        """Tell whether it can stay as it is: every record stays, and no delete marker begins to wait."""
        waiting = (self.index["flags"] & DELETED != 0) & (self.index["due"] == 0)
        return bool(self.kept.all()) and not waiting.any()

    @property
    def expected(self) -> int:
        """Return about how many bytes will be left."""
        return self.piece.size * int(self.kept.sum()) // max(len(self.kept), 1)

    def frames(self) -> Iterator[tuple[int, Frame, Kept]]:
        """Yield (number, frame, which of its records stay) for each frame."""
        first = 0
        for number, rows in enumerate(self.index["rows"].tolist()):
            yield number, self.segment.frame(number), self.kept[first : first + rows]
            first += rows


def compact(closed: Sequence[tuple[Piece, Segment]], plan: CompactionPlan) -> list[Piece]:
    """Write what stays of closed segments to new files and return the pieces that hold it; the old ones stay as well.

    Raises:
        CorruptBatch: a segment is damaged.

    """
    sources = _judged(closed, plan)
    made: list[Piece] = []
    for group in _grouped(sources, plan.segment_bytes):
        if len(group) == 1 and group[0].is_single_task:
            made.append(group[0].piece._replace(cleaned=True))
        else:
            made += _rewritten(group, plan)
    return made


def decoded(segment: Segment, number: int, meta: Meta) -> pa.RecordBatch:
    """Return a frame's batch as it was stored."""
    frame = segment.frame(number)
    return payloads.decode(segment.payload(number), payloads.stored_schema(meta.schema_of(frame.schema), frame.flags))


def _judged(closed: Sequence[tuple[Piece, Segment]], plan: CompactionPlan) -> list[Source]:
    """Return the sources, with what stays of each."""
    indexes = []
    for piece, segment in closed:
        index = segment.frames(piece.size, piece.end)
        holes = np.flatnonzero(index["flags"] & HOLE)
        if holes.size:
            raise segment.corrupt(segment.frame(int(holes[0])), "no valid batch starts here")
        indexes.append(index)
    bounds = np.cumsum([0, *(int(index["rows"].sum()) for index in indexes)])
    kept = latest(lambda: key_batches(closed, indexes, plan.meta), int(bounds[-1]), plan.meta)
    sources = [
        Source(piece, segment, index, kept[first:end])
        for (piece, segment), index, first, end in zip(closed, indexes, bounds[:-1], bounds[1:], strict=True)
    ]
    for source in sources:
        _drop_markers(source, plan)
    if len(kept):
        kept[-1] = True  # so that who reads on from any offset is given something before the end
    return sources


def key_batches(
    closed: Sequence[tuple[Piece, Segment]], indexes: Sequence[NDArray[np.void]], meta: Meta
) -> Iterator[pa.RecordBatch | None]:
    """Yield the key columns of all frames; None where a segment ends and its memory is let go."""
    for (_, segment), index in zip(closed, indexes, strict=True):
        for number in range(len(index)):
            yield decoded(segment, number, meta).select(list(meta.key))
        yield None
        segment.let_go()


def _drop_markers(source: Source, plan: CompactionPlan) -> None:
    """Take the delete markers whose time has come."""
    for number, frame, kept in source.frames():
        if frame.flags & DELETED and 0 < frame.due <= plan.now and kept.any():
            markers = decoded(source.segment, number, plan.meta).column("_deleted")
            kept[markers.to_numpy(zero_copy_only=False)] = False


def _grouped(sources: Sequence[Source], limit: int) -> Iterator[list[Source]]:
    """Yield the sources in groups that will make about one segment each."""
    group: list[Source] = []
    size = 0
    for source in sources:
        if group and size + source.expected > limit:
            yield group
            group, size = [], 0
        group.append(source)
        size += source.expected
    if group:
        yield group


def _rewritten(group: Sequence[Source], plan: CompactionPlan) -> list[Piece]:
    writer = Rewriter(plan, base=group[0].piece.base)
    for source in group:
        for number, frame, kept in source.frames():
            if not kept.any():
                writer.skip(frame)
                continue
            batch = decoded(source.segment, number, plan.meta)
            writer.add(batch if kept.all() else batch.filter(pa.array(kept)), frame, _offsets(batch, frame, kept))
        source.segment.let_go()
    return writer.close()


def _offsets(batch: pa.RecordBatch, frame: Frame, kept: Kept) -> pa.Array:
    offsets = payloads.offsets(batch, frame)
    return offsets if kept.all() else pc.array_filter(offsets, pa.array(kept))
