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
_TOO_MANY = ("extra", "repeated")
_BATCH = 50_000


def compare_rows(
    sink: StoreSink, rows: Iterable[pa.RecordBatch], held: Iterable[pa.RecordBatch], *, repair: bool
) -> Difference:
    """Return how the rows of a store differ from those that it should have; with `repair` write what differs."""
    names = sink.columns.names
    with _staged(rows, held, sink.columns) as sql:
        differences = _compared(sql, sink.key, [name for name in names if name not in sink.key])
        if repair and differences.count:
            gone = ", ".join(quote(name) if name in sink.key else f"any_value(NULL) AS {quote(name)}" for name in names)
            kept, key = (", ".join(map(quote, some)) for some in (names, sink.key))
            changed = f"SELECT {kept}, false AS _deleted FROM changed"
            repeated, extra = (
                f"SELECT {gone}, true AS _deleted FROM {table} GROUP BY {key}" for table in ("repeated", "extra")
            )
            if sql.execute("FROM repeated LIMIT 1").fetchall():  # a merge by key would change each, and keep all
                _publish(sink, sql, repeated)
            _publish(sink, sql, f"{changed} UNION ALL {extra}")
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
        sql.execute("CREATE OR REPLACE TABLE held AS SELECT DISTINCT * FROM held").fetchall()  # Redis may say one twice
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
    """Return how the rows differ, and make tables of what a repair writes.

    `changed`: rows to write. `extra`: rows whose keys are not to be there. `repeated`: rows whose keys are there
    several times, in a store that others have written to; they are in `changed`, too.
    """
    names = ", ".join(map(quote, key))
    same, several = (_equal(key, "wanted", other) for other in ("held", "several"))
    alike = " AND ".join([same, *(f"wanted.{quote(name)} IS NOT DISTINCT FROM held.{quote(name)}" for name in values)])
    exists = "EXISTS (SELECT 1 FROM {} WHERE {})".format
    for statement in (
        f"CREATE TABLE several AS SELECT {names} FROM held GROUP BY {names} HAVING count(*) > 1",
        f"CREATE TABLE repeated AS SELECT * FROM wanted WHERE {exists('several', several)}",
        f"CREATE TABLE unlike AS SELECT * FROM wanted WHERE NOT {exists('held', alike)}",
        f"CREATE TABLE missing AS SELECT * FROM unlike AS wanted WHERE NOT {exists('held', same)}",
        f"CREATE VIEW changed AS FROM unlike UNION ALL SELECT * FROM repeated AS wanted WHERE {exists('held', alike)}",
        f"CREATE TABLE extra AS SELECT * FROM held WHERE NOT {exists('wanted', same)}",
    ):
        sql.execute(statement).fetchall()
    of_repeated = f"(SELECT count(*) FROM held WHERE {exists('repeated', _equal(key, 'repeated', 'held'))})"
    counts = ["(SELECT count(*) FROM missing)", "(SELECT count(*) FROM unlike)", "(SELECT count(*) FROM extra)"]
    counts += [f"{of_repeated} - (SELECT count(*) FROM repeated)"]
    ((missing, unlike, extra, more),) = sql.execute(f"SELECT {', '.join(counts)}").fetchall()
    other = f"SELECT {names} FROM unlike AS wanted WHERE {exists('held', same)}"
    some = " UNION ALL ".join(f"({one} LIMIT 5)" for one in (other, *(f"SELECT {names} FROM {t}" for t in _TOO_MANY)))
    keys = [", ".join(map(str, found)) for found in sql.execute(some).fetchall()]
    return Difference(missing=missing, other=unlike - missing, extra=extra + more, keys=list(dict.fromkeys(keys)))


def _equal(key: Iterable[str], one: str, other: str) -> str:
    return " AND ".join(f"{one}.{quote(name)} IS NOT DISTINCT FROM {other}.{quote(name)}" for name in key)


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
