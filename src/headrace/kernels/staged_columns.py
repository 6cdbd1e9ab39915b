"""What `staging` computes by SQL, by columns: of few rows planning the SQL costs ten times as much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.hashing import hash_columns
from headrace.kernels.arrays import one_array
from headrace.kernels.duck import typed
from headrace.kernels.equal import comparable, equal
from headrace.kernels.staging import DELETED, TIME, WEIGHT, Stage, staged_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.base.hashing import Hashes

    Mask = np.ndarray[Any, np.dtype[np.bool_]]

MOST_ROWS = 1 << 16
"""More rows are left to SQL, which spills what does not fit."""


def staged_by_columns(op: Stage, tables: Sequence[pa.Table]) -> pa.Table | None:
    """Return what `staged` does, in the same order; None where SQL has to.

    That is where rows have to be netted, a row says what it was before, a key is not of plain types, or two rows of
    one weight may have the same key.
    """
    if op.net or op.before or not tables:
        return None
    if op.form == "delta":
        return pa.concat_tables([typed(table, staged_schema(op)) for table in tables])
    if op.form == "rows" and all(pc.min(table.column(WEIGHT.name)).as_py() == 1 for table in tables):
        return pa.concat_tables([typed(table, staged_schema(op)) for table in tables])  # nothing is copied
    one_schema = all(table.schema.equals(tables[0].schema) for table in tables)
    if not one_schema or sum(table.num_rows for table in tables) > MOST_ROWS:
        return None
    rows = pa.concat_tables([table.select([*op.schema.names, WEIGHT.name, TIME.name]) for table in tables])
    inserted = rows.filter(pc.greater(rows.column(WEIGHT.name), 0))
    if op.form == "rows":
        return typed(inserted, staged_schema(op))
    withdrawn = rows.filter(pc.less(rows.column(WEIGHT.name), 0))
    return _changelog(op, inserted, withdrawn)


def _changelog(op: Stage, inserted: pa.Table, withdrawn: pa.Table) -> pa.Table | None:
    key = op.key or ()
    if not key or not all(_sortable(inserted.schema.field(name).type) for name in key):
        return None
    gone = _not_among(withdrawn, inserted, key)
    if gone is None:
        return None
    gone = withdrawn if gone.all() else withdrawn.filter(pa.array(gone))
    emptied = [
        gone.column(field.name) if field.name in (*key, TIME.name) else pa.nulls(gone.num_rows, field.type)
        for field in inserted.schema
    ]
    both = pa.concat_tables([inserted, pa.table(emptied, schema=inserted.schema)])
    deleted = np.repeat([False, True], [inserted.num_rows, gone.num_rows])
    both = both.append_column(DELETED, pa.array(deleted))
    order = pc.sort_indices(both, [(name, "ascending") for name in (TIME.name, *key)])
    return typed(both.take(order), staged_schema(op))


def _sortable(kind: pa.DataType) -> bool:
    """Return whether Arrow sorts a type as DuckDB does: NaN and -0.0 may have another place."""
    return comparable(kind) and not pa.types.is_floating(kind)


def _not_among(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> Mask | None:
    """Return which rows have a key that no other row has; None where hashes do not tell."""
    here, there = (hash_columns([table.column(name) for name in key], table.num_rows) for table in (rows, others))
    order = np.argsort(there)
    sorted_there = there[order]
    if _repeats(sorted_there) or _repeats(np.sort(here)):
        return None
    if not len(here) or not len(there):
        return np.ones(len(here), np.bool_)
    at = np.minimum(np.searchsorted(sorted_there, here), len(there) - 1)
    found = sorted_there[at] == here
    left, right = rows.filter(pa.array(found)), others.take(pa.array(order[at[found]]))
    for name in key:
        if not equal(one_array(left.column(name)), one_array(right.column(name)), nulls=True).all():
            return None
    alone: Mask = ~found
    return alone


def _repeats(hashes: Hashes) -> bool:
    return bool((hashes[1:] == hashes[:-1]).any())
