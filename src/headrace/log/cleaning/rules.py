"""What happens to old records: retention by age and size, compaction by key, moving to an archive.

Each works on closed segments, which never change, and takes effect in one step: a new layout replaces the old one. One
cleaner at a time works on a partition; appends and reads go on meanwhile.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from headrace.base.errors import CleaningFailed
from headrace.log.appending.producers import ProducerStates
from headrace.log.cleaning import archive, compaction
from headrace.log.cleaning.rewriting import CompactionPlan
from headrace.log.segments import layout as layouts
from headrace.log.segments.head import NO_SEGMENT, PartitionState
from headrace.log.segments.layout import Layout, SegmentEntry
from headrace.log.segments.segment import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.base.errors import HeadraceError
    from headrace.log.appending.writer import Writer
    from headrace.log.meta import Meta
    from headrace.log.segments.partition import Partition, Span

LOCK_NAME = "cleaning"
DIRTY = 0.5  # the fraction of the closed bytes that must be new for a compaction to be worth its cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What a cleaning did, over all partitions of a topic. Its truth value says whether it did anything."""

    segments_dropped: int = 0
    """Segments that retention deleted, archived ones included."""
    bytes_dropped: int = 0
    records_removed: int = 0
    """Records that compaction removed because their key has a later one; tombstones included."""
    bytes_before: int = 0
    """Size of the segments that were compacted, before and after."""
    bytes_after: int = 0
    segments_archived: int = 0
    bytes_archived: int = 0

    def __add__(self, other: Self) -> Self:
        return replace(self, **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def __bool__(self) -> bool:
        """Tell whether anything was done."""
        return any(getattr(self, f.name) for f in fields(self))


@dataclass(frozen=True, kw_only=True)
class Cleaner:
    """Cleans one partition by the settings of its topic, as of the instant `now`."""

    partition: Partition
    writer: Writer
    meta: Meta
    fsync: bool
    segment_bytes: int
    now: int

    def clean(self) -> Cleaned:
        """Delete, compact and archive what is due. The current segment is closed if all its records are due.

        Raises:
            CorruptBatch: a segment to be compacted is damaged; retention has been applied.
            ArchiveMissing: the folder of the archive is missing.
            CleaningFailed: the disk refused; the log is unchanged.

        """
        with self._alone():
            limits = [age for age in (self.meta.retention, self.meta.archive_after) if age is not None]
            if limits:
                self.writer.roll(last_before=self.now - min(limits))
            cleaned = self._retain()
            if self.meta.cleanup == "compact" and self._is_worth_compacting():
                cleaned += self._compact()
            return cleaned + self._archive()

    def retain(self) -> Cleaned:
        """Delete closed segments that are due, unless another process is cleaning."""
        try:
            with self._alone(wait=False):
                return self._retain()
        except BlockingIOError:
            return Cleaned()

    def compact(self) -> Cleaned:
        """Close the current segment and compact all closed ones."""
        with self._alone():
            self.writer.roll()
            return self._compact()

    # ---- the rules -------------------------------------------------------------------------------------

    def _retain(self) -> Cleaned:
        entries, state = self._closed()
        remaining = list(entries)
        if self.meta.retention is not None:
            while remaining and remaining[0].newest < self.now - self.meta.retention:
                del remaining[0]
        if self.meta.retention_bytes is not None:
            size = sum(entry.size for entry in remaining) + state.position
            while remaining and size - remaining[0].size >= self.meta.retention_bytes:
                size -= remaining.pop(0).size
        dropped = entries[: len(entries) - len(remaining)]
        if not dropped:
            return Cleaned()
        self._put(remaining, state, start=dropped[-1].end)
        return Cleaned(segments_dropped=len(dropped), bytes_dropped=sum(entry.size for entry in dropped))

    def _is_worth_compacting(self) -> bool:
        entries, _ = self._closed()
        dirty = sum(entry.size for entry in entries if not entry.cleaned)
        due = any(entry.due and entry.due <= self.now for entry in entries)
        return due or (dirty > 0 and dirty >= DIRTY * sum(entry.size for entry in entries))

    def _compact(self) -> Cleaned:
        entries, state = self._closed()
        compacted = compaction.compact(
            [(entry, self.partition.opened(span)) for entry, span in zip(entries, self._spans(state), strict=True)],
            CompactionPlan(
                folder=self.partition.folder,
                meta=self.meta,
                version=self.partition.layout(state).version + 1,
                fsync=self.fsync,
                segment_bytes=self.segment_bytes,
                now=self.now,
            ),
        )
        if compacted != entries:
            self._put(compacted, state)
        return Cleaned(
            records_removed=sum(entry.rows for entry in entries) - sum(entry.rows for entry in compacted),
            bytes_before=sum(entry.size for entry in entries),
            bytes_after=sum(entry.size for entry in compacted),
        )

    def _archive(self) -> Cleaned:
        if self.meta.archive is None:
            return Cleaned()
        entries, state = self._closed()
        age = self.meta.archive_after
        moved = {
            at: entry
            for at, entry in enumerate(entries)
            if not entry.archive and (age is None or entry.newest < self.now - age)
        }
        if not moved:
            return Cleaned()
        target = archive.folder_of(self.meta, self.partition.topic_partition.partition)
        archive.fill(self.partition.folder, target, moved.values(), self.meta, fsync=self.fsync)
        self._put(
            [entry._replace(archive=str(target)) if at in moved else entry for at, entry in enumerate(entries)], state
        )
        return Cleaned(segments_archived=len(moved), bytes_archived=sum(entry.size for entry in moved.values()))

    # ---- the layout ------------------------------------------------------------------------------------

    def _spans(self, state: PartitionState) -> list[Span]:
        return [span for span in self.partition.spans(state) if span.base < _upto(state)]

    def _closed(self) -> tuple[list[SegmentEntry], PartitionState]:
        """Return the closed segments, and the state as of which they are closed."""
        state = self.partition.state()
        entries = []
        for span in self._spans(state):
            if span.entry is not None:
                entries.append(span.entry)
                continue
            segment = self.partition.opened(span)
            size = segment.size()
            index = segment.frames(size, span.end)
            newest = int(index["append_time"].max()) if len(index) else 0
            entries.append(
                SegmentEntry(span.base, span.end, name_of(span.base), size, int(index["rows"].sum()), newest)
            )
        return entries, state

    def _put(self, entries: list[SegmentEntry], state: PartitionState, *, start: int | None = None) -> None:
        """Replace the closed segments by these; at this instant the cleaning takes effect."""
        upto = _upto(state)
        last_appends = ProducerStates(self.partition).catch_up(state._replace(end=upto))
        layout = Layout(
            version=self.partition.layout(state).version + 1,
            start=state.start if start is None else start,
            upto=upto,
            entries=tuple(entries),
            producers=tuple((producer.hex(), *last) for producer, last in last_appends.items()),
        )
        before = self.partition.layout(state)
        self.writer.switch(layout)
        self._clear(layout, before)

    def _clear(self, layout: Layout, before: Layout) -> None:
        """Delete files that a layout does not name: replaced ones, and those of a cleaning that did not finish."""
        for path in list(layouts.leftovers(self.partition.folder, layout)):
            path.unlink(missing_ok=True)
        folders = {Path(entry.archive) for entry in (*before.entries, *layout.entries) if entry.archive}
        if self.meta.archive is not None:
            folders.add(archive.folder_of(self.meta, self.partition.topic_partition.partition))
        archive.clear(folders, layout)

    @contextmanager
    def _alone(self, *, wait: bool = True) -> Iterator[None]:
        """Lock the partition against other cleaners, also of this process; turn errors of the disk into ours."""
        try:
            fd = os.open(self.partition.folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._explained(error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            self.writer.settle()
            layout = layouts.read(self.partition.folder)
            self._clear(layout, layout)
            yield
        except BlockingIOError:
            raise
        except OSError as error:
            raise self._explained(error) from error
        finally:
            os.close(fd)

    def _explained(self, error: OSError) -> HeadraceError:
        if isinstance(error, FileNotFoundError):
            return self.partition.gone(error)
        topic, partition = self.partition.topic_partition
        return CleaningFailed(
            f'cleaning topic "{topic}", partition {partition} failed: {error.strerror or error}',
            detail=f"Folder {self.partition.folder}; the topic is unchanged.",
            hint="Free disk space or repair the disk, then clean again.",
        )


@contextmanager
def cleaners_kept_out(folder: Path) -> Iterator[None]:
    """Lock a partition, which was cleaned before, against cleaners."""
    fd = os.open(folder / LOCK_NAME, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


def _upto(state: PartitionState) -> int:
    """Return the offset up to which segments are closed."""
    return state.segment if state.segment != NO_SEGMENT else state.end
