"""A topic of a cluster in rows: to send to it, to look at it, and to bring a changelog level."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.base.outside import Unavailable
from headrace.base.time import SystemClock
from headrace.connect.decoding import RecordShape, decode
from headrace.connect.formats import format_named
from headrace.connect.kafka.administration import cluster
from headrace.connect.kafka.failures import Heard, our_errors
from headrace.connect.kafka.partitioner import partitions_of
from headrace.connect.kafka.records import encode
from headrace.connect.kafka.source import KafkaSource
from headrace.connect.source import OffsetRange
from headrace.connect.topics import OpenTopic
from headrace.log.rows import rows_to_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.base.time import Clock
    from headrace.connect.kafka.address import KafkaAddress
    from headrace.connect.kafka.records import Records
    from headrace.connect.topics import TopicSpec
    from headrace.log.rows import Rows

SECONDS = 30.0
JSON, TEXT = format_named("json"), format_named("text")


class KafkaOpenTopic(OpenTopic):
    """A topic of a cluster with the columns of `spec`, written and read in its formats.

    `append` is no part of a transaction: a record that was sent twice after a failure may be there twice.
    """

    def __init__(self, address: KafkaAddress, spec: TopicSpec, clock: Clock) -> None:
        self.address = address
        self.spec = spec
        self.clock = clock
        self.name = address.cluster_name(spec.name)
        self._reader = KafkaSource(address=address, topic=spec.name).open(clock=SystemClock())
        self._heard = Heard()
        self._producer: Producer | None = None
        self._sent = 0

    @property
    def schema(self) -> pa.Schema:
        """Its columns, as the app declares them."""
        return self.spec.schema

    @property
    def cleanup(self) -> str:
        """The topic's `cleanup.policy`."""
        return cluster(self.address).settings(self.name).get("cleanup.policy", "delete")

    def append(self, rows: Rows, *, partition: int | None = None) -> int:
        """Append rows and return how many; on return they are stored on every broker that is in sync.

        Raises:
            InvalidRows: a row does not fit; nothing is appended.
            TopicMissing: there is no such topic.
            Unavailable: the cluster does not answer.

        """
        table = rows_to_table(rows, self.schema)
        table = _with_time(table, self.spec.event_time, self.clock.now())
        for batch in table.combine_chunks().to_batches():
            records = encode(
                batch,
                self.schema,
                self.spec.key,
                format=self.spec.format or JSON,
                key_format=self.spec.key_format or TEXT,
                now=self.clock.now(),
            )
            self._send(records, partition)
        return int(table.num_rows)

    def _send(self, records: Records, partition: int | None) -> None:
        count = cluster(self.address).topic(self.name).partitions
        places = partitions_of(records.keys, count, first=self._sent)
        if partition is not None:
            places = np.full(len(records), partition, np.int32)
        self._sent += len(records)
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failed.append(error)

        producer = self._connected()
        keys, values = records.keys.to_pylist(), records.values.to_pylist()
        headers = [None] * len(records) if records.headers is None else records.headers.to_pylist()
        with our_errors(self.address, doing=f"write to the topic {self.name}", heard=self._heard):
            for key, value, header, place, time in zip(keys, values, headers, places, records.times, strict=True):
                named = None if header is None else [(each["name"], each["value"]) for each in header]
                while True:
                    try:
                        producer.produce(
                            self.name,
                            value,
                            key,
                            int(place),
                            on_delivery=delivered,
                            timestamp=int(time),
                            headers=named,
                        )
                        break
                    except BufferError:
                        producer.poll(0.1)
            if producer.flush(SECONDS):
                raise Unavailable(f"Kafka at {self.address.servers} did not store the records in {SECONDS:.0f} seconds")
            if failed:
                raise KafkaException(failed[0])

    def _connected(self) -> Producer:
        if self._producer is None:
            options = {"enable.idempotence": True, "linger.ms": 1, **self.address.configuration()}
            self._producer = self._heard.client = Producer({**options, **self._heard.options()})
        return self._producer

    def start_offsets(self) -> dict[int, int]:
        """Return the first offset of each partition."""
        return {int(number): offset for number, offset in self._reader.bounds().earliest.items()}

    def end_offsets(self) -> dict[int, int]:
        """Return the offset after the last committed record of each partition; markers of transactions count too."""
        return {int(number): offset for number, offset in self._reader.bounds().end.items()}

    def batches(
        self, partition: int, start: int, end: int, *, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range; of a tombstone there is the key alone. Records that do not fit are left out."""
        wanted = self.schema.names if columns is None else list(columns)
        shape = RecordShape(
            topic=self.spec.name,
            schema=self.schema,
            key=self.spec.key,
            upserts=bool(self.spec.key),
            format=self.spec.format or JSON,
            key_format=self.spec.key_format or TEXT,
            undecoded=True,
        )
        part = OffsetRange(source=self.spec.name, partition=str(partition), start=start, end=end)
        rows = decode(self._reader, part, shape).rows
        deleted = (
            pc.less(rows.column("_weight"), 0)
            if shape.upserts
            else pa.chunked_array([pa.repeat(pa.scalar(value=False), len(rows))])
        )
        yield from rows.append_column("_deleted", deleted).select(wanted).to_batches()

    def close(self) -> None:
        """Close connections."""
        self._reader.close()


def _with_time(rows: pa.Table, event_time: str | None, now: int) -> pa.Table:
    """Return rows with `_time` in microseconds: as given, else the event time, else now."""
    times = pa.nulls(len(rows), pa.int64())
    for name in ("_time", event_time):
        if name in rows.schema.names:
            times = pc.coalesce(times, rows.column(name).combine_chunks().cast(pa.int64()))
    times = pc.fill_null(times, now)
    return rows.drop_columns([name for name in ("_time",) if name in rows.schema.names]).append_column("_time", times)
