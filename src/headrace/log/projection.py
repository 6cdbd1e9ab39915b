"""The columns that a reader wants, from batches of any of a topic's schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.errors import UnknownColumn
from headrace.log import evolution
from headrace.log.segments import payload as payloads
from headrace.log.segments import shared
from headrace.log.segments.frame import TIMES
from headrace.log.segments.payload import SYSTEM_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.log.meta import Meta
    from headrace.log.segments.frame import Frame

    ColumnReader = Callable[[pa.RecordBatch, Frame], pa.Array]


def result_schema(meta: Meta, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of some columns of a topic, which may include system columns.

    Raises:
        UnknownColumn: there is no such column.

    """
    fields = []
    for name in columns:
        if name not in SYSTEM_COLUMNS and name not in meta.schema.names:
            raise UnknownColumn(name, step=meta.name, columns=[*meta.schema.names, *SYSTEM_COLUMNS])
        fields.append(pa.field(name, SYSTEM_COLUMNS[name]) if name in SYSTEM_COLUMNS else meta.schema.field(name))
    return pa.schema(fields)


class Projection:
    """Converts batches to one schema; columns that are stored with the wanted type are not copied."""

    def __init__(self, schema: pa.Schema, meta: Meta) -> None:
        self._schema = schema
        self._names = schema.names
        self._fields = list(schema)
        self._newest = len(meta.schemas)
        self._event_time = meta.event_time
        self._defaults = meta.defaults
        self._stored: pa.Schema | None = None
        self._as_stored = False
        self._read_of: pa.Schema | None = None
        self._reads: frozenset[int] | None = None
        self._readers: list[ColumnReader] = []  # of the wanted columns, for the stored schema at hand

    def reads(self, frame: Frame, stored: pa.Schema) -> frozenset[int] | None:
        """Return the numbers of the columns that are read of a frame's batch; None: all of them."""
        if stored is not self._read_of:
            names = {*self._names, "_offset", "_deleted"}
            if "_time" in names and not frame.flags & TIMES and self._event_time is not None:
                names.add(self._event_time)
            self._read_of = stored
            numbers = frozenset(number for number, name in enumerate(stored.names) if name in names)
            self._reads = None if len(numbers) == len(stored) else numbers
        return self._reads

    def of(self, batch: pa.RecordBatch, frame: Frame, stored: pa.Schema) -> pa.RecordBatch:
        """Return the wanted columns of a frame's batch, `stored` being its schema."""
        if not self._names:
            return batch.select([])
        if stored is not self._stored:
            self._stored, self._readers = stored, [self._reader_of(field, stored) for field in self._fields]
            self._as_stored = self._names == stored.names
        if self._as_stored and frame.schema == self._newest:
            return batch
        return pa.RecordBatch.from_arrays([make(batch, frame) for make in self._readers], schema=self._schema)

    def _reader_of(self, field: pa.Field, stored: pa.Schema) -> ColumnReader:
        """Return a function that reads a column from batches of a stored schema."""
        index = stored.get_field_index(field.name)
        if index >= 0 and stored.field(index).type == field.type:
            return lambda batch, _: batch.column(index)
        if field.name == "_offset":
            return lambda _, frame: shared.ascending(frame.base, frame.next)
        if field.name == "_deleted":
            return lambda _, frame: shared.falses(frame.rows)
        if field.name in SYSTEM_COLUMNS:
            return lambda batch, frame: payloads.system_column(field.name, batch, frame, self._event_time)
        return lambda batch, _: evolution.column_as(batch, field, self._defaults.get(field.name))
