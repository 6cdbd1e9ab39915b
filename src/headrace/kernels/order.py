"""The order in which rows stand, as a column: SQL keeps none."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

PLACE = "_place"
_TASK_BITS = 40  # a task has fewer rows than this, and an epoch fewer tasks than the rest


def placed(parts: list[pa.Table], *, task: int = 0) -> list[pa.Table]:
    """Return rows with their places: by task, then in the order in which they stand.

    Tasks are numbered along the partitions that they read, so rows of one partition keep the order of their offsets.
    """
    made, before = [], task << _TASK_BITS
    for part in parts:
        places = np.arange(before, before + part.num_rows, dtype=np.int64)
        made.append(part.append_column(PLACE, pa.array(places)))
        before += part.num_rows
    return made


def in_place(made: pa.Table, count: int) -> pa.Table:
    """Return the first columns of rows, in the order of their places, the column after those: a join may lose it."""
    places = made.column(count).to_numpy()
    first = made.select(list(range(count)))
    return first if np.all(places[:-1] <= places[1:]) else first.take(pa.array(np.argsort(places, kind="stable")))
