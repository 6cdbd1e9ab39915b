"""Grouped aggregates, after the exchange: partial groups into state, changed groups out.

State is one row a group (and pane): the count of rows `_n` and the accumulators, and for some functions a multiset of
values. A result comes out only where it changed: the old row withdrawn, the new one inserted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.hashing import hash_columns
from headrace.base.names import quote
from headrace.kernels.groups import cells, running_sums, whole_numbers
from headrace.kernels.groups.grouping import GROUPS, tables
from headrace.kernels.groups.kept_values import ValueChanges
from headrace.kernels.groups.panes import PaneSql
from headrace.kernels.groups.periods import dated
from headrace.kernels.groups.single_row_results import SingleRowSql, change_pairs
from headrace.kernels.op import StepResult
from headrace.kernels.sql import alike, by_position, with_nulls
from headrace.kernels.state.runs import distinct
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.kernels.aggregates.aggregate_spec import Accumulator
    from headrace.kernels.duck import Duck
    from headrace.kernels.groups.grouping import Grouping
    from headrace.kernels.state.state import State


RESULT = "_result"
"""What results are called inside, with a number, next to keys under their own names: `plan/check` refuses such keys."""
_OLD = (f"s.{COUNT} AS o_n", "s.rowid AS o_row")
_NONE = ("NULL::BIGINT AS o_n", "NULL::BIGINT AS o_row")


@dataclass
class MergeRun:
    """One epoch of one aggregate in one shard: groups, with windows of panes or without."""

    duck: Duck
    grouping: Grouping
    state: State
    watermark: int | None
    previous: int | None
    _nulls: list[frozenset[str]] = field(default_factory=list, init=False)
    """The key columns with nulls, by table of partial groups."""
    _arrived: dict[int, str] = field(default_factory=dict, init=False)
    """The partial groups as they arrived, by table."""

    def run(self, partials: list[list[pa.Table]]) -> StepResult:
        """Close the windows that the watermark closed, without this epoch's rows; then add these."""
        outputs = []
        if self.grouping.windowed and self.watermark is not None and self.watermark != self.previous:
            outputs.append(self._close(self.watermark))
        if sum(table.num_rows for table in partials[0]):
            changed = whole_numbers.merged(self.grouping, self.state, partials[0])
            if changed is not None:
                return StepResult([change_pairs(self.grouping, changed)])
            together = [self._together(number, parts) for number, parts in enumerate(partials)]
            self._nulls = [with_nulls(parts) for parts in partials]
            new = self._new_windows(*together[0])
            if new is None:
                new = self._merged([self._folded(number, *each) for number, each in enumerate(together)])
            outputs.append(new)
        delta = concat_present(outputs)
        return StepResult(delta=[] if delta is None else [self._dated(delta)])

    def current(self, time: int) -> pa.Table:
        """Return the results that were emitted and not withdrawn, as inserts; of windows, of the open ones.

        Args:
            time: the event time of results that have none of their own.

        """
        return self._dated(self._current(time))

    def _current(self, time: int) -> pa.Table:
        groups = self.state.name(GROUPS)
        if self.grouping.simple:
            columns = [f"s.{name}" for name in self.state.tables[GROUPS].columns]
            columns += [f"{time}::BIGINT AS _time", "NULL::BIGINT AS o_n", "NULL::BIGINT AS o_row"]
            columns += [f"s.p{i} AS o{i}" for i in range(len(self.grouping.kept))]
            rows = f"(SELECT {', '.join(columns)} FROM {groups} s)"
            return change_pairs(self.grouping, self.duck.arrow(SingleRowSql(self.grouping).of(rows)))
        self._touch(f"(SELECT *, {time}::BIGINT AS _time FROM {groups})")
        results = self._results("touched_windows")
        return self.duck.arrow(self._result_rows(f"({results})", 1))

    def _dated(self, delta: pa.Table) -> pa.Table:
        calendar = self.grouping.panes.calendar if self.grouping.panes else None
        return delta if calendar is None else dated(delta, calendar)

    # -- putting partial groups together

    def _relation(self, number: int, parts: list[pa.Table]) -> str:
        time = ", _pane AS _time" if self.grouping.panes and number == 0 else ""
        relations = [f"SELECT *{time} FROM {self.duck.register(part)}" for part in parts if part.num_rows]
        if not relations:
            table = tables(self.grouping)[number]
            typed = [f"NULL::{kind} AS {name}" for name, kind in (*table.keys, (COUNT, "BIGINT"))]
            return f"(SELECT {', '.join(typed)} WHERE false)"
        return f"({' UNION ALL '.join(relations)})"

    def _together(self, number: int, parts: list[pa.Table]) -> tuple[list[pa.Table], bool]:
        """Return the partial groups of several tasks, put together where columns do, and whether each is there once."""
        if number == 0 and cells.covers_fold(self.grouping) and (folded := cells.folded(self.grouping, parts)):
            parts = [folded]
        keys = [name for name, _ in tables(self.grouping)[number].keys]
        return parts, _each_once(parts, keys, grouped=bool(number) or not cells.covers(self.grouping))

    def _folded(self, number: int, parts: list[pa.Table], once: bool) -> str:  # noqa: FBT001 -- as `_together` returns it
        """Return a relation of one row a key."""
        table = tables(self.grouping)[number]
        arrived = self._arrived[number] = self._relation(number, parts)
        keys = [name for name, _ in table.keys]
        if once:
            given = table.values[: len(table.values) - len(self.grouping.values)]
            casts = ", ".join(f"{name}::{kind} AS {name}" for name, kind in given)
            return f"(SELECT * {f'REPLACE ({casts})' if casts else ''} FROM {arrived})"
        sums = [f"sum({COUNT})::BIGINT AS {COUNT}"]
        if number == 0:
            sums += [
                f"{accumulator.finish.format(f=f'{accumulator.fold}(p{i})')} AS p{i}"
                for i, accumulator in enumerate(self.grouping.accumulators)
            ]
            sums.append("max(_time) AS _time")
        columns = ", ".join([*keys, *sums])
        return f"(SELECT {columns} FROM {arrived} {by_position(keys)})"

    @cached_property
    def _groups_before(self) -> str:
        """A relation of the kept groups that arrived ones may be, before these are put into the state."""
        return self._kept_rows(0, self._arrived[0], by_value=True)

    def _kept_rows(self, number: int, groups: str, *, by_value: bool) -> str:
        """Return a relation of kept rows that may match relation `groups` by key: a superset.

        Of a multiset, those of the same values (`by_value`) or of the same group.
        """
        name = f"values{number - 1}" if number else GROUPS
        keys = [key for key, _ in self.state.tables[name if by_value else GROUPS].keys]
        return self.state.lookup(name, keys, groups)

    def _new_windows(self, parts: list[pa.Table], once: bool) -> pa.Table | None:  # noqa: FBT001
        """Add partial groups of windows to a state without rows, by columns; None where that is left to SQL."""
        few = sum(part.num_rows for part in parts) <= whole_numbers.MOST_GROUPS
        covers = self.grouping.simple and not self.grouping.multisets and not self.grouping.final
        if self.state.rows or not (once or few) or not covers:
            return None
        rows = whole_numbers.of_new_windows(self.grouping, parts, once=once)
        return None if rows is None else self._put(rows)

    def _merged(self, folded: list[str]) -> pa.Table | None:
        if self.grouping.simple and not self.grouping.final:
            return self._merged_simply(folded)
        if self.grouping.final:
            self._update(folded)
            return None
        return self._merged_by_windows(folded)

    def _joined(self, folded: str) -> str:
        """Return SQL for the changed groups: keys, `_time`, their new accumulators `p0…` and old ones `o0…`."""
        columns = [f"d.{name}" for name, _ in self.state.tables[GROUPS].keys]
        if not self.state.rows:
            columns += [f"d.{COUNT}", "d._time", *_NONE]
            for i, each in enumerate(self.grouping.kept):
                none = f"NULL::{each.type}"
                columns += [f"{each.merge.format(o=none, d=f'd.p{i}')} AS p{i}", f"{none} AS o{i}"]
            return f"SELECT {', '.join(columns)} FROM {folded} d"
        columns += [f"coalesce(s.{COUNT}, 0) + d.{COUNT} AS {COUNT}", "d._time", *_OLD]
        for i, each in enumerate(self.grouping.kept):
            columns += [f"{each.merge.format(o=f's.p{i}', d=f'd.p{i}')} AS p{i}", f"s.p{i} AS o{i}"]
        return (
            f"SELECT {', '.join(columns)} FROM {folded} d "
            f"LEFT JOIN {self._groups_before} s "
            f"ON {self.state.matching(GROUPS, 'd', 's', nulls=self._nulls[0])}"
        )

    def _update(self, folded: list[str]) -> None:
        """Add partial groups and values to the state, and emit nothing."""
        kept = ", ".join([*self.state.tables[GROUPS].columns, "o_row"])
        groups = self._update_values(folded)
        self.state.replace(GROUPS, self.duck.arrow(f"SELECT {kept} FROM ({self._joined(groups)})"), at="o_row")

    def _update_values(self, folded: list[str]) -> str:
        """Add values to the state; return the partial groups with what becomes of the values that groups keep."""
        touched = {}
        for number in range(len(self.grouping.multisets)):
            table = f"values{number}"
            keys = ", ".join(f"d.{name}" for name, _ in self.state.tables[table].keys)
            new = f"coalesce(s.{COUNT}, 0) + d.{COUNT} AS {COUNT}"
            same = self.state.matching(table, "d", "s", nulls=self._nulls[number + 1])
            rows = self.duck.arrow(
                f"SELECT {', '.join([keys, new, *_OLD])} FROM {folded[number + 1]} d "
                f"LEFT JOIN {self._kept_rows(number + 1, self._arrived[number + 1], by_value=True)} s ON {same}"
            )
            self.state.replace(table, rows, at="o_row")
            if any(each.number == number for each in self.grouping.values):
                touched[number] = self.duck.register(rows)
        return self._with_values(folded[0], touched) if self.grouping.values else folded[0]

    def _with_values(self, groups: str, touched: Mapping[int, str]) -> str:
        """Return partial groups with what their kept values are merged with, from the values that were touched."""
        keys = [name for name, _ in self.state.tables[GROUPS].keys]
        columns, source = ["d.*"], f"{groups} d"
        for at, each in enumerate(self.grouping.values, len(self.grouping.accumulators)):
            values = partial(self._kept_rows, each.number + 1, by_value=False)
            changed = ValueChanges(self.duck, keys, touched[each.number], self._groups_before, values).of(
                each, f"p{at}"
            )
            source += f" LEFT JOIN {changed} c{at} ON {alike('d', f'c{at}', keys)}"
            columns.append(f"c{at}.d AS p{at}")
        for name in touched.values():  # after a first load that is as much as the state
            self.duck.release(name)
        return f"(SELECT {', '.join(columns)} FROM {source})"

    # -- results of single rows

    def _merged_simply(self, folded: list[str]) -> pa.Table:
        return self._put(self.duck.arrow(SingleRowSql(self.grouping).of(self._joined(self._update_values(folded)))))

    def _put(self, rows: pa.Table) -> pa.Table:
        """Put changed groups, as `SingleRowSql` says them, into the state, and return their delta."""
        self.state.replace(GROUPS, rows, at="o_row")
        return change_pairs(self.grouping, rows)

    @property
    def _window(self) -> list[str]:
        """The columns that identify a window of a group."""
        return ["_window"] if self.grouping.panes else []

    def _bounds(self) -> tuple[str, str]:
        """Return SQL over those columns for the window's start and end."""
        assert self.grouping.panes is not None  # noqa: S101 -- called for windows only
        return PaneSql(self.grouping.panes).start("_window"), "_window"

    def _stamped(self, end: str) -> str:
        """Return SQL for the event time of a window's result: the last moment inside."""
        return f"{end} - 1"

    def _named_keys(self) -> list[str]:
        return [f"k{i} AS {quote(name)}" for i, (name, _, _) in enumerate(self.grouping.keys)]

    def _result_rows(self, source: str, weight: int) -> str:
        """Return the SELECT of the step's columns from the results of `_rendered`."""
        columns = [quote(name) for name, _, _ in self.grouping.keys]
        time = "_time"
        if self._window:
            start, end = self._bounds()
            columns += [f"make_timestamp({start}) AS window_start", f"make_timestamp({end}) AS window_end"]
            time = f"{self._stamped(end)} AS _time"
        columns += [f"{RESULT}{i} AS {quote(name)}" for i, (name, _, _) in enumerate(self.grouping.results)]
        return f"SELECT {', '.join([*columns, f'{weight}::INTEGER AS _weight', time])} FROM {source}"

    # -- results of several rows: windows made of panes, and multisets

    def _merged_by_windows(self, folded: list[str]) -> pa.Table:
        self._touch(folded[0])
        self.duck.run(f"CREATE OR REPLACE TEMP TABLE before AS {self._results('touched_windows')}")
        self._update(folded)
        self.duck.run(f"CREATE OR REPLACE TEMP TABLE after AS {self._results('touched_windows')}")
        return self._difference()

    def _difference(self) -> pa.Table:
        """Return the delta between the results in the tables `before` and `after`."""
        keys = [*(quote(name) for name, _, _ in self.grouping.keys), *self._window]
        equal = alike("a", "b", [*keys, *(f"{RESULT}{i}" for i in range(len(self.grouping.results)))])
        withdrawn = f"(SELECT * FROM before a WHERE NOT EXISTS (FROM after b WHERE {equal}))"
        inserted = f"(SELECT * FROM after a WHERE NOT EXISTS (FROM before b WHERE {equal}))"
        return self.duck.arrow(f"{self._result_rows(withdrawn, -1)} UNION ALL {self._result_rows(inserted, 1)}")

    def _touch(self, folded: str) -> None:
        """Create `touched_windows`: the keys, and open windows, of the changed groups."""
        keys = [f"k{i}" for i in range(len(self.grouping.keys))]
        columns = list(keys)
        if self.grouping.panes:
            sql = PaneSql(self.grouping.panes)
            after = None if self.watermark is None else sql.closed_end(self.watermark)
            columns.append(f"unnest({sql.ends('_pane', after=after)}) AS _window")
            keys.append("_window")
        self.duck.run(
            f"CREATE OR REPLACE TEMP TABLE touched_windows AS SELECT {', '.join([*keys, 'max(_time) AS _time'])} "
            f"FROM (SELECT {', '.join([*columns, '_time'])} FROM {folded}) {by_position(keys) or 'HAVING count(*) > 0'}"
        )

    def _results(self, windows: str) -> str:
        """Return SQL for the results of groups and windows, from the state as it is now."""
        keys = self._of_window()
        folds = [f"{p.finish.format(f=self._fold(p, i))} AS p{i}" for i, p in enumerate(self.grouping.kept)]
        columns = [*keys, "any_value(w._time) AS _time", f"sum(s.{COUNT})::BIGINT AS {COUNT}", *folds]
        joined = f"{windows} w JOIN {self._kept_rows(0, windows, by_value=False)} s ON {self._in_window()}"
        main = f"SELECT {', '.join(columns)} FROM {joined} {by_position(keys)} HAVING sum(s.{COUNT}) > 0"
        return self._rendered(main, windows)

    def _fold(self, accumulator: Accumulator, number: int) -> str:
        """Return SQL that folds an accumulator over panes: in their order, so that a result can be withdrawn again."""
        order = " ORDER BY s._pane" if accumulator.fold == "list" and self.grouping.panes else ""
        return f"{accumulator.fold}(s.p{number}{order})"

    def _of_window(self) -> list[str]:
        """Return the columns of a group and window `w`."""
        return [*(f"w.k{i}" for i in range(len(self.grouping.keys))), *(f"w.{name}" for name in self._window)]

    def _in_window(self) -> str:
        """Return the condition that a kept row `s` belongs to a group and window `w`."""
        same = alike("w", "s", [f"k{i}" for i in range(len(self.grouping.keys))])
        if self.grouping.panes is None:
            return same
        return f"{same} AND s._pane >= {PaneSql(self.grouping.panes).start('w._window')} AND s._pane < w._window"

    def _rendered(self, groups: str, windows: str) -> str:
        """Return SQL for keys, `_window`, `_time` and results `_result0…` of rows with accumulators."""
        window = [*(f"k{i}" for i in range(len(self.grouping.keys))), *self._window]
        source, columns = f"({groups}) g", [f"g.{name}" for name in [*window, "_time", COUNT]]
        for number in self.grouping.read_values:
            same = alike("g", f"x{number}", window)
            source += f" LEFT JOIN ({self._of_values(number, windows)}) x{number} ON {same}"
        for i, (call, source_of) in enumerate(zip(self.grouping.calls, self.grouping.from_multiset, strict=True)):
            columns.append(f"{call if source_of is None else self._else_empty(call, f'x{source_of}.c{i}')} AS _a{i}")
        calls = f"SELECT {', '.join(columns)} FROM {source}"
        keys = [*self._named_keys(), *self._window, "_time"]
        named = f"SELECT {', '.join([*keys, *(f'_a{i}' for i in range(len(self.grouping.calls)))])} FROM ({calls})"
        results = [f"{sql} AS {RESULT}{i}" for i, (_, sql, _) in enumerate(self.grouping.results)]
        return f"SELECT {', '.join(['*', *results])} FROM ({named})"

    @staticmethod
    def _else_empty(call: str, column: str) -> str:
        """A group without a value in the multiset has a count of 0 and an empty list; everything else is null."""
        if call == "count(*)":
            return f"coalesce({column}, 0)"
        return f"coalesce({column}, [])" if call.startswith("coalesce(") else column

    def _of_values(self, number: int, windows: str) -> str:
        window = self._of_window()
        values = [name for name, _ in self.grouping.multisets[number].columns]
        counted = (
            f"SELECT {', '.join([*window, *(f's.{v}' for v in values)])}, sum(s.{COUNT})::BIGINT AS {COUNT} "
            f"FROM {windows} w JOIN {self._kept_rows(number + 1, windows, by_value=False)} s ON {self._in_window()} "
            f"GROUP BY ALL HAVING sum(s.{COUNT}) > 0"
        )
        calls = [
            f"{call} AS c{i}"
            for i, (call, source) in enumerate(zip(self.grouping.calls, self.grouping.from_multiset, strict=True))
            if source == number
        ]
        keys = [name.removeprefix("w.") for name in window]
        if number in self.grouping.ranked:
            counted = _with_ranks(counted, keys, values)
        return f"SELECT {', '.join([*keys, *calls])} FROM ({counted}) {by_position(keys) or 'HAVING count(*) > 0'}"

    # -- windows that close

    def _close(self, watermark: int) -> pa.Table | None:
        """Return the final results of the windows that closed since the last epoch; drop the panes no one needs."""
        assert self.grouping.panes is not None  # noqa: S101 -- other windows have classes of their own
        groups, sql = self.state.name(GROUPS), PaneSql(self.grouping.panes)
        out = None
        if self.grouping.final:
            out = self._final(sql, watermark)
        gone = sql.gone("_pane", watermark)
        if self.duck.rows(f"SELECT EXISTS (FROM {groups} WHERE {gone})")[0][0]:
            for table in self.state.tables:
                self.state.evict(table, gone)
        return out

    def _final(self, sql: PaneSql, watermark: int) -> pa.Table | None:
        after = None if self.previous is None else sql.closed_end(self.previous)
        until = sql.closed_end(watermark)
        groups = self.state.name(GROUPS)
        closing = f"_pane < {until}" + (f" AND _pane > {after - sql.panes.size}" if after is not None else "")
        if not self.duck.rows(f"SELECT EXISTS (FROM {groups} WHERE {closing})")[0][0]:
            return None
        if self.grouping.read_values:
            self._make_closing(sql, closing, after, until)
            final = self._results("closing")
        else:
            final = self._rendered(self._of_closing(sql, closing, after, until), "")
        order = ", ".join(["_window", *(quote(name) for name, _, _ in self.grouping.keys)])
        return self.duck.arrow(f"{self._result_rows(f'(SELECT * FROM ({final}) ORDER BY {order})', 1)}")

    def _of_closing(self, sql: PaneSql, where: str, after: int | None, until: int) -> str:
        """Return SQL for the accumulators of each closing window of each key."""
        if sql.panes.pane != sql.panes.size:
            if running_sums.covers(self.grouping) and (slid := self._slid(sql, where, after, until)):
                return slid
            self._make_closing(sql, where, after, until)
            return self._framed(sql, where)
        keys = [f"k{i}" for i in range(len(self.grouping.keys))]
        accumulators = [f"p{i}" for i in range(len(self.grouping.kept))]
        columns = [*keys, f"{sql.first_end('_pane')} AS _window", "0::BIGINT AS _time", COUNT, *accumulators]
        since = "" if after is None else f" AND _window > {after}"
        return f"SELECT {', '.join(columns)} FROM {self.state.name(GROUPS)} WHERE {where} AND _window <= {until}{since}"

    def _slid(self, sql: PaneSql, where: str, after: int | None, until: int) -> str | None:
        """Return SQL for the closing windows' accumulators by running sums, or None where frames are needed."""
        p, keys = sql.panes, [f"k{i}" for i in range(len(self.grouping.keys))]
        first, last = sql.outer_ends("_pane", after=after, until=str(until))
        ends = [f"{first} AS {running_sums.FIRST}", f"{last} AS {running_sums.LAST}"]
        columns = [*keys, "_pane", *ends, *running_sums.columns(self.grouping)]
        panes = self.duck.arrow(f"SELECT {', '.join(columns)} FROM {self.state.name(GROUPS)} WHERE {where}")
        sums = running_sums.window_sums(panes, keys, size=p.size, every=p.every)
        if sums is None:
            return None
        folded = [f"p{i}::{each.type} AS p{i}" for i, each in enumerate(self.grouping.accumulators)]
        columns = [*keys, "_window", "0::BIGINT AS _time", COUNT, *folded]
        return f"SELECT {', '.join(columns)} FROM {self.duck.register(sums)}"

    def _make_closing(self, sql: PaneSql, where: str, after: int | None, until: int) -> None:
        """Create `closing`: each closing window of each key once, by its last pane."""
        keys = [f"k{i}" for i in range(len(self.grouping.keys))]
        by = f"PARTITION BY {', '.join(keys)} " if keys else ""
        following = f"lead(_pane) OVER ({by}ORDER BY _pane)"
        panes = (
            f"SELECT {', '.join([*keys, '_pane'])}, {following} AS next FROM {self.state.name(GROUPS)} WHERE {where}"
        )
        ends = sql.ends("_pane", after=after, until=f"least({until}, coalesce(next, {until}))")
        self.duck.run(
            f"CREATE OR REPLACE TEMP TABLE closing AS "
            f"SELECT {', '.join([*keys, f'unnest({ends}) AS _window', '0::BIGINT AS _time'])} FROM ({panes})"
        )

    def _framed(self, sql: PaneSql, where: str) -> str:
        """Return SQL for the closing windows' accumulators: a frame slides over the panes of each key once.

        A pane and a closing window that end together share a row, so that few rows are sorted.
        """
        keys = [f"k{i}" for i in range(len(self.grouping.keys))]
        accumulators = [f"p{i}" for i in range(len(self.grouping.accumulators))]
        p = sql.panes
        columns_of_panes = ", ".join([*keys, COUNT, *accumulators, f"_pane + {p.pane} AS _at"])
        panes = f"(SELECT {columns_of_panes} FROM {self.state.name(GROUPS)} WHERE {where}) s"
        ends = f"(SELECT {', '.join([*keys, '_window'])}, _window AS _at FROM closing) w"
        same = f"s._at = w._at AND {alike('s', 'w', keys)}"
        either = [f"CASE WHEN w._at IS NULL THEN s.{key} ELSE w.{key} END AS {key}" for key in keys]
        columns = [*either, "coalesce(w._at, s._at) AS _at", "_window", COUNT, *accumulators]
        rows = f"SELECT {', '.join(columns)} FROM {panes} FULL JOIN {ends} ON {same}"
        apart = [*keys, *([sql.start("_at")] if p.cumulating else [])]
        by = f"PARTITION BY {', '.join(apart)} " if apart else ""
        frame = f"WINDOW frame_ AS ({by}ORDER BY _at RANGE BETWEEN {p.size - p.pane} PRECEDING AND CURRENT ROW)"
        folds = [
            f"{accumulator.finish.format(f=f'{accumulator.fold}(p{i}){_no_nulls(accumulator, i)} OVER frame_')} AS p{i}"
            for i, accumulator in enumerate(self.grouping.accumulators)
        ]
        columns = [*keys, "_window", "0::BIGINT AS _time", f"(sum({COUNT}) OVER frame_)::BIGINT AS {COUNT}", *folds]
        slid = f"SELECT {', '.join(columns)} FROM ({rows}) {frame}"
        return f"SELECT * FROM ({slid}) WHERE _window IS NOT NULL AND {COUNT} > 0"


def _with_ranks(counted: str, keys: list[str], values: list[str]) -> str:
    """Return SQL that ranks each value of a multiset among those of its group."""
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    upto = f"(sum({COUNT}) OVER ({by}ORDER BY {', '.join(values)}))::BIGINT AS _upto"
    return f"SELECT *, {upto}, (sum({COUNT}) OVER ({by}))::BIGINT AS _all FROM ({counted})"


def _no_nulls(accumulator: Accumulator, number: int) -> str:
    """Return the filter that keeps nulls of rows without a pane from a fold that does not skip them itself."""
    return "" if accumulator.fold in ("sum", "min", "max") else f" FILTER (WHERE p{number} IS NOT NULL)"


def _each_once(parts: Sequence[pa.Table], keys: Sequence[str], *, grouped: bool) -> bool:
    """Return whether no two partial groups are the same one; `grouped`: those of one task are not.

    They may be where rows were left ungrouped (`ungrouped`).
    """
    there = [part for part in parts if part.num_rows]
    if len(there) != 1:
        return not there
    return grouped or distinct(hash_columns([there[0].column(key) for key in keys], there[0].num_rows))


def concat_present(parts: Iterable[pa.Table | None]) -> pa.Table | None:
    """Return the rows of several results as one, or None where there are none."""
    present = [part for part in parts if part is not None and part.num_rows]
    return pa.concat_tables(present) if present else None
