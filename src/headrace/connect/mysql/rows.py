"""Rows of a topic from columns of a table: types, deletes, and where each row comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.connect.capture.source import DELETED, SOURCE, SOURCE_TYPE
from headrace.connect.mysql.values import as_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from headrace.connect.mysql.catalogue import CapturedTable
    from headrace.connect.mysql.changes import Changes, Decoded


def changed_rows(table: CapturedTable, changes: Changes, decoded: Decoded, schema: pa.Schema) -> pa.Table:
    """Return changes as rows of a topic. A column that the table got after the change is null.

    Raises:
        ValueDoesNotFit: a value is none of the topic's type.

    """
    source = decoded.source(changes.transaction) if SOURCE in schema.names else None
    return _typed(table, changes.columns, schema, changes.deleted, source)


def read_rows(table: CapturedTable, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of a snapshot as rows of a topic."""
    columns = {name: rows.column(name).combine_chunks() for name in rows.column_names}
    source = pa.nulls(rows.num_rows, SOURCE_TYPE) if SOURCE in schema.names else None
    return _typed(table, columns, schema, np.zeros(rows.num_rows, np.bool_), source)


def _typed(
    table: CapturedTable,
    columns: Mapping[str, pa.Array],
    schema: pa.Schema,
    deleted: npt.NDArray[np.bool_],
    source: pa.Array | None,
) -> pa.Table:
    result: dict[str, pa.Array] = {}
    for column in schema:
        if column.name == SOURCE and source is not None:
            result[SOURCE] = source
        elif column.name not in columns:
            result[column.name] = pa.nulls(len(deleted), column.type)
        else:
            result[column.name] = as_type(columns[column.name], column.type, table=table.full_name, name=column.name)
    result[DELETED] = pa.array(deleted)
    return pa.table(result)
