"""JSON records: one object each, decoded and encoded in columns by DuckDB."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.names import quote
from headrace.base.schema import TIMESTAMP, duckdb_type
from headrace.connect.format import Format, Formatted

NO_OBJECT = "it is no JSON object"


@dataclass(frozen=True, slots=True)
class JsonFormat(Format):
    """One JSON object a record.

    Fields are matched by name, exactly; a missing field is null, as is JSON's null. A field of another type than
    declared is converted where that loses nothing (`"7"` to int, 7 to string), and makes the record bad where it
    cannot be. Timestamps are ISO text, UTC where it has no zone, or numbers: milliseconds since 1970.
    """

    @property
    def name(self) -> str:
        """`"json"`."""
        return "json"

    def decode(self, values: pa.Array, schema: pa.Schema) -> Formatted:
        """Decode records, all at once; one by one only where some are bad."""
        text = values.cast(pa.string())
        with _database() as db:
            valid = _objects(db, text)
            reasons = pc.if_else(valid, pa.scalar(None, pa.string()), pa.scalar(NO_OBJECT))
            rows, failed = _columns(db, text.filter(valid), schema)
        if not failed:
            return Formatted(rows, valid, reasons)
        indexes = pc.indices_nonzero(valid).to_pylist()
        reason_of = {indexes[at]: reason for at, reason in failed.items()}
        reasons = pa.array([reason_of.get(at, old) for at, old in enumerate(reasons.to_pylist())], pa.string())
        return Formatted(rows, pc.is_null(reasons), reasons)

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return rows as JSON objects, nulls included."""
        with _database() as db:
            db.register("rows", pa.Table.from_batches([rows]))
            fields = ", ".join(f"{quote(name)} := {quote(name)}" for name in rows.schema.names)
            encoded = db.sql(f"SELECT to_json(struct_pack({fields}))::VARCHAR AS record FROM rows").to_arrow_table()
        return encoded.column("record").combine_chunks().cast(pa.string())


def _database() -> duckdb.DuckDBPyConnection:
    db = duckdb.connect(config={"threads": 1})
    with suppress(duckdb.Error):  # without the time zone extension everything is UTC
        db.execute("SET TimeZone = 'UTC'")
    return db


def _objects(db: duckdb.DuckDBPyConnection, text: pa.Array) -> pa.Array:
    """Return for each record whether it is a JSON object."""
    db.register("records", pa.table({"record": text}))
    query = "SELECT coalesce(TRY(json_type(record)) = 'OBJECT', false) AS ok FROM records"
    return db.sql(query).to_arrow_table().column("ok").combine_chunks()


def _columns(db: duckdb.DuckDBPyConnection, text: pa.Array, schema: pa.Schema) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Return the columns of records that are objects, and by index the reasons of those that do not fit."""
    try:
        return _extracted(db, text, schema), {}
    except duckdb.Error:
        good, failed = [], dict[int, str]()
        for at in range(len(text)):
            try:
                good.append(_extracted(db, text.slice(at, 1), schema))
            except duckdb.Error as error:
                failed[at] = str(error).strip().splitlines()[0]
        table = pa.Table.from_batches(good, schema=_plain(schema)).combine_chunks()
        return (table.to_batches() or [_plain(schema).empty_table().to_batches()[0]])[0], failed


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(field.name, field.type) for field in schema])


def _extracted(db: duckdb.DuckDBPyConnection, text: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    db.register("records", pa.table({"record": text}))
    columns = ", ".join(_column(field) for field in schema)
    table = db.sql(f"SELECT {columns} FROM records").to_arrow_table().cast(_plain(schema)).combine_chunks()
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=_plain(schema))


def _column(field: pa.Field) -> str:
    path = "'$.\"" + field.name.replace("'", "''").replace('"', '\\"') + "\"'"
    kind = duckdb_type(field.type)
    if pa.types.is_nested(field.type):
        value = f"json_extract(record, {path})"
        return f"CASE WHEN json_type({value}) <> 'NULL' THEN {value}::{kind} END AS {quote(field.name)}"
    text = f"json_extract_string(record, {path})"
    if field.type == TIMESTAMP:
        number = f"json_type(record, {path}) IN ('BIGINT', 'UBIGINT')"
        since_1970 = f"make_timestamp({text}::BIGINT * 1000)"
        return f"CASE WHEN {number} THEN {since_1970} ELSE {text}::TIMESTAMPTZ::TIMESTAMP END AS {quote(field.name)}"
    if pa.types.is_integer(field.type):  # a cast would round
        name = field.name.replace("'", "''")
        is_whole = f"regexp_full_match({text}, '[-+]?[0-9]+(\\.0*)?')"
        refused = f"error('the field {name} is no whole number: ' || {text})"
        return f"CASE WHEN {text} IS NULL OR {is_whole} THEN {text}::{kind} ELSE {refused} END AS {quote(field.name)}"
    if pa.types.is_floating(field.type):  # a number out of range would become infinite
        name = field.name.replace("'", "''")
        beyond = f"isinf({text}::{kind}) AND json_type(record, {path}) <> 'VARCHAR'"
        refused = f"error('the field {name} is out of the range of {kind}: ' || {text})"
        return f"CASE WHEN {beyond} THEN {refused} ELSE {text}::{kind} END AS {quote(field.name)}"
    return f"{text}::{kind} AS {quote(field.name)}"
