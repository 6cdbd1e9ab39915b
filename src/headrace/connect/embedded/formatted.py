"""Topics of the embedded log whose records have a format: the key's columns, and a column `value` with the record.

A record is written as its format writes it without headers, which such topics do not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.connect.decoding import RecordShape, changes
from headrace.connect.embedded.source import EmbeddedReader
from headrace.connect.encoding import present_alone, with_time
from headrace.connect.format import VALUE
from headrace.connect.open_topic import OpenTopic
from headrace.connect.source import OffsetRange
from headrace.log.rows import rows_to_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.base.time import Clock
    from headrace.connect.format import Format
    from headrace.connect.topics import TopicSpec
    from headrace.log import Log, Topic
    from headrace.log.rows import Rows


class Encoder:
    """Rows with a topic's declared columns become what the topic stores.

    Args:
        spec: what the app declares, with a format.
        form: the format.
        columns: those of the topic.

    """

    def __init__(self, spec: TopicSpec, form: Format, columns: pa.Schema) -> None:
        self.names = spec.schema.names
        self.stored = pa.schema([columns.field(name) for name in [*_keys(spec), VALUE]])
        self.form = form.bound(spec.name)

    def encoded(self, rows: pa.Table) -> pa.Table:
        """Return rows with the topic's columns and those of `_time` and `_deleted` that they have."""
        beside = [name for name in ("_time", "_deleted") if name in rows.column_names]
        empty = pa.schema([*self.stored, *(rows.schema.field(name) for name in beside)]).empty_table()
        parts = [empty, *(self._encoded(batch, beside) for batch in rows.to_batches())]
        return pa.concat_tables(parts)

    def _encoded(self, batch: pa.RecordBatch, beside: Sequence[str]) -> pa.Table:
        said = [*self.names, *(name for name in ("_before",) if name in batch.schema.names)]
        values = present_alone(batch, said, self._values).column(VALUE)
        columns = {
            field.name: (values if field.name == VALUE else batch.column(field.name)).cast(field.type)
            for field in self.stored
        }
        return pa.table(
            columns | {name: batch.column(name) for name in beside},
            schema=pa.schema([*self.stored, *(batch.schema.field(name) for name in beside)]),
        )

    def _values(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({VALUE: self.form.encode(rows)})


def _keys(spec: TopicSpec) -> list[str]:
    return [name for name in spec.schema.names if name in spec.key]


class FormattedTopic(OpenTopic):
    """A topic with a format, in rows of the declared columns; a row with `value` alone is a record as it is."""

    def __init__(self, log: Log, spec: TopicSpec, form: Format, clock: Clock) -> None:
        self.topic: Topic = log.topic(spec.name)
        self.spec = spec
        self.form = form
        self.clock = clock
        self._reader = EmbeddedReader(log, spec)

    @property
    def schema(self) -> pa.Schema:
        """Its columns, as the app declares them."""
        return self.spec.schema

    @property
    def cleanup(self) -> str:
        """The topic's rule of cleaning."""
        return self.topic.cleanup

    def append(self, rows: Rows, *, partition: int | None = None) -> object:
        """Append rows of the declared columns, or of the key's columns and `value`: records as they are.

        Raises:
            InvalidRows: a row does not fit; nothing is appended.

        """
        rows = rows if isinstance(rows, pa.Table | pa.RecordBatch) else list(rows)
        if self._are_records(rows):
            return self.topic.append(rows, partition=partition)
        table = with_time(rows_to_table(rows, self.schema), self.spec.event_time, self.clock.now())
        at = table.column_names.index("_time")
        table = table.set_column(at, "_time", table.column(at).cast(pa.timestamp("us", "UTC")))
        encoder = Encoder(self.spec, self.form, self.topic.schema)
        return self.topic.append(encoder.encoded(table.combine_chunks()), partition=partition)

    def _are_records(self, rows: Rows) -> bool:
        """Whether rows have a column `value`, and none of the declared ones that are not the key's."""
        names = rows.schema.names if isinstance(rows, pa.Table | pa.RecordBatch) else {n for row in rows for n in row}
        inside = set(self.schema.names) - set(self.spec.key) - {VALUE}
        return VALUE in names and not inside & set(names)

    def start_offsets(self) -> Mapping[int, int]:
        """Return the first offset of each partition."""
        return self.topic.start_offsets()

    def end_offsets(self) -> Mapping[int, int]:
        """Return the offset after the last of each partition."""
        return self.topic.end_offsets()

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
            format=self.form,
        )
        part = OffsetRange(source=self.spec.name, partition=str(partition), start=start, end=end)
        yield from changes(self._reader, part, shape).select(wanted).to_batches()
