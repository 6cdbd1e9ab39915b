"""One epoch of `match` in one shard: which keys are searched, what matches, and what is not decided yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.base.names import quote
from headrace.kernels.groups.at_once import AtOnce
from headrace.kernels.over_run import FinalRun
from headrace.kernels.pattern_search import search
from headrace.kernels.row_functions import ROWS
from headrace.kernels.row_pattern import BITS, KEPT, MATCH, ROW, STARTS, SYMBOL
from headrace.kernels.sql import alike
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from headrace.kernels.op import Context
    from headrace.kernels.row_pattern import RowPattern


class MatchRun:
    """Rows that the watermark passed, behind those that are kept of their keys."""

    def __init__(self, pattern: RowPattern, context: Context) -> None:
        self.pattern = pattern
        self.context = context
        self.duck = context.duck
        self.state = context.keyed
        self.keys = pattern.functions.keys
        self.columns = pattern.columns

    def run(self, parts: list[pa.Table]) -> pa.Table | None:
        """Keep the rows that arrived, and return the matches that are final."""
        passed = FinalRun(self.pattern.functions, self.context, withdraws=False).run(parts)
        watermark = self.context.watermark_moved
        matches = None
        if watermark is not None:
            due = self.state.between(STARTS, None, watermark - self.pattern.within - 1)
            if due or passed is not None:
                matches = self._searched(self._rows(passed, due), watermark)
            self.state.expire(STARTS, watermark - self.pattern.within)
        waiting = [time for table in (KEPT, ROWS) if (time := self.state.minimum(table, "_time")) is not None]
        self.state.wait_since(min(waiting, default=None))
        return matches

    def _rows(self, passed: pa.Table | None, due: list[pa.Table]) -> pa.Table:
        """Return the rows that are searched, by key and in order: those that are kept, with `o_row`, and new ones."""
        names = [name for name, _ in self.pattern.functions.columns]
        new, touched = [], [f"SELECT {', '.join(self.keys) or '1'} FROM {self.duck.register(part)}" for part in due]
        if passed is not None:
            passed = passed.append_column("_nr", pa.array(np.arange(passed.num_rows)))
            columns = [f"{quote(names[int(name[1:])])} AS {name}" for name in self.columns]
            columns += [f"{BITS} AS _symbols", "0::BIGINT AS _done", "_time"]
            new = [f"SELECT {', '.join(columns)}, _nr, NULL::BIGINT AS o_row FROM {self.duck.register(passed)}"]
            keys = [f"{quote(names[int(name[1:])])} AS {name}" for name in self.keys]
            touched.append(f"SELECT {', '.join(keys) or '1'} FROM {self.duck.register(passed)}")
        probe = f"(SELECT DISTINCT * FROM ({' UNION ALL '.join(touched)}))"
        found = self.state.lookup(KEPT, self.keys, probe)
        columns = [f"s.{name}" for name in (*self.columns, "_symbols", "_done", "_time", "_nr")]
        kept = f"SELECT {', '.join(columns)}, s.rowid AS o_row FROM {found} s "
        kept += f"SEMI JOIN {probe} t ON {alike('s', 't', self.keys)}"
        rows = " UNION ALL ".join([kept, *new])
        by = f"PARTITION BY {', '.join(self.keys)} " if self.keys else ""
        place = f"row_number() OVER ({by}ORDER BY o_row IS NULL, _nr) AS _place"
        order = ", ".join([*self.keys, "_place"])
        return self.duck.arrow(f"SELECT *, {place} FROM ({rows}) ORDER BY {order}")

    def _searched(self, rows: pa.Table, watermark: int) -> pa.Table | None:
        """Return the matches of rows, and keep those of which it is not known yet what begins there."""
        if not rows.num_rows:
            return None
        pattern, place = self.pattern, _numbers(rows, "_place")
        begins = np.append(np.flatnonzero(place == 1), rows.num_rows)
        done = _numbers(rows, "_done").copy()
        table = (_numbers(rows, "_symbols"), _numbers(rows, "_time"), done, begins)
        found = search(table, pattern.symbols, pattern.follow, (watermark, pattern.within, pattern.overlapping))
        self._keep(rows, begins, found.undecided, done)
        if not len(found.matches):
            return None
        return self._measured(rows, found.rows, found.places, found.matches)

    def _keep(self, rows: pa.Table, begins: Any, undecided: Any, done: Any) -> None:
        counts = np.diff(begins)
        place = _numbers(rows, "_place") - 1
        old = ~rows.column("o_row").combine_chunks().is_null().to_numpy(zero_copy_only=False)
        ids = rows.column("o_row").combine_chunks().fill_null(-1).to_numpy()
        stays = place >= np.repeat(undecided, counts)
        changed = stays & old & (done != _numbers(rows, "_done"))
        added = (stays & ~old) | changed
        # the rows of a key that are kept are numbered on from the first one that was
        first = np.where(old[begins[:-1]], _numbers(rows, "_nr")[begins[:-1]], 0)
        numbers = np.repeat(first, counts) + place
        kept = rows.select([*self.columns, "_symbols", "_time"]).append_column("_nr", pa.array(numbers))
        kept = kept.append_column("_done", pa.array(done)).append_column(COUNT, pa.array(np.ones_like(done)))
        spec = self.state.tables[KEPT]
        self.state.put(KEPT, kept.filter(pa.array(added)).select(spec.columns), ids[old & (~stays | changed)])
        starts = (begins[:-1] + undecided)[undecided < counts]
        moved = starts[(place[starts] > 0) | ~old[starts]]  # that of others is known to begin there
        self.state.append(STARTS, rows.select([*self.keys, "_time"]).take(pa.array(moved)))

    def _measured(self, rows: pa.Table, found: Any, places: Any, matches: Any) -> pa.Table:
        """Return a row for each match, with the measures of its rows."""
        names = [name for name, _ in self.pattern.functions.columns]
        counts = np.diff(np.append(matches, len(found)))
        number = np.repeat(np.arange(len(matches)), counts)
        times = _numbers(rows, "_time")
        start, end = times[found[matches]], times[found[matches + counts - 1]]
        matched = rows.select([*self.columns, "_time"]).take(pa.array(found))
        matched = matched.rename_columns([*(names[int(name[1:])] for name in self.columns), "_time"])
        more = {
            MATCH: number,
            ROW: np.arange(len(found)) - np.repeat(matches, counts),
            SYMBOL: np.asarray(self.pattern.symbols, np.int32)[places],
            "match_start": np.repeat(start, counts).view("datetime64[us]"),
            "match_end": np.repeat(end, counts).view("datetime64[us]"),
            "_weight": np.ones(len(found), np.int32),
        }
        for name, values in more.items():
            matched = matched.append_column(name, pa.array(values))
        run = AtOnce(self.duck, self.pattern.grouping, self.state, None, None)
        return run.results(self.duck.register(matched)).drop_columns([MATCH])


def _numbers(rows: pa.Table, name: str) -> Any:
    return rows.column(name).to_numpy()
