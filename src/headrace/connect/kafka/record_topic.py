"""A topic of a cluster as records: bytes with a key, headers and a time, whatever their format is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from confluent_kafka.admin import OffsetSpec

from headrace.base.time import SystemClock, instant
from headrace.connect.format import HEADERS, HEADERS_TYPE, KEY, VALUE
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.source import KafkaSource
from headrace.connect.kafka.writing.records import FIRST_MS, Records
from headrace.connect.kafka.writing.sending import Sender
from headrace.connect.source import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headrace.connect.kafka.address import KafkaAddress
    from headrace.connect.kafka.client.administration import KafkaTopic

_MILLI = 1_000
CLOCK = SystemClock()


class RecordTopic:
    """A topic's records, as rows of `key` and `value` (text; null where the bytes are none), and `headers`.

    Readers see what is committed. Rows that are appended have `key`, `value` (bytes or None), perhaps `headers` (pairs
    of a name and bytes), and perhaps `_time` (microseconds).
    """

    schema = pa.schema([("key", pa.string()), ("value", pa.string()), ("headers", HEADERS_TYPE)])
    key = ("key",)
    event_time: str | None = None

    def __init__(self, address: KafkaAddress, name: str) -> None:
        """Open the topic; `name` is without the address's prefix.

        Raises:
            TopicMissing: there is none.
            Unavailable: the cluster does not answer.

        """
        self.address = address
        self.name = name
        self._in_cluster = address.cluster_name(name)
        self._found = cluster(address).topic(self._in_cluster)
        self._reader = KafkaSource(address=address, topic=name).open(clock=CLOCK)
        self._sender = Sender(address)
        self.oldest: int | None = None
        """The earliest time of a record that was appended, in microseconds."""

    def start_offsets(self) -> dict[int, int]:
        """Return the first offset of each partition."""
        return {int(number): offset for number, offset in self._reader.bounds().earliest.items()}

    def end_offsets(self) -> dict[int, int]:
        """Return the offset after the last readable record of each partition; markers of transactions count too."""
        return {int(number): offset for number, offset in self._reader.bounds().end.items()}

    def offsets_at(self, time: object) -> dict[int, int]:
        """Return for each partition the first offset whose record's time is `time` or later, or the end.

        Raises:
            InvalidTime: it is no time.

        """
        at = OffsetSpec.for_timestamp(max(0, -(-instant(time) // _MILLI)))
        ends = self.end_offsets()
        found = cluster(self.address).offsets([(self._in_cluster, number) for number in ends], at=at)
        return {
            number: end if found.get((self._in_cluster, number), -1) < 0 else found[self._in_cluster, number]
            for number, end in ends.items()
        }

    def batches(
        self, partition: int, start: int, end: int, *, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records `[start, end)` of a partition, in order.

        The columns are those of `schema`, and `_deleted`, `_offset`, `_time`, and the bytes `_key` and `_value`.
        """
        part = OffsetRange(source=self.name, partition=str(partition), start=start, end=end)
        for batch in self._reader.read(part, (KEY, VALUE, HEADERS, "_deleted", "_offset", "_time")):
            rows = {
                "key": _texts(batch.column(KEY)),
                "value": _texts(batch.column(VALUE)),
                "headers": batch.column(HEADERS),
                **{name: batch.column(name) for name in ("_deleted", "_offset", "_time")},
                "_key": batch.column(KEY),
                "_value": batch.column(VALUE),
            }
            yield pa.RecordBatch.from_pydict({name: rows[name] for name in columns} if columns else rows)

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append records; on return they are stored. Those without `_time` have the time of now.

        Raises:
            RecordTooLarge: one is larger than the topic takes.
            Unavailable: the cluster does not answer.

        """
        if not rows:
            return
        now = CLOCK.now()
        times = [now if row.get("_time") is None else row["_time"] for row in rows]
        self.oldest = min(times) if self.oldest is None else min(self.oldest, *times)
        headers = [[{"name": name, "value": value} for name, value in row.get("headers") or ()] for row in rows]
        records = Records(
            keys=pa.array([row.get("key") for row in rows], pa.binary()),
            values=pa.array([row.get("value") for row in rows], pa.binary()),
            times=np.maximum(np.asarray(times, np.int64) // _MILLI, FIRST_MS),
            headers=pa.array(headers, HEADERS_TYPE),
        )
        self._sender.send(self._in_cluster, records)

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()


def spans(address: KafkaAddress, topics: Iterable[KafkaTopic]) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the first offset of each partition of some topics, and the one after the last that is committed."""
    every = [(topic.name, number) for topic in topics for number in range(topic.partitions)]
    starts = cluster(address).offsets(every, at=OffsetSpec.earliest())
    ends = cluster(address).offsets(every, at=OffsetSpec.latest())
    return {at: (starts[at], max(ends[at], starts[at])) for at in every}


def _texts(values: pa.Array) -> pa.Array:
    """Return bytes as text; those that are no UTF-8 are null."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in values.to_pylist()], pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
