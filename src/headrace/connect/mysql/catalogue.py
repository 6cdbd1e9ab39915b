"""What the catalogue of a server says of a table: its key, its columns, and their types here.

| MariaDB | column |
|---|---|
| tinyint, smallint, mediumint, int, bigint, year | tinyint, smallint, int, int, bigint, smallint |
| unsigned | the next wider one; bigint unsigned: decimal(20, 0) |
| bit(1), bit(n) | boolean, decimal(20, 0) |
| float, double, decimal(p, s) with p up to 38 | float, double, decimal(p, s) |
| date, datetime, timestamp | date, timestamp_ntz, timestamp |
| binary, varbinary, blobs, geometries | binary |
| char, varchar, texts, enum, set, json, time, other decimals | string |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.base.schema import MAX_PRECISION, TIMESTAMP, TIMESTAMP_NTZ
from headrace.connect.capture.errors import NoPrimaryKey, NotCapturable

if TYPE_CHECKING:
    import pymysql

_SIGNED = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "mediumint": pa.int32(),
    "int": pa.int32(),
    "bigint": pa.int64(),
}
_LONG = pa.decimal128(20, 0)
_UNSIGNED = {
    "tinyint": pa.int16(),
    "smallint": pa.int32(),
    "mediumint": pa.int32(),
    "int": pa.int64(),
    "bigint": _LONG,
}
_OTHERS = {
    "year": pa.int16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "datetime": TIMESTAMP_NTZ,
    "timestamp": TIMESTAMP,
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), pa.string()),
    **dict.fromkeys(("enum", "set", "time"), pa.string()),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), pa.binary()),
    **dict.fromkeys(("geometry", "point", "linestring", "polygon", "multipoint"), pa.binary()),
    **dict.fromkeys(("multilinestring", "multipolygon", "geometrycollection"), pa.binary()),
}
_TABLE = """
SELECT t.table_type, t.engine, e.transactions, coalesce(t.table_rows, 0) FROM information_schema.tables t
LEFT JOIN information_schema.engines e ON e.engine = t.engine WHERE t.table_schema = %s AND t.table_name = %s
"""
_COLUMNS = """
SELECT column_name, data_type, column_type, column_key FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
_KEY = """
SELECT column_name, sub_part FROM information_schema.statistics
WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index
"""
_CASCADES = """
SELECT constraint_name FROM information_schema.referential_constraints WHERE constraint_schema = %s AND table_name = %s
AND (update_rule IN ('CASCADE', 'SET NULL') OR delete_rule IN ('CASCADE', 'SET NULL'))
"""
_NEAREST = """
SELECT concat(table_schema, '.', table_name) FROM information_schema.tables
WHERE table_type = 'BASE TABLE' AND table_name LIKE %s AND table_schema NOT IN ('mysql', 'sys') LIMIT 3
"""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its type in MariaDB, and the one here: None where it has none."""

    name: str
    kind: str
    type: pa.DataType | None


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table that can be captured."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    about_rows: int

    @property
    def full_name(self) -> str:
        """Return `database.table`."""
        return f"{self.schema}.{self.name}"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all columns."""
        return tuple(each.name for each in self.columns)

    @property
    def arrow(self) -> pa.Schema:
        """Return the columns that have a type here as a schema: those of the key are not null."""
        return pa.schema(
            [
                pa.field(each.name, each.type, nullable=each.name not in self.key)
                for each in self.columns
                if each.type is not None
            ]
        )

    def column(self, name: str) -> Column:
        """Return a column by its name."""
        return next(each for each in self.columns if each.name == name)


def described(sql: pymysql.Connection[Any], schema: str, name: str) -> CapturedTable:
    """Return what the catalogue says of a table.

    Raises:
        NotCapturable: there is no such table, or the log does not have all of its changes.
        NoPrimaryKey: it has no key.

    """
    with sql.cursor() as cursor:
        cursor.execute(_TABLE, [schema, name])
        found = cursor.fetchone()
        full = f"{schema}.{name}"
        if found is None:
            cursor.execute(_NEAREST, [f"%{name}%"])
            others = [each for (each,) in cursor.fetchall()]
            hint = (
                f"Did you mean {' or '.join(others)}?" if others else "Name it database.table; it needs SELECT on it."
            )
            raise NotCapturable(f"there is no table {full}, or it may not be seen", hint=hint)
        kind, engine, transactions, rows = found
        if kind != "BASE TABLE":
            raise NotCapturable(
                f"{full} is no ordinary table", hint="A view has no log of changes: capture its tables."
            )
        if transactions != "YES":
            raise NotCapturable(
                f"{full} is kept by {engine}, which has no transactions", hint=f"ALTER TABLE {full} ENGINE = InnoDB"
            )
        cursor.execute(_CASCADES, [schema, name])
        if (cascade := cursor.fetchone()) is not None:
            raise NotCapturable(
                f'{full} has the foreign key "{cascade[0]}" that changes rows by itself',
                detail="The server does not log what ON DELETE or ON UPDATE CASCADE or SET NULL changes.",
                hint=f"ALTER TABLE {full} DROP FOREIGN KEY {cascade[0]}, and add it again with RESTRICT.",
            )
        cursor.execute(_KEY, [schema, name])
        key = cursor.fetchall()
        if not key or any(part is not None for _, part in key):
            raise NoPrimaryKey(full, hint=f"ALTER TABLE {full} ADD PRIMARY KEY (…), with whole columns")
        cursor.execute(_COLUMNS, [schema, name])
        columns = tuple(Column(column, kind, _type(kind, shown)) for column, kind, shown, _ in cursor.fetchall())
    return CapturedTable(schema, name, columns, tuple(column for column, _ in key), int(rows))


def _type(kind: str, shown: str) -> pa.DataType | None:
    if kind in _SIGNED:
        return (_UNSIGNED if "unsigned" in shown else _SIGNED)[kind]
    if kind == "bit":
        return pa.bool_() if shown == "bit(1)" else _LONG
    if kind == "decimal":
        precision, scale = (int(each) for each in re.findall(r"\d+", shown)[:2])
        return pa.decimal128(precision, scale) if precision <= MAX_PRECISION else pa.string()
    return _OTHERS.get(kind)
