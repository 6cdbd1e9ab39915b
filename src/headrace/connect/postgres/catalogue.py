"""What the catalogue of a database says of a table: its key, its columns, and their types here.

| PostgreSQL | column |
|---|---|
| smallint, integer, bigint, oid | smallint, int, bigint, bigint |
| real, double precision, boolean | float, double, boolean |
| numeric(p, s) with p up to 38 | decimal(p, s) |
| date, timestamp, timestamptz, bytea | date, timestamp_ntz, timestamp, binary |
| text, varchar, char, name, uuid, json, jsonb, enums, xml | string |
| arrays of these | array |
| a domain | its base type |
| all others: numeric without precision, time, interval, ranges, composites, inet, … | string, as it is printed |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.schema import MAX_PRECISION, TIMESTAMP, TIMESTAMP_NTZ
from headrace.connect.capture.errors import NoPrimaryKey, NotCapturable

if TYPE_CHECKING:
    import psycopg

_TYPES = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "oid": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP_NTZ,
    "timestamptz": TIMESTAMP,
    "bytea": pa.binary(),
}
_COLUMNS = """
WITH RECURSIVE base AS (
    SELECT a.attnum, a.attname, a.attnotnull, a.attgenerated, a.attstorage, a.atttypid AS type, a.atttypmod AS modifier
    FROM pg_attribute a WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT b.attnum, b.attname, b.attnotnull, b.attgenerated, b.attstorage, t.typbasetype, t.typtypmod
    FROM base b JOIN pg_type t ON t.oid = b.type WHERE t.typtype = 'd'
)
SELECT b.attname, b.attnotnull, b.attgenerated <> '', b.attstorage IN ('x', 'e', 'm') AND t.typlen = -1,
       t.typname, format_type(b.type, b.modifier), e.typname, (SELECT format_type(atttypid, atttypmod)
       FROM pg_attribute WHERE attrelid = %(oid)s AND attnum = b.attnum)
FROM base b JOIN pg_type t ON t.oid = b.type LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
WHERE t.typtype <> 'd' ORDER BY b.attnum
"""
_TABLE = """
SELECT c.oid, c.relkind, c.relreplident, c.relpersistence, c.reltuples::bigint,
       CASE WHEN c.reltuples > 0 THEN pg_table_size(c.oid) / c.reltuples ELSE 1 END::bigint FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
"""
_KEY = """
SELECT a.attname, i.indimmediate FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey::int[]) WITH ORDINALITY AS k(number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s AND {which} AND k.place <= i.indnkeyatts ORDER BY k.place
"""
_ORDINARY = "r"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its type here and in PostgreSQL, and whether it may be stored apart from its row."""

    name: str
    type: pa.DataType
    declared: str
    apart: bool


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table that can be captured; `whole_before` says that a change has all of the row before it."""

    oid: int
    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    whole_before: bool
    about_rows: int
    row_bytes: int

    @property
    def full_name(self) -> str:
        """Return `schema.table`."""
        return f"{self.schema}.{self.name}"

    @property
    def arrow(self) -> pa.Schema:
        """Return the columns as a schema: those of the key are not null."""
        return pa.schema([pa.field(each.name, each.type, nullable=each.name not in self.key) for each in self.columns])

    @property
    def columns_sent(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(each.name for each in self.columns)

    @property
    def types(self) -> dict[str, str]:
        """Return the types of columns as PostgreSQL names them."""
        return {each.name: each.declared for each in self.columns}

    def column(self, name: str) -> Column | None:
        """Return a column by its name, None if there is none."""
        return next((each for each in self.columns if each.name == name), None)


def described(sql: psycopg.Connection, schema: str, name: str) -> CapturedTable:
    """Return what the catalogue says of a table. Generated columns are left out: the server does not publish them.

    Raises:
        NotCapturable: there is no such table, or its changes are not logged.
        NoPrimaryKey: it has no key.

    """
    found = sql.execute(_TABLE, [schema, name]).fetchone()
    full = f"{schema}.{name}"
    if found is None:
        raise NotCapturable(f"there is no table {full}", hint=_nearest(sql, name))
    oid, kind, identity, persistence, rows, row_bytes = found
    if kind != _ORDINARY:
        raise NotCapturable(
            f"{full} is no ordinary table",
            hint="A view has no log of changes: capture its tables. Of a partitioned table, capture each partition.",
        )
    if persistence != "p":
        raise NotCapturable(f"{full} is unlogged or temporary", hint=f"ALTER TABLE {full} SET LOGGED")
    if identity == "n":
        raise NotCapturable(
            f"{full} has REPLICA IDENTITY NOTHING: its updates and deletes do not say which row they change",
            hint=f"ALTER TABLE {full} REPLICA IDENTITY DEFAULT",
        )
    which = "i.indisreplident" if identity == "i" else "i.indisprimary"
    found_key = sql.execute(_KEY.format(which=which), [oid]).fetchall()
    key = tuple(column for column, _ in found_key)
    if not all(immediate for _, immediate in found_key):
        raise NotCapturable(
            f"the primary key of {full} is DEFERRABLE: two rows may have one key within a transaction, and to the "
            "server it is no replica identity",
            hint=f"Make the key of {full} anew without DEFERRABLE; or make a unique index that is not deferrable its "
            f"identity: ALTER TABLE {full} REPLICA IDENTITY USING INDEX …",
        )
    if not key:
        raise NoPrimaryKey(
            full,
            hint=f"ALTER TABLE {full} ADD PRIMARY KEY (…); or make a unique index over columns that are not null its "
            f"identity: ALTER TABLE {full} REPLICA IDENTITY USING INDEX …",
        )
    columns = tuple(
        Column(column, _type(base, formatted, element), shown, apart)
        for column, _, generated, apart, base, formatted, element, shown in sql.execute(_COLUMNS, {"oid": oid})
        if not generated
    )
    return CapturedTable(oid, schema, name, columns, key, identity == "f", max(rows, 0), max(row_bytes, 1))


def _type(base: str, formatted: str, element: str | None) -> pa.DataType:
    if element is not None:
        return pa.list_(_type(element, formatted.removesuffix("[]"), None))
    if base == "numeric":
        limits = re.fullmatch(r"numeric\((\d+),(-?\d+)\)", formatted)
        precision, scale = (int(limits[1]), int(limits[2])) if limits else (0, 0)
        return (
            pa.decimal128(precision, scale) if 0 <= scale <= precision <= MAX_PRECISION and precision else pa.string()
        )
    return _TYPES.get(base, pa.string())


def _nearest(sql: psycopg.Connection, name: str) -> str:
    others = sql.execute(
        "SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relkind = 'r' AND c.relname ILIKE %s AND n.nspname NOT LIKE 'pg\\_%%' LIMIT 3",
        [f"%{name}%"],
    ).fetchall()
    return f"Did you mean {' or '.join(full for (full,) in others)}?" if others else "Name it schema.table."
