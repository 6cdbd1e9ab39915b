"""A topic of the embedded log as a source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.base.errors import OffsetOutOfRange, UnknownTopic
from headrace.base.outside import OffsetsBeyondEnd, OffsetsLost, SourceReplaced
from headrace.connect.embedded.boundaries import EpochBoundaries
from headrace.connect.embedded.creation import topic_of_source
from headrace.connect.source import Bounds, OffsetRange, Source, SourceReader, moved, with_read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.base.time import Clock
    from headrace.connect.topics import TopicSpec
    from headrace.log import Log, Topic
    from headrace.log.privacy.subjects import Origin


_KIND = "topic:"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSource(Source):
    """A topic of a log, read from its start. `partitions`: their number if the topic is created."""

    log: Log
    topic: TopicSpec
    partitions: int
    dates_records: ClassVar[bool] = True  # type: ignore[misc] # a constant, not a field

    @property
    def mapped(self) -> bool:  # type: ignore[override] # an answer that never changes
        """Whether the topic has the columns themselves, and no records in a format."""
        return self.topic.format is None

    @property
    def identity(self) -> str:
        """The topic's name; not the path, since a log may be moved."""
        return f"{_KIND}{self.topic.name}"

    def prepare(self, *, clock: Clock) -> None:
        """Create the topic or check it.

        Raises:
            TopicDiffers: it has other columns, or is read as a table and one key may be in several partitions.

        """
        del clock  # the log has its own
        topic_of_source(self.log, self.topic, self.partitions)

    def instance(self) -> str:
        """Return the topic's id; an empty text if there is no topic."""
        return self.log.topic(self.topic.name).id if self.log.has_topic(self.topic.name) else ""

    def key_origins(self) -> Sequence[Origin]:
        """Return the topics that have the keys of its private columns."""
        return self.log.topic(self.topic.name).key_owners if self.topic.private else ()

    def open(self, *, clock: Clock) -> EmbeddedReader:
        """Return a reader of the topic."""
        del clock
        return EmbeddedReader(self.log, self.topic)


class EmbeddedReader(SourceReader):
    """Reads a topic without copies: batches are views of mapped files."""

    poll_seconds = 0.0  # the ends of a topic are in mapped memory: a call takes microseconds

    def __init__(self, log: Log, topic: TopicSpec) -> None:
        self.log = log
        self.name = topic.name
        self.time_is_known = topic.sent_time is None and topic.event_time in (None, self._declared_time())
        self.together = f"log:{log.path}"
        self.boundaries = EpochBoundaries(log)
        self._id: str | None = None  # of the topic that was read first
        self._ends: dict[int, int] = {}

    def _declared_time(self) -> str | None:
        return self.log.topic(self.name).event_time if self.log.has_topic(self.name) else None

    @property
    def topic(self) -> Topic:
        """The topic: the same one at each call.

        Raises:
            SourceReplaced: it was deleted, perhaps created again.

        """
        try:
            topic = self.log.topic(self.name)
        except UnknownTopic:
            if self._id is None:
                raise
            raise SourceReplaced(f'the topic "{self.name}"', gone=True) from None
        if self._id not in (None, topic.id):
            raise SourceReplaced(f'the topic "{self.name}"', gone=False)
        self._id = topic.id
        return topic

    def bounds(self) -> Bounds:
        """Return the bounds of the topic's partitions; empty while there is no topic.

        Raises:
            SourceReplaced: the topic was deleted, perhaps created again.
            OffsetsBeyondEnd: a partition ends before it did.

        """
        if self._id is None and not self.log.has_topic(self.name):
            return Bounds({}, {})
        known = self._ends  # before the log is asked: another thread may ask later, and be answered first
        return self._bounds(self.topic.end_offsets(), known)

    def settled_bounds(self) -> Bounds:
        """Return the bounds when no append is on its way; it waits for one fsync at most."""
        if self._id is None and not self.log.has_topic(self.name):
            return Bounds({}, {})
        known = self._ends
        return self._bounds(self.topic.settled_offsets(), known)

    def _bounds(self, ends: Mapping[int, int], known: Mapping[int, int]) -> Bounds:
        """Return bounds with these ends; `known` were the ends before they were read."""
        starts = self.topic.start_offsets()
        for number, end in known.items():
            if ends.get(number, 0) < end:
                raise OffsetsBeyondEnd(self.name, str(number), read=end, end=ends.get(number, 0))
        self._ends = dict(ends)
        return Bounds({str(p): start for p, start in starts.items()}, {str(p): end for p, end in ends.items()})

    def append_time(self, part: OffsetRange) -> int | None:
        """Return when the first record of a range was appended: from the index, in microseconds."""
        try:
            return self.topic.append_time(int(part.partition), part.start, part.end)
        except OffsetOutOfRange:
            return None  # retention removed it a moment ago

    def align(
        self, ranges: Sequence[OffsetRange], bounds: Mapping[str, Bounds], peers: Mapping[str, SourceReader]
    ) -> Sequence[OffsetRange]:
        """Return ranges of whole epochs of the apps that published the records, across all topics of the log."""
        topics = {step: peer.name for step, peer in peers.items() if isinstance(peer, EmbeddedReader)}
        every = with_read(ranges, bounds, topics)
        ends = self.boundaries.ends(
            [(topics[offsets.source], int(offsets.partition)) for offsets in every],
            [offsets.start for offsets in every],
            [offsets.end for offsets in every],
            [bounds[offsets.source].end[offsets.partition] for offsets in every],
            topics.values(),
        )
        return moved(ranges, every, ends)

    def read(self, part: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return the records of a range without copying them; private columns stay sealed."""
        number = int(part.partition)
        try:
            return self.topic.batches(number, part.start, part.end, columns=columns, sealed=True)
        except OffsetOutOfRange as error:
            earliest = self.topic.start_offsets().get(number, 0)
            if earliest <= part.start:
                raise
            raise OffsetsLost(self.name, part.partition, start=part.start, earliest=earliest) from error

    def max_event_time(self, part: OffsetRange) -> int | None:
        """Return the greatest event time of a range, if the log's time index has it."""
        return self.topic.max_time(int(part.partition), part.start, part.end) if self.time_is_known else None

    def mark(self, partition: str, offset: int) -> str | None:
        """Return when the record before an offset was appended, and a checksum of its batch."""
        return self.topic.mark(int(partition), offset)

    def lost(self, partition: str, start: int, end: int) -> int:
        """Return how many records retention removed; compaction removes only records that a later one replaced."""
        del partition
        rules = self.topic.settings
        bounded = rules["retention"] is not None or rules["retention_bytes"] is not None
        return end - start if bounded or rules["cleanup"] != "compact" else 0


def what_differs(
    log: Log, identity: str, instance: str | None, *, offsets: Mapping[str, int], marks: Mapping[str, str]
) -> str:
    """Return how a topic differs from the one that was read; nothing if it does not, or if it is in no log of ours.

    Args:
        log: where it is.
        identity: that of the source, as it was stored (`Source.identity`).
        instance: that of the topic which was read (`Source.instance`), None if nobody knows it.
        offsets: up to where each partition was read.
        marks: what told the record before an offset from others (`SourceReader.mark`), where that is known.

    """
    name = identity.removeprefix(_KIND)
    if name == identity or instance is None:
        return ""
    if not log.has_topic(name):
        return f'the topic "{name}" is gone'
    topic = log.topic(name)
    if topic.id != instance:
        return f'the topic "{name}" was deleted and created again'
    ends = topic.end_offsets()
    for partition, read in offsets.items():
        end = ends.get(int(partition), 0)
        if end < read:
            return f'the topic "{name}" was read up to offset {read} of partition {partition}, and ends at {end}'
        mark = topic.mark(int(partition), read) if partition in marks else None
        if mark not in (None, marks.get(partition)):
            return f'the topic "{name}" has another record before offset {read} of partition {partition} than was read'
    return ""
