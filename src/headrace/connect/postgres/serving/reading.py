"""A view's rows from its table: COPY as CSV, which Arrow parses by columns; nested values are parsed one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
from psycopg import sql as words
from pyarrow import csv

from headrace.connect.postgres.copying import copied
from headrace.views.values import from_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg

_BLOCK = 32 * 1024 * 1024
"""So many bytes are parsed at a time."""


def read(
    sql: psycopg.Connection, table: words.Identifier, schema: pa.Schema, order: Sequence[words.Composable]
) -> pa.Table:
    """Return a table's rows with the types of a schema, in an order."""
    columns = words.SQL(", ").join(_sent(field) for field in schema)
    ordered = words.SQL(" ORDER BY {}").format(words.SQL(", ").join(order)) if order else words.SQL("")
    query = words.SQL("COPY (SELECT {} FROM {} t{}) TO STDOUT (FORMAT csv)").format(columns, table, ordered)
    tables = [_parsed(block, schema) for block in _blocks(copied(sql, query))]
    return pa.concat_tables([schema.empty_table(), *tables])


def order_term(field: pa.Field) -> words.Composed:
    """Return the term of an ORDER BY that sorts a column as its type sorts: texts by their bytes, nulls first."""
    kind = field.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    shape = 't.{}::text COLLATE "C" NULLS FIRST' if text or pa.types.is_nested(kind) else "t.{} NULLS FIRST"
    return words.SQL(shape).format(words.Identifier(field.name))


def _sent(field: pa.Field) -> words.Composed:
    """Return how a column is sent."""
    kind, shape = field.type, "t.{}"
    if pa.types.is_timestamp(kind) and kind.tz:
        shape = "t.{} AT TIME ZONE 'UTC'"
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        shape = "encode(t.{}, 'hex')"
    elif pa.types.is_nested(kind):
        shape = "to_jsonb(t.{})"
    return words.SQL(shape).format(words.Identifier(field.name))


def _blocks(rows: list[bytes]) -> Iterator[bytes]:
    """Join rows to blocks: COPY sends each row alone."""
    first = size = 0
    for at, row in enumerate(rows):
        size += len(row)
        if size >= _BLOCK:
            yield b"".join(rows[first : at + 1])
            first, size = at + 1, 0
    if first < len(rows):
        yield b"".join(rows[first:])


def _parsed(block: bytes, schema: pa.Schema) -> pa.Table:
    names = [f"c{at}" for at in range(len(schema))]
    found = csv.read_csv(
        pa.py_buffer(block),
        read_options=csv.ReadOptions(column_names=names, block_size=len(block) + 1, use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
            column_types={name: _read_as(field.type) for name, field in zip(names, schema, strict=True)},
        ),
    )
    return pa.table([_typed(found[name], field.type) for name, field in zip(names, schema, strict=True)], schema=schema)


def _read_as(kind: pa.DataType) -> pa.DataType:
    """Return the type that Arrow's reader of CSV gives a column."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_nested(kind):
        return pa.string()
    return kind


def _typed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_nested(kind):
        return from_json(column.to_pylist(), kind)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        with duckdb.connect() as sql:
            sql.register("texts", pa.table({"v": column}))
            return sql.table("texts").project("from_hex(v) AS v").to_arrow_table()["v"].cast(kind)
    return column.cast(kind)
