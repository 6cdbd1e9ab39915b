"""Epoch boundaries across topics: what an app published together is read together.

After an app has published an epoch to topics, it appends the epoch's boundaries: for each partition the offsets
`[first, last)` of the epoch. An app that reads several of these topics ends its own epochs at these boundaries, never
between them. So values that are consistent in one app stay consistent in the next, over any number of topics. Records
that a crash kept from being published completely are not read before the app is back and has finished the epoch.

Boundaries are stored in the log's topic `__epochs`, which is not listed. Records of other producers are read as they
come.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import TopicExists
from headrace.connect.whole_epochs import SCHEMA, PublishedEpochs, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.connect.whole_epochs import TopicPartition
    from headrace.log import Log, Topic

TOPIC = "__epochs"
RETENTION = "7 days"
"""How long boundaries are kept. Older records are read without them: a reader that is further behind may cut epochs."""

_REGISTRATION = -1  # the "epoch" of a row that says from where on an app writes boundaries
_BATCH_ROWS = 1_000_000


def producer(app: str, topic: str) -> str:
    """Return the name under which an app (its name and storage's identity) appends to a topic."""
    return f"{app}/topic:{topic}"


def writers(log: Log, topic: str) -> set[str]:
    """Return the names of the apps that have written to a topic, as far as its boundaries are kept."""
    if not log.has_topic(TOPIC):
        return set()
    marks = log.topic(TOPIC)
    start, end = marks.start_offsets()[0], marks.end_offsets()[0]
    rows = marks.read(0, start, max(end - start, 1))
    apps = rows.filter(pc.equal(rows.column("topic"), topic)).column("app")
    return {app.partition("/")[0] for app in apps.unique().to_pylist()}


# ---- the app that publishes ----


@dataclass
class BoundaryWriter:
    """Writes the boundaries of an app's epochs to its log. `app`: its name and its storage's identity."""

    log: Log
    app: str
    _topic: Topic | None = field(default=None, init=False)
    _published: dict[str, dict[int, int]] = field(default_factory=dict, init=False)

    def published(self, topic: str) -> Mapping[int, int]:
        """Return by partition the end of what the boundaries said of a topic when this writer was registered."""
        return self._published.get(topic, {})

    def register(self, topics: Iterable[Topic]) -> None:
        """Store, before anything is published to a topic, from which offsets on this app writes boundaries there.

        An earlier storage of the app (it was reset or lost) will never finish its last epoch. Its unfinished records
        are therefore registered as complete, so that they can be read.
        """
        topics = list(topics)
        if not topics:
            return
        stored = self._stored_ends()
        self._published = {topic.name: stored.get((self.app, topic.name), {}) for topic in topics}
        rows = [
            self._row(_REGISTRATION, topic.name, partition, range(end, end))
            for topic in topics
            if (self.app, topic.name) not in stored
            for partition, end in topic.end_offsets().items()
        ]
        by_name = {topic.name: topic for topic in topics}
        for (app, name), ends in stored.items():
            if app != self.app and app.partition("/")[0] == self.app.partition("/")[0] and name in by_name:
                rows += self._completed(app, by_name[name], ends)
        if rows:
            self._boundaries().append(rows)

    def _stored_ends(self) -> dict[tuple[str, str], dict[int, int]]:
        """Return by app and topic the end of each partition's last boundary."""
        boundaries = self._boundaries()
        start, end = boundaries.start_offsets()[0], boundaries.end_offsets()[0]
        rows = boundaries.read(0, start, max(end - start, 1))
        ends: dict[tuple[str, str], dict[int, int]] = {}
        for row in rows.group_by(["app", "topic", "partition"]).aggregate([("last", "max")]).to_pylist():
            ends.setdefault((row["app"], row["topic"]), {})[row["partition"]] = row["last_max"]
        return ends

    def _completed(self, app: str, topic: Topic, ends: Mapping[int, int]) -> list[dict[str, object]]:
        """Return registrations at the topic's end, for partitions where an app has records after its boundaries."""
        name = producer(app, topic.name)
        return [
            self._row(_REGISTRATION, topic.name, partition, range(end, end)) | {"app": app}
            for partition, end in topic.end_offsets().items()
            if topic.first_of([name], partition, ends.get(partition, 0), end) is not None
        ]

    def write(self, epoch: int, offsets: Mapping[str, Mapping[int, range]]) -> None:
        """Write an epoch's boundaries: its offsets by topic and partition. A repetition changes nothing."""
        rows = [
            self._row(epoch, topic, partition, span)
            for topic, by_partition in offsets.items()
            for partition, span in by_partition.items()
            if len(span)
        ]
        if rows:
            self._boundaries().append(rows, producer=f"{self.app}/epochs", sequence=epoch)

    def _row(self, epoch: int, topic: str, partition: int, offsets: range) -> dict[str, object]:
        where = {"topic": topic, "partition": partition, "first": offsets.start, "last": offsets.stop}
        return {"app": self.app, "epoch": epoch, **where}

    def _boundaries(self) -> Topic:
        if self._topic is None:
            if not self.log.has_topic(TOPIC):
                with suppress(TopicExists):  # another app may be starting
                    self.log.create_topic(TOPIC, SCHEMA, partitions=1, retention=RETENTION)
            self._topic = self.log.topic(TOPIC)
        return self._topic


# ---- the app that reads ----


@dataclass
class EpochBoundaries:
    """Where the ranges of a reader's epoch may end: between the epochs of the apps that published the records."""

    log: Log
    _read: int = field(default=0, init=False)
    _epochs: PublishedEpochs = field(default_factory=PublishedEpochs, init=False)
    _boundary_ends: dict[TopicPartition, int] = field(default_factory=dict, init=False)
    _apps: dict[str, set[str]] = field(default_factory=dict, init=False)

    def ends(
        self,
        partitions: Sequence[TopicPartition],
        starts: Sequence[int],
        wanted: Sequence[int],
        limits: Sequence[int],
        topics: Iterable[str] = (),
    ) -> list[int]:
        """Return the end offset of each partition's range, so that all ranges together hold whole epochs.

        The least such ends: beyond `wanted` only where an epoch has more records.

        Args:
            partitions: the partitions that are read.
            starts: where their ranges start; must not go back from call to call.
            wanted: where they should end.
            limits: where they may end at most: the ends of the partitions.
            topics: further ones that are read, which did not exist yet when the limits were asked for.

        """
        if not partitions or not self.log.has_topic(TOPIC):
            return list(wanted)
        self._catch_up({*topics, *(topic for topic, _ in partitions)})
        finished = list(limits)
        for index, first in self._unfinished(partitions, starts, limits):
            finished[index] = min(finished[index], first)
        return self._epochs.whole(partitions, starts, wanted, finished)

    def _catch_up(self, topics: set[str]) -> None:
        """Read the boundaries that were written since the last call, of some topics."""
        topic = self.log.topic(TOPIC)
        while topic.end_offsets()[0] > max(self._read, topic.start_offsets()[0]):
            fresh = topic.read(0, max(self._read, topic.start_offsets()[0]), _BATCH_ROWS)
            self._read = fresh.column("_offset")[-1].as_py() + 1
            rows = fresh.select(SCHEMA.names).filter(pc.is_in(fresh.column("topic"), pa.array(sorted(topics))))
            if not rows.num_rows:  # most are of topics that this app writes
                continue
            for row in rows.group_by(["topic", "partition", "app"]).aggregate([("last", "max")]).to_pylist():
                partition = row["topic"], row["partition"]
                self._boundary_ends[partition] = max(self._boundary_ends.get(partition, 0), row["last_max"])
                self._apps.setdefault(row["topic"], set()).add(row["app"])
            self._epochs.add(rows.filter(pc.greater(rows.column("epoch"), _REGISTRATION)))

    def _unfinished(
        self, partitions: Sequence[TopicPartition], starts: Sequence[int], limits: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Return the indexes of partitions with records that have no boundary yet, and the offset of the first one."""
        found = []
        for index, (partition, start, limit) in enumerate(zip(partitions, starts, limits, strict=True)):
            topic, number = partition
            since = max(start, self._boundary_ends.get(partition, 0))
            if topic in self._apps and since < limit:
                producers = [producer(app, topic) for app in self._apps[topic]]
                first = self.log.topic(topic).first_of(producers, number, since, limit)
                if first is not None:
                    found.append((index, first))
        return found
