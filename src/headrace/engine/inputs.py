"""The inputs of a plan: their unread records, their watermarks, and reading them in tasks.

The planner of epochs needs nothing else of the engine, so it can run in another process.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import count
from threading import Lock, RLock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import NotRunning, RecordsGone, UnreadableRecord
from headrace.base.outside import OffsetsLost
from headrace.connect.decoding import Decoded, decode, empty, letters_of
from headrace.connect.source import Bounds, OffsetRange
from headrace.engine.arrival import ArrivalOrder
from headrace.engine.pace import share
from headrace.engine.storage import SourceProgress
from headrace.engine.watermarks import SourceWatermark, holds_nothing_back, of_source, reached

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.base.time import Clock
    from headrace.connect.source import SourceReader
    from headrace.engine.input import Input
    from headrace.engine.storage import Commit
    from headrace.expressions import Scalar
    from headrace.kernels.duck import Duck
    from headrace.kernels.program import Program

NOTHING_READ = SourceProgress()


@dataclass(frozen=True, slots=True)
class ReadRange:
    """What was read: the range without what was lost, rows and dead letters, the greatest event time (microseconds)."""

    part: OffsetRange
    decoded: Decoded
    max_event_time: int | None
    lost: int


def read_schemas(inputs: Mapping[str, Input], program: Program) -> list[pa.Schema]:
    """Return for each source the declared columns that a program reads of it."""
    return [inputs[each.source].shape.decoded_for(each.columns) for each in program.intakes]


class _Answer(NamedTuple):
    """Bounds that a source has answered: a later answer has a greater number."""

    number: int
    at: float
    bounds: Bounds


class Inputs:
    """The inputs of a plan, by their steps, with readers that stay open.

    Several threads may use it. Before and after an epoch readers are asked by one of them at a time.
    """

    def __init__(
        self,
        inputs: Mapping[str, Input],
        *,
        clock: Clock,
        upto: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        self.inputs = inputs
        self.upto = upto
        self.clock = clock
        self._readers: dict[str, SourceReader] = {}
        self._closed = False
        self._duck: Duck | None = None
        self._rereading = Lock()  # threads that find such records at the same time: most readers are for one at a time
        self._opening = RLock()  # the handler of a signal may stop the app in the middle
        self._asking = RLock()  # who waits until an app has caught up asks while the app's thread plans an epoch
        self._numbers = count(1)
        self._cached_bounds: dict[str, _Answer] = {}
        in_order = {step: bound.in_order for step, bound in inputs.items() if bound.in_order is not None}
        self.order = ArrivalOrder(in_order, lambda part: self.reader(part.source).append_time(part))

    # ---- before an epoch ----

    def bounds(self, commit: Commit | None = None, *, again: bool = False) -> dict[str, Bounds]:
        """Return the bounds of each source; call it once for each epoch that is planned.

        What a commit has read nothing of begins where the source says (`SourceReader.starts`).

        An answer is reused for the reader's `poll_seconds`, unless `again` asks every source. What lookups read their
        tables from comes last, and never from an older answer than the rest: where a record of a stream is there, the
        table's earlier ones are too.
        """
        read = [step for step, bound in self.inputs.items() if bound.source is not None]
        looked_up = [step for step in read if self._is_looked_up(step)]
        with self._asking:
            found = {step: self.bounds_of(step, again=again) for step in read if step not in looked_up}
            latest = max((self._cached_bounds[step].number for step in found), default=0)
            for step in looked_up:
                known = self._cached_bounds.get(step)
                found[step] = self.bounds_of(step, again=again or known is None or known.number < latest)
        if commit is None:
            return found
        return {step: self._begun(step, commit.sources, each) for step, each in found.items()}

    def bounds_again(
        self, progress: Mapping[str, SourceProgress], bounds: Mapping[str, Bounds], now: int
    ) -> dict[str, Bounds]:
        """Return bounds that say at `now` which partitions hold the watermark back: those of an epoch are older.

        A source is looked at again only where a partition would hold nothing back by the older ones: it may have had
        rows since, which would be late without being behind any other row.
        """
        free = [
            step
            for step, each in bounds.items()
            if holds_nothing_back(self.inputs[step], progress.get(step, NOTHING_READ), each, now)
        ]
        return {**bounds, **{step: self._begun(step, progress, self.bounds_of(step, again=True)) for step in free}}

    def _begun(self, step: str, progress: Mapping[str, SourceProgress], bounds: Bounds) -> Bounds:
        offsets = progress.get(step, NOTHING_READ).offsets
        starts = self.starts(step, offsets, bounds) or {}
        return Bounds({p: max(first, starts.get(p, first)) for p, first in bounds.earliest.items()}, bounds.end)

    def begins(self, commit: Commit, bounds: Mapping[str, Bounds]) -> bool:
        """Whether an epoch is due that only keeps where reading begins: else a restart would decide it again."""
        return any(
            self.starts(step, commit.sources.get(step, NOTHING_READ).offsets, each) for step, each in bounds.items()
        )

    def starts(self, step: str, read: Mapping[str, int], bounds: Bounds) -> Mapping[str, int] | None:
        """Return where reading begins in the partitions that were not read; None: with their first records."""
        fresh = [partition for partition in bounds.end if partition not in read]
        with self._asking:
            return self.reader(step).starts(fresh, fresh=not read) if fresh else None

    def _is_looked_up(self, step: str) -> bool:
        in_order = self.inputs[step].in_order
        return in_order is not None and in_order.first

    def bounds_of(self, step: str, *, again: bool = False) -> Bounds:
        """Return the bounds of one source; empty for one that Spark reads. `again`: no answer is reused."""
        if self.inputs[step].source is None:
            return Bounds({}, {})
        with self._asking:
            reader, now = self.reader(step), self.clock.monotonic()
            cached = self._cached_bounds.get(step)
            if cached is not None and not again and 0 <= now - cached.at < reader.poll_seconds:
                return cached.bounds
            bounds = reader.settled_bounds() if self._is_looked_up(step) else reader.bounds()
            if self.upto is not None:
                ends = self.upto.get(step, {})
                bounds = Bounds(bounds.earliest, {p: min(end, ends.get(p, 0)) for p, end in bounds.end.items()})
            self._cached_bounds[step] = _Answer(next(self._numbers), now, bounds)
            return bounds

    def need_epoch(self, commit: Commit, now: int, *, again: bool) -> bool:
        """Whether an epoch is due after a commit: for records, for where reading begins, or by the clock."""
        bounds = self.bounds(commit, again=again)
        due = self.unread(commit, bounds, 1) or self.begins(commit, bounds)
        return bool(due) or self.clock_epoch_due(commit, bounds, now)

    def unread(self, commit: Commit, bounds: Mapping[str, Bounds], limit: int) -> list[OffsetRange]:
        """Return about `limit` unread records after a commit, shared equally by the partitions of all sources.

        Records that were published together are read together, even if they are more (`SourceReader.align`).

        Raises:
            RecordsGone: retention removed some of them, and the source has on_error="fail".

        """
        unread = [offsets for step in bounds for offsets in self._unread_of(step, commit, bounds[step])]
        shares = share([offsets.rows for offsets in unread], limit)
        chosen = [replace(offsets, end=offsets.start + rows) for offsets, rows in zip(unread, shares, strict=True)]

        def align(ranges: list[OffsetRange], ends: Sequence[int]) -> list[OffsetRange]:
            return self._aligned(ranges, _lowered(bounds, ranges, ends))

        with self._asking:
            ordered = self.order.ordered(chosen, [offsets.end for offsets in unread], align)
        return [offsets for offsets in ordered if offsets.rows > 0]

    def _unread_of(self, step: str, commit: Commit, bounds: Bounds) -> list[OffsetRange]:
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
        for offsets in ranges:
            together = self.reader(offsets.source).together or f"alone:{offsets.source}"
            groups.setdefault(together, []).append(offsets)
        by_partition: dict[tuple[str, str], OffsetRange] = {}
        for group in groups.values():
            aligner, peers = self._aligner(group[0].source, bounds)
            aligned = aligner.align(group, bounds, peers)
            by_partition |= {(offsets.source, offsets.partition): offsets for offsets in aligned}
        return [by_partition[offsets.source, offsets.partition] for offsets in ranges]

    def _aligner(self, step: str, steps: Iterable[str]) -> tuple[SourceReader, dict[str, SourceReader]]:
        """Return the reader that aligns a group, always the same one, since it keeps state; and all of the group."""
        together = self.reader(step).together
        if together is None:
            return self.reader(step), {step: self.reader(step)}
        readers = {name: self.reader(name) for name in steps if self.inputs[name].source is not None}
        peers = {name: reader for name, reader in readers.items() if reader.together == together}
        return next(peers[name] for name in self.inputs if name in peers), peers

    def lost(self, before: Commit, ranges: Sequence[OffsetRange]) -> dict[str, int]:
        """Return by source how many records were lost between the offsets of a commit and the ranges after it."""
        starts: dict[tuple[str, str], int] = {}
        for offsets in ranges:
            partition = offsets.source, offsets.partition
            starts[partition] = min(offsets.start, starts.get(partition, offsets.start))
        lost: dict[str, int] = {}
        for (step, name), start in starts.items():
            read = before.sources.get(step, NOTHING_READ).offsets.get(name, start)
            lost[step] = lost.get(step, 0) + self._lost(step, name, read, start)
        return lost

    def _lost(self, step: str, partition: str, read: int, start: int) -> int:
        with self._asking:
            return self.reader(step).lost(partition, read, start) if start > read else 0

    # ---- event time ----

    def watermarks(
        self,
        progress: Mapping[str, SourceProgress],
        before: Mapping[str, int | None],
        bounds: Mapping[str, Bounds],
        now: int,
        planned: int | None = None,
    ) -> dict[str, SourceWatermark]:
        """Return the sources' watermarks at `now`; `before` are their last ones. All are microseconds.

        What Spark reads has no bounds: whether it has had rows since their epoch was `planned` is not known.
        """
        unknown = now if planned is None else min(now, planned)
        return {
            step: of_source(
                bound,
                progress.get(step, NOTHING_READ),
                bounds.get(step),
                before.get(step),
                now if step in bounds else unknown,
            )
            for step, bound in self.inputs.items()
        }

    def reaches(
        self,
        ahead: Mapping[str, Sequence[str]],
        commit: Commit,
        ranges: Sequence[OffsetRange],
        bounds: Mapping[str, Bounds],
        until: Mapping[str, int | None] | None = None,
    ) -> dict[str, int]:
        """Return the watermarks that the steps of `ahead` are known to have after reading ranges; see `reached`."""
        return reached(ahead, self.reached(commit, ranges, bounds), commit.watermarks, until) if ahead else {}

    def reached(
        self, commit: Commit, ranges: Sequence[OffsetRange], bounds: Mapping[str, Bounds]
    ) -> dict[str, int | None]:
        """Return by source at most the watermark that it has after reading ranges, which follow a commit.

        It is the last one where the source does not say beforehand when its records were. A partition that had no row
        by these bounds is looked at again: it may have some that were stored before rows of the ranges.
        """
        later = self.bounds_again(commit.sources, bounds, self.clock.now())
        return {step: self._reached(step, commit, ranges, later.get(step)) for step in self.inputs}

    def _reached(self, step: str, commit: Commit, ranges: Sequence[OffsetRange], bounds: Bounds | None) -> int | None:
        source, before = self.inputs[step], commit.outputs.get(step)
        ranges = [offsets for offsets in ranges if offsets.source == step]
        if source.timing is not None or not ranges or bounds is None:
            return before
        progress = deepcopy(commit.sources.get(step, NOTHING_READ))
        for offsets in ranges:
            with self._asking:
                time = self.reader(step).max_event_time(offsets)
            if time is None or not source.shape.span.has(time):
                return before
            progress.offsets[offsets.partition] = offsets.end
            progress.observe(offsets.partition, time, 0)
        return of_source(replace(source, idle_after=None), progress, bounds, before, 0).before

    def clock_epoch_due(self, commit: Commit, bounds: Mapping[str, Bounds], now: int) -> bool:
        """Whether the clock alone makes an epoch due: a source has become idle, or is idle while windows wait.

        Also when the clock was set back: the idle time of quiet partitions starts again.
        """
        if all(bound.idle_after is None for bound in self.inputs.values()) or commit.epoch < 0:
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

    def read(self, offsets: OffsetRange, columns: Sequence[str]) -> ReadRange:
        """Read and decode a range: at least these columns of it.

        Records that were removed after the range was planned are counted as lost.

        Raises:
            UnreadableRecord: there are dead letters, and the source has on_error="fail".
            RecordsGone: records were removed, and the source has on_error="fail".

        """
        bound, reader, lost = self.inputs[offsets.source], self.reader(offsets.source), 0
        if bound.timing is not None:
            columns = [*columns, *bound.timing.columns]
        try:
            decoded, time = decode(reader, offsets, bound.shape, columns), reader.max_event_time(offsets)
        except OffsetsLost as error:
            earliest = min(error.earliest, offsets.end)
            lost = reader.lost(offsets.partition, offsets.start, earliest)
            if lost and bound.on_error == "fail":
                raise RecordsGone(bound.shape.topic, offsets.partition, first=offsets.start, start=earliest) from error
            rest = replace(offsets, start=earliest)
            if not rest.rows:
                return ReadRange(rest, Decoded(empty(bound.shape), None), None, lost)
            remaining = self.read(rest, columns)
            return replace(remaining, lost=lost + remaining.lost)
        if bound.timing is not None:
            decoded, time = self._timed(ReadRange(offsets, decoded, None, lost), bound.timing), None
        if decoded.dead is not None and bound.on_error == "fail":
            raise _unreadable(bound.shape.topic, decoded)
        if not bound.shape.span.has(time):  # what is known of the range may be of a dead letter
            time = _greatest(decoded)
        return ReadRange(offsets, decoded, time, lost)

    def _timed(self, read: ReadRange, timing: Scalar) -> Decoded:
        """Return rows with computed event times; records without one are dead letters, except tombstones."""
        from headrace.engine.event_times import EventTimes
        from headrace.kernels.duck import Duck

        rows, dead = read.decoded.rows, read.decoded.dead
        if self._duck is None:
            self._duck = Duck()
        times, reasons = EventTimes(self._duck, timing, self.inputs[read.part.source].shape.span).of(rows)
        if reasons:
            fresh = self.letters(read, reasons)
            dead = fresh if dead is None else pa.concat_tables([dead, fresh])
        at = rows.schema.get_field_index("_time")
        rows = rows.set_column(at, "_time", times)
        kept = np.setdiff1d(np.arange(rows.num_rows), np.fromiter(reasons, np.int64))
        return Decoded(rows.take(pa.array(kept)) if reasons else rows, dead)

    def letters(self, read: ReadRange, reasons: Mapping[int, str]) -> pa.Table:
        """Return dead letters of records that were read but cannot be computed, by their rows in what was read."""
        step = read.part.source
        with self._rereading:
            return letters_of(self.reader(step), read.part, self.inputs[step].shape, read.decoded, reasons)

    # ---- readers ----

    def reader(self, step: str) -> SourceReader:
        """Return the open reader of a source.

        Raises:
            NotRunning: the inputs are closed; who asks for a status meanwhile would leave a reader open.

        """
        with self._opening:
            if self._closed:
                raise NotRunning(f'the source "{step}" is closed: the app has stopped')
            if step not in self._readers:
                source = self.inputs[step].source
                assert source is not None  # noqa: S101 -- what Spark reads has no ranges
                self._readers[step] = source.open(clock=self.clock)
            return self._readers[step]

    def open_readers(self) -> None:
        """Open the readers of all sources, before several threads read them."""
        for step, bound in self.inputs.items():
            if bound.source is not None:
                self.reader(step)

    def committed(self, commit: Commit) -> None:
        """Tell the sources how far they have been read; a replay does not."""
        if self.upto is not None:
            return
        for step, bound in self.inputs.items():
            if bound.source is not None and step in commit.sources:
                with self._asking:
                    self.reader(step).committed(commit.sources[step].offsets)

    def close(self) -> None:
        """Close the readers, for good."""
        with self._asking, self._opening:
            self._closed = True
            for reader in self._readers.values():
                reader.close()
            self._readers.clear()
        if self._duck is not None:
            self._duck.close()
            self._duck = None


def _lowered(bounds: Mapping[str, Bounds], ranges: Sequence[OffsetRange], ends: Sequence[int]) -> Mapping[str, Bounds]:
    """Return bounds with the ends of these ranges, none of which is beyond the bound."""
    lowered = {step: dict(each.end) for step, each in bounds.items()}
    for offsets, end in zip(ranges, ends, strict=True):
        lowered[offsets.source][offsets.partition] = end
    return {step: Bounds(each.earliest, lowered[step]) for step, each in bounds.items()}


def _greatest(decoded: Decoded) -> int | None:
    greatest: int | None = pc.max(decoded.rows.column("_time")).as_py()
    return greatest


def _unreadable(topic: str, decoded: Decoded) -> UnreadableRecord:
    assert decoded.dead is not None  # noqa: S101 -- the caller checks it
    first = decoded.dead.slice(0, 1).to_pylist()[0]
    return UnreadableRecord(
        f'the topic "{topic}" has a record that cannot be read: {first["reason"]}',
        detail=f"partition {first['partition']}, offset {first['offset']}: {first['record']}",
        hint=f'With on_error="dead_letter" such records go to the topic "{topic}.dead" and the app goes on.',
    )
