"""Chunks of a table, read by its key through a binary COPY.

A number or a time is sent as it is, which is what its text would become; anything else as the text that pgoutput sends.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from psycopg import sql as words
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

from headrace.base.blame import InternalError
from headrace.base.waiting import readable, writable
from headrace.connect.capture.cells import texts
from headrace.connect.postgres import copy_stream, kernels
from headrace.connect.postgres.values import as_number, number_type, printed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    import psycopg
    from psycopg.pq.abc import PGconn, PGresult

    from headrace.connect.postgres.catalogue import CapturedTable

    Longs = npt.NDArray[np.int64]

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
    """Rows of a table, in the order of its key, or keys; `missing` may have been committed and are not in it.

    A column has its type in the topic, or texts.

    `first_missing`: transactions from this number on are not in it, whether listed or not.
    """

    rows: pa.Table
    missing: frozenset[int]
    first_missing: int


def chunk(
    sql: psycopg.Connection, table: CapturedTable, schema: pa.Schema, *, after: Sequence[str] | None, limit: int
) -> Chunk:
    """Return the rows after a key (given as texts), in one snapshot of the database.

    Args:
        sql: a connection outside of a transaction.
        table: the table.
        schema: of the topic; columns that only one of both has are left out, but for the key's.
        after: the key, None for the first rows.
        limit: so many rows at most.

    """
    columns = [each.name for each in table.columns if each.name in schema.names or each.name in table.key]
    raw = frozenset(name for name in columns if name in schema.names and _is_raw(table, name, schema.field(name).type))
    with _snapshot(sql) as seen:
        received, messages = _copied_at_once(sql, _query(table, columns, after, limit, raw=raw))
    content, starts, sizes = _cells(received, messages, len(columns))
    rows = {}
    for place, name in enumerate(columns):
        cells = starts[place], sizes[place]
        if name not in raw:
            rows[name] = texts(content, *cells)
            continue
        numbers = kernels.numbers(content, *cells)
        rows[name] = as_number(numbers, cells[1] >= 0, schema.field(name).type, table=table.full_name, name=name)
    return Chunk(pa.table(rows), *seen)


def last_key(table: CapturedTable, chunk: Chunk) -> tuple[str, ...]:
    """Return the key of the last row as texts."""
    return tuple(printed(chunk.rows.column(name)[-1:])[0] for name in table.key)


def absent(sql: psycopg.Connection, table: CapturedTable, keys: pa.Table) -> Chunk:
    """Return those of some keys that the table does not have, in one snapshot of the database; with their types.

    Texts that are equal in the database alone, by a collation or as `1.0` and `1.00`, are different keys of a topic.
    """
    parts = []
    for place, name in enumerate(table.key):
        given, kind = words.Identifier(f"k{place}"), words.SQL(_declared(table, name))
        parts.append(words.SQL("t.{} = {}::{}").format(words.Identifier(name), given, kind))
        if pa.types.is_string(keys.schema.field(name).type):
            parts.append(words.SQL('{} COLLATE "C" = {}').format(_as_text(table, name), given))
    match = words.SQL(" AND ").join(parts)
    names = words.SQL(", ").join(words.Identifier(f"k{place}") for place in range(len(table.key)))
    query = words.SQL(
        "SELECT k.n FROM unnest({}) WITH ORDINALITY AS k({}, n) WHERE NOT EXISTS (SELECT 1 FROM ONLY {} t WHERE {})"
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
    found = words.SQL("SELECT {} FROM ONLY {} t JOIN unnest({}) AS k({}) ON {}").format(
        _as_texts(table, wanted), words.Identifier(table.schema, table.name), words.SQL(", ").join(arrays), names, match
    )
    query = words.SQL("COPY ({}) TO STDOUT (FORMAT binary)").format(found)
    blocks = copied(sql, query)
    return _rows(b"".join(blocks), len(blocks), wanted)


def copied(sql: psycopg.Connection, query: words.Composed) -> list[bytes]:
    """Return what a COPY sends, a block a row; psycopg's own reader takes four times as long.

    Raises:
        psycopg.Error: the server refuses it, or the connection is lost.

    """
    _send(sql, query)
    return _blocks(sql.pgconn)


def _copied_at_once(sql: psycopg.Connection, query: words.Composed) -> tuple[npt.NDArray[np.uint8], int]:
    """Return all that a COPY sends, and in how many messages; the rows of a chunk need no block each.

    Raises:
        psycopg.Error: the server refuses it, or the connection is lost.

    """
    _send(sql, query)
    found = copy_stream.taken(sql.pgconn)
    blocks = _blocks(sql.pgconn)  # the rest: what came of it
    return found or (np.frombuffer(b"".join(blocks), np.uint8), len(blocks))


def _send(sql: psycopg.Connection, query: words.Composed) -> None:
    pg = sql.pgconn
    pg.send_query(query.as_bytes(sql))
    while pg.flush():
        writable(pg.socket, 1.0)


def _blocks(pg: PGconn) -> list[bytes]:
    blocks: list[bytes] = []
    error: psycopg.Error | None = None
    add, get = blocks.append, pg.get_copy_data
    while result := _next_result(pg):
        if result.status == ExecStatus.COPY_OUT:
            while (got := get(1))[0] >= 0:
                if got[0]:
                    add(bytes(got[1]))
                else:
                    readable(pg.socket, 1.0)
                    pg.consume_input()
        elif result.status != ExecStatus.COMMAND_OK:
            error = error or error_from_result(result)  # raised when the connection is ready for what comes next
    if error is not None:
        raise error
    return blocks


def _next_result(pg: PGconn) -> PGresult | None:
    while pg.is_busy():
        readable(pg.socket, 1.0)
        pg.consume_input()
    return pg.get_result()


def _query(
    table: CapturedTable, columns: Sequence[str], after: Sequence[str] | None, limit: int, *, raw: frozenset[str]
) -> words.Composed:
    keys = words.SQL(", ").join(words.SQL("t.{}").format(words.Identifier(name)) for name in table.key)
    where = words.Composed([])
    if after is not None:
        values = [
            words.SQL("{}::{}").format(words.Literal(value), words.SQL(_declared(table, name)))
            for name, value in zip(table.key, after, strict=True)
        ]
        where = words.SQL(" WHERE ({}) > ({})").format(keys, words.SQL(", ").join(values))
    # a name of the result would hide the column of the same name in ORDER BY
    return words.SQL("COPY (SELECT {} FROM ONLY {} t{} ORDER BY {} LIMIT {}) TO STDOUT (FORMAT binary)").format(
        words.SQL(", ").join(
            words.SQL("t.{}").format(words.Identifier(name)) if name in raw else _as_text(table, name)
            for name in columns
        ),
        words.Identifier(table.schema, table.name),
        where,
        keys,
        words.Literal(limit),
    )


def _is_raw(table: CapturedTable, name: str, kind: pa.DataType) -> bool:
    return bool(number_type(_declared(table, name)) == kind)


def _as_texts(table: CapturedTable, columns: Sequence[str]) -> words.Composed:
    return words.SQL(", ").join(_as_text(table, name) for name in columns)


def _as_text(table: CapturedTable, name: str) -> words.Composed:
    """Return a column as pgoutput sends it: as its type prints it, which a cast to text does not always."""
    same = _declared(table, name).partition("(")[0] in _CAST_AS_PRINTED
    shape = "t.{0}::text" if same else "CASE WHEN t.{0} IS DISTINCT FROM NULL THEN concat(t.{0}) END"
    return words.SQL(shape).format(words.Identifier(name))


def _declared(table: CapturedTable, name: str) -> str:
    column = table.column(name)
    if column is None:
        raise InternalError(f"{table.full_name} has no column {name}")
    return column.declared


def _rows(data: bytes, most: int, columns: Sequence[str]) -> pa.Table:
    raw, starts, sizes = _cells(np.frombuffer(data, np.uint8), most, len(columns))
    return pa.table({name: texts(raw, starts[place], sizes[place]) for place, name in enumerate(columns)})


def _cells(raw: npt.NDArray[np.uint8], most: int, columns: int) -> tuple[npt.NDArray[np.uint8], Longs, Longs]:
    starts, sizes = np.empty((columns, most), np.int64), np.empty((columns, most), np.int64)
    count = kernels.copied_cells(raw, _COPY_HEADER, starts, sizes)
    if count < 0:
        raise InternalError("a binary COPY was cut off")
    return raw, starts[:, :count], sizes[:, :count]
