"""Topics of the embedded log as sinks: an epoch's rows are appended once, then its boundaries are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.dead_letters import DEAD, NO_KEY, dead_letters, keyless
from headrace.base.outside import OutputLost
from headrace.base.schema import TIMESTAMP
from headrace.connect.embedded.boundaries import BoundaryWriter
from headrace.connect.embedded.creation import topic_of_sink
from headrace.connect.embedded.formatted import Encoder
from headrace.connect.sink import Form, Guarantee, SharedSink, SharedWriter
from headrace.log.dead_topic import dead_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.base.time import Clock
    from headrace.connect.sink import Sink
    from headrace.connect.topics import TopicSpec
    from headrace.log import Log, Topic
    from headrace.log.privacy.subjects import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSink(SharedSink):
    """A topic of a log. `dead`: the dead-letter topic of `topic`, which is created with the first dead letter."""

    log: Log
    topic: TopicSpec
    partitions: int
    fault: Callable[[str], None]
    origins: tuple[Origin, ...] = ()
    dead: bool = False

    @property
    def guarantee(self) -> Guarantee:  # type: ignore[override] # an answer that never changes
        """A repeated epoch changes nothing."""
        return "exactly_once"

    @property
    def takes_tokens(self) -> bool:  # type: ignore[override] # a constant
        """Yes: readers of the topic find the keys."""
        return True

    @property
    def form(self) -> Form:
        """A changelog for a table, else rows."""
        return "changelog" if self.topic.changelog else "rows"

    @property
    def writer_group(self) -> str:
        """The log: its topics share a writer."""
        return f"log:{self.log.path}"

    def prepare(self, *, clock: Clock) -> None:
        """Create the topic or check it."""
        del clock
        if not self.dead or self.log.has_topic(f"{self.topic.name}.dead"):
            self.opened()

    def opened(self) -> Topic:
        """Return the topic, created if it is missing."""
        if self.dead:
            return dead_topic(self.log, self.topic.name)
        return topic_of_sink(self.log, self.topic, self.partitions, self.origins)

    def open_together(self, sinks: Mapping[str, Sink], *, writer: str, clock: Clock) -> SharedWriter:
        """Return the writer of all topics of an app in this log."""
        del clock
        topics = {name: sink for name, sink in sinks.items() if isinstance(sink, EmbeddedSink)}
        return TopicsWriter(self.log, topics, writer, self.fault)


class TopicsWriter(SharedWriter):
    """Appends epochs to topics. A topic stores the last epoch of each producer, so a repetition appends nothing."""

    def __init__(self, log: Log, sinks: Mapping[str, EmbeddedSink], writer: str, fault: Callable[[str], None]) -> None:
        self.log = log
        self.writer = writer
        self.fault = fault
        self.sinks = sinks
        self.topics = {name: sink.opened() for name, sink in sinks.items() if not sink.dead}
        self.encoders = {
            name: Encoder(sinks[name].topic, form, topic.schema)
            for name, topic in self.topics.items()
            if (form := sinks[name].topic.format) is not None
        }
        self.boundaries = BoundaryWriter(log, writer)
        self.boundaries.register(self.topics.values())

    def last_epoch(self) -> int | None:
        """Return None: each topic skips the epochs that it has."""
        return None

    def check_published(self, epochs: Mapping[str, int]) -> None:
        """Check that each topic has the last epoch that was published to it, or its dead letters have it.

        Raises:
            OutputLost: it was deleted, or restored from an older copy.

        """
        for name, epoch in epochs.items():
            topic = self.topics.get(name)
            if topic is None:
                continue
            if not any(self._has(each, name, epoch) for each in self._takers(topic)):
                raise OutputLost(f'the topic "{topic.name}" no longer has epoch {epoch}, which the app has published')
            ends = topic.end_offsets()
            for number, published in self.boundaries.published(topic.name).items():
                if ends.get(number, 0) < published:
                    where = f'the topic "{topic.name}", partition {number} ends at offset {ends.get(number, 0)}'
                    raise OutputLost(f"{where}, and the app has published up to offset {published}")

    def _takers(self, topic: Topic) -> Iterator[Topic]:
        """Yield the topics that may have the rows of an epoch: a compacted one refuses those without a key."""
        yield topic
        if topic.cleanup == "compact" and self.log.has_topic(f"{topic.name}.dead"):
            yield dead_topic(self.log, topic.name)

    def _has(self, topic: Topic, sink: str, epoch: int) -> bool:
        last = topic.last_sequence(self._producer(sink))
        return last is not None and last >= epoch

    def publish(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        """Append rows to their topics, write the epoch's boundaries, then append dead letters."""
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
        """Append rows to a topic; a compacted topic refuses rows without a key, which go to its dead letters."""
        topic, producer = self.topics[name], self._producer(name)
        rows, dead = split_keyless(topic, rows)
        if name in self.encoders:
            rows = self.encoders[name].encoded(rows)
        offsets = topic.append(_timed(rows), producer=producer, sequence=epoch)
        if dead is not None:
            dead_topic(self.log, topic.name).append(dead, producer=producer, sequence=epoch)
        return offsets

    def _producer(self, name: str) -> str:
        return f"{self.writer}/{name}"

    def close(self) -> None:
        """Do nothing: the log belongs to the caller."""


def split_keyless(topic: Topic, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
    """Return the rows that a topic accepts, and dead letters of those without a key if it is compacted.

    A group whose key is null is a valid row of a table, but not a valid record of a compacted topic.
    """
    absent = keyless(rows, topic.key) if topic.cleanup == "compact" else None
    if absent is None:
        return rows, None
    bad = rows.filter(absent)
    reason = f"{NO_KEY}: {', '.join(topic.key)} is null, and the topic is compacted"
    nowhere = pa.array([-1] * bad.num_rows, pa.int32()), pa.array([-1] * bad.num_rows, pa.int64())
    reasons = pa.array([reason] * bad.num_rows, pa.string())
    return rows.filter(pc.invert(absent)), dead_letters(topic.name, *nowhere, reasons, bad)


def _timed(rows: pa.Table) -> pa.Table:
    """Return rows with `_time` as a timestamp, the log's type; the log replaces null by the current time."""
    at = rows.schema.get_field_index("_time")
    times = rows.column(at).cast(pa.int64()).cast(TIMESTAMP)
    return rows.set_column(at, pa.field("_time", TIMESTAMP), times)
