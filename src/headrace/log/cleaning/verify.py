"""Verifying every checksum and every rule of a partition's files, read again from the disk.

What a crash may leave, and the next append or cleaning repairs by itself (a torn tail after the acknowledged end,
files that no layout names, a head from before the machine was restarted), is not a finding.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.base.errors import CorruptBatch, HeadraceError
from headrace.base.text import counted
from headrace.log import meta as metas
from headrace.log.appending import producers
from headrace.log.cleaning import compaction
from headrace.log.cleaning.latest import latest
from headrace.log.cleaning.rules import LOCK_NAME, cleaners_kept_out
from headrace.log.privacy import keyfile, sealing
from headrace.log.privacy.keyfile import KeyFile
from headrace.log.segments import frame as framing
from headrace.log.segments import layout as layouts
from headrace.log.segments import payload as payloads
from headrace.log.segments.frame import DELETED, END, HEADER_SIZE, HOLE, OFFSETS, Frame
from headrace.log.segments.head import PartitionHead
from headrace.log.segments.partition import HEAD_NAME, Partition
from headrace.log.segments.segment import INDEX, SEGMENT, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.log.meta import Meta
    from headrace.log.segments.head import PartitionState
    from headrace.log.segments.partition import Span
    from headrace.log.segments.segment import Segment

_OWN = {HEAD_NAME, layouts.FILE_NAME, LOCK_NAME}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Damage in a topic's files, or a broken rule of the log."""

    partition: int | None
    """None if it is about the whole topic."""
    file: str
    position: int | None = None
    """Where in the file, in bytes; None if it is about the whole file."""
    first: int | None = None
    """The offsets [first, following) that cannot be read or relied upon; None if reading is not affected."""
    following: int | None = None
    what: str

    def __str__(self) -> str:
        place = self.file if self.position is None else f"{self.file}, position {self.position}"
        lost = "" if self.first is None else f" (offsets {self.first} to {(self.following or 0) - 1})"
        whose = "the topic" if self.partition is None else f"partition {self.partition}"
        return f"{whose}{lost}: {self.what}: {place}"


def verify_description(folder: Path) -> list[Finding]:
    """Return what is wrong with a topic's description, or with its copy."""
    return [Finding(partition=None, file=str(path), what=what) for path, what in metas.flaws(folder)]


def verify_keys(folder: Path, meta: Meta) -> list[Finding]:
    """Return what is wrong with the key file of a topic that has private columns."""
    damage = keyfile.damage(folder, meta.id) if meta.private else ()
    path = str(folder / keyfile.FILE_NAME)
    return [Finding(partition=None, file=path, position=position, what=what) for position, what in damage]


def verify_missing_keys(folder: Path, meta: Meta, needed: set[bytes]) -> list[Finding]:
    """Return whether the key file lacks keys that records need; call it after these were read, whose keys are older."""
    try:
        known = KeyFile(folder, meta.id, fsync=False).secrets() if needed else {}
    except CorruptBatch:  # see `verify_keys`
        return []
    gone = len(needed - known.keys())
    if not gone:
        return []
    what = f"{counted(gone, 'key')} that records need {'is' if gone == 1 else 'are'} not in it: "
    what += "the private values of their subjects cannot be read"
    return [Finding(partition=None, file=str(folder / keyfile.FILE_NAME), what=what)]


def verify(folder: Path, number: int, meta: Meta, needed: set[bytes]) -> list[Finding]:
    """Return what is wrong with a partition, and add the keys that its private values need to `needed`.

    Raises:
        TopicDeleted: the topic was deleted meanwhile.

    """
    check = _PartitionCheck(folder, number, meta, needed)
    try:
        findings = list(check.run())
        disturbed = bool(findings) and check.was_cleaned()
    except FileNotFoundError:
        disturbed = True
    if not disturbed:
        return findings
    check = _PartitionCheck(folder, number, meta, needed)
    try:
        with cleaners_kept_out(folder):  # a cleaning deleted files: check again while nobody cleans
            return list(check.run())
    except FileNotFoundError as error:
        raise check.gone(error) from None


class _PartitionCheck:
    """Checks one partition once, with files opened again."""

    def __init__(self, folder: Path, number: int, meta: Meta, needed: set[bytes]) -> None:
        self._folder = folder
        self._number = number
        self._meta = meta
        self._needed = needed
        self._partition = Partition(folder, TopicPartition(meta.name, number))
        self._version = -1

    def gone(self, error: FileNotFoundError) -> HeadraceError:
        """Return the error for a missing file that no cleaning deleted."""
        return self._partition.gone(error)

    def was_cleaned(self) -> bool:
        """Tell whether a cleaning happened during the check."""
        try:
            return layouts.read(self._folder).version != self._version
        except CorruptBatch:
            return False

    def run(self) -> Iterator[Finding]:
        """Yield what is wrong."""
        if not self._folder.is_dir():
            yield self._finding(self._folder, "the partition's folder is missing")
            return
        yield from self._head()
        try:
            self._version = layouts.read(self._folder).version
            state = self._partition.state()
            spans = [span for span in self._partition.spans(state) if span.base < state.end]
        except HeadraceError as error:
            yield self._finding(self._folder / layouts.FILE_NAME, error.what)
            return
        damaged = [*self._gaps(spans, state)]
        for span in spans:
            damaged += self._segment(span, state)
        yield from damaged
        if not damaged:
            yield from self._keys(spans)
        yield from self._files(spans)

    def _finding(
        self, file: Path, what: str, *, position: int | None = None, lost: tuple[int, int] | None = None
    ) -> Finding:
        first, following = lost or (None, None)
        return Finding(
            partition=self._number, file=str(file), position=position, first=first, following=following, what=what
        )

    # ---- outside the segments ---------------------------------------------------------------------------

    def _head(self) -> Iterator[Finding]:
        path = self._folder / HEAD_NAME
        head = PartitionHead.open(path)
        if head is None:
            yield self._finding(path, "the head is missing or cut short (the next append rewrites it)")
            return
        flaw = head.flaw()
        head.close()
        if flaw:
            yield self._finding(path, f"{flaw} (the next append rewrites it)")

    def _gaps(self, spans: list[Span], state: PartitionState) -> Iterator[Finding]:
        """Yield the offset ranges that no segment has."""
        reached = state.start
        for span in spans:
            if span.base > reached:
                yield self._finding(self._folder, "a segment is missing", lost=(reached, span.base))
            reached = max(reached, span.end)
        if reached < state.end:
            yield self._finding(self._folder, "a segment is missing", lost=(reached, state.end))

    def _files(self, spans: list[Span]) -> Iterator[Finding]:
        expected = _OWN | layouts.read(self._folder).files()
        expected |= {path.name for path in layouts.leftovers(self._folder, layouts.read(self._folder))}
        for span in spans:
            segment = self._partition.opened(span)
            expected |= {segment.path.name, segment.index_path.name}
        for path in sorted(self._folder.iterdir()):
            if path.suffix == producers.SUFFIX:
                if not producers.is_intact(path):
                    yield self._finding(path, "the snapshot of producers is damaged (an older one is used)")
            elif path.name not in expected and path.suffix != layouts.DRAFT and path.suffix not in (SEGMENT, INDEX):
                yield self._finding(path, "the file does not belong to the log")

    # ---- segments --------------------------------------------------------------------------------------

    def _segment(self, span: Span, state: PartitionState) -> Iterator[Finding]:
        segment = self._partition.opened(span)
        closed = span.base != state.segment
        try:
            size = segment.size()
        except FileNotFoundError as error:
            what = self._partition.gone(error).what
            yield self._finding(segment.path, what, lost=(span.base, span.end))
            return
        stop, end = (size, span.end) if closed else (state.position, state.end)
        if span.entry is not None and size != span.entry.size:
            yield self._finding(segment.path, f"the segment has {size} bytes, not {span.entry.size}", position=size)
        if size < stop or not size:
            yield self._finding(segment.path, "the segment is cut short", position=size, lost=(span.base, end))
            return
        with segment.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            headers = framing.walk(data, 0, stop, offset=span.base, end=end)
            damaged = [*self._frames(segment, data, headers, span.base, end)]
        yield from damaged
        if closed and not damaged:
            yield from self._index(segment, stop, b"".join(headers))

    def _frames(
        self, segment: Segment, data: mmap.mmap, headers: list[bytes], base: int, end: int
    ) -> Iterator[Finding]:
        reached, first, producer = base, base, b""
        open_append = False
        for raw in headers:
            frame = framing.unpack(raw)
            lost = (frame.base, frame.next)
            if frame.base > reached:
                what = "records are missing between two batches"
                yield self._finding(segment.path, what, position=frame.position, lost=(reached, frame.base))
            what = self._flaw(data, frame)
            if not what and open_append and (frame.first, frame.producer) != (first, producer):
                what = "the append before it has no end"
            if what:
                yield self._finding(segment.path, what, position=frame.position, lost=lost)
            reached, first, producer = frame.next, frame.first, frame.producer
            open_append = not frame.flags & (END | HOLE)
        if reached < end or open_append:
            what = "the segment ends before its last offset" if reached < end else "the last append has no end"
            yield self._finding(segment.path, what, position=len(data), lost=(min(reached, first), end))

    def _flaw(self, data: mmap.mmap, frame: Frame) -> str:
        """Return what is wrong with a frame; an empty text if nothing is."""
        if frame.flags & HOLE:
            return "no valid batch starts here"
        with memoryview(data) as view:
            if not framing.payload_is_whole(view, frame):
                return "the batch's content does not match its checksum"
            content = bytes(view[frame.position + HEADER_SIZE : frame.end])
        if not 1 <= frame.schema <= len(self._meta.schemas):
            return f"the batch has schema number {frame.schema}, and the topic {len(self._meta.schemas)}"
        stored = payloads.stored_schema(self._meta.schema_of(frame.schema), frame.flags)
        try:
            batch = payloads.decode(pa.py_buffer(content), stored)
            batch.validate(full=True)
        except pa.ArrowException as error:
            return f"the batch cannot be read: {error}"
        self._needed |= sealing.keys_named(batch, self._meta.private)
        return self._disagreement(batch, frame)

    def _disagreement(self, batch: pa.RecordBatch, frame: Frame) -> str:
        """Return how a frame's header and its batch differ; an empty text if they agree."""
        if batch.num_rows != frame.rows:
            return f"the batch has {batch.num_rows} records, its header says {frame.rows}"
        offsets = payloads.offsets(batch, frame).to_numpy()
        if not frame.flags & OFFSETS and frame.next - frame.base != frame.rows:
            return f"the batch has {frame.rows} records for {frame.next - frame.base} offsets"
        inside = not len(offsets) or (frame.base <= offsets[0] and offsets[-1] < frame.next)
        if not inside or (np.diff(offsets) <= 0).any():
            return "the offsets in the batch do not ascend within those of its header"
        times = payloads.extremes(payloads.times(batch, frame, self._meta.event_time))
        if times != (frame.min_time, frame.max_time):
            return "the event times in the batch are not those that its header says"
        if frame.flags & DELETED and batch.column("_deleted").null_count:
            return "a record is neither deleted nor not"
        return ""

    def _index(self, segment: Segment, stop: int, headers: bytes) -> Iterator[Finding]:
        saved = segment.saved_index(stop)
        if saved is None and segment.index_path.exists():
            yield self._finding(segment.index_path, "the index is damaged (the segment's headers are read instead)")
        elif saved is not None and saved != headers:
            at = next(i for i, (a, b) in enumerate(zip(saved + b"\0", headers + b"\1", strict=False)) if a != b)
            what = "the index does not agree with its segment"
            yield self._finding(segment.index_path, what, position=at)

    # ---- compaction ------------------------------------------------------------------------------------

    def _keys(self, spans: list[Span]) -> Iterator[Finding]:
        """Yield the first record that compaction should have removed: its segments have each key once."""
        compacted = [(span.entry, self._partition.opened(span)) for span in spans if span.entry and span.entry.cleaned]
        if not compacted or self._meta.cleanup != "compact":
            return
        for (entry, _), (after, _) in pairwise(compacted):
            if entry.end != after.base:
                yield self._finding(self._folder, "compacted segments do not follow each other")
        indexes = [segment.frames(entry.size, entry.end) for entry, segment in compacted]
        rows = sum(int(index["rows"].sum()) for index in indexes)
        latest_of_key = latest(lambda: compaction.key_batches(compacted, indexes, self._meta), rows, self._meta)
        if latest_of_key.all():
            return
        wrong = int(np.flatnonzero(~latest_of_key)[0])
        for (_, segment), index in zip(compacted, indexes, strict=True):
            for number, count in enumerate(index["rows"].tolist()):
                if wrong < count:
                    frame = segment.frame(number)
                    offset = payloads.offsets(compaction.decoded(segment, number, self._meta), frame)[wrong].as_py()
                    what = f"the record at offset {offset} was compacted, and a later one has its key"
                    yield self._finding(segment.path, what, position=frame.position)
                    return
                wrong -= count
