"""What a cluster knows of the apps that write to it: by writer the last epoch, and where each topic ended after it.

A mark is a record of the compacted topic `<prefix>_headrace_marks`, written in the transaction that publishes the
epoch. So it is there exactly if the epoch's rows are. Its key is the writer, `<app>/<storage id>`; a feed's is
`feed/<topic>`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import OffsetSpec

from headrace.base.outside import Unavailable
from headrace.base.time import SystemClock
from headrace.connect.format import KEY, VALUE
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.reading.topic_reader import reader_of
from headrace.connect.kafka.writing.partitioner import murmur2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.connect.kafka.address import KafkaAddress
    from headrace.connect.kafka.reading.topic_reader import TopicReader

MARKS = "_headrace_marks"
PARTITIONS = 12
"""So many, because an unfinished transaction of one app holds up readers of the partition that its mark is in."""
_SETTINGS = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(60 * 60 * 1000),  # epochs that readers may still have to keep whole
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
NEVER = -1
CLOCK = SystemClock()
_UNFINISHED_SECONDS = 90.0
_TAIL = 2_000
"""So many records at the end of the partition are read first: a writer that ran lately is among them."""
_POSITIVE = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Written:
    """What a writer has written to a topic: the topic's id, its ends by partition, and the last epoch with rows.

    `starts`: where that epoch begins, in the partitions that have rows of it.
    """

    id: str
    epoch: int
    ends: Mapping[int, int] = field(default_factory=dict)
    starts: Mapping[int, int] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        ends, starts = ({str(p): at for p, at in offsets.items()} for offsets in (self.ends, self.starts))
        return {"id": self.id, "epoch": self.epoch, "ends": ends, "starts": starts}

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Written:
        """Return what `plain` returned; marks of earlier releases have no starts."""
        ends, starts = ({int(p): at for p, at in plain.get(name, {}).items()} for name in ("ends", "starts"))
        return Written(plain["id"], plain["epoch"], ends, starts)


@dataclass(frozen=True, slots=True)
class Mark:
    """What a writer has published: the last epoch, by cluster name what each topic got, a feed's position.

    `instance` is drawn when a writer is opened: a mark with another one is of a newer process. `at` is when it was
    written, in microseconds.
    """

    writer: str
    epoch: int = NEVER
    instance: str = ""
    at: int = 0
    topics: Mapping[str, Written] = field(default_factory=dict)
    position: bytes | None = None
    feed: str | None = None

    def key(self) -> bytes:
        """Return the record's key."""
        return self.writer.encode()

    def value(self) -> bytes:
        """Return the record's value."""
        topics = {name: written.plain() for name, written in self.topics.items()}
        about: dict[str, Any] = {"epoch": self.epoch, "instance": self.instance, "at": self.at, "topics": topics}
        if self.feed is not None:
            about |= {"feed": self.feed, "position": None if self.position is None else self.position.hex()}
        return json.dumps(about).encode()

    @staticmethod
    def parse(key: bytes, value: bytes) -> Mark:
        """Return the mark that a record holds."""
        about = json.loads(value)
        topics = {name: Written.of(each) for name, each in about["topics"].items()}
        position = about.get("position")
        return Mark(
            writer=key.decode(),
            epoch=about["epoch"],
            instance=about["instance"],
            at=about["at"],
            topics=topics,
            position=None if position is None else bytes.fromhex(position),
            feed=about.get("feed"),
        )

    def after(self, epoch: int, instance: str, written: Mapping[str, Written]) -> Mark:
        """Return the mark after one more epoch."""
        return replace(self, epoch=epoch, instance=instance, topics={**self.topics, **written})


def ensure_marks(address: KafkaAddress) -> None:
    """Create the topic of marks if it is missing."""
    name, at = address.cluster_name(MARKS), cluster(address)
    if not at.describe([name]):
        at.create(name, partitions=PARTITIONS, settings=_SETTINGS)


def partition_of(writer: str, partitions: int) -> int:
    """Return in which partition a writer's marks are."""
    return (murmur2(writer.encode()) & _POSITIVE) % partitions


def read_mark(address: KafkaAddress, writer: str, *, complete: bool = True) -> Mark | None:
    """Return the last mark of a writer, None where it has none.

    Args:
        address: the cluster.
        writer: the writer's name.
        complete: whether everything is seen that was written before the call and is committed: it then waits for
            transactions that are unfinished in this partition, of other writers too. Else what is to be seen at once.

    Raises:
        Unavailable: the cluster does not answer, or a transaction there is unfinished for long.

    """
    name = address.cluster_name(MARKS)
    topic = cluster(address).describe([name]).get(name)
    if topic is None:
        return None
    number = partition_of(writer, topic.partitions)
    start, end = _span(address, name, number, complete=complete)
    for first in sorted({max(start, end - _TAIL), start}, reverse=True):
        found = None
        for key, value in _records(address, name, number, first, end):
            if key == writer.encode():
                found = None if value is None else Mark.parse(key, value)
        if found is not None:
            return found
    return None


def marks_of(address: KafkaAddress, app: str) -> tuple[Mark, ...]:
    """Return what an app has published to a cluster, by storage; the one that published last comes last.

    Raises:
        Unavailable: the cluster does not answer.

    """
    return tuple(mark for mark in _all(address) if mark.writer.startswith(f"{app}/"))


def writers_of(address: KafkaAddress, name: str) -> set[str]:
    """Return the names of the apps that have written to a topic, and "feed" where a feed has; `name`: in the cluster.

    Raises:
        Unavailable: the cluster does not answer.

    """
    return {mark.writer.partition("/")[0] for mark in _all(address) if name in mark.topics}


def _all(address: KafkaAddress) -> list[Mark]:
    """Return the last mark of every writer; the one that was written last comes last."""
    name = address.cluster_name(MARKS)
    topic = cluster(address).describe([name]).get(name)
    found: dict[bytes, Mark] = {}
    for number in range(0 if topic is None else topic.partitions):
        for key, value in _records(address, name, number, *_span(address, name, number)):
            found.pop(key, None)
            if value is not None:
                found[key] = Mark.parse(key, value)
    return sorted(found.values(), key=lambda mark: mark.at)


def _span(address: KafkaAddress, name: str, number: int, *, complete: bool = True) -> tuple[int, int]:
    """Return from where to where a partition can be read; `complete`: once all is finished that has begun there."""
    at, part = cluster(address), (name, number)
    end = at.offsets([part], at=OffsetSpec.latest(), committed=not complete)[part]
    until = CLOCK.monotonic() + _UNFINISHED_SECONDS
    while complete and at.offsets([part], at=OffsetSpec.latest())[part] < end:
        if CLOCK.monotonic() > until:
            raise Unavailable(
                f"the topic {name} of Kafka at {address.servers} has an unfinished transaction in partition {number}",
                detail="It is of a process that died, and the broker ends it after its transaction.timeout.ms.",
            )
        CLOCK.sleep(0.02)
    return at.offsets([part], at=OffsetSpec.earliest())[part], end


def _records(
    address: KafkaAddress, name: str, number: int, start: int, end: int
) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield keys and values of the committed records of a range."""
    if start >= end:
        return
    reader = reader_of(address, name, committed=True)
    try:
        yield from records_of(reader, number, start, end)
    finally:
        reader.close()


def records_of(reader: TopicReader, number: int, start: int, end: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield keys and values of a range of the topic of marks."""
    for batch in reader.read(number, start, end, [KEY, VALUE]):
        for key, value in zip(batch.column(KEY).to_pylist(), batch.column(VALUE).to_pylist(), strict=True):
            yield key or b"", value
