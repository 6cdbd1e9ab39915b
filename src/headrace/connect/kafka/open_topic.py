"""A topic of a cluster in rows: to send to it, to look at it, and to bring a changelog level."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.time import SystemClock
from headrace.connect.decoding import RecordShape, changes
from headrace.connect.encoding import with_time
from headrace.connect.formats import format_named
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.source import KafkaSource
from headrace.connect.kafka.writing.records import encode
from headrace.connect.kafka.writing.sending import Sender
from headrace.connect.open_topic import OpenTopic
from headrace.connect.source import OffsetRange
from headrace.log.rows import rows_to_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from headrace.base.time import Clock
    from headrace.connect.kafka.address import KafkaAddress
    from headrace.connect.topics import TopicSpec
    from headrace.log.rows import Rows

JSON, TEXT = format_named("json"), format_named("text")


class KafkaOpenTopic(OpenTopic):
    """A topic of a cluster with the columns of `spec`, written and read in its formats.

    `append` is no part of a transaction: a record that was sent twice after a failure may be there twice. `sender`:
    what sends, of other topics too; None: one of its own.
    """

    def __init__(self, address: KafkaAddress, spec: TopicSpec, clock: Clock, *, sender: Sender | None = None) -> None:
        self.address = address
        self.spec = spec
        self.clock = clock
        self.name = address.cluster_name(spec.name)
        self.format, self.key_format = spec.format or JSON, spec.key_format or TEXT
        self._reader = KafkaSource(address=address, topic=spec.name).open(clock=SystemClock())
        self._sender = sender or Sender(address)

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
        table = with_time(table, self.spec.event_time, self.clock.now())
        form, key_format = self.format.bound(self.name), self.key_format.bound(self.name, key=True)
        for batch in table.combine_chunks().to_batches():
            records = encode(
                batch,
                self.schema,
                self.spec.key,
                format=form,
                key_format=key_format,
                now=self.clock.now(),
            )
            self._sender.send(self.name, records, partition=partition)
        return int(table.num_rows)

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
            format=self.format,
            key_format=self.key_format,
            undecoded=True,
        )
        part = OffsetRange(source=self.spec.name, partition=str(partition), start=start, end=end)
        yield from changes(self._reader, part, shape).select(wanted).to_batches()

    def close(self) -> None:
        """Close connections."""
        self._reader.close()
