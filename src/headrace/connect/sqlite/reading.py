"""What is read of a table in one transaction: the rows that changed, the next chunk of its snapshot, missing keys."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from headrace.connect.capture.columns import captured
from headrace.connect.capture.errors import ValueDoesNotFit
from headrace.connect.capture.known import without
from headrace.connect.capture.rows import deleted_rows
from headrace.connect.capture.source import DELETED, SOURCE, SOURCE_TYPE
from headrace.connect.sqlite.catalogue import quoted
from headrace.connect.sqlite.triggers import key_columns, notes_of
from headrace.connect.sqlite.values import column, texts_of_any_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.connect.sqlite.catalogue import CapturedTable

KEYS_AT_ONCE = 20_000
"""So many keys are Python objects at a time."""


class Chunk(NamedTuple):
    """Rows of a snapshot; `after` is the key of the last one, None where the table ends."""

    rows: pa.Table
    after: tuple[Any, ...] | None


def changed(db: sqlite3.Connection, table: CapturedTable, schema: pa.Schema, *, after: int, upto: int) -> pa.Table:
    """Return the rows, as they are now, of the keys that notes `(after, upto]` have; those that are gone as deletes.

    A key that is gone and does not fit the topic is left out: no row there has it. So a row can be corrected.
    """
    keys, names = key_columns(len(table.key)), captured(schema)
    noted = (
        f"SELECT {', '.join(keys)}, max(seq) AS seq FROM {quoted(notes_of(table.name))} "
        f"WHERE seq > ? AND seq <= ? GROUP BY {', '.join(keys)}"
    )
    match = " AND ".join(f"t.{quoted(name)} IS n.{key}" for name, key in zip(table.key, keys, strict=True))
    there = _found(table, keys, match)
    values = [f"n.{keys[table.key.index(name)]}" if name in table.key else f"t.{quoted(name)}" for name in names]
    rows = _fetched(
        db,
        f"SELECT n.seq, {there}, {', '.join(values)} FROM ({noted}) n LEFT JOIN {quoted(table.name)} t ON {match} "
        "ORDER BY n.seq",
        [after, upto],
    )
    try:
        return _changes(table, names, rows, schema)
    except ValueDoesNotFit:
        kept = [row for row in rows if row[1] or _has_fitting_key(table, names, row[2:], schema)]
        if len(kept) == len(rows):
            raise
    return _changes(table, names, kept, schema)


def chunk(
    db: sqlite3.Connection, table: CapturedTable, schema: pa.Schema, *, after: Sequence[Any] | None, limit: int
) -> Chunk:
    """Return the next rows of a table, in the order of its key, and all that have the key of the last one.

    SQLite lets many rows have a key with a null. Trap: they are in one chunk, whatever its limit.
    """
    names, keys, width = captured(schema), ", ".join(map(quoted, table.key)), len(table.key)
    select = f"SELECT {keys}, {', '.join(map(quoted, names))} FROM {quoted(table.name)}"
    where, given = ("", []) if after is None else _behind(table.key, after)
    rows = _fetched(db, f"{select} {where} ORDER BY {keys} LIMIT ?", [*given, limit])
    last = tuple(rows[-1][:width]) if len(rows) == limit else None
    if last is not None and None in last:
        same = " AND ".join(f"{quoted(name)} IS ?" for name in table.key)
        rows = [row for row in rows if row[:width] != last] + _fetched(db, f"{select} WHERE {same}", last)
    columns = list(zip(*rows, strict=True))[width:] if rows else [()] * len(names)
    nowhere = pa.nulls(len(rows), SOURCE_TYPE)
    return Chunk(
        _typed(
            table, dict(zip(names, columns, strict=True)), schema, pa.array([False] * len(rows), pa.bool_()), nowhere
        ),
        last,
    )


def _behind(key: Sequence[str], last: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return the condition for rows behind a key, and its values; nulls come first."""
    names = [quoted(name) for name in key]
    if None not in last:
        return f"WHERE ({', '.join(names)}) > ({', '.join('?' * len(last))})", list(last)
    either, given = [], list[Any]()
    for at, value in enumerate(last):
        equal = [f"{name} IS ?" for name in names[:at]]
        either.append(" AND ".join([*equal, f"{names[at]} IS NOT NULL" if value is None else f"{names[at]} > ?"]))
        given += [*last[:at], *([] if value is None else [value])]
    return f"WHERE {' OR '.join(f'({each})' for each in either)}", given


def vanished(db: sqlite3.Connection, table: CapturedTable, schema: pa.Schema, known: pa.Table) -> pa.Table:
    """Return deletes for those of some keys that the table does not have.

    Keys are compared as the topic has them, not by SQLite: there a timestamp is a text in any of several forms, and a
    collation takes other keys for the same.
    """
    names, kinds = list(table.key), [schema.field(name).type for name in table.key]
    here = [pa.schema(list(zip(names, kinds, strict=True))).empty_table()]
    with texts_of_any_bytes(db):
        found = db.execute(f"SELECT {', '.join(map(quoted, names))} FROM {quoted(table.name)}")
        while rows := found.fetchmany(KEYS_AT_ONCE):
            here.append(_keys(table, names, kinds, rows))
    return deleted_rows(names, without(known.select(names), pa.concat_tables(here)), schema)


def _changes(
    table: CapturedTable, names: Sequence[str], rows: Sequence[tuple[Any, ...]], schema: pa.Schema
) -> pa.Table:
    """Return rows of a note's number, whether the row is there, and its values."""
    numbers, present, *columns = zip(*rows, strict=True) if rows else ((), (), *((),) * len(names))
    source = pa.StructArray.from_arrays(
        [
            pa.array(numbers, pa.int64()).cast(pa.string()),
            *(pa.nulls(len(rows), SOURCE_TYPE[at].type) for at in (1, 2)),
        ],
        fields=list(SOURCE_TYPE),
    )
    gone = pa.array([not each for each in present], pa.bool_())
    return _typed(table, dict(zip(names, columns, strict=True)), schema, gone, source)


def _has_fitting_key(table: CapturedTable, names: Sequence[str], values: Sequence[Any], schema: pa.Schema) -> bool:
    try:
        for name, value in zip(names, values, strict=True):
            if name in table.key:
                column([value], schema.field(name).type, table=table.name, name=name, key=True)
    except ValueDoesNotFit:
        return False
    return True


def _fetched(db: sqlite3.Connection, query: str, given: Sequence[Any]) -> list[Any]:
    """Return all rows of a query; where it finds texts that are not UTF-8, again with these as bytes."""
    try:
        return db.execute(query, given).fetchall()
    except sqlite3.OperationalError as error:
        if "Could not decode to UTF-8" not in str(error):
            raise
    with texts_of_any_bytes(db):
        return db.execute(query, given).fetchall()


def _keys(
    table: CapturedTable, names: Sequence[str], kinds: Sequence[pa.DataType], rows: Sequence[tuple[Any, ...]]
) -> pa.Table:
    columns = zip(names, kinds, zip(*rows, strict=True), strict=True)
    return pa.table({name: column(each, kind, table=table.name, name=name, key=True) for name, kind, each in columns})


def _found(table: CapturedTable, keys: Sequence[str], match: str) -> str:
    """Return SQL that says whether the row of a key was found: of just this key, where a collation takes others too."""
    same = " AND ".join(
        f"t.{quoted(name)} IS n.{key} COLLATE BINARY" for name, key in zip(table.key, keys, strict=True)
    )
    if len(table.key) == 1:
        return f"(t.{quoted(table.key[0])} IS NOT NULL AND {same})"
    return f"({same} AND EXISTS (SELECT 1 FROM {quoted(table.name)} t WHERE {match}))"  # a part of a key may be null


def _typed(
    table: CapturedTable,
    columns: Mapping[str, Sequence[Any]],
    schema: pa.Schema,
    deleted: pa.Array,
    source: pa.Array,
) -> pa.Table:
    result = {
        field.name: source
        if field.name == SOURCE
        else column(columns[field.name], field.type, table=table.name, name=field.name, key=field.name in table.key)
        for field in schema
    }
    return pa.table(result | {DELETED: deleted})
