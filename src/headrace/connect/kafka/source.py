"""A topic of a Kafka cluster as a source."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, runtime_checkable

from headrace.base.errors import HeadraceError
from headrace.base.outside import OffsetsBeyondEnd, SourceReplaced
from headrace.base.time import SystemClock
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.reading.raw_columns import EARLIEST, LATEST, OldFormat
from headrace.connect.kafka.reading.topic_reader import ReaderName, TopicReader, reader_of
from headrace.connect.kafka.whole_epochs import MarkedEpochs
from headrace.connect.source import Bounds, OffsetRange, Source, SourceReader, moved, with_read

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.base.time import Clock
    from headrace.connect.kafka.address import KafkaAddress
    from headrace.connect.topics import TopicSpec

logger = logging.getLogger("headrace.kafka")

Isolation = Literal["read_committed", "read_uncommitted"]

_CLOCK = SystemClock()  # the network takes real time, whatever clock an app has
_DESCRIBED_SECONDS = 1.0
"""How long it may take until a new partition is noticed; a request more each time."""
_SHORTER_SECONDS = 2.0
"""How long an end may be below what it was: a new leader learns it from its followers."""
_TABLE = {"cleanup.policy": "compact"}
_DATED_BY = {
    "broker": {"message.timestamp.type": "LogAppendTime"},
    "sender": {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"},
}
_POLL_SECONDS = 0.05
_PROBE = 100
"""How many offsets are read first to find when a record was stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSource(Source):
    """A topic of a cluster; `topic` is its name without the prefix of the address.

    `spec`: what an app declares: `prepare` then creates the topic if it is missing, with so many `partitions` (None:
    the cluster's number). `group`: the consumer group that shows how far it was read; None: no group does.
    `reader`: None chooses the fast one where it can serve the address. `start`: where a new app begins, as `topic` in
    this folder says; a time is in milliseconds.
    """

    address: KafkaAddress
    topic: str
    spec: TopicSpec | None = None
    partitions: int | None = None
    isolation: Isolation = "read_committed"
    reader: ReaderName | None = None
    group: str | None = None
    dated_by: Literal["broker", "sender"] = "broker"
    start: int | Literal["earliest", "latest"] = "earliest"
    dates_records: ClassVar[bool] = True  # type: ignore[misc] # a constant, not a field
    undecoded: ClassVar[bool] = True  # type: ignore[misc] # a constant, not a field

    @property
    def identity(self) -> str:
        """The topic's name in the cluster; not the address, since a cluster may move."""
        return f"kafka:{self.name}"

    @property
    def name(self) -> str:
        """The topic's name in the cluster."""
        return self.address.cluster_name(self.topic)

    @property
    def is_committed(self) -> bool:
        """Whether only what is committed is read."""
        return self.isolation == "read_committed"

    def prepare(self, *, clock: Clock) -> None:
        """Create the topic if it is to be created, or check that it is there.

        In a topic that is created, records get the time of their arrival (`message.timestamp.type=LogAppendTime`),
        unless it is `dated_by` their sender; a table's topic is compacted.

        Raises:
            TopicMissing: there is none, and it is not to be created.
            TopicRefused: the cluster does not create it as it is asked for.

        """
        del clock
        if self.spec is None:
            cluster(self.address).topic(self.name)
        elif not self.instance():
            settings = _DATED_BY[self.dated_by] | (_TABLE if self.spec.upserts else {})
            cluster(self.address).create(self.name, partitions=self.partitions, settings=settings)

    def instance(self) -> str:
        """Return the ids of the cluster and of the topic; an empty text if there is no topic."""
        found = cluster(self.address).describe([self.name]).get(self.name)
        return f"{cluster(self.address).id}/{found.id}" if found is not None else ""

    def open(self, *, clock: Clock) -> KafkaReader:
        """Return a reader; it connects when it is first used."""
        return KafkaReader(self, patient=isinstance(clock, SystemClock))


@runtime_checkable
class _Epochs(Protocol):
    """A reader that can tell which leader wrote a record."""

    def epoch_before(self, partition: int, offset: int) -> int | None: ...


class KafkaReader(SourceReader):
    """Reads a topic. Connections stay open between ranges and epochs."""

    def __init__(self, source: KafkaSource, *, patient: bool = True) -> None:
        self.source = source
        self.poll_seconds = _POLL_SECONDS if patient else 0.0  # a clock that a test moves stands still in between
        self._topic: TopicReader | None = None
        self._described = float("-inf")
        self._ends: dict[str, int] = {}
        self._latest: dict[str, int] = {}
        self._progress = _Progress(source) if source.group is not None else None
        self._epochs = MarkedEpochs(source.address)
        self.known_at = float("-inf")
        """When `bounds` has last asked the cluster, in seconds of the machine's clock."""
        if source.is_committed:
            self.together = f"kafka:{source.address.servers}/{source.address.prefix}"

    @property
    def topic(self) -> TopicReader:
        """What reads the topic."""
        if self._topic is None:
            source = self.source
            self._topic = reader_of(source.address, source.name, committed=source.is_committed, wanted=source.reader)
        return self._topic

    def knows_its_topic(self) -> bool:
        """Whether the topic of this name is the one that it has read so far."""
        try:
            return self.topic.exists(again=True)
        except SourceReplaced:
            return False

    def bounds(self) -> Bounds:
        """Return the bounds of the topic's partitions; empty while there is no topic.

        The end is the last stable offset, or with `read_uncommitted` the high watermark.

        Raises:
            SourceReplaced: the topic was deleted, perhaps created again.
            OffsetsBeyondEnd: a partition ends before it did.
            Unavailable: the cluster does not answer.

        """
        now = _CLOCK.monotonic()
        again = now - self._described >= _DESCRIBED_SECONDS
        if not self.topic.exists(again=again):
            return Bounds({}, {})
        if again:
            self._described = now
            if self._progress is not None:
                self._progress.try_again()
        earliest, ends = self._offsets()
        until = now + _SHORTER_SECONDS
        while self._shorter(ends) is not None and _CLOCK.monotonic() < until:
            _CLOCK.sleep(0.1)
            earliest, ends = self._offsets()
        shorter = self._shorter(ends)
        if shorter is not None:
            read = self._ends[shorter]
            raise OffsetsBeyondEnd(self.source.name, shorter, read=read, end=ends.get(shorter, 0))
        self._ends = dict(ends)
        self.known_at = _CLOCK.monotonic()
        return Bounds(earliest, ends)

    def _offsets(self) -> tuple[dict[str, int], dict[str, int]]:
        earliest, ends = self.topic.offsets(EARLIEST, LATEST)
        return {str(p): each for p, each in earliest.items()}, {
            str(p): max(each, earliest[p]) for p, each in ends.items()
        }

    def _shorter(self, ends: Mapping[str, int]) -> str | None:
        return next((partition for partition, end in self._ends.items() if ends.get(partition, 0) < end), None)

    def starts(self, partitions: Collection[str], *, fresh: bool) -> Mapping[str, int] | None:
        """Return where reading begins in partitions that were not read yet; None: with their first records.

        "latest" is the end at the first call. Partitions that are added later are read from their first records; with
        a time, from that time.
        """
        if self.source.start == "earliest" or (self.source.start == "latest" and not fresh):
            return None
        if not self.topic.exists():
            return {}
        if self.source.start != "latest":
            # the ends first: a record that comes in between is read
            ends, at = self.topic.offsets(LATEST, self.source.start)
            return {p: at[int(p)] if at.get(int(p), -1) >= 0 else ends.get(int(p), 0) for p in partitions}
        if not self._latest:
            self._latest = self._offsets()[1]
        return {p: self._latest.get(p, 0) for p in partitions}

    def read(self, part: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range that a reader of this isolation sees.

        `_appended` is the time of the broker's clock where the topic has LogAppendTime; else the greatest time of a
        record of the range so far.

        Raises:
            OffsetsLost: retention removed the first ones.
            OffsetsBeyondEnd: the partition was truncated.
            SourceReplaced: the topic was deleted, perhaps created again.
            RecordsDamaged: a checksum is wrong.
            Unavailable: the cluster does not answer.

        """
        at, number = part.start, int(part.partition)
        try:
            for batch in self.topic.read(number, at, part.end, _with_offset(columns)):
                at = batch.column(batch.num_columns - 1)[batch.num_rows - 1].as_py() + 1
                yield batch.select(list(columns))
        except OldFormat:
            logger.info('the topic "%s" has records in an old format: librdkafka reads it', self.source.name)
            self.topic.close()
            self._topic = reader_of(
                self.source.address, self.source.name, committed=self.source.is_committed, wanted="librdkafka"
            )
            yield from self._topic.read(number, at, part.end, columns)

    def align(
        self, ranges: Sequence[OffsetRange], bounds: Mapping[str, Bounds], peers: Mapping[str, SourceReader]
    ) -> Sequence[OffsetRange]:
        """Return ranges of whole epochs of the apps and feeds that published the records, across these topics.

        Of epochs that are longer ago than an hour, the cluster may no longer know where they begin and end.
        """
        if self.together is None:
            return ranges
        readers = {step: peer for step, peer in peers.items() if isinstance(peer, KafkaReader)}
        every = with_read(ranges, bounds, readers)
        ends = self._epochs.ends(
            [(readers[offsets.source].source.name, int(offsets.partition)) for offsets in every],
            [offsets.start for offsets in every],
            [offsets.end for offsets in every],
            [bounds[offsets.source].end[offsets.partition] for offsets in every],
            known_at=max(reader.known_at for reader in readers.values()),
        )
        return moved(ranges, every, ends)

    def append_time(self, part: OffsetRange) -> int | None:
        """Return `_appended` of a range's first record, from a few records where that suffices."""
        probe = OffsetRange(
            source=part.source,
            partition=part.partition,
            start=part.start,
            end=min(part.end, part.start + _PROBE),
        )
        found = super().append_time(probe)
        return super().append_time(part) if found is None and probe.end < part.end else found

    def mark(self, partition: str, offset: int) -> str | None:
        """Return the epoch of the leader that wrote the record before an offset.

        After an unclean election other records have these offsets, and a later epoch. librdkafka does not tell it.
        """
        if not isinstance(self.topic, _Epochs) or not self.topic.exists():
            return None
        try:
            epoch = self.topic.epoch_before(int(partition), offset)
        except OldFormat:  # these batches have no epoch
            return None
        return None if epoch is None else f"epoch {epoch}"

    def lost(self, partition: str, start: int, end: int) -> int:
        """Return how many offsets retention removed; compaction removes only records that a later one replaced."""
        del partition
        policy = cluster(self.source.address).settings(self.source.name).get("cleanup.policy", "delete")
        return end - start if "delete" in policy else 0

    def committed(self, ends: Mapping[str, int]) -> None:
        """Store the offsets in the consumer group, beside the epochs: what fails, and may pass, is tried again."""
        if self._progress is not None:
            self._progress.reached(ends)

    def close(self) -> None:
        """Close the connections, when the last offsets are stored in the group."""
        if self._progress is not None:
            self._progress.close()
        self._epochs.close()
        if self._topic is not None:
            self._topic.close()
            self._topic = None


class _Progress:
    """Stores how far a topic was read in a consumer group, in a thread, so that no epoch waits for it."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._ends: Mapping[str, int] = {}
        self._stored: Mapping[str, int] = self._ends
        self._pool: ThreadPoolExecutor | None = None
        self._failed = False

    def reached(self, ends: Mapping[str, int]) -> None:
        self._ends = dict(ends)
        self._submit(again=False)

    def try_again(self) -> None:
        """Store what failed, and may pass: after the last epoch no other one does it.

        Another process may run the app by now, and have stored more: what the group has already is left as it is.
        """
        if self._failed:
            self._failed, self._ends = False, dict(self._ends)
            self._submit(again=True)

    def _submit(self, *, again: bool) -> None:
        self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="kafka-group")
        self._pool.submit(self._store, again=again)

    def _store(self, *, again: bool) -> None:
        ends, group = self._ends, self._source.group
        if ends is self._stored or group is None:  # a call that waited behind another
            return
        self._stored = ends
        offsets = {(self._source.name, int(partition)): end for partition, end in ends.items()}
        at, name = cluster(self._source.address), self._source.address.cluster_name(group)
        try:
            if again:
                there = at.group_offsets(name)
                offsets = {each: end for each, end in offsets.items() if end > there.get(each, -1)}
            if offsets:
                at.set_group_offsets(name, offsets)
        except HeadraceError as error:
            self._failed = error.may_pass
            logger.warning('the group "%s" does not show how far it was read: %s', group, error.what)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None


def _with_offset(columns: Sequence[str]) -> list[str]:
    return [*(name for name in columns if name != "_offset"), "_offset"]
