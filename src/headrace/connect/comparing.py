"""Stores compared with their tables by DuckDB, which uses its disk where the memory is too small.

What differs is written as an epoch of a writer of its own, so a repair is as safe as any epoch.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from headrace.base.names import quote
from headrace.base.time import SystemClock
from headrace.connect.sink import Difference
from headrace.connect.store import database_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.connect.store import StoreSink

REPAIR = "headrace/sync/repair"
"""The writer of repairs."""
ENTRY = pa.schema([("_entry", pa.string()), ("_text", pa.string())])
"""What a store of texts has: the key of an entry, and what is in it."""
_BATCH = 50_000


def compare_rows(
    sink: StoreSink, rows: Iterable[pa.RecordBatch], held: Iterable[pa.RecordBatch], *, repair: bool
) -> Difference:
    """Return how the rows of a store differ from those that it should have; with `repair` write what differs."""
    names = sink.columns.names
    with _staged(rows, held, sink.columns) as sql:
        differences = _compared(sql, sink.key, [name for name in names if name not in sink.key])
        if repair and (differences.missing or differences.other or differences.extra):
            gone = ", ".join(quote(name) if name in sink.key else f"NULL AS {quote(name)}" for name in names)
            kept = ", ".join(map(quote, names))
            _publish(
                sink, sql, f"SELECT {kept}, false AS _deleted FROM changed UNION ALL SELECT {gone}, true FROM extra"
            )
        return differences


def compare_entries(
    sink: StoreSink,
    rows: Iterable[pa.RecordBatch],
    held: Iterable[pa.RecordBatch],
    *,
    entries: Callable[[pa.RecordBatch], tuple[pa.Array, pa.Array]],
    delete: Callable[[list[str]], None] | None,
) -> Difference:
    """Return how entries of texts differ from those that a store should have; with `delete` repair them.

    Args:
        sink: the store.
        rows: all rows that it should have.
        held: what it has, as batches of `ENTRY`.
        entries: returns for rows the keys of their entries, and what is in them.
        delete: deletes entries by their keys.

    """
    wanted = (_with_entries(batch.select(sink.columns.names), entries) for batch in rows)
    with _staged(wanted, held, pa.schema([*sink.columns, *ENTRY]), ENTRY) as sql:
        differences = _compared(sql, ["_entry"], ["_text"])
        if delete is not None:
            kept = ", ".join(map(quote, sink.columns.names))
            if differences.missing or differences.other:
                _publish(sink, sql, f"SELECT {kept}, false AS _deleted FROM changed")
            if differences.extra:
                delete([key for (key,) in sql.execute("SELECT _entry FROM extra").fetchall()])
        return differences


def _with_entries(
    rows: pa.RecordBatch, entries: Callable[[pa.RecordBatch], tuple[pa.Array, pa.Array]]
) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*rows.columns, *entries(rows)], names=[*rows.schema.names, *ENTRY.names])


@contextmanager
def _staged(
    rows: Iterable[pa.RecordBatch],
    held: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    held_schema: pa.Schema | None = None,
) -> Iterator[duckdb.DuckDBPyConnection]:
    with (
        tempfile.TemporaryDirectory(prefix="headrace-") as folder,
        duckdb.connect(f"{folder}/compared.duckdb", config=database_options(folder)) as sql,
    ):
        sql.execute("SET TimeZone = 'UTC'").fetchall()
        for table, batches, columns in (("wanted", rows, schema), ("held", held, held_schema or schema)):
            names = ", ".join(map(quote, columns.names))
            sql.register("batch", columns.empty_table())
            sql.execute(f"CREATE TABLE {table} AS SELECT {names} FROM batch").fetchall()
            for batch in batches:
                sql.register("batch", batch)
                sql.execute(f"INSERT INTO {table} SELECT {names} FROM batch").fetchall()
        yield sql


def _compared(sql: duckdb.DuckDBPyConnection, key: Iterable[str], values: Iterable[str]) -> Difference:
    same = " AND ".join(f"wanted.{quote(name)} IS NOT DISTINCT FROM held.{quote(name)}" for name in key)
    differ = " OR ".join(f"wanted.{quote(name)} IS DISTINCT FROM held.{quote(name)}" for name in values) or "false"
    exists = "EXISTS (SELECT 1 FROM held WHERE {})"
    other = f"SELECT *, false AS _new FROM wanted WHERE {exists.format(f'{same} AND ({differ})')}"
    missing = f"SELECT *, true FROM wanted WHERE NOT {exists.format(same)}"
    for statement in (
        f"CREATE TABLE changed AS {other} UNION ALL {missing}",
        f"CREATE TABLE extra AS SELECT * FROM held WHERE NOT EXISTS (SELECT 1 FROM wanted WHERE {same})",
    ):
        sql.execute(statement).fetchall()
    counts = "SELECT count(*) FILTER (_new), count(*) FILTER (NOT _new), (SELECT count(*) FROM extra) FROM changed"
    ((new, differing, extra),) = sql.execute(counts).fetchall()
    names = ", ".join(map(quote, key))
    some = f"(SELECT {names} FROM changed WHERE NOT _new LIMIT 5) UNION ALL (SELECT {names} FROM extra LIMIT 5)"
    keys = [", ".join(map(str, found)) for found in sql.execute(some).fetchall()]
    return Difference(missing=new, other=differing, extra=extra, keys=keys)


def _publish(sink: StoreSink, sql: duckdb.DuckDBPyConnection, query: str) -> None:
    writer = sink.open(writer=f"{REPAIR}/{sink.name}", clock=SystemClock())
    try:
        last = writer.last_epoch()
        rows = sql.sql(f"SELECT *, 0::BIGINT AS _time FROM ({query})").to_arrow_reader(_BATCH)
        types = pa.schema([*sink.columns, pa.field("_deleted", pa.bool_()), pa.field("_time", pa.int64())])
        parts = (part for batch in rows for part in pa.Table.from_batches([batch]).cast(types).to_batches())
        writer.publish((-1 if last is None else last) + 1, parts)
    finally:
        writer.close()
