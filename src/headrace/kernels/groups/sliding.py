"""Sliding windows, after the exchange: rows by their time into the state, and the windows near them anew.

State is one row a group and time. What an epoch changes follows from the times that came: the windows that end between
one of them and the first window without it. They are made of the rows around, as these were and as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.kernels.groups.aggregate import Merging
from headrace.kernels.groups.grouped import COUNT, GROUPS, by_position
from headrace.kernels.groups.single_row_results import SinglesSql, pairs
from headrace.kernels.groups.slides import SlideSql
from headrace.kernels.state.state import alike, with_nulls

if TYPE_CHECKING:
    import pyarrow as pa

_EVER = -(2**61)
"""Before any window."""
_SPARSE = 4
"""So many stretches without a change for each change, and a group's rows are no longer taken in one piece."""


class Sliding(Merging):
    """One epoch of one aggregate over sliding windows in one shard."""

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

    def _ask(self, *windows: str) -> None:
        """Make `asked`: the windows of which the multisets are wanted, by the stretches of time that they touch."""
        if self.grouping.values:
            own = ", ".join([*self._keys, "_window"])
            every = " UNION ".join(f"SELECT {own} FROM {table}" for table in windows)
            buckets = self._sql.buckets(self._sql.start("_window"), "_window")
            self._make("asked", f"SELECT *, unnest({buckets}) AS _bucket FROM ({every})")

    def _windows(self, rows: str) -> str:
        return self._sql.of_rows(rows, self._keys, self.grouping.pieces)

    # -- windows that close

    def _close(self, watermark: int) -> pa.Table | None:
        """Give the final results of the windows that closed since the last epoch; drop the rows no one needs."""
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
        near = f"_pane BETWEEN {first - sql.reach} AND {last}"
        if not self.duck.rows(f"SELECT EXISTS (FROM {groups} WHERE {near})")[0][0]:
            return None
        asked = f"{first}::BIGINT AS _from, {last}::BIGINT AS _to"
        self._make("came", self._windows(f"(SELECT *, {asked} FROM {groups} WHERE {near})"))
        self._ask("came")
        order = ", ".join(["_window", *(quote(name) for name, _, _ in self.grouping.keys)])
        final = self._rendered("SELECT * FROM came", "asked")
        return self.duck.arrow(self._result_rows(f"(SELECT * FROM ({final}) ORDER BY {order})", 1))

    # -- windows that change

    def _merged(self, folded: list[str]) -> pa.Table | None:
        """Add rows to the state; give what changed in the windows near them, unless results are final."""
        if self.grouping.final:
            self._update(folded)
            return None
        self._make("changed", self._joined(folded[0]))
        of = self._stretch()
        kept = ", ".join([*self.state.tables[GROUPS].columns, "o_row"])
        self._make("went", self._windows(self._around("o_n", "o", of)))
        self._make("came", self._windows(self._around(COUNT, "p", of)))
        self.state.replace(GROUPS, self.duck.arrow(f"SELECT {kept} FROM changed"), at="o_row")
        if not self.grouping.values:
            return self._compared()
        self._ask("went", "came")
        self._make("before", self._rendered("SELECT * FROM went", "asked"))
        self._update_values(folded)
        self._make("after", self._rendered("SELECT * FROM came", "asked"))
        return self._difference()

    def _stretch(self) -> list[str]:
        """Make `spans`, which times of which groups changed, and `lookup`, the kept rows around them that did not.

        A group is one span from its first change to its last. Where changes are few and far between, those that share
        no row are spans of their own. Returns the columns that tell in which span a change is.
        """
        of, reach, groups = self._keys, self._sql.reach, self.state.name(GROUPS)
        self._make("spans", self._spans(of, "min(_pane) AS _first"))
        apart, changes = f"SELECT sum((_last - _first) // {2 * reach}) FROM spans", "SELECT count(*) FROM changed"
        near = f"s._pane BETWEEN c._first - {reach} AND c._last + {reach}"
        spans = "spans"
        if self.duck.rows(f"SELECT ({apart}) > {_SPARSE} * ({changes})")[0][0]:
            self._make("changed", self._sql.runs("changed", of))
            of = [*of, "_first"]
            self._make("spans", self._spans(of))
            buckets = self._sql.buckets(f"_first - {reach}", f"_last + {reach}")
            spans = f"(SELECT *, unnest({buckets}) AS _bucket FROM spans)"
            near += f" AND {self._sql.bucket('s._pane')} = c._bucket"
        same = alike("s", "c", self._keys, nulls=with_nulls([self.duck.arrow("FROM spans")]))
        kept = ", ".join(f"s.{column}" for column in [*self._keys, "_pane", COUNT, *self._pieces("p")])
        unchanged = "s.rowid NOT IN (SELECT o_row FROM changed WHERE o_row IS NOT NULL)"
        joined = f"{groups} s JOIN {spans} c ON {same} AND {near} WHERE {unchanged}"
        self._make("near", f"SELECT {kept}, {self._asked()} FROM {joined}")
        return of

    @staticmethod
    def _spans(of: list[str], *more: str) -> str:
        return f"SELECT {', '.join([*of, *more, 'max(_pane) AS _last'])} FROM changed {by_position(of)}"

    def _asked(self) -> str:
        """Return the ends that are asked for in a span: of open windows, up to the first without its last change."""
        first = "c._first"
        if self.watermark is not None:
            first = f"greatest(c._first, {self._sql.open_end(self.watermark)})"
        return f"{first} AS _from, c._last + {self._sql.reach} AS _to"

    def _pieces(self, prefix: str) -> list[str]:
        return [f"{prefix}{i}" for i in range(len(self.grouping.pieces))]

    def _around(self, count: str, prefix: str, of: list[str]) -> str:
        """Return the rows of the spans: those that did not change, and the others as they were or as they are."""
        pieces = zip(self._pieces(prefix), self._pieces("p"), strict=True)
        columns = [*self._keys, "_pane", f"{count} AS {COUNT}", *(f"{mine} AS {name}" for mine, name in pieces)]
        of_span = f"changed d JOIN spans c ON {alike('d', 'c', of)} WHERE d.{count} > 0"
        return f"(FROM near UNION ALL SELECT {', '.join(f'd.{c}' for c in columns)}, {self._asked()} FROM {of_span})"

    def _compared(self) -> pa.Table:
        """Return the delta between the windows `went` and `came`, where each result is made of one row."""
        same = alike("n", "o", [*self._keys, "_window"])
        either = [f"CASE WHEN n._window IS NULL THEN o.{c} ELSE n.{c} END" for c in [*self._keys, "_window", "_time"]]
        named = zip(either, [*self._keys, "_pane", "_time"], strict=True)
        columns = [f"{sql} AS {name}" for sql, name in named]
        columns += [f"coalesce(n.{COUNT}, 0) AS {COUNT}", *(f"n.{p}" for p in self._pieces("p"))]
        columns += [f"o.{COUNT} AS o_n", "NULL::BIGINT AS o_row"]
        columns += [f"o.p{i} AS o{i}" for i in range(len(self.grouping.pieces))]
        both = f"came n {'LEFT' if self.grouping.insert_only else 'FULL'} JOIN went o ON {same}"
        changed = SinglesSql(self.grouping).of(f"SELECT {', '.join(columns)} FROM {both}")
        return pairs(self.grouping, self.duck.arrow(f"SELECT * FROM ({changed}) WHERE came OR went"))
