"""Rows of a captured table's topic: deletes of keys, and a chunk without what has changed meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.connect.capture.source import DELETED

if TYPE_CHECKING:
    from collections.abc import Sequence


def deleted_rows(key: Sequence[str], keys: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return deletes of some keys, which have the topic's types."""
    count = keys.num_rows
    columns = {
        field.name: keys.column(field.name).cast(field.type) if field.name in key else pa.nulls(count, field.type)
        for field in schema
    }
    return pa.table(columns | {DELETED: pa.array(np.ones(count, np.bool_))})


def without_changed(rows: pa.Table, key: Sequence[str], changed: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of a chunk whose keys are not among changed rows."""
    if not changed or not rows.num_rows:
        return rows
    names = list(key)
    numbered = rows.select(names).append_column("_row", pa.array(np.arange(rows.num_rows)))
    others = pa.concat_tables([each.select(names) for each in changed]).group_by(names).aggregate([])
    kept = numbered.join(others, keys=names, join_type="left anti").column("_row")
    return rows.take(pa.array(np.sort(kept.to_numpy())))
