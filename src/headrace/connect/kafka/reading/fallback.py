"""The reader that covers everything librdkafka does: a Python object for each record, so a tenth as fast.

It is chosen for logins and options that the fast reader does not know (`settings.uncovered`), for batches of message
formats 0 and 1, and with `reader="librdkafka"`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace.base.broker_errors import TopicMissing
from headrace.base.outside import OffsetsBeyondEnd, OffsetsLost, SourceReplaced, Unavailable
from headrace.base.time import SystemClock
from headrace.connect.format import HEADERS, KEY, VALUE
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.client.failures import Heard, failure, our_errors
from headrace.connect.kafka.reading.raw_columns import EARLIEST, LATEST, TIME, TYPES, of_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import Message

    from headrace.connect.kafka.address import KafkaAddress

_CLOCK = SystemClock()
_ROWS = 20_000
_WAIT = 0.2
_PATIENCE = 10.0
_GONE_SECONDS = 1.0
_OPTIONS: dict[str, Any] = {
    "group.id": "headrace",  # it stores no offsets there
    "fetch.wait.max.ms": 20,  # a fetch at the end of one range holds up the first fetch of the next
}
_GUARANTEED: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    "check.crcs": True,
}
"""What an address may not change: which records are read, whether some are gone, and where a range ends."""
_NO_TIME = -1
"""The time of a record that has none, in Kafka."""


class LibrdkafkaTopic:
    """A topic, read by librdkafka. `committed`: transactions that are open or were aborted are not seen."""

    def __init__(self, address: KafkaAddress, name: str, *, committed: bool) -> None:
        self.address, self.name, self.committed = address, name, committed
        self._id: str | None = None
        self._partitions = 0
        self._consumer: Consumer | None = None
        self._heard = Heard()

    def exists(self, *, again: bool = False) -> bool:
        """Whether the cluster has the topic. `again`: it is asked now.

        Raises:
            SourceReplaced: it existed, and is gone, or has another id.

        """
        if self._id is None or again:
            until = _CLOCK.monotonic() + _GONE_SECONDS
            found = cluster(self.address).describe([self.name]).get(self.name)
            while found is None and self._id is not None and _CLOCK.monotonic() < until:
                _CLOCK.sleep(0.1)
                found = cluster(self.address).describe([self.name]).get(self.name)
            if self._id is not None and (found is None or found.id != self._id):
                raise SourceReplaced(f'the topic "{self.name}"', gone=found is None)
            if found is not None:
                self._id, self._partitions = found.id, found.partitions
        return self._id is not None

    def offsets(self, *times: int) -> list[dict[int, int]]:
        """Return offsets by partition, for each time: `EARLIEST`, `LATEST`, or milliseconds (-1: none is so late)."""
        self.exists()
        every = [(self.name, number) for number in range(self._partitions)]
        try:
            found = [cluster(self.address).offsets(every, at=_spec(time), committed=self.committed) for time in times]
        except (TopicMissing, Unavailable):
            self.exists(again=True)
            raise
        return [{number: offset for (_, number), offset in each.items()} for each in found]

    def read(self, partition: int, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records `[start, end)` of a partition, with columns of `raw_columns.TYPES`.

        Raises:
            OffsetsLost: the partition begins after `start`.
            OffsetsBeyondEnd: it ends before `end`.
            SourceReplaced: the topic is gone, or was replaced.
            Unavailable: no leader answers.

        """
        batches = self._read(partition, start, end, columns)
        return of_range(batches) if "_appended" in columns else batches

    def close(self) -> None:
        """Close the consumer."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _read(self, partition: int, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if start >= end:
            return
        doing = f'read the topic "{self.name}", partition {partition}'
        with our_errors(self.address, doing=doing, heard=self._heard):
            consumer = self._opened()
            consumer.assign([TopicPartition(self.name, partition, start)])
        try:
            yield from self._consumed(consumer, partition, (start, end), columns)
        finally:
            if self._consumer is not None:
                consumer.unassign()

    def _consumed(
        self, consumer: Consumer, partition: int, bounds: tuple[int, int], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        at, end = bounds
        doing = f'read the topic "{self.name}", partition {partition}'
        until = _CLOCK.monotonic() + _PATIENCE
        while at < end:
            with our_errors(self.address, doing=doing, heard=self._heard):
                messages = consumer.consume(min(_ROWS, end - at), _WAIT)  # which waits for so many
            if messages:
                until = _CLOCK.monotonic() + _PATIENCE
            elif _CLOCK.monotonic() > until:
                self.exists(again=True)
                raise Unavailable(f"Kafka at {self.address.servers} did not {doing}: it does not answer")
            records = [each for each in messages if each.error() is None]
            for each in messages:
                if each.error() is not None:
                    at = max(at, self._noted(each, partition, bounds))
            if records:
                at = max(at, records[-1].offset() + 1)
            wanted = list(itertools.takewhile(lambda each: each.offset() < end, records))
            if wanted:
                yield _batch(wanted, columns)

    def _noted(self, message: Message, partition: int, bounds: tuple[int, int]) -> int:
        """Return up to which offset there is nothing more, as the end of a partition says; raise other errors."""
        error = message.error()
        assert error is not None  # noqa: S101 -- the caller checks it
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 -- that is its public name
            return int(message.offset())
        if error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):  # noqa: SLF001 -- the same
            self.exists(again=True)
            earliest, latest = (each.get(partition, 0) for each in self.offsets(EARLIEST, LATEST))
            if bounds[0] < earliest:
                raise OffsetsLost(self.name, str(partition), start=bounds[0], earliest=earliest)
            raise OffsetsBeyondEnd(self.name, str(partition), read=bounds[1], end=latest)
        if error.fatal() or not error.retriable():
            doing = f'read the topic "{self.name}", partition {partition}'
            self.exists(again=True)
            raise failure(error.code(), error.str(), self.address, doing=doing)
        return 0

    def _opened(self) -> Consumer:
        if self._consumer is None:
            isolation = {"isolation.level": "read_committed" if self.committed else "read_uncommitted"}
            given = _OPTIONS | self.address.configuration() | _GUARANTEED | isolation
            self._consumer = Consumer(given | self._heard.options())
            self._heard.client = None  # `consume` hears its reports
        return self._consumer


def _spec(time: int) -> OffsetSpec:
    named = {EARLIEST: OffsetSpec.earliest, LATEST: OffsetSpec.latest}
    return named[time]() if time in named else OffsetSpec.for_timestamp(time)


def _batch(messages: Sequence[Message], columns: Sequence[str]) -> pa.RecordBatch:
    millis = np.array([each.timestamp()[1] for each in messages], np.int64)
    times = pa.array(millis * 1_000, mask=millis == _NO_TIME).cast(TIME)
    greatest = np.maximum.accumulate(millis)
    make = {
        KEY: lambda: pa.array([each.key() for each in messages], pa.binary()),
        VALUE: lambda: pa.array([each.value() for each in messages], pa.binary()),
        HEADERS: lambda: pa.array([_headers(each) for each in messages], TYPES[HEADERS]),
        "_offset": lambda: pa.array([each.offset() for each in messages], pa.int64()),
        "_time": lambda: times,
        "_appended": lambda: pa.array(greatest * 1_000, mask=greatest == _NO_TIME).cast(TIME),
        "_deleted": lambda: pa.array([each.value() is None for each in messages]),
    }
    fields = [(name, TYPES[name]) for name in columns]
    return pa.RecordBatch.from_arrays([make[name]() for name in columns], schema=pa.schema(fields))


def _headers(message: Message) -> list[dict[str, object]]:
    return [{"name": name, "value": value} for name, value in message.headers() or ()]
