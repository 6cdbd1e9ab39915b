"""Groups of rows that were sorted: each run is one, and its accumulators are those of neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.kernels.groups.accumulated import Accumulated, reach_of, wanted_of
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.groups.chunks import Runs


def run_groups(runs: Runs, rows: pa.Table, given: Sequence[tuple[str, str]], *, counts: str | None) -> pa.Table | None:
    """Return a group for each run: keys, `_pane` (its first time), count, accumulators and its greatest `_at`.

    None where only SQL has sums that are wide enough.

    Args:
        runs: the runs of the rows.
        rows: the rows, with the columns of accumulators.
        given: for each accumulator its function and its column.
        counts: the column that says how many rows a row stands for.

    """
    if reach_of(rows, given, counts) is None:
        return None
    arrays = Accumulated(0)
    arrays.add_runs(runs.order, runs.begins, rows, [*wanted_of(rows, given, counts), ("max", "_at")])
    firsts = runs.firsts
    keys = rows.select([name for name in rows.column_names if name[0] == "k"]).take(pa.array(firsts))
    columns: dict[str, Any] = dict(zip(keys.column_names, keys.columns, strict=True))
    columns["_pane"] = runs.starts[firsts]
    columns[COUNT] = arrays.rows if counts is None else arrays.value("sum", counts, rows)
    columns |= {f"p{i}": arrays.value(how, name, rows) for i, (how, name) in enumerate(given)}
    return pa.table({**columns, "_time": arrays.value("max", "_at", rows)})
