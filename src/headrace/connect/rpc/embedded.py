"""Requests and replies in the embedded log."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace.base.errors import MemberFenced, TopicExists
from headrace.base.time import MICROS
from headrace.connect.rpc.exchange import ID, Exchange, Members, Received, Tail
from headrace.log import bell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.base.time import Clock
    from headrace.log import Log, Topic
    from headrace.log.groups.consumer import Consumer

MOST = 100


class LogExchange(Exchange):
    """A log."""

    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def clock(self) -> Clock:
        """The log's."""
        return self._log.clock

    def create(self, topic: str, columns: str, *, partitions: int) -> None:
        """Create a topic."""
        if not self._log.has_topic(topic):
            with suppress(TopicExists):
                self._log.create_topic(topic, columns, partitions=partitions, key=ID)

    def send(self, topic: str, rows: Sequence[Mapping[str, Any]], *, partition: int | None = None) -> None:
        """Append rows."""
        self._log.topic(topic).append([dict(row) for row in rows], partition=partition)

    def tail(self, topic: str, *, since: int | None = None) -> LogTail:
        """Return what comes."""
        opened = self._log.topic(topic)
        starts = opened.end_offsets() if since is None else opened.offsets_at(since // 1000)
        return LogTail(opened, starts, self.clock)

    def stored(self, topic: str, partition: int, *, since: int) -> list[dict[str, Any]]:
        """Return what is in a partition."""
        opened = self._log.topic(topic)
        number = partition % opened.partitions
        start = opened.offsets_at(since // 1000)[number]
        return _rows(opened, number, start, opened.end_offsets()[number])

    def members(self, topic: str, group: str, revoked: Callable[[Sequence[int]], None]) -> LogMembers:
        """Join a group."""
        consumer = self._log.consumer(
            group, [topic], on_revoked=lambda places: revoked([number for _, number in places])
        )
        return LogMembers(consumer, revoked)

    def close(self) -> None:
        """Close the log."""
        self._log.close()


class LogTail(Tail):
    """What is appended to a topic."""

    def __init__(self, topic: Topic, starts: Mapping[int, int], clock: Clock) -> None:
        self._topic, self._next, self._clock = topic, dict(starts), clock
        self._bells: list[bell.Bell] = []  # from the first wait on

    def poll(self, seconds: float) -> list[Received]:
        """Return new records."""
        began = self._clock.monotonic()
        while True:
            found: list[Received] = []
            for number, end in self._topic.end_offsets().items():
                start = self._next.get(number, 0)
                if end > start:
                    found += [Received(number, start, row) for row in _rows(self._topic, number, start, end)]
                    self._next[number] = end
            waited = self._clock.monotonic() - began
            if found or waited >= seconds:
                return found
            if self._bells:
                bell.wait(self._bells, seconds - waited, self._clock)
            else:  # and look once more: a reply may have come before
                self._bells = [bell.Bell(self._topic.opened.log.path, self._topic.name, "tail", own=True)]

    def close(self) -> None:
        """Be woken no more."""
        for each in self._bells:
            each.close()


class LogMembers(Members):
    """A member of a group of consumers."""

    def __init__(self, consumer: Consumer, revoked: Callable[[Sequence[int]], None]) -> None:
        self._consumer, self._revoked = consumer, revoked

    def poll(self, seconds: float) -> list[Received]:
        """Return records."""
        found = self._consumer.poll(MOST, wait=f"{round(seconds * MICROS)} microseconds")
        return [
            Received(records.partition, row.pop("_offset"), row)
            for records in found
            for row in records.rows.drop_columns(["_time", "_deleted"]).to_pylist()
        ]

    def rewind(self, polled: Sequence[Received]) -> None:
        """Seek back."""
        mine = {number: topic for topic, number in self._consumer.assignment()}
        for each in sorted(polled, key=lambda one: one.offset, reverse=True):
            if each.partition in mine:
                self._consumer.seek(mine[each.partition], each.partition, each.offset)

    def commit(self) -> bool:
        """Commit."""
        try:
            self._consumer.commit()
        except MemberFenced as error:
            self._revoked([number for _, number in error.places])
            return False
        return True

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


def _rows(topic: Topic, number: int, start: int, end: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for batch in topic.batches(number, start, end, columns=topic.schema.names):
        found += batch.to_pylist()
    return found
