"""The first row of each key: which rows are judged too late to say, and which keys have been seen.

State is one row a key with the time of its first row, which it ages by. A key is forgotten once the watermark has
passed that time by more than `within`. A row that lies so far behind the watermark itself is late: had its key come at
that time, it would be forgotten by now, so nobody could say whether the row is the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.duck import without_zones
from headrace.kernels.firsts import earliest
from headrace.kernels.groups.grouped import Counts
from headrace.kernels.order import PLACE
from headrace.kernels.state.state import TableSpec, with_nulls

if TYPE_CHECKING:
    from headrace.kernels.duck import Duck
    from headrace.kernels.spec import Dedupe
    from headrace.kernels.state.keyed import KeyedState

    Places = np.ndarray[Any, np.dtype[np.int64]]

SEEN = "seen"
FIRST = "_first"


def tables(op: Dedupe) -> tuple[TableSpec, ...]:
    """Return the one table that is kept."""
    keys = tuple((f"c{op.columns.index(name)}", kind) for name, kind in op.keys)
    by = (tuple(name for name, _ in keys),)
    return (TableSpec(name=SEEN, keys=keys, values=((FIRST, "BIGINT"),), by=by, ages=FIRST),)


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
    state: KeyedState
    watermark: int | None
    previous: int | None

    def run(self, parts: list[pa.Table]) -> tuple[pa.Table | None, Counts]:
        """Forget keys, take the first row of each key that is not known, and remember its key."""
        if self.watermark is not None and self.watermark != self.previous:
            self.state.expire(SEEN, self.watermark - self.op.within)
        if not parts:
            return None, Counts()
        fresh = self._fresh(parts)
        self._remember(fresh)
        return self._named(fresh), Counts(rows_out=fresh.num_rows)

    @property
    def _keys(self) -> list[str]:
        return [name for name, _ in self.state.tables[SEEN].keys]

    def _fresh(self, parts: list[pa.Table]) -> pa.Table:
        """Return the first row of each new key, in order of event time; the least of several of one time.

        Columns are called `c0…`, whatever the user calls them.
        """
        numbered = [f"c{i}" for i in range(len(self.op.columns))]
        renamed = [part.select([*self.op.columns, "_time"]).rename_columns([*numbered, "_time"]) for part in parts]
        rows = without_zones(pa.concat_tables(renamed, promote_options="permissive").combine_chunks())
        first = self._unknown(rows, self._firsts(rows))
        return rows.take(pa.array(self._in_order(rows, first)))

    def _firsts(self, rows: pa.Table) -> Places:
        """Return the place of the first row of each key."""
        found = earliest([rows.column(name) for name in self._keys], rows.column("_time").to_numpy())
        if found is None:
            return self._first_of_each(rows, np.arange(rows.num_rows))
        alone, shared = found
        return np.concatenate([alone, self._first_of_each(rows, shared)]) if len(shared) else alone

    def _first_of_each(self, rows: pa.Table, places: Places) -> Places:
        """Return of some rows the place of the first of each key: of equal times the least row."""
        nth = f"row_number() OVER (PARTITION BY {', '.join(self._keys)} ORDER BY {self._order(rows)})"
        return self._places(f"{self._at(rows, places)} QUALIFY {nth} = 1")

    def _unknown(self, rows: pa.Table, places: Places) -> Places:
        """Return of some rows the places of those whose keys have not been seen."""
        if self.state.least(SEEN, FIRST) is None:
            return places
        keys = rows.select(self._keys)
        probe = self._at(keys, places)
        seen = self.state.lookup(SEEN, self._keys, probe)
        same = self.state.matching(SEEN, "d", "s", nulls=with_nulls([keys]))
        return self._places(f"{probe} d ANTI JOIN {seen} s ON {same}")

    def _in_order(self, rows: pa.Table, places: Places) -> Places:
        """Return the places of some rows in order of time; SQL orders those of which others have the same time."""
        times = rows.column("_time").to_numpy()[places]
        by = np.argsort(times)
        places, times = places[by], times[by]
        equal = times[1:] == times[:-1]
        tied = np.concatenate([equal, [False]]) | np.concatenate([[False], equal])
        if len(places) and tied.any():
            places[tied] = self._places(f"{self._at(rows, places[tied])} ORDER BY {self._order(rows)}")
        return places

    def _at(self, rows: pa.Table, places: Places) -> str:
        """Return some rows as a relation, with their places."""
        at = pa.array(places)
        return self.duck.register(rows.take(at).append_column(PLACE, at))

    def _places(self, source: str) -> Places:
        places: Places = self.duck.arrow(f"SELECT {PLACE} FROM {source}").column(0).to_numpy()
        return places

    @staticmethod
    def _order(rows: pa.Table) -> str:
        return ", ".join(["_time", *(name for name in rows.column_names if name != "_time")])

    def _remember(self, fresh: pa.Table) -> None:
        columns = [*(fresh.column(name) for name in self._keys), fresh.column("_time")]
        self.state.put(SEEN, pa.table(columns, names=[*self._keys, FIRST]))

    def _named(self, fresh: pa.Table) -> pa.Table:
        """Return the rows as the step's delta."""
        weights = pa.repeat(pa.scalar(1, pa.int32()), fresh.num_rows)
        columns = [*(fresh.column(i) for i in range(len(self.op.columns))), weights, fresh.column("_time")]
        return pa.table(columns, names=[*self.op.columns, "_weight", "_time"])
