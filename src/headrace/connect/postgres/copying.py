"""Chunks of a table, read by its key through a binary COPY of texts."""

from __future__ import annotations

import select
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from psycopg import sql as words
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

from headrace.base.blame import InternalError
from headrace.connect.capture.cells import texts
from headrace.connect.postgres import kernels
from headrace.connect.postgres.values import printed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg
    from psycopg.pq.abc import PGconn, PGresult

    from headrace.connect.postgres.catalogue import CapturedTable

_COPY_HEADER = 19
"""Bytes before the first row: a signature, flags and the length of an extension that nobody has."""
_CAST_AS_PRINTED = frozenset(
    {
        "smallint",
        "integer",
        "bigint",
        "real",
        "double precision",
        "numeric",
        "text",
        "character varying",
        "uuid",
        "date",
    }
    | {"timestamp without time zone", "timestamp with time zone", "json", "jsonb", "bytea"}
)
_KEYS = 20_000
"""So many keys are looked up by one query."""
_SNAPSHOT = "SELECT s::text FROM pg_current_snapshot() s"


class Chunk(NamedTuple):
    """Rows of a table, in the order of its key, as texts, or keys; `missing` may have been committed and are not in it.

    `first_missing`: transactions from this number on are not in it, whether listed or not.
    """

    rows: pa.Table
    missing: frozenset[int]
    first_missing: int


def chunk(
    sql: psycopg.Connection, table: CapturedTable, columns: Sequence[str], *, after: Sequence[str] | None, limit: int
) -> Chunk:
    """Return the rows after a key (given as texts), in one snapshot of the database."""
    with _snapshot(sql) as seen:
        blocks = _copied(sql, _query(table, columns, after, limit))
    return Chunk(_rows(b"".join(blocks), len(blocks), columns), *seen)


def absent(sql: psycopg.Connection, table: CapturedTable, keys: pa.Table) -> Chunk:
    """Return those of some keys that the table does not have, in one snapshot of the database; with their types."""
    kinds = [words.SQL(_declared(table, name)) for name in table.key]
    match = words.SQL(" AND ").join(
        words.SQL("t.{} = k.{}::{}").format(words.Identifier(name), words.Identifier(f"k{place}"), kind)
        for place, (name, kind) in enumerate(zip(table.key, kinds, strict=True))
    )
    names = words.SQL(", ").join(words.Identifier(f"k{place}") for place in range(len(table.key)))
    query = words.SQL(
        "SELECT k.n FROM unnest({}) WITH ORDINALITY AS k({}, n) WHERE NOT EXISTS (SELECT 1 FROM {} t WHERE {})"
    ).format(
        words.SQL(", ").join([words.SQL("%s::text[]")] * len(table.key)),
        names,
        words.Identifier(table.schema, table.name),
        match,
    )
    missing: list[int] = []
    with _snapshot(sql) as seen:
        for start in range(0, keys.num_rows, _KEYS):
            some = keys.slice(start, _KEYS)
            found = sql.execute(query, [printed(some.column(name)) for name in table.key])
            missing += [start + number - 1 for (number,) in found]
    return Chunk(keys.take(pa.array(sorted(missing), pa.int64())), *seen)


@contextmanager
def _snapshot(sql: psycopg.Connection) -> Iterator[tuple[frozenset[int], int]]:
    """See the database as it is at one moment; gives the transactions that are missing, and the first of all later."""
    with sql.transaction():
        sql.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        row = sql.execute(_SNAPSHOT).fetchone()
        if row is None:
            raise InternalError("the database has no snapshot")
        _, first_missing, listed = row[0].split(":")
        yield frozenset(int(each) & 0xFFFFFFFF for each in listed.split(",") if each), int(first_missing)


def rows_by_key(
    sql: psycopg.Connection, table: CapturedTable, columns: Sequence[str], keys: Sequence[Sequence[str]]
) -> pa.Table:
    """Return the rows that have some keys (given as texts) now, as texts: key columns and those asked for."""
    wanted = [*table.key, *columns]
    kinds = [words.SQL(_declared(table, name)) for name in table.key]
    arrays = [
        words.SQL("{}::text[]").format(words.Literal([key[place] for key in keys])) for place in range(len(table.key))
    ]
    match = words.SQL(" AND ").join(
        words.SQL("t.{} = k.{}::{}").format(words.Identifier(name), words.Identifier(f"k{place}"), kind)
        for place, (name, kind) in enumerate(zip(table.key, kinds, strict=True))
    )
    names = words.SQL(", ").join(words.Identifier(f"k{place}") for place in range(len(table.key)))
    query = words.SQL("COPY (SELECT {} FROM {} t JOIN unnest({}) AS k({}) ON {}) TO STDOUT (FORMAT binary)").format(
        _as_texts(table, wanted), words.Identifier(table.schema, table.name), words.SQL(", ").join(arrays), names, match
    )
    blocks = _copied(sql, query)
    return _rows(b"".join(blocks), len(blocks), wanted)


def _copied(sql: psycopg.Connection, query: words.Composed) -> list[bytes]:
    """Return what a COPY sends, a block a row; psycopg's own reader takes four times as long.

    Raises:
        psycopg.Error: the server refuses it, or the connection is lost.

    """
    pg = sql.pgconn
    pg.send_query(query.as_bytes(sql))
    blocks: list[bytes] = []
    add, get = blocks.append, pg.get_copy_data
    while pg.flush():
        select.select([], [pg.socket], [], 1.0)
    while result := _next_result(pg):
        if result.status == ExecStatus.COPY_OUT:
            while (got := get(1))[0] >= 0:
                if got[0]:
                    add(bytes(got[1]))
                else:
                    select.select([pg.socket], [], [], 1.0)
                    pg.consume_input()
        elif result.status != ExecStatus.COMMAND_OK:
            raise error_from_result(result)
    return blocks


def _next_result(pg: PGconn) -> PGresult | None:
    while pg.is_busy():
        select.select([pg.socket], [], [], 1.0)
        pg.consume_input()
    return pg.get_result()


def _query(table: CapturedTable, columns: Sequence[str], after: Sequence[str] | None, limit: int) -> words.Composed:
    keys = [words.SQL("t.{}").format(words.Identifier(name)) for name in table.key]  # a result's name would be a text
    where = words.Composed([])
    if after is not None:
        values = [
            words.SQL("{}::{}").format(words.Literal(value), words.SQL(_declared(table, name)))
            for name, value in zip(table.key, after, strict=True)
        ]
        where = words.SQL(" WHERE ({}) > ({})").format(words.SQL(", ").join(keys), words.SQL(", ").join(values))
    return words.SQL("COPY (SELECT {} FROM {} t{} ORDER BY {} LIMIT {}) TO STDOUT (FORMAT binary)").format(
        _as_texts(table, columns),
        words.Identifier(table.schema, table.name),
        where,
        words.SQL(", ").join(keys),
        words.Literal(limit),
    )


def _as_texts(table: CapturedTable, columns: Sequence[str]) -> words.Composed:
    """Return the columns as pgoutput sends them: as their types print them, which a cast to text does not always."""
    parts = []
    for name in columns:
        same = _declared(table, name).partition("(")[0] in _CAST_AS_PRINTED
        shape = "t.{0}::text" if same else "CASE WHEN t.{0} IS DISTINCT FROM NULL THEN format('%s', t.{0}) END"
        parts.append(words.SQL(shape).format(words.Identifier(name)))
    return words.SQL(", ").join(parts)


def _declared(table: CapturedTable, name: str) -> str:
    column = table.column(name)
    if column is None:
        raise InternalError(f"{table.full_name} has no column {name}")
    return column.declared


def _rows(data: bytes, most: int, columns: Sequence[str]) -> pa.Table:
    starts, sizes = np.empty((most, len(columns)), np.int64), np.empty((most, len(columns)), np.int64)
    raw = np.frombuffer(data, np.uint8)
    count = kernels.copied_cells(raw, _COPY_HEADER, starts, sizes)
    if count < 0:
        raise InternalError("a binary COPY was cut off")
    result = {name: texts(raw, starts[:count, place], sizes[:count, place]) for place, name in enumerate(columns)}
    return pa.table(result)
