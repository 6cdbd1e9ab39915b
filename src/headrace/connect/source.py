"""Sources: any task can read the records `[start, end)` of a source again and get the same rows.

What is called, in order (by `Inputs` in the engine; the rest of the engine does not know what a source is):

1. At the app's start, in the driver: `prepare()` creates or checks what will be read.
2. Before each epoch, in the planner: `bounds()` once, then `align()` on the ranges that were chosen. The ranges are
   written into Spark's offset before anything is read.
3. In tasks, in any process: `read(range, columns)`. A range may be read again after a crash, by another process, and
   must give the same rows in the same order.
4. After the epoch is committed, in the driver: `committed(ends)`. It is a hint and may be repeated or left out.

Records that are pushed, acknowledged, or removed by reading need a feed instead: see `feed.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from headrace.base.time import Clock
    from headrace.log.privacy.subjects import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The records `[start, end)` of a partition, read for the step `source`.

    It is stored in Spark's offset and in the commit.
    """

    source: str
    partition: str
    start: int
    end: int

    @property
    def rows(self) -> int:
        """How many offsets it spans; compacted topics may have fewer records there."""
        return self.end - self.start

    def split(self, parts: int) -> list[OffsetRange]:
        """Return at most so many ranges of about equal length that cover it, in order."""
        size = -(-self.rows // parts) if self.rows else 1
        return [
            replace(self, start=start, end=min(start + size, self.end)) for start in range(self.start, self.end, size)
        ]


def to_json(ranges: Sequence[OffsetRange]) -> list[list[str | int]]:
    """Return ranges as plain lists, for JSON: `[source, partition, start, end]`."""
    return [[offsets.source, offsets.partition, offsets.start, offsets.end] for offsets in ranges]


def from_json(ranges: Sequence[Sequence[str | int]]) -> list[OffsetRange]:
    """Return the ranges that `to_json` wrote."""
    return [
        OffsetRange(source=str(source), partition=str(partition), start=int(start), end=int(end))
        for source, partition, start, end in ranges
    ]


def total_rows(ranges: Sequence[OffsetRange]) -> int:
    """Return how many offsets ranges span together."""
    return sum(offsets.rows for offsets in ranges)


class Bounds(NamedTuple):
    """The readable offsets, by partition: the first one, and the one after the last. Valid for planning one epoch."""

    earliest: Mapping[str, int]
    end: Mapping[str, int]

    def unread(self, partition: str, offset: int) -> int:
        """Return how many offsets of a partition are unread, if `offset` is the next one."""
        return max(0, self.end[partition] - max(offset, self.earliest[partition]))


NOTHING = Bounds({}, {})


def with_read(ranges: Sequence[OffsetRange], bounds: Mapping[str, Bounds], steps: Iterable[str]) -> list[OffsetRange]:
    """Return the ranges, and an empty one for each partition of these steps that has none: all of it is read.

    What was published after the bounds of such a partition were asked for may be within those of another one.
    """
    chosen = {(offsets.source, offsets.partition): offsets for offsets in ranges}
    read = {
        (step, partition): OffsetRange(source=step, partition=partition, start=end, end=end)
        for step in steps
        for partition, end in bounds[step].end.items()
    }
    return list({**read, **chosen}.values())


def moved(ranges: Sequence[OffsetRange], every: Sequence[OffsetRange], ends: Sequence[int]) -> list[OffsetRange]:
    """Return the ranges with the ends that theirs have among those of `every`."""
    by_partition = {(each.source, each.partition): end for each, end in zip(every, ends, strict=True)}
    return [replace(offsets, end=by_partition[offsets.source, offsets.partition]) for offsets in ranges]


class SourceReader(Protocol):
    """An open source. A worker keeps it across epochs; the planner and the driver have one each.

    It is asked by one thread at a time, though not always by the same one; readers of `mapped` sources are read by
    several.

    Subclass it to inherit what is optional: `settled_bounds`, `starts`, `append_time`, `align`, `max_event_time`,
    `mark`, `lost`, `committed` and `close`.
    """

    poll_seconds: float = 0.1
    """How long an answer of `bounds` serves while there is nothing to do: a bound on how often the outside is asked."""
    together: str | None = None
    """Readers with the same text are aligned together, so that records published together are read together."""

    def bounds(self) -> Bounds:
        """Return what there is to read now: one round trip.

        A partition that is new appears here; one that is gone does not.
        """
        ...

    def starts(self, partitions: Collection[str], *, fresh: bool) -> Mapping[str, int] | None:
        """Return where reading begins in partitions of which nothing was read; None: at their earliest offsets.

        The engine keeps the answer with the first epoch that it commits, and may ask again until then: where it depends
        on the moment, return what the first call has returned.

        Args:
            partitions: those that are there now, and were not read.
            fresh: whether no partition of the source was read so far.

        """
        del partitions, fresh
        return None

    def read(self, part: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range with exactly these columns, in order of offsets.

        Args:
            part: what to read; `part.rows` may be more than the records there.
            columns: names of the source's columns, and of these: `_offset` (int64), `_time` (timestamp in
                microseconds, UTC: the event time that the outside knows), `_appended` (timestamp: when the record was
                stored), `_deleted` (bool: a tombstone).

        Raises:
            OffsetsLost: the records at `part.start` are gone; the error has the earliest offset.

        """
        ...

    def settled_bounds(self) -> Bounds:
        """Return the bounds once every append that has begun is finished.

        It is asked instead of `bounds` of what a lookup reads its table from, after those of its stream: so no record
        appears later that was stored before one of the stream's. A source that cannot know returns `bounds()`.
        """
        return self.bounds()

    def append_time(self, part: OffsetRange) -> int | None:
        """Return when the first record of a range was stored (`_appended`), in microseconds; None if none is there.

        In a partition it must not descend. Override it where that is known without reading.
        """
        for batch in self.read(part, ["_appended"]):
            if batch.num_rows:
                stored: int | None = batch.column(0)[0].cast(pa.int64()).as_py()
                return stored
        return None

    def align(
        self, ranges: Sequence[OffsetRange], bounds: Mapping[str, Bounds], peers: Mapping[str, SourceReader]
    ) -> Sequence[OffsetRange]:
        """Return the ranges with ends moved so that they hold whole epochs and whole transactions.

        Called once for all readers of one `together`. Ends never move beyond the bounds, nor below the starts; a range
        may become empty.

        Args:
            ranges: the chosen ranges, at most one for each source and partition; none where nothing is unread.
            bounds: the bounds of each source, by its step.
            peers: the readers of the same `together`, by step: of sources without a range, too.

        """
        del bounds, peers
        return ranges

    def max_event_time(self, part: OffsetRange) -> int | None:
        """Return the greatest event time in a range, in microseconds, if it is known without reading.

        None: the tasks that read the range report it.
        """
        del part
        return None

    def mark(self, partition: str, offset: int) -> str | None:
        """Return a short text that tells the record before an offset from any other; None where it cannot be told.

        It is asked after a range was read, of its end, and kept in the commit; the start asks again, and refuses with
        `SourceDiverged` where the answers differ: the source was restored from an older copy, and has grown since.
        Whatever may be done to the record meanwhile (compaction, retention) must lead to the same text or to None.
        """
        del partition, offset
        return None

    def lost(self, partition: str, start: int, end: int) -> int:
        """Return how many records of `[start, end)` were lost, now that reading begins at `end`.

        A log that removes only what a later record replaces loses nothing.
        """
        del partition
        return end - start

    def committed(self, ends: Mapping[str, int]) -> None:
        """Take note of how far committed epochs have read the source: a hint, for tools that show lag."""
        del ends

    def close(self) -> None:
        """Let go of what is open."""
        return


class Source(Protocol):
    """Input that can be read again: frozen and picklable; it is part of the plan.

    Subclass it to inherit what is optional: `prepare`, `instance` and `key_origins`.
    """

    dates_records: bool = False
    """Whether `_appended` can be read. Else a lookup cannot tell in what order its records arrived within an epoch."""
    mapped: bool = False
    """Whether its records are columns in memory or in mapped files, and several threads may use one of its readers.
    Others are fetched or decoded as they are read, which the tasks of a stage do on all cores, so a large epoch is no
    single task."""
    bounded: bool = False
    """Whether all that it will ever have is there from the start: once that is read, its watermark is the end of time,
    and holds nothing back."""
    undecoded: bool = False
    """Whether its records are bytes. It then has no columns of its own, but `_key` and `value` (binary, null where
    there is none) and `_headers` (`format.HEADERS_TYPE`), next to `_offset`, `_time`, `_appended` and `_deleted`."""

    @property
    def identity(self) -> str:
        """What it is, independent of its current address: `kafka:<cluster id>/orders`. Stored; a change is refused."""
        ...

    def prepare(self, *, clock: Clock) -> None:
        """Create or check what will be read, once at the app's start, in the driver.

        Raises:
            HeadraceError: what exists is not as declared.

        """
        del clock

    def instance(self) -> str | None:
        """Return which one of this identity exists now, such as a topic's id; None where it cannot tell.

        What was deleted and created again is another instance: its offsets mean other records. It is asked at the
        start, before `prepare` (an empty text: it does not exist) and after it, and before each commit: answer from
        what is near. The commit stores it beside the offsets; a change is refused with `SourceReplaced`.
        """
        return None

    def key_origins(self) -> Sequence[Origin]:
        """Return the topics that have the keys of its private columns; called after `prepare`."""
        return ()

    def open(self, *, clock: Clock) -> SourceReader:
        """Return a reader. Readers share no state in this process."""
        ...
