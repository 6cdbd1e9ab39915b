"""What is there to read: the unread records of all sources, and what the sources promise of event time.

This is all that the planner of an epoch needs, so that it can run in another process than the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.base.errors import RecordsGone, UnreadableRecord
from headrace.connect.embedded import OffsetRange, decode_changes, take
from headrace.engine.marks import EpochBoundaries
from headrace.engine.pace import share
from headrace.engine.storage import SourceProgress
from headrace.engine.watermarks import Backlog, SourceWatermark, of_source
from headrace.plan.nodes import ReadSource, TopicSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.connect.embedded import Decoded
    from headrace.engine.storage import Commit
    from headrace.log import Log, Topic

NOTHING_READ = SourceProgress()


@dataclass
class Inputs:
    """The sources of a plan by their steps' names, and the log that topics are in."""

    sources: Mapping[str, TopicSource | ReadSource]
    log: Log
    cuts: EpochBoundaries = field(init=False)

    def __post_init__(self) -> None:
        """Read other apps' marks in the same log."""
        self.cuts = EpochBoundaries(self.log)

    def backlog(self, source: str) -> Backlog | None:
        """Return where a source's topic starts and ends now; None for a source that is no topic."""
        node = self.sources[source]
        if not isinstance(node, TopicSource):
            return None
        topic = self.log.topic(node.topic)
        ends, starts = topic.end_offsets(), topic.start_offsets()
        return Backlog({str(p): end for p, end in ends.items()}, {str(p): start for p, start in starts.items()})

    def unread(self, commit: Commit, limit: int) -> list[OffsetRange]:
        """Return slices of what a commit has not read, of all sources and partitions in equal parts.

        What other apps published together is taken together, even where that is more than `limit` (`marks.Cuts`).

        Raises:
            RecordsGone: retention took some of it, and the source says to fail.

        """
        whole = [piece for name in self.sources for piece in self._behind(name, commit.sources.get(name, NOTHING_READ))]
        taken = share([piece.rows for piece in whole], limit)
        ends = self.cuts.ends(
            [(piece.topic, piece.partition) for piece in whole],
            [piece.first for piece in whole],
            [piece.first + rows for piece, rows in zip(whole, taken, strict=True)],
            [piece.last for piece in whole],
        )
        return [replace(piece, last=end) for piece, end in zip(whole, ends, strict=True) if end > piece.first]

    def _behind(self, source: str, progress: SourceProgress) -> list[OffsetRange]:
        backlog, node = self.backlog(source), self.sources[source]
        if backlog is None or not isinstance(node, TopicSource):
            return []
        made = []
        for partition, end in backlog.ends.items():
            first = max(progress.offsets.get(partition, 0), backlog.starts[partition])
            if node.on_error == "fail" and self._gone(source, progress, partition, first):
                known = progress.offsets[partition]
                raise RecordsGone(node.topic, int(partition), first=known, start=first)
            if end > first:
                piece = OffsetRange(source=source, topic=node.topic, partition=int(partition), first=first, last=end)
                made.append(piece)
        return made

    def lost(self, before: Commit, slices: Sequence[OffsetRange]) -> dict[str, int]:
        """Return by source how many records retention took between what a commit has read and the slices after it."""
        begins: dict[tuple[str, str], int] = {}
        for piece in slices:  # a partition may have several, one for each task
            at = (piece.source, str(piece.partition))
            begins[at] = min(piece.first, begins.get(at, piece.first))
        made: dict[str, int] = {}
        for (source, partition), first in begins.items():
            gone = self._gone(source, before.sources.get(source, NOTHING_READ), partition, first)
            made[source] = made.get(source, 0) + gone
        return made

    def _gone(self, source: str, progress: SourceProgress, partition: str, first: int) -> int:
        """Return how many records retention took between what was read of a partition and `first`."""
        read, node = progress.offsets.get(partition), self.sources[source]
        if read is None or first <= read or not isinstance(node, TopicSource):
            return 0
        rules = self.log.topic(node.topic).settings
        kept = rules["retention"] is None and rules["retention_bytes"] is None
        return 0 if kept and rules["cleanup"] == "compact" else first - read

    def promises(
        self, progress: Mapping[str, SourceProgress], before: Mapping[str, int | None], now: int
    ) -> dict[str, SourceWatermark]:
        """Return the sources' watermarks at an instant; `before` are those that they had."""
        return {
            name: of_source(node, progress.get(name, NOTHING_READ), self.backlog(name), before.get(name), now)
            for name, node in self.sources.items()
        }

    def clock_epoch_due(self, commit: Commit, now: int) -> bool:
        """Return whether an epoch is due by the clock alone: a source has fallen idle, or is idle and windows wait.

        Also where the clock was set back: quiet partitions are timed anew from there.
        """
        if all(node.idle_after is None for node in self.sources.values()) or commit.epoch < 0:
            return False
        if any(time > now for progress in commit.sources.values() for time in progress.active.values()):
            return True
        for name, promise in self.promises(commit.sources, commit.outputs, now).items():
            was = commit.idle.get(name, False)
            moved = promise.before != commit.outputs.get(name)
            if promise.idle != was or (moved and (commit.waiting or not was)):
                return True
        return False

    def indexed(self, piece: OffsetRange) -> bool:
        """Return whether the log's time index knows the event times of a slice; else the task that reads it says."""
        node = self.sources[piece.source]
        assert isinstance(node, TopicSource)  # noqa: S101 -- only topics are read by slices
        return node.sent_time is None and node.event_time in (None, self.log.topic(piece.topic).event_time)

    def max_time(self, piece: OffsetRange) -> int | None:
        """Return the greatest event time of a slice where the log's time index knows it."""
        if not self.indexed(piece):
            return None
        return self.log.topic(piece.topic).max_time(piece.partition, piece.first, piece.last)

    def take(self, piece: OffsetRange) -> Decoded:
        """Read a slice: good rows and dead letters.

        Raises:
            UnreadableRecord: there are dead letters, and the source says to fail.

        """
        node = self.sources[piece.source]
        assert isinstance(node, TopicSource)  # noqa: S101 -- only topics are read by slices
        taken = _taken(self.log.topic(piece.topic), piece, node)
        if taken.dead is not None and node.on_error == "fail":
            first = taken.dead.slice(0, 1).to_pylist()[0]
            raise UnreadableRecord(
                f'the topic "{piece.topic}" has a record that cannot be read: {first["reason"]}',
                detail=f"partition {first['partition']}, offset {first['offset']}: {first['record']}",
                hint='With on_error="dead_letter" such records go to the topic '
                f'"{piece.topic}.dead" and the app goes on.',
            )
        return taken


def _taken(topic: Topic, piece: OffsetRange, node: TopicSource) -> Decoded:
    if node.upserts:
        return decode_changes(topic, piece, node.schema, node.event_time, node.record_key)
    return take(topic, piece, node.schema, node.event_time, node.sent_time)
