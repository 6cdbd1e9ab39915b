"""Windows of a calendar: rows to the numbers of its periods, and numbers back to instants.

In between, numbers of periods take the place of microseconds: in state, panes and windows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.schema import TIMESTAMP_NTZ

if TYPE_CHECKING:
    from headrace.base.calendar import Calendar
    from headrace.kernels.duck import Duck

PERIOD = "_headrace_period"
"""The column that a row's period is in, in addition to the user's own."""
_BITS = 32
"""Rows are joined with periods by stretches of 2^32 microseconds, some 72 minutes: few, with few periods in each."""


def numbered(duck: Duck, calendar: Calendar, rows: str) -> str:
    """Return a relation of rows with their periods; rows of other stretches do not exist."""
    stretches = duck.arrow(f"SELECT DISTINCT _time >> {_BITS} AS stretch FROM {rows}").column(0).to_pylist()
    spans = [span for stretch in stretches for span in _spans(calendar, stretch)]
    kinds = [("stretch", pa.int64()), (PERIOD, pa.int64()), ("begins", pa.int64()), ("ends", pa.int64())]
    columns = list(zip(*spans, strict=True)) or [()] * len(kinds)
    table = pa.table([pa.array(column, kind) for column, (_, kind) in zip(columns, kinds, strict=True)],
                     names=[name for name, _ in kinds])  # fmt: skip
    inside = f"r._time >> {_BITS} = p.stretch AND r._time >= p.begins AND r._time < p.ends"
    return f"(SELECT r.*, p.{PERIOD} FROM {rows} r JOIN {duck.register(table)} p ON {inside})"


@lru_cache(maxsize=1 << 16)
def _spans(calendar: Calendar, stretch: int) -> tuple[tuple[int, int, int, int], ...]:
    """Return the periods that overlap a stretch, each with its bounds."""
    first, last = calendar.number(stretch << _BITS), calendar.number((stretch + 1 << _BITS) - 1)
    return tuple((stretch, n, calendar.start(n), calendar.start(n + 1)) for n in range(first, last + 1))


def dated(delta: pa.Table, calendar: Calendar) -> pa.Table:
    """Return windows with instants where the numbers of periods were, and `_time` just before the end."""
    for name in ("window_start", "window_end"):
        numbers = pc.cast(delta.column(name), pa.int64())
        different = pc.unique(numbers)
        instants = np.array(calendar.starts(different.to_pylist()), dtype=np.int64)
        column = pa.chunked_array([instants[pc.index_in(numbers, different).to_numpy()]], pa.int64())
        delta = delta.set_column(delta.schema.get_field_index(name), name, column.cast(TIMESTAMP_NTZ))
    times = pc.subtract(delta.column("window_end").cast(pa.int64()), 1)
    return delta.set_column(delta.schema.get_field_index("_time"), "_time", times)
