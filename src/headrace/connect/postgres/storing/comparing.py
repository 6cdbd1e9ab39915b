"""A table compared with what it should have, in the database: the rows are copied there, and differences are counted.

Nothing is read into this process but the differences' numbers and a few keys; the server sorts on its disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import sql as words

from headrace.connect.postgres.storing.errors import as_ours
from headrace.connect.postgres.storing.loading import Loader, Refusals
from headrace.connect.postgres.storing.types import NESTED_TEXT, declared
from headrace.connect.sink import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from headrace.connect.postgres.address import PostgresAddress
    from headrace.connect.postgres.storing.tables import Target

_DIFFERENCES = (
    "CREATE TEMP TABLE _wrong ON COMMIT DROP AS SELECT {values} FROM {staging} EXCEPT SELECT {values} FROM {table}",
    "CREATE TEMP TABLE _extra ON COMMIT DROP AS SELECT {key} FROM {table} EXCEPT SELECT {key} FROM {staging}",
    "CREATE TEMP TABLE _missing ON COMMIT DROP AS SELECT {key} FROM {staging} EXCEPT SELECT {key} FROM {table}",
)
_COUNTS = "SELECT (SELECT count(*) FROM _missing), (SELECT count(*) FROM _wrong), (SELECT count(*) FROM _extra)"
_KEYS = "(SELECT {key} FROM _wrong LIMIT 5) UNION ALL (SELECT {key} FROM _extra LIMIT 5)"
_CHANGES = (
    "TRUNCATE {staging}",
    "INSERT INTO {staging} ({columns}, _deleted) SELECT {columns}, false FROM _wrong",
    "INSERT INTO {staging} ({key}, _deleted) SELECT {key}, true FROM _extra",
)


def compare(address: PostgresAddress, target: Target, rows: Iterator[pa.RecordBatch], *, repair: bool) -> Difference:
    """Return how a table differs from what it should have, and with `repair` bring it level, in one transaction.

    Raises:
        Unavailable: the server does not answer.
        StoreRefused: it refuses a row.

    """
    try:
        with address.open() as sql, sql.transaction():
            if repair:
                sql.execute(words.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(target.identifier))
            return _compared(sql, target, rows, repair=repair)
    except psycopg.Error as error:
        raise as_ours(error, str(address), epoch=-1) from error


def _compared(sql: psycopg.Connection, target: Target, rows: Iterator[pa.RecordBatch], *, repair: bool) -> Difference:
    loader, refusals = Loader(sql, target), Refusals(target, -1, None)
    loader.stage(rows, refusals)
    named = {
        "table": target.identifier,
        "staging": loader.staging,
        "key": words.SQL(", ").join(map(words.Identifier, target.key)),
        "columns": words.SQL(", ").join(map(words.Identifier, target.columns.names)),
        "values": words.SQL(", ").join(_value(field) for field in target.columns),
    }
    for statement in _DIFFERENCES:
        sql.execute(words.SQL(statement).format(**named))
    missing, wrong, extra = sql.execute(_COUNTS).fetchone() or (0, 0, 0)
    keys = sql.execute(words.SQL(_KEYS).format(**named)).fetchall()
    if repair and (wrong or extra):
        for statement in _CHANGES:
            sql.execute(words.SQL(statement).format(**named))
        loader.apply(refusals, has_null=True)
    return Difference(missing=missing, other=wrong - missing, extra=extra, keys=[", ".join(map(str, k)) for k in keys])


def _value(field: pa.Field) -> words.Composed:
    """Return a column as it is compared: json has no equality."""
    nested = declared(field.type) == NESTED_TEXT
    return words.SQL("{0}::jsonb AS {0}" if nested else "{0}").format(words.Identifier(field.name))
