"""Sliding windows, after the exchange: rows by their time into the state, and the windows around them anew.

State is one row a group and time. The times of the epoch's rows decide which windows change: those that end between one
of these times and the first window without it. They are computed from the rows around, before and after the epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.kernels.counts import Counts
from headrace.kernels.groups.aggregate import MergeRun
from headrace.kernels.groups.grouping import GROUPS
from headrace.kernels.groups.held import HeldRows
from headrace.kernels.groups.single_row_results import SingleRowSql, change_pairs
from headrace.kernels.groups.slides import SlideSql
from headrace.kernels.sql import alike, by_position, with_nulls
from headrace.kernels.state.scanned import ScannedState
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.kernels.op import StepResult

_EVER = -(2**61)
"""Before any window."""
_NEVER = 2**61
"""After any window."""
_SPARSE = 4
"""So many stretches without a change for each change, and a group's rows are no longer read as one span."""


class SlidingMergeRun(MergeRun):
    """One epoch of one aggregate over sliding windows in one shard."""

    def run(self, partials: list[list[pa.Table]]) -> StepResult:
        """Close and change windows; rows that end up in none are late."""
        if not self.grouping.held:
            return super().run(partials)
        *groups, doubtful = partials
        assert isinstance(self.state, ScannedState)  # noqa: S101 -- that of windows is
        held, late = HeldRows(self.duck, self.grouping, self.state), None
        if self.watermark is not None:
            late = held.gone(self.watermark)
        result = super().run(groups)
        if self.watermark is not None:
            held.take([part for part in doubtful if part.num_rows], self.watermark)
            result.late = self._late(doubtful, self.watermark)
        if late is not None:
            result.late = [late, *result.late]
            result.counts = Counts(late=late.num_rows, partly_late=-late.num_rows)
        return result

    def _late(self, doubtful: list[pa.Table], watermark: int) -> list[pa.Table]:
        """Return the rows that came too late for any window."""
        names = ", ".join([*(quote(name) for name, _ in self.grouping.held), "_weight", "_time"])
        gone = self._sql.gone("_time", watermark)
        parts = [self.duck.register(part) for part in doubtful if part.num_rows]
        rows = [self.duck.arrow(f"SELECT {names} FROM {part} WHERE {gone}") for part in parts]
        return [part for part in rows if part.num_rows]

    @property
    def _sql(self) -> SlideSql:
        assert self.grouping.sliding is not None  # noqa: S101 -- this class is for sliding windows
        return SlideSql(self.grouping.sliding)

    @property
    def _keys(self) -> list[str]:
        return [f"k{i}" for i in range(len(self.grouping.keys))]

    @property
    def _window(self) -> list[str]:
        """A window's end."""
        return ["_window"]

    def _bounds(self) -> tuple[str, str]:
        return self._sql.start("_window"), "_window"

    def _stamped(self, end: str) -> str:
        return end

    def _in_window(self) -> str:
        same, bucket = alike("w", "s", self._keys), f"{self._sql.bucket('s._pane')} = w._bucket"
        return f"{same} AND {bucket} AND s._pane >= {self._sql.start('w._window')} AND s._pane <= w._window"

    def _make(self, table: str, select: str) -> None:
        self.duck.run(f"CREATE OR REPLACE TEMP TABLE {table} AS {select}")

    def _probe(self, *windows: str) -> None:
        """Create `probe`: the windows of which the multisets are needed, by the stretches of time that they touch."""
        if self.grouping.multisets:
            own = ", ".join([*self._keys, "_window"])
            every = " UNION ".join(f"SELECT {own} FROM {table}" for table in windows)
            buckets = self._sql.buckets(self._sql.start("_window"), "_window")
            self._make("probe", f"SELECT *, unnest({buckets}) AS _bucket FROM ({every})")

    def _windows(self, rows: str) -> str:
        return self._sql.of_rows(rows, self._keys, self.grouping.accumulators)

    # -- windows that close

    def _close(self, watermark: int) -> pa.Table | None:
        """Return the final results of the windows that closed since the last epoch; drop the rows no one needs."""
        groups, forgotten = self.state.name(GROUPS), self._sql.forgotten("_pane", watermark)
        out = self._final_of(watermark) if self.grouping.final else None
        if self.duck.rows(f"SELECT EXISTS (FROM {groups} WHERE {forgotten})")[0][0]:
            for table in self.state.tables:
                self.state.evict(table, forgotten)
        return out

    def _final_of(self, watermark: int) -> pa.Table | None:
        sql, groups = self._sql, self.state.name(GROUPS)
        first = _EVER if self.previous is None else sql.open_end(self.previous)
        last = sql.open_end(watermark) - 1
        closing = f"_pane BETWEEN {first - sql.reach} AND {last}"
        if not self.duck.rows(f"SELECT EXISTS (FROM {groups} WHERE {closing})")[0][0]:
            return None
        return self._results_between(first, last, where=closing)

    def _current(self, time: int) -> pa.Table:
        del time
        first = _EVER if self.watermark is None else self._sql.open_end(self.watermark)
        return self._results_between(first, _NEVER, where="true")

    def _results_between(self, first: int, last: int, *, where: str) -> pa.Table:
        """Return the results of the windows that end between two instants, in order, from the rows `where`."""
        ends = f"{first}::BIGINT AS _from, {last}::BIGINT AS _to"
        self._make("new_windows", self._windows(f"(SELECT *, {ends} FROM {self.state.name(GROUPS)} WHERE {where})"))
        self._probe("new_windows")
        order = ", ".join(["_window", *(quote(name) for name, _, _ in self.grouping.keys)])
        results = self._rendered("SELECT * FROM new_windows", "probe")
        return self.duck.arrow(self._result_rows(f"(SELECT * FROM ({results}) ORDER BY {order})", 1))

    # -- windows that change

    def _merged(self, folded: list[str]) -> pa.Table | None:
        """Add rows to the state; return what changed in the windows around them, unless results are final."""
        if self.grouping.final:
            self._update(folded)
            return None
        self._make("changed", self._joined(folded[0]))
        of = self._create_spans()
        kept = ", ".join([*self.state.tables[GROUPS].columns, "o_row"])
        self._make("old_windows", self._windows(self._around("o_n", "o", of)))
        self._make("new_windows", self._windows(self._around(COUNT, "p", of)))
        self.state.replace(GROUPS, self.duck.arrow(f"SELECT {kept} FROM changed"), at="o_row")
        if not self.grouping.multisets:
            return self._compared()
        self._probe("old_windows", "new_windows")
        self._make("before", self._rendered("SELECT * FROM old_windows", "probe"))
        self._update_values(folded)
        self._make("after", self._rendered("SELECT * FROM new_windows", "probe"))
        return self._difference()

    def _create_spans(self) -> list[str]:
        """Create `spans`, which times of which groups changed, and `unchanged`, the kept rows around them that did not.

        A group is one span from its first change to its last. Where changes are few and far between, those that share
        no row are spans of their own. Returns the columns that identify the span of a change.
        """
        of, reach, groups = self._keys, self._sql.reach, self.state.name(GROUPS)
        self._make("spans", self._spans(of, "min(_pane) AS _first"))
        apart, changes = f"SELECT sum((_last - _first) // {2 * reach}) FROM spans", "SELECT count(*) FROM changed"
        around = f"s._pane BETWEEN c._first - {reach} AND c._last + {reach}"
        spans = "spans"
        if self.duck.rows(f"SELECT ({apart}) > {_SPARSE} * ({changes})")[0][0]:
            self._make("changed", self._sql.runs("changed", of))
            of = [*of, "_first"]
            self._make("spans", self._spans(of))
            buckets = self._sql.buckets(f"_first - {reach}", f"_last + {reach}")
            spans = f"(SELECT *, unnest({buckets}) AS _bucket FROM spans)"
            around += f" AND {self._sql.bucket('s._pane')} = c._bucket"
        same = alike("s", "c", self._keys, nulls=with_nulls([self.duck.arrow("FROM spans")]))
        kept = ", ".join(f"s.{column}" for column in [*self._keys, "_pane", COUNT, *self._accumulators("p")])
        others = "s.rowid NOT IN (SELECT o_row FROM changed WHERE o_row IS NOT NULL)"
        joined = f"{groups} s JOIN {spans} c ON {same} AND {around} WHERE {others}"
        self._make("unchanged", f"SELECT {kept}, {self._ends()} FROM {joined}")
        return of

    @staticmethod
    def _spans(of: list[str], *more: str) -> str:
        return f"SELECT {', '.join([*of, *more, 'max(_pane) AS _last'])} FROM changed {by_position(of)}"

    def _ends(self) -> str:
        """Return the ends to compute in a span: of open windows, up to the first without its last change."""
        first = "c._first"
        if self.watermark is not None:
            first = f"greatest(c._first, {self._sql.open_end(self.watermark)})"
        return f"{first} AS _from, c._last + {self._sql.reach} AS _to"

    def _accumulators(self, prefix: str) -> list[str]:
        return [f"{prefix}{i}" for i in range(len(self.grouping.accumulators))]

    def _around(self, count: str, prefix: str, of: list[str]) -> str:
        """Return the rows of the spans: those that did not change, and the others as they were or as they are."""
        accumulators = zip(self._accumulators(prefix), self._accumulators("p"), strict=True)
        columns = [*self._keys, "_pane", f"{count} AS {COUNT}", *(f"{own} AS {name}" for own, name in accumulators)]
        of_span = f"changed d JOIN spans c ON {alike('d', 'c', of)} WHERE d.{count} > 0"
        return (
            f"(FROM unchanged UNION ALL SELECT {', '.join(f'd.{c}' for c in columns)}, {self._ends()} FROM {of_span})"
        )

    def _compared(self) -> pa.Table:
        """Return the delta between `old_windows` and `new_windows`, where each result is computed from one row."""
        same = alike("n", "o", [*self._keys, "_window"])
        either = [f"CASE WHEN n._window IS NULL THEN o.{c} ELSE n.{c} END" for c in [*self._keys, "_window", "_time"]]
        named = zip(either, [*self._keys, "_pane", "_time"], strict=True)
        columns = [f"{sql} AS {name}" for sql, name in named]
        columns += [f"coalesce(n.{COUNT}, 0) AS {COUNT}", *(f"n.{p}" for p in self._accumulators("p"))]
        columns += [f"o.{COUNT} AS o_n", "NULL::BIGINT AS o_row"]
        columns += [f"o.p{i} AS o{i}" for i in range(len(self.grouping.accumulators))]
        both = f"new_windows n {'LEFT' if self.grouping.insert_only else 'FULL'} JOIN old_windows o ON {same}"
        changed = SingleRowSql(self.grouping).of(f"SELECT {', '.join(columns)} FROM {both}")
        return change_pairs(self.grouping, self.duck.arrow(f"SELECT * FROM ({changed}) WHERE inserted OR withdrawn"))
