"""Rows become records with a format: what is deleted has no value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def present_alone(
    rows: pa.RecordBatch, names: Sequence[str], encode: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> pa.RecordBatch:
    """Return what `encode` makes of rows, with nulls for those that are `_deleted`, which it does not see.

    A deletion has its key alone: a format may refuse the nulls that it has elsewhere.

    Args:
        rows: the columns of a value, and perhaps `_deleted`.
        names: the columns of a value.
        encode: returns a row for each row.

    """
    values = rows.select(list(names))
    if "_deleted" not in rows.schema.names or not rows.column("_deleted").true_count:
        return encode(values)
    present = np.asarray(pc.invert(rows.column("_deleted")))
    encoded = encode(values.filter(pa.array(present)))
    places = pa.array(np.cumsum(present) - 1, mask=~present)
    return pa.RecordBatch.from_arrays([each.take(places) for each in encoded.columns], names=encoded.schema.names)


def with_time(rows: pa.Table, event_time: str | None, now: int) -> pa.Table:
    """Return rows with `_time` in microseconds: as given, else the event time, else now."""
    times = pa.nulls(len(rows), pa.int64())
    for name in ("_time", event_time):
        if name in rows.schema.names:
            times = pc.coalesce(times, rows.column(name).combine_chunks().cast(pa.int64()))
    times = pc.fill_null(times, now)
    return rows.drop_columns([name for name in ("_time",) if name in rows.schema.names]).append_column("_time", times)
