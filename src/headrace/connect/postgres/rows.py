"""Rows of a topic from texts of a table: types, columns that were not sent, deletes, and where each row comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.capture.source import DELETED, SOURCE, SOURCE_TYPE
from headrace.connect.postgres.copying import rows_by_key
from headrace.connect.postgres.values import as_type

if TYPE_CHECKING:
    import numpy.typing as npt
    import psycopg

    from headrace.connect.postgres.catalogue import CapturedTable
    from headrace.connect.postgres.changes import Changes, Decoded


def changed_rows(
    sql: psycopg.Connection, table: CapturedTable, changes: Changes, decoded: Decoded, schema: pa.Schema
) -> pa.Table:
    """Return changes as rows of a topic.

    A column that the table got after the change is null.

    Raises:
        ValueDoesNotFit: a value is none of the topic's type.

    """
    columns = dict(changes.columns)
    for name, missing in changes.unsent.items():
        if missing.any() and name in schema.names:
            columns[name] = _asked(sql, table, columns, name, missing)
    return _typed(
        table, columns, schema, changes.deleted, decoded.source(changes.transaction) if SOURCE in schema.names else None
    )


def copied_rows(table: CapturedTable, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of a snapshot as rows of a topic."""
    columns = {name: rows.column(name).combine_chunks() for name in rows.column_names}
    deleted = np.zeros(rows.num_rows, np.bool_)
    source = pa.nulls(rows.num_rows, SOURCE_TYPE) if SOURCE in schema.names else None
    return _typed(table, columns, schema, deleted, source)


def _typed(
    table: CapturedTable,
    columns: dict[str, pa.Array],
    schema: pa.Schema,
    deleted: npt.NDArray[np.bool_],
    source: pa.Array | None,
) -> pa.Table:
    result: dict[str, pa.Array] = {}
    for column in schema:
        if column.name == SOURCE and source is not None:
            result[SOURCE] = source
        elif column.name not in columns:  # the table got it after this change: its rows are read anew
            result[column.name] = pa.nulls(len(deleted), column.type)
        else:
            result[column.name] = as_type(columns[column.name], column.type, table=table.full_name, name=column.name)
    result[DELETED] = pa.array(deleted)
    return pa.table(result)


def _asked(
    sql: psycopg.Connection,
    table: CapturedTable,
    columns: dict[str, pa.Array],
    name: str,
    missing: npt.NDArray[np.bool_],
) -> pa.Array:
    """Return a column with the values that were not sent: those that the rows have now, null where a row is gone.

    They may be newer than the change. Then a later change has them, too, so the last value is right; REPLICA IDENTITY
    FULL makes each one exact. A row that is gone is deleted by a later change.
    """
    at = np.flatnonzero(missing)
    keys = [columns[key].take(pa.array(at)).to_pylist() for key in table.key]
    found = rows_by_key(sql, table, [name], list(dict.fromkeys(zip(*keys, strict=True))))
    known = dict(
        zip(
            zip(*(found.column(key).to_pylist() for key in table.key), strict=True),
            found.column(name).to_pylist(),
            strict=True,
        )
    )
    values = pa.array([known.get(key) for key in zip(*keys, strict=True)], columns[name].type)
    return pc.replace_with_mask(columns[name], pa.array(missing), values)
