"""What is there to read: the unread records of all sources, and what the sources promise of event time.

This is all that the planner of an epoch needs, so that it can run in another process than the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from headrace.base.errors import RecordsGone, UnreadableRecord
from headrace.base.outside import OffsetsLost
from headrace.connect.decoding import Decoded, decode, empty
from headrace.connect.source import Bounds, OffsetRange
from headrace.engine.pace import share
from headrace.engine.storage import SourceProgress
from headrace.engine.watermarks import SourceWatermark, of_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.base.time import Clock
    from headrace.connect.source import SourceReader
    from headrace.engine.outside import Input
    from headrace.engine.storage import Commit

NOTHING_READ = SourceProgress()


@dataclass(frozen=True, slots=True)
class Taken:
    """A range as it was read: its rows and dead letters, its greatest event time, and how many records were lost."""

    decoded: Decoded
    time: int | None
    lost: int


class Inputs:
    """The inputs of a plan, by their steps, with readers that stay open."""

    def __init__(self, inputs: Mapping[str, Input], *, clock: Clock) -> None:
        self.inputs = inputs
        self.clock = clock
        self._readers: dict[str, SourceReader] = {}
        self._asked: dict[str, tuple[float, Bounds]] = {}

    # ---- before an epoch ----

    def bounds(self) -> dict[str, Bounds]:
        """Return what there is to read of each source now: ask once for each planning.

        A source that is far away is asked again only after its reader's `poll_seconds`.
        """
        return {step: self.bounds_of(step) for step, each in self.inputs.items() if each.source is not None}

    def bounds_of(self, step: str) -> Bounds:
        """Return what there is to read of one source; nothing of one that Spark reads."""
        if self.inputs[step].source is None:
            return Bounds({}, {})
        reader, now = self.reader(step), self.clock.monotonic()
        asked = self._asked.get(step)
        if asked is not None and 0 <= now - asked[0] < reader.poll_seconds:
            return asked[1]
        found = reader.bounds()
        self._asked[step] = now, found
        return found

    def unread(self, commit: Commit, bounds: Mapping[str, Bounds], limit: int) -> list[OffsetRange]:
        """Return what a commit has not read, of all sources and partitions in equal parts.

        What was published together is taken together, even where that is more than `limit` (`SourceReader.align`).

        Raises:
            RecordsGone: retention took some of it, and the source says to fail.

        """
        unread = [each for step in bounds for each in self._behind(step, commit, bounds[step])]
        taken = share([each.rows for each in unread], limit)
        return self._aligned(
            [
                OffsetRange(source=each.source, partition=each.partition, start=each.start, end=each.start + rows)
                for each, rows in zip(unread, taken, strict=True)
            ],
            bounds,
        )

    def _behind(self, step: str, commit: Commit, bounds: Bounds) -> list[OffsetRange]:
        offsets = commit.sources.get(step, NOTHING_READ).offsets
        ranges = []
        for partition, end in bounds.end.items():
            read = offsets.get(partition, 0)
            start = max(read, bounds.earliest[partition])
            if (
                self.inputs[step].on_error == "fail"
                and partition in offsets
                and self._lost(step, partition, read, start)
            ):
                raise RecordsGone(self.inputs[step].shape.topic, partition, first=read, start=start)
            if end > start:
                ranges.append(OffsetRange(source=step, partition=partition, start=start, end=end))
        return ranges

    def _aligned(self, ranges: list[OffsetRange], bounds: Mapping[str, Bounds]) -> list[OffsetRange]:
        groups: dict[str, list[OffsetRange]] = {}
        for each in ranges:
            groups.setdefault(self.reader(each.source).together or f"alone:{each.source}", []).append(each)
        ends: dict[tuple[str, str], OffsetRange] = {}
        for group in groups.values():
            peers = {each.source: self.reader(each.source) for each in group}
            first = next(step for step in self.inputs if step in peers)
            aligner = self._aligner(first, peers[first].together)
            ends |= {(each.source, each.partition): each for each in aligner.align(group, bounds, peers)}
        aligned = [ends[each.source, each.partition] for each in ranges]
        return [each for each in aligned if each.rows > 0]

    def _aligner(self, step: str, together: str | None) -> SourceReader:
        """Return the reader that aligns a group: always the same one, since it remembers what it has seen."""
        if together is None:
            return self.reader(step)
        steps = (each for each in self.inputs if self.inputs[each].source is not None)
        return next(self.reader(each) for each in steps if self.reader(each).together == together)

    def lost(self, before: Commit, ranges: Sequence[OffsetRange]) -> dict[str, int]:
        """Return by source how many records were lost between what a commit has read and the ranges after it."""
        starts: dict[tuple[str, str], int] = {}
        for each in ranges:
            place = each.source, each.partition
            starts[place] = min(each.start, starts.get(place, each.start))
        lost: dict[str, int] = {}
        for (step, partition), start in starts.items():
            read = before.sources.get(step, NOTHING_READ).offsets.get(partition, start)
            lost[step] = lost.get(step, 0) + self._lost(step, partition, read, start)
        return lost

    def _lost(self, step: str, partition: str, read: int, start: int) -> int:
        return self.reader(step).lost(partition, read, start) if start > read else 0

    # ---- event time ----

    def watermarks(
        self,
        progress: Mapping[str, SourceProgress],
        before: Mapping[str, int | None],
        bounds: Mapping[str, Bounds],
        now: int,
    ) -> dict[str, SourceWatermark]:
        """Return the sources' watermarks at an instant; `before` are those that they had."""
        return {
            step: of_source(each, progress.get(step, NOTHING_READ), bounds.get(step), before.get(step), now)
            for step, each in self.inputs.items()
        }

    def clock_epoch_due(self, commit: Commit, bounds: Mapping[str, Bounds], now: int) -> bool:
        """Return whether an epoch is due by the clock alone: a source has become idle, or is idle and windows wait.

        Also where the clock was set back: quiet partitions are timed anew from there.
        """
        if all(each.idle_after is None for each in self.inputs.values()) or commit.epoch < 0:
            return False
        if any(time > now for progress in commit.sources.values() for time in progress.active.values()):
            return True
        for step, watermark in self.watermarks(commit.sources, commit.outputs, bounds, now).items():
            was_idle = commit.idle.get(step, False)
            moved = watermark.before != commit.outputs.get(step)
            if watermark.idle != was_idle or (moved and (commit.waiting or not was_idle)):
                return True
        return False

    # ---- in tasks ----

    def take(self, part: OffsetRange) -> Taken:
        """Read and decode a range.

        Records that went after the range was planned are counted as lost.

        Raises:
            UnreadableRecord: there are dead letters, and the source says to fail.
            RecordsGone: records went, and the source says to fail.

        """
        each, reader, lost = self.inputs[part.source], self.reader(part.source), 0
        try:
            decoded, time = decode(reader, part, each.shape), reader.max_event_time(part)
        except OffsetsLost as error:
            earliest = min(error.earliest, part.end)
            lost = reader.lost(part.partition, part.start, earliest)
            if lost and each.on_error == "fail":
                raise RecordsGone(each.shape.topic, part.partition, first=part.start, start=earliest) from error
            rest = replace(part, start=earliest)
            if not rest.rows:
                return Taken(Decoded(empty(each.shape), None), None, lost)
            later = self.take(rest)
            return replace(later, lost=lost + later.lost)
        if decoded.dead is not None and each.on_error == "fail":
            raise _unreadable(each.shape.topic, decoded)
        return Taken(decoded, _greatest(decoded) if time is None else time, lost)

    # ---- readers ----

    def reader(self, step: str) -> SourceReader:
        """Return the open reader of a source."""
        if step not in self._readers:
            source = self.inputs[step].source
            assert source is not None  # noqa: S101 -- what Spark reads has no ranges
            self._readers[step] = source.open(clock=self.clock)
        return self._readers[step]

    def committed(self, commit: Commit) -> None:
        """Tell the sources how far they have been read."""
        for step, each in self.inputs.items():
            if each.source is not None and step in commit.sources:
                self.reader(step).committed(commit.sources[step].offsets)

    def close(self) -> None:
        """Close the readers."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()


def _greatest(decoded: Decoded) -> int | None:
    greatest: int | None = pc.max(decoded.rows.column("_time")).as_py()
    return greatest


def _unreadable(topic: str, decoded: Decoded) -> UnreadableRecord:
    assert decoded.dead is not None  # noqa: S101 -- asked before
    first = decoded.dead.slice(0, 1).to_pylist()[0]
    return UnreadableRecord(
        f'the topic "{topic}" has a record that cannot be read: {first["reason"]}',
        detail=f"partition {first['partition']}, offset {first['offset']}: {first['record']}",
        hint=f'With on_error="dead_letter" such records go to the topic "{topic}.dead" and the app goes on.',
    )
