"""Types and values of rows as Cassandra has them. Its client takes one row a call, so values are Python's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.connect.formats.json_text import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TYPES = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.binary(): "blob",
}


def cql_type(kind: pa.DataType) -> str:
    """Return the type of a column: text where it has no other, with JSON for nested values."""
    if pa.types.is_decimal(kind):
        return "decimal"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return _TYPES.get(kind, "text")


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns as they can be read again: nested ones are texts."""
    return pa.schema([(each.name, pa.string() if pa.types.is_nested(each.type) else each.type) for each in schema])


def stored(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as they can be read again: nested values are JSON, instants are cut to milliseconds."""
    columns = [_stored(rows.column(each.name)) for each in schema]
    return pa.RecordBatch.from_arrays(columns, schema=stored_schema(schema))


def _stored(column: pa.Array) -> pa.Array:
    if pa.types.is_nested(column.type):
        return text_of(column)
    if pa.types.is_timestamp(column.type):
        return pa.array(_millis(column) * 1000, pa.int64(), mask=_nulls(column)).cast(column.type)
    return column


def parameters(rows: pa.RecordBatch) -> list[list[Any]]:
    """Return stored rows as the client takes them, column by column: instants as milliseconds."""
    columns = []
    for column in rows.columns:
        if pa.types.is_timestamp(column.type):
            column = pa.array(_millis(column), pa.int64(), mask=_nulls(column))  # noqa: PLW2901 -- the same, as numbers
        columns.append(column.to_pylist())
    return columns


def rows_of(found: Iterable[Any], schema: pa.Schema, count: int) -> Iterator[pa.RecordBatch]:
    """Yield what a query found, in batches of so many rows."""
    held: list[Any] = []
    for row in found:
        held.append(row)
        if len(held) >= count:
            yield _batch(held, schema)
            held = []
    if held:
        yield _batch(held, schema)


def _batch(rows: list[Any], schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for values, each in zip(zip(*rows, strict=True), schema, strict=True):
        if pa.types.is_date(each.type):
            days = [None if value is None else value.days_from_epoch for value in values]
            columns.append(pa.array(days, pa.int32()).cast(each.type))
        else:
            columns.append(pa.array(values, each.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _millis(column: pa.Array) -> Any:
    micros = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return np.floor_divide(micros, 1000)


def _nulls(column: pa.Array) -> Any:
    return column.is_null().to_numpy(zero_copy_only=False)
