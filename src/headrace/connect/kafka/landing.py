"""A topic of a cluster as the landing of a feed: rows and the feed's position are in one transaction."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.dead_letters import DEAD
from headrace.base.errors import HeadraceError
from headrace.base.outside import FeedChanged, FeedRunsElsewhere, FeedTopicReplaced, Fenced
from headrace.base.time import SystemClock
from headrace.connect.feed import DeadRecord, Landing
from headrace.connect.formats import format_named
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.writing import marks
from headrace.connect.kafka.writing.marked import MarkedTransactions
from headrace.connect.kafka.writing.outputs import Outputs, OutputTopic
from headrace.log import rows_to_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.base.time import Clock
    from headrace.connect.kafka.address import KafkaAddress
    from headrace.connect.kafka.writing.marks import Mark
    from headrace.connect.kafka.writing.transactions import Spans, Transactions
    from headrace.connect.topics import TopicSpec
    from headrace.log.rows import Rows

ROOM_SECONDS = 0.2
"""How long it is believed how many records the topic has."""
SILENT_SECONDS = 60.0
"""After so long without an append of the process that has taken a feed over, this one takes it back."""
_TAKEN_OVER: dict[tuple[KafkaAddress, str], tuple[str, int, float]] = {}
"""By topic who has taken its feed over from this process: its mark's instance and number, and since when."""
NOBODY = ""
"""The instance of a mark whose writer has been closed."""
_MACHINE = SystemClock()


class KafkaLanding(Landing):
    """A topic of a cluster that a feed fills; close it when done.

    Another process that opens it takes the feed over: this one's next append raises `FeedRunsElsewhere`, and so does
    opening it again in this process, until the other one has closed it.

    Args:
        address: the cluster.
        topic: the topic, which exists, with the formats of its records and keys.
        feed: the identity of the feed: a position is that of one feed.
        limit: there is no room while the app has so many unread records of the topic.
        read: returns up to which offsets the app has read the topic, added up over its partitions.
        fault: called at each point where a test may crash.
        clock: the clock of the app.

    Raises:
        FeedRunsElsewhere: another process has taken the feed over.
        FeedChanged: another feed has filled the topic so far.
        FeedTopicReplaced: the topic was deleted, perhaps created again.
        Unavailable: the cluster does not answer.

    """

    def __init__(
        self,
        address: KafkaAddress,
        *,
        topic: TopicSpec,
        feed: str,
        limit: int,
        read: Callable[[], int],
        fault: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self.address = address
        self.topic = topic
        self.name = address.cluster_name(topic.name)
        self.feed = feed
        self.limit = limit
        self.read = read
        self._clock = clock
        self._ends = (0, -ROOM_SECONDS)
        self._appends = 0
        writer = f"feed/{topic.name}"
        self._lot = (address, topic.name)
        stay_out(self._lot, writer)
        self._outputs = Outputs(address, clock)
        self._output = output_of(address, topic)
        self._dead = dead_output_of(address, topic, self._outputs)
        self._marked = MarkedTransactions(address, writer, fault=fault)
        try:
            self._check(self._marked.mark)
        except BaseException:
            self.close()
            raise

    @property
    def schema(self) -> pa.Schema:
        """The topic's columns."""
        return self.topic.schema

    def position(self) -> bytes | None:
        """Return the position of the last append, None before the first."""
        return self._marked.mark.position

    def has_room(self) -> bool:
        """Whether the app has fewer than `limit` unread records."""
        stored, at = self._ends
        if _MACHINE.monotonic() - at >= ROOM_SECONDS:
            known = cluster(self.address)
            ends = known.ends(self.name, known.topic(self.name).partitions, committed=False)
            stored = sum(ends.values())
            self._ends = (stored, _MACHINE.monotonic())
        return stored - self.read() < self.limit

    def append(self, rows: Rows, *, position: bytes | None = None, dead: Sequence[DeadRecord] = ()) -> None:
        """Append rows exactly once, and store the position with them.

        Raises:
            InvalidRows: a row does not fit; nothing was appended.
            FeedRunsElsewhere: another process has taken the feed over; nothing was appended.
            Unavailable: the cluster does not answer. Open the landing anew: it may or may not have been appended.

        """
        now = self._clock.now()
        table = timed(rows_to_table(rows, self.schema), now, changes=self.topic.upserts)
        letters = timed(letters_of(self.topic.name, dead), now, changes=False)
        before, self._appends = self._marked.mark, self._appends + 1

        def send(transactions: Transactions) -> None:
            for batch in table.to_batches():
                self._outputs.send(transactions, self._output, batch, self._appends)
            for batch in letters.to_batches():
                self._outputs.send(transactions, self._dead, batch, self._appends)

        def mark(spans: Spans) -> Mark:
            after = before.after(before.epoch + 1, self._marked.instance, {})
            topics = {**before.topics, **self._outputs.written(before, after.epoch, spans)}
            return replace(
                after, topics=topics, feed=self.feed, position=before.position if position is None else position
            )

        try:
            self._marked.write(send, mark)
        except Fenced as error:
            give_way(self._marked, self._lot)
            raise FeedRunsElsewhere(self.topic.name) from error

    def close(self) -> None:
        """Let go of the connections, and of the feed, so that another process can run it."""
        close_feed(self._marked)

    def _check(self, mark: Mark) -> None:
        """Refuse another feed's position, and a topic that is not the one that the position is of."""
        where = f"the mark feed/{self.topic.name} in the topic {self.address.cluster_name(marks.MARKS)}"
        if mark.feed is not None and mark.feed != self.feed:
            raise FeedChanged(self.topic.name, was=mark.feed, now=self.feed, state=where)
        written = mark.topics.get(self.name)
        if written is not None and written.id != cluster(self.address).topic(self.name).id:
            raise FeedTopicReplaced(self.topic.name, state=where)


def output_of(address: KafkaAddress, topic: TopicSpec) -> OutputTopic:
    """Return a topic that a feed fills, which exists, to write to."""
    name = address.cluster_name(topic.name)
    return OutputTopic(
        name=name,
        dead_name=f"{name}.dead",
        schema=topic.schema,
        key=topic.key,
        format=topic.format or format_named("json"),
        key_format=topic.key_format,
        too_large="dead_letter",
        ensure=_nothing,
    )


def dead_output_of(address: KafkaAddress, topic: TopicSpec, outputs: Outputs) -> OutputTopic:
    """Return the dead letters of a topic that a feed fills, to write to."""
    name = f"{address.cluster_name(topic.name)}.dead"
    return OutputTopic(
        name=name,
        dead_name=name,
        schema=DEAD,
        key=(),
        format=format_named("json"),
        key_format=None,
        too_large="fail",
        ensure=lambda: outputs.create_dead(name),
    )


def give_way(marked: MarkedTransactions, lot: tuple[KafkaAddress, str]) -> None:
    """Remember who has taken a feed over from this process."""
    found = marks.read_mark(marked.address, marked.writer, complete=False)
    if found is not None:
        _TAKEN_OVER[lot] = found.instance, found.epoch, _MACHINE.monotonic()


def close_feed(marked: MarkedTransactions) -> None:
    """Let go of a feed, so that another process can run it, and of the connections."""
    with suppress(HeadraceError):
        if marked.is_open:
            marked.write(_nothing, lambda _: replace(marked.mark, instance=NOBODY))
    marked.close()


def stay_out(lot: tuple[KafkaAddress, str], writer: str) -> None:
    """Refuse to take a feed back from the process that has taken it over, as long as that one has it."""
    if lot not in _TAKEN_OVER:
        return
    found, (other, number, since) = marks.read_mark(lot[0], writer, complete=False), _TAKEN_OVER[lot]
    if found is not None and found.instance == other:
        if found.epoch != number:
            _TAKEN_OVER[lot] = other, found.epoch, _MACHINE.monotonic()
            raise FeedRunsElsewhere(lot[1])
        if _MACHINE.monotonic() - since < SILENT_SECONDS:
            raise FeedRunsElsewhere(lot[1])
    del _TAKEN_OVER[lot]


def _nothing(*_: object) -> None:
    """Do nothing."""


def timed(rows: pa.Table, now: int, *, changes: bool) -> pa.Table:
    """Return rows with `_time` as int64 microseconds, and of changes with `_deleted`."""
    if "_time" in rows.column_names:
        at = rows.column_names.index("_time")
        rows = rows.set_column(at, "_time", rows.column(at).cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
    else:
        rows = rows.append_column("_time", pa.repeat(pa.scalar(now, pa.int64()), len(rows)))
    if changes and "_deleted" not in rows.column_names:
        rows = rows.append_column("_deleted", pa.repeat(pa.scalar(value=False), len(rows)))
    return rows


def letters_of(topic: str, dead: Sequence[DeadRecord]) -> pa.Table:
    """Return dead letters as rows."""
    rows = [{"topic": topic, "reason": letter.reason, "record": letter.record} for letter in dead]
    return pa.Table.from_pylist(rows, schema=DEAD)
