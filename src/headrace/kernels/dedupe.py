"""The first row of each key: which rows are judged too late to say, and which keys have been seen.

State is one row a key with the time of its first row. A key is forgotten once the watermark has passed that time by
more than `within`. A row that lies so far behind the watermark itself is late: had its key come at that time, it
would be forgotten by now, so nobody could say whether the row is the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.groups.grouped import Counts, by_position
from headrace.kernels.state.state import COUNT, TableSpec, alike, with_nulls

if TYPE_CHECKING:
    from headrace.kernels.duck import Duck
    from headrace.kernels.spec import Dedupe
    from headrace.kernels.state.state import State

SEEN = "seen"
FIRST = "_first"


def tables(op: Dedupe) -> tuple[TableSpec, ...]:
    """Return the one table that is kept."""
    keys = tuple((f"c{op.columns.index(name)}", kind) for name, kind in op.keys)
    return (TableSpec(name=SEEN, keys=keys, values=((FIRST, "BIGINT"),)),)


def judged(parts: list[pa.Table], reach: int, watermark: int | None) -> tuple[list[pa.Table], list[pa.Table], Counts]:
    """Return the rows in time, the late ones, which are more than `reach` behind the watermark, and their counts."""
    counts = Counts(rows_in=sum(part.num_rows for part in parts))
    if watermark is None:
        return parts, [], counts
    taken, late = [], []
    for part in parts:
        behind = pc.less(part.column("_time"), watermark - reach)
        if not pc.any(behind, min_count=0).as_py():
            taken.append(part)
            continue
        late.append(part.filter(behind))
        taken.append(part.filter(pc.invert(behind)))
    counts.late = sum(part.num_rows for part in late)
    return [part for part in taken if part.num_rows], late, counts


@dataclass
class Deduping:
    """One epoch of one dedupe in one shard."""

    duck: Duck
    op: Dedupe
    state: State
    watermark: int | None
    previous: int | None

    def run(self, parts: list[pa.Table]) -> tuple[pa.Table | None, Counts]:
        """Forget keys, take the first row of each key that is not known, and remember its key."""
        if self.watermark is not None and self.watermark != self.previous:
            self._forget(self.watermark - self.op.within)
        if not parts:
            return None, Counts()
        fresh = self._fresh(parts)
        self._remember(fresh)
        return self._named(fresh), Counts(rows_out=fresh.num_rows)

    def _forget(self, before: int) -> None:
        gone = f"{FIRST} < {before}"
        if self.duck.rows(f"SELECT EXISTS (FROM {self.state.name(SEEN)} WHERE {gone})")[0][0]:
            self.state.evict(SEEN, gone)

    def _fresh(self, parts: list[pa.Table]) -> pa.Table:
        """Return the first row of each new key, in order of event time; the least of several of one time.

        Columns are called `c0…`, whatever the user calls them.
        """
        numbered = [f"c{i}" for i in range(len(self.op.columns))]
        renamed = [part.select([*self.op.columns, "_time"]).rename_columns([*numbered, "_time"]) for part in parts]
        rows = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in renamed)
        keys = [name for name, _ in self.state.tables[SEEN].keys]
        known = self.state.matching(SEEN, "d", "s", nulls=with_nulls(renamed))
        new = self.duck.arrow(f"SELECT d.* FROM ({rows}) d ANTI JOIN {self.state.name(SEEN)} s ON {known}")
        earliest, count = self._earliest(new, keys)
        order = ", ".join(["_time", *numbered])
        if earliest.num_rows == count:
            return self.duck.arrow(f"SELECT * FROM {self.duck.register(earliest)} ORDER BY {order}")
        nth = f"row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY {order})"
        return self.duck.arrow(f"SELECT * FROM {self.duck.register(earliest)} QUALIFY {nth} = 1 ORDER BY {order}")

    def _earliest(self, new: pa.Table, keys: list[str]) -> tuple[pa.Table, int]:
        """Return the rows of each key's earliest time, and how many keys there are.

        To order all rows of each key costs twice as much as to find their least time; few keys have two rows of that.
        """
        rows = self.duck.register(new)
        times = self.duck.arrow(f"SELECT {', '.join(keys)}, min(_time) AS _time FROM {rows} {by_position(keys)}")
        same = alike("d", "t", keys, nulls=with_nulls([times]))
        first = f"SELECT d.* FROM {rows} d SEMI JOIN {self.duck.register(times)} t ON {same} AND d._time = t._time"
        return self.duck.arrow(first), times.num_rows

    def _remember(self, fresh: pa.Table) -> None:
        keys = [name for name, _ in self.state.tables[SEEN].keys]
        ones = pa.repeat(pa.scalar(1, pa.int64()), fresh.num_rows)
        columns = [*(fresh.column(name) for name in keys), ones, fresh.column("_time")]
        rows = pa.table([*columns, pa.nulls(fresh.num_rows, pa.int64())], names=[*keys, COUNT, FIRST, "o_row"])
        self.state.replace(SEEN, rows, at="o_row")

    def _named(self, fresh: pa.Table) -> pa.Table:
        """Return the rows as the step's delta."""
        weights = pa.repeat(pa.scalar(1, pa.int32()), fresh.num_rows)
        columns = [*(fresh.column(i) for i in range(len(self.op.columns))), weights, fresh.column("_time")]
        return pa.table(columns, names=[*self.op.columns, "_weight", "_time"])
