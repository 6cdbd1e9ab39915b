"""Topics of the embedded log as sinks: an epoch's rows are appended once, then marked as published together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.schema import TIMESTAMP
from headrace.connect.decoding import DEAD, dead_letters
from headrace.connect.embedded.boundaries import BoundaryWriter
from headrace.connect.embedded.creation import dead_topic, topic_of_sink
from headrace.connect.sink import Form, Guarantee, SharedSink, SharedWriter, SinkWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.base.time import Clock
    from headrace.connect.sink import Sink
    from headrace.connect.topics import TopicSpec
    from headrace.log import Log, Topic
    from headrace.log.privacy.subjects import Origin

DEAD_LETTERS = "dead:"
"""The names of sinks that take dead letters begin so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSink(SharedSink):
    """A topic of a log. `dead`: it is the topic of another's dead letters, made when the first one is there."""

    log: Log
    topic: TopicSpec
    partitions: int
    fault: Callable[[str], None]
    origins: tuple[Origin, ...] = ()
    dead: bool = False

    @property
    def takes_tokens(self) -> bool:  # type: ignore[override] # an answer that never changes
        """Whoever reads the topic finds the keys."""
        return True

    @property
    def form(self) -> Form:
        """A table is written as its changelog."""
        return "changelog" if self.topic.changelog else "rows"

    @property
    def writer_group(self) -> str:
        """The log."""
        return f"log:{self.log.path}"

    def prepare(self, *, clock: Clock) -> None:
        """Create the topic or check it."""
        del clock
        if not self.dead:
            self.opened()

    def opened(self) -> Topic:
        """Return the topic, created if it is missing."""
        if self.dead:
            return dead_topic(self.log, self.topic.name)
        return topic_of_sink(self.log, self.topic, self.partitions, self.origins)

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer of this topic alone."""
        del clock
        app, _, name = writer.rpartition("/")
        return _Alone(name, TopicsWriter(self.log, {name: self}, app, self.fault))

    def open_together(self, sinks: Mapping[str, Sink], *, writer: str, clock: Clock) -> SharedWriter:
        """Return the writer of all topics of an app in this log."""
        del clock
        topics = {name: sink for name, sink in sinks.items() if isinstance(sink, EmbeddedSink)}
        return TopicsWriter(self.log, topics, writer, self.fault)


class TopicsWriter(SharedWriter):
    """Appends epochs to topics. A topic remembers the epoch of each producer, so a repetition appends nothing."""

    guarantee: Guarantee = "exactly_once"

    def __init__(self, log: Log, sinks: Mapping[str, EmbeddedSink], writer: str, fault: Callable[[str], None]) -> None:
        self.log = log
        self.writer = writer
        self.fault = fault
        self.sinks = sinks
        self.topics = {name: sink.opened() for name, sink in sinks.items() if not sink.dead}
        self.boundaries = BoundaryWriter(log, writer)
        self.boundaries.register(self.topics.values())

    def last_epoch(self) -> int | None:
        """Return None: each topic knows for itself which epochs it has."""
        return None

    def publish(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        """Append rows to their topics, mark the epoch as published, then append dead letters."""
        offsets: dict[str, Mapping[int, range]] = {}
        for name, batches in rows.items():
            if name in self.topics:
                if offsets:
                    self.fault("between_topics")
                offsets[self.topics[name].name] = self._append(name, pa.Table.from_batches(batches), epoch)
        if offsets:
            self.fault("before_mark")
            self.boundaries.write(epoch, offsets)
        for name, batches in rows.items():
            if name not in self.topics:
                letters = pa.Table.from_batches(batches).select(DEAD.names)
                self.sinks[name].opened().append(letters, producer=self._producer(name), sequence=epoch)

    def _append(self, name: str, rows: pa.Table, epoch: int) -> Mapping[int, range]:
        """Append rows to a topic; rows without a key, which a compacted topic refuses, to its dead letters."""
        topic, producer = self.topics[name], self._producer(name)
        rows, dead = split_keyless(topic, rows)
        offsets = topic.append(_timed(rows), producer=producer, sequence=epoch)
        if dead is not None:
            dead_topic(self.log, topic.name).append(dead, producer=producer, sequence=epoch)
        return offsets

    def _producer(self, name: str) -> str:
        return f"{self.writer}/{name}"

    def close(self) -> None:
        """Do nothing: the log is closed by who opened it."""


class _Alone(SinkWriter):
    """One topic's writer."""

    guarantee: Guarantee = "exactly_once"

    def __init__(self, name: str, writer: TopicsWriter) -> None:
        self.name, self.writer = name, writer

    def last_epoch(self) -> int | None:
        return None

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        self.writer.publish(epoch, {self.name: rows})

    def close(self) -> None:
        self.writer.close()


def split_keyless(topic: Topic, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
    """Return the rows that a topic takes, and the dead letters of those that it refuses for want of a key.

    A null in a group's key makes a group like any other, but no record of a compacted topic.
    """
    if topic.cleanup != "compact" or not all(rows.column(name).null_count for name in topic.key):
        return rows, None
    absent = pc.is_null(rows.column(topic.key[0]))
    for name in topic.key[1:]:
        absent = pc.and_(absent, pc.is_null(rows.column(name)))
    bad = rows.filter(absent)
    if not bad.num_rows:
        return rows, None
    reason = f"no key: {', '.join(topic.key)} is null, and the topic is compacted"
    nowhere = pa.nulls(bad.num_rows, pa.int32()), pa.nulls(bad.num_rows, pa.int64())
    reasons = pa.array([reason] * bad.num_rows, pa.string())
    return rows.filter(pc.invert(absent)), dead_letters(topic.name, *nowhere, reasons, bad)


def _timed(rows: pa.Table) -> pa.Table:
    """Return rows with `_time` as the log wants it; null there is now."""
    at = rows.schema.get_field_index("_time")
    times = rows.column(at).cast(pa.int64()).cast(TIMESTAMP)
    return rows.set_column(at, pa.field("_time", TIMESTAMP), times)
