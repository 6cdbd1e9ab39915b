"""A topic of the embedded log as a source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.base.errors import OffsetOutOfRange
from headrace.base.outside import OffsetsLost
from headrace.connect.embedded.boundaries import EpochBoundaries
from headrace.connect.embedded.creation import topic_of_source
from headrace.connect.source import Bounds, OffsetRange, Source, SourceReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.base.time import Clock
    from headrace.connect.topics import TopicSpec
    from headrace.log import Log, Topic
    from headrace.log.privacy.subjects import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSource(Source):
    """A topic of a log, read from its start. `partitions`: how many a topic that must be created gets."""

    log: Log
    topic: TopicSpec
    partitions: int

    @property
    def identity(self) -> str:
        """The topic's name: a log may move."""
        return f"topic:{self.topic.name}"

    def prepare(self, *, clock: Clock) -> None:
        """Create the topic or check it.

        Raises:
            TopicDiffers: it has other columns, or the rows of one key of a table may be in several of its partitions.

        """
        del clock  # the log has its own
        topic_of_source(self.log, self.topic, self.partitions)

    def key_origins(self) -> Sequence[Origin]:
        """Return where the keys of its private columns are."""
        return self.log.topic(self.topic.name).key_owners if self.topic.private else ()

    def open(self, *, clock: Clock) -> EmbeddedReader:
        """Return a reader of the topic."""
        del clock
        return EmbeddedReader(self.log, self.topic)


class EmbeddedReader(SourceReader):
    """Reads a topic in place: batches rest on mapped files."""

    poll_seconds = 0.0  # the ends of a topic are in mapped memory: asking costs microseconds

    def __init__(self, log: Log, topic: TopicSpec) -> None:
        self.log = log
        self.name = topic.name
        self.time_is_known = topic.sent_time is None and topic.event_time in (None, self._declared_time())
        self.together = f"log:{log.path}"
        self.boundaries = EpochBoundaries(log)

    def _declared_time(self) -> str | None:
        return self.log.topic(self.name).event_time if self.log.has_topic(self.name) else None

    @property
    def topic(self) -> Topic:
        """The topic."""
        return self.log.topic(self.name)

    def bounds(self) -> Bounds:
        """Return the offsets of the topic's partitions; none while there is no topic."""
        if not self.log.has_topic(self.name):
            return Bounds({}, {})
        ends, starts = self.topic.end_offsets(), self.topic.start_offsets()
        return Bounds({str(p): start for p, start in starts.items()}, {str(p): end for p, end in ends.items()})

    def align(
        self, ranges: Sequence[OffsetRange], bounds: Mapping[str, Bounds], peers: Mapping[str, SourceReader]
    ) -> Sequence[OffsetRange]:
        """Return ranges that hold whole epochs of the apps that published them, across all topics of the log."""
        topics = {step: peer.name for step, peer in peers.items() if isinstance(peer, EmbeddedReader)}
        ends = self.boundaries.ends(
            [(topics[each.source], int(each.partition)) for each in ranges],
            [each.start for each in ranges],
            [each.end for each in ranges],
            [bounds[each.source].end[each.partition] for each in ranges],
        )
        return [replace(each, end=end) for each, end in zip(ranges, ends, strict=True)]

    def read(self, part: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range without copying them; private columns stay sealed."""
        number = int(part.partition)
        try:
            return self.topic.batches(number, part.start, part.end, columns=columns, sealed=True)
        except OffsetOutOfRange as error:
            earliest = self.topic.start_offsets().get(number, 0)
            if earliest <= part.start:
                raise
            raise OffsetsLost(self.name, part.partition, start=part.start, earliest=earliest) from error

    def max_event_time(self, part: OffsetRange) -> int | None:
        """Return the greatest event time of a range, where the log's time index knows it."""
        return self.topic.max_time(int(part.partition), part.start, part.end) if self.time_is_known else None

    def lost(self, partition: str, start: int, end: int) -> int:
        """Return what retention took; compaction takes only what a later record replaced."""
        del partition
        rules = self.topic.settings
        bounded = rules["retention"] is not None or rules["retention_bytes"] is not None
        return end - start if bounded or rules["cleanup"] != "compact" else 0
