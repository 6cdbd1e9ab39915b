"""Epochs and appends of feeds that were published to topics of a cluster together are read together.

Each is a transaction with a mark, which says which offsets it has in each partition. A reader that sees the end of one
in a partition, but not yet in another, does not read it. The cluster makes a transaction visible partition by
partition, and its mark is written before that begins: so the marks are read after the ends, and marks whose
transactions are still being finished are waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.base.time import SystemClock
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.reading.raw_columns import EARLIEST, LATEST
from headrace.connect.kafka.reading.topic_reader import TopicReader, reader_of
from headrace.connect.kafka.writing.marks import MARKS, Mark, records_of
from headrace.connect.whole_epochs import SCHEMA, PublishedEpochs, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.connect.kafka.address import KafkaAddress

_CLOCK = SystemClock()
_FINISHED_SECONDS = 1.0
"""So long transactions are waited for that have a mark and are not visible: milliseconds, unless a process has died."""


class MarkedEpochs:
    """The epochs in the topics that one app reads from a cluster; it connects when it is first used."""

    def __init__(self, address: KafkaAddress) -> None:
        self._address = address
        self._name = address.cluster_name(MARKS)
        self._epochs = PublishedEpochs()
        self._ids: dict[str, str] = {}
        self._read: dict[int, int] = {}
        self._since = float("-inf")
        self._unfinished: set[int] = set()
        self._writers: dict[int, set[str]] = {}
        self._marked: dict[TopicPartition, int] = {}
        self._readers: tuple[TopicReader, TopicReader] | None = None

    def ends(
        self,
        partitions: Sequence[TopicPartition],
        starts: Sequence[int],
        wanted: Sequence[int],
        limits: Sequence[int],
        *,
        known_at: float,
    ) -> list[int]:
        """Return the end of each partition's range, as `PublishedEpochs.whole` does.

        Of topics with a writer whose last transaction has neither been made visible nor aborted, only what has marks
        is read.

        Args:
            partitions: topics by their names in the cluster, and numbers of partitions: all that there are.
            starts: where their ranges start.
            wanted: where they should end.
            limits: where they may end at most: what is committed.
            known_at: when the limits were known, in seconds of the machine's clock.

        Raises:
            Unavailable: the cluster does not answer.

        """
        self._begin_with({topic for topic, _ in partitions})
        now = _CLOCK.monotonic()
        if self._since < known_at:
            self._catch_up()
            self._since = now
        held = {topic for number in self._unfinished for topic in self._writers.get(number, ())}
        known = [
            min(limit, max(start, self._marked.get(partition, start))) if partition[0] in held else limit
            for partition, start, limit in zip(partitions, starts, limits, strict=True)
        ]
        return self._epochs.whole(partitions, starts, wanted, known)

    def close(self) -> None:
        """Close the connections."""
        if self._readers is not None:
            for reader in self._readers:
                reader.close()
            self._readers = None

    def _begin_with(self, topics: set[str]) -> None:
        """Read all marks again where there are topics that were not there before."""
        if unknown := topics - set(self._ids):
            found = cluster(self._address).describe(unknown)
            if found:
                self._ids |= {name: topic.id for name, topic in found.items()}
                self._epochs, self._read, self._since = PublishedEpochs(), {}, float("-inf")

    def _catch_up(self) -> None:
        """Read the marks of what was visible in some partition before this call."""
        if self._readers is None:
            both = (reader_of(self._address, self._name, committed=each) for each in (True, False))
            self._readers = next(both), next(both)
        committed, written = self._readers
        if not committed.exists():
            return
        (ends,) = written.offsets(LATEST)
        until = _CLOCK.monotonic() + _FINISHED_SECONDS
        earliest, visible = committed.offsets(EARLIEST, LATEST)
        while (late := _behind(visible, ends)) and _CLOCK.monotonic() < until:
            _CLOCK.sleep(0.002)
            (visible,) = committed.offsets(LATEST)
        self._unfinished = late
        for number, end in visible.items():
            start = max(self._read.get(number, 0), earliest.get(number, 0))
            if start < end:
                marks = records_of(committed, number, start, end)
                rows = [row for key, value in marks for row in self._rows(number, key, value)]
                self._epochs.add(pa.Table.from_pylist(rows, schema=SCHEMA))
                self._read[number] = end

    def _rows(self, number: int, key: bytes, value: bytes | None) -> Iterator[Mapping[str, Any]]:
        """Yield what a mark says of the topics that are read."""
        if value is None or not any(name.encode() in value for name in self._ids):
            return
        mark = Mark.parse(key, value)
        for topic, written in mark.topics.items():
            if written.id != self._ids.get(topic):
                continue
            self._writers.setdefault(number, set()).add(topic)
            if written.epoch == mark.epoch:
                for partition, first in written.starts.items():
                    last = written.ends[partition]
                    self._marked[topic, partition] = max(last, self._marked.get((topic, partition), 0))
                    where = {"topic": topic, "partition": partition, "first": first, "last": last}
                    yield {"app": mark.writer, "epoch": mark.epoch, **where}


def _behind(visible: Mapping[int, int], ends: Mapping[int, int]) -> set[int]:
    """Return the partitions that are not visible up to their ends."""
    return {number for number, end in ends.items() if visible.get(number, 0) < end}
