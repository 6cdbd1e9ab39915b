"""Chunks of a table, read by its key at one moment of the server, whose place in the log is known."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from headrace.connect.capture.cells import texts
from headrace.connect.mysql.position import LogPlace
from headrace.connect.mysql.stream import text_rows
from headrace.connect.mysql.values import as_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pymysql

    from headrace.connect.mysql.catalogue import CapturedTable, Column

_AS_NUMBERS = frozenset({"bit", "enum", "set"})
_PLAIN = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year", "float", "double"})
_BINARY = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})


class Chunk(NamedTuple):
    """Rows of a table as they were at a place in the log; `last` is the key of the last row, as texts."""

    rows: pa.Table
    place: LogPlace
    last: tuple[str, ...] | None


def chunk(
    sql: pymysql.Connection[Any],
    table: CapturedTable,
    columns: Sequence[str],
    *,
    after: Sequence[str] | None,
    limit: int,
) -> Chunk:
    """Return the rows after a key (given as texts), in the order of the key."""
    order = [_ordered(table.column(name)) for name in table.key]
    shown = [_shown(table.column(name)) for name in columns]
    last = [_whole(table.column(name)) for name in table.key]
    where = "" if after is None else f" WHERE {_behind(sql, table, order, after)}"
    query = f"SELECT {', '.join([*shown, *last])} FROM {_named(table)}{where} ORDER BY {', '.join(order)} LIMIT {limit}"
    with _moment(sql) as place:
        data, starts, sizes = text_rows(sql, query, len(shown) + len(last))
    cells = [texts(data, starts[:, n], sizes[:, n]) for n in range(starts.shape[1])]
    rows = pa.table({name: _precise(table.column(name), each) for name, each in zip(columns, cells, strict=False)})
    full = rows.num_rows == limit
    return Chunk(rows, place, tuple(each[-1].as_py() for each in cells[len(columns) :]) if full else None)


def absent(sql: pymysql.Connection[Any], table: CapturedTable, known: pa.Table) -> Chunk:
    """Return those of some keys that the table does not have."""
    shown = [_shown(table.column(name)) for name in table.key]
    with _moment(sql) as place:
        data, starts, sizes = text_rows(sql, f"SELECT {', '.join(shown)} FROM {_named(table)}", len(shown))
    here = pa.table(
        {
            name: as_type(
                _precise(table.column(name), texts(data, starts[:, n], sizes[:, n])),
                known.schema.field(name).type,
                table=table.full_name,
                name=name,
            )
            for n, name in enumerate(table.key)
        }
    )
    return Chunk(known.join(here, keys=list(table.key), join_type="left anti").combine_chunks(), place, None)


def log_place(sql: pymysql.Connection[Any]) -> LogPlace:
    """Return where the log ends; in a transaction that sees one moment, where it ended then."""
    with sql.cursor() as cursor:
        cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
        found = {name.lower(): value for name, value in cursor.fetchall()}
    return LogPlace.of(found["binlog_snapshot_file"], int(found["binlog_snapshot_position"]))


@contextmanager
def _moment(sql: pymysql.Connection[Any]) -> Iterator[LogPlace]:
    """See the server at one moment; the server has noted the place in its log with it."""
    with sql.cursor() as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        try:
            yield log_place(sql)
        finally:
            cursor.execute("ROLLBACK")


def _named(table: CapturedTable) -> str:
    return f"{quoted(table.schema)}.{quoted(table.name)}"


def quoted(name: str) -> str:
    """Return a name as MariaDB reads it."""
    return "`" + name.replace("`", "``") + "`"


def _shown(column: Column) -> str:
    """Return the column as an expression whose text has the whole value."""
    name = quoted(column.name)
    if column.kind == "float":
        return f"({name} + 0e0)"
    return f"({name} + 0)" if column.kind == "bit" else name


def _ordered(column: Column) -> str:
    """Return the column as an expression by which rows are ordered and compared."""
    return f"({quoted(column.name)} + 0)" if column.kind in _AS_NUMBERS else quoted(column.name)


def _whole(column: Column) -> str:
    """Return the column of a key as an expression whose text is read as the same value (`_literal`)."""
    if column.kind in _BINARY:
        return f"hex({quoted(column.name)})"
    return _shown(column) if column.kind == "float" else _ordered(column)


def _precise(column: Column, found: pa.Array) -> pa.Array:
    if column.kind not in ("float", "double"):
        return found
    return found.cast(pa.float64()).cast(pa.float32() if column.kind == "float" else pa.float64())


def _behind(sql: pymysql.Connection[Any], table: CapturedTable, order: Sequence[str], after: Sequence[str]) -> str:
    """Return the condition for rows behind a key, in a form that the server looks up in the index."""
    values = [_literal(sql, table.column(name), value) for name, value in zip(table.key, after, strict=True)]
    parts = [
        " AND ".join([*(f"{order[k]} = {values[k]}" for k in range(n)), f"{order[n]} > {values[n]}"])
        for n in range(len(order))
    ]
    return f"{order[0]} >= {values[0]} AND ({' OR '.join(f'({each})' for each in parts)})"


def _literal(sql: pymysql.Connection[Any], column: Column, value: str) -> str:
    if column.kind in _PLAIN or column.kind in _AS_NUMBERS:
        return str(int(value)) if value.lstrip("-").isdigit() else repr(float(value)) if "e" in value else value
    if column.kind in _BINARY:
        return f"x'{value}'"
    return str(sql.escape(value))
