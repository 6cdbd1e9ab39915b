"""Two tables joined, kept up to date: each epoch's changes of both sides become the changes of the result.

A pair of rows is there as often as its left row times its right row. So an epoch looks at the pairs of which one row
changed, each once: versions of the left with versions and unchanged rows of the right, and the other way round; its
weight is how often it is there now, less how often it was. A row that comes out without a match has the number of its
matches known: from the counts of the other side's values, or, where a further condition decides, from a count of its
own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.names import quote
from headrace.kernels.counts import Counts
from headrace.kernels.joins import pairs_by_columns
from headrace.kernels.joins.growing_side import run_of
from headrace.kernels.joins.match_counts import MATCH_CHANGED, update_value_counts
from headrace.kernels.joins.sides import MATCHES, TableSide
from headrace.kernels.op import StatefulOp, StepResult
from headrace.kernels.spool import Spool
from headrace.kernels.sql import by_position
from headrace.kernels.state.keyed import KeyedState
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.kernels.delta import Delta, Rows
    from headrace.kernels.joins.join_spec import JoinSpec
    from headrace.kernels.joins.sides import SideRun
    from headrace.kernels.op import Context
    from headrace.kernels.state.tables import TableSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoin(StatefulOp):
    """Deltas of two tables into their rows, which are kept. The result is the delta of the rows that match."""

    timed: ClassVar[bool] = False

    join: JoinSpec

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the rows of both sides, and the counts of their values."""
        left, right = self.sides
        return (*left.tables(), *right.tables())

    @property
    def sides(self) -> tuple[TableSide, TableSide]:
        """What is kept of the left side and of the right one."""
        join, how, plain = self.join, self.join.how, self.join.where is None
        needs = (how in ("left", "full", "semi", "anti"), how in ("right", "full"))  # the number of each row's matches
        columns, names = (join.left, join.right), ("left", "right")
        left, right = (
            TableSide(
                name=names[i],
                letter=names[i][0],
                columns=columns[i],
                key=join.keys[i],
                on=tuple(pair[i] for pair in join.on),
                counts_matches=needs[i] and not plain,
                counts_values=needs[1 - i] and plain,
                keeps_rows=i == 0 or how not in ("semi", "anti") or not plain,
                growing=join.growing[i] and (plain or not needs[i]),
            )
            for i in (0, 1)
        )
        return left, right

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Take in the deltas of both sides and return the delta of the join: withdrawn rows, then inserted ones."""
        left, right = (delta.tables for delta in inputs)
        if not left and not right:
            return StepResult()
        counts = Counts(rows_in=sum(part.num_rows for part in (*left, *right)))
        return StepResult([self._delta(left, right, context)], counts=counts)

    def snapshot(self, context: Context) -> Rows:
        """Return all rows: what a join that begins makes of the rows that both sides have."""
        left, right = ([rows] if rows.num_rows else [] for rows in self._kept(context))
        if not left and not right:
            return ()
        begins = KeyedState(context.duck, self.tables(), None, Path())
        return [self._delta(left, right, replace(context, opened=begins))]

    def _delta(self, left: list[pa.Table], right: list[pa.Table], context: Context) -> pa.Table:
        found = pairs_by_columns.delta(self.join, self.sides, context.keyed, (left, right))
        return TableJoinRun(self, context).delta(left, right) if found is None else found

    def _kept(self, context: Context) -> Iterator[pa.Table]:
        """Yield the rows that are kept of both sides, as inserts; of a side without rows, the values that they had."""
        for side in self.sides:
            names, table, time = side.names, side.name, "_time"
            if not side.keeps_rows:
                names, table, time = list(side.on), side.value_counts, "NULL::BIGINT AS _time"
            columns = ", ".join([*names, f"{COUNT} AS _weight", time])
            yield context.duck.arrow(f"SELECT {columns} FROM {context.keyed.name(table)}")


class TableJoinRun:
    """One epoch of one join of tables in one shard, that has rows."""

    def __init__(self, op: TableJoin, context: Context) -> None:
        self.duck = context.duck
        self.state = context.keyed
        self.join = op.join
        self.sides = op.sides

    def delta(self, left: list[pa.Table], right: list[pa.Table]) -> pa.Table:
        """Take in the deltas of both sides and return the delta of the join: withdrawn rows, then inserted ones."""
        parts = (left, right)
        runs = [run_of(self.duck, side, self.state, arrived) for side, arrived in zip(self.sides, parts, strict=True)]
        for run, arrived in zip(runs, parts, strict=True):
            if arrived and run.side.keeps_rows:
                run.find_changes(arrived)
        values = [self._value_counts(runs, parts, i) if runs[i].side.counts_values else None for i in (0, 1)]
        self._find_unchanged(runs, values)
        pairs = self._pairs(runs)
        matches = [self._matches(run, pairs) if run.side.counts_matches else None for run in runs]
        delta = self._delta(runs, pairs, values, matches)
        for run, counted in zip(runs, matches, strict=True):
            run.keep(counted)
        looked_at = [*(name for run in runs for name in (run.changes, run.unchanged)), *values, *matches]
        for name in [*looked_at, pairs if runs[0].side.counts_matches or runs[1].side.counts_matches else None]:
            if name is not None:  # after a first load that is as much as the state
                self.duck.release(name)
        return delta

    # ---- what an epoch looks at ----

    def _value_counts(self, runs: list[SideRun], parts: tuple[list[pa.Table], list[pa.Table]], i: int) -> str:
        """Count the values of a side, and look up those that the changed rows of the other one match."""
        run, other = runs[i], runs[1 - i]
        on = ", ".join(run.side.on)
        changes = [f"SELECT {run.side.nulls(run.side.on)}, 0::BIGINT AS n, NULL::BIGINT AS _when WHERE false"]
        if run.changed:
            changes.append(f"SELECT {on}, n_new - n_old AS n, _when FROM {run.versions}")
        elif not run.side.keeps_rows:
            named = [self.duck.register(part) for part in parts[i]]
            changes += [f"SELECT {on}, _weight::BIGINT AS n, _time AS _when FROM {name}" for name in named]
        probes = []
        if other.changed:
            renamed = [f"{theirs} AS {own}" for own, theirs in zip(run.side.on, other.side.on, strict=True)]
            probes.append(f"SELECT {', '.join(renamed)} FROM {other.versions}")
        return update_value_counts(self.duck, run.side, self.state, changes, probes)

    def _find_unchanged(self, runs: list[SideRun], values: list[str | None]) -> None:
        """Find the rows that do not change and may be of another pair now, or of none."""
        left, right = runs
        if right.changed:
            left.find_unchanged(right.versions, right.side.on)
        elif not right.side.keeps_rows:
            left.find_unchanged(f"(SELECT * FROM {values[1]} WHERE {MATCH_CHANGED})", right.side.on)
        if left.changed and right.side.keeps_rows:
            right.find_unchanged(left.versions, left.side.on)

    def _on(self, left: str, right: str) -> str:
        return " AND ".join(f"{left}.{ours} = {right}.{theirs}" for ours, theirs in self.join.on)

    def _pairs(self, runs: list[SideRun]) -> str | None:
        """Return a relation of the pairs of which one row changed, each with `_w`: how much more often it is there."""
        left, right = runs
        if not right.side.keeps_rows:
            return None
        combined = []
        if left.changed and right.changed:
            combined.append((left.versions, right.versions))
        if left.changed and right.unchanged is not None:
            combined.append((left.versions, right.unchanged))
        if left.unchanged is not None and right.changed:
            combined.append((left.unchanged, right.versions))
        combined = combined or [(left.no_versions, right.no_versions)]
        columns = [*left.side.names, *right.side.names, "l.n_new * r.n_new - l.n_old * r.n_old AS _w"]
        if left.side.counts_matches or right.side.counts_matches:
            columns += [f"{x}.{name} AS {x}_{name}" for x in "lr" for name in ("id", "n_old", "n_new", "_when")]
        times = "l._time AS l_time, r._time AS r_time, greatest(l._when, r._when) AS _when"
        sql = " UNION ALL ".join(
            f"SELECT {', '.join(columns)}, {times} FROM {lefts} l JOIN {rights} r ON {self.join.condition}"
            for lefts, rights in combined
        )
        if left.side.counts_matches or right.side.counts_matches:
            return self.duck.register_large(sql)
        return f"({sql})"

    def _matches(self, run: SideRun, pairs: str | None) -> str:
        """Return a relation: of each row (`id`) the number of matches `now`, how many more (`added`), and when."""
        ours, theirs = run.side.letter, "r" if run.side.letter == "l" else "l"
        return self.duck.register_large(
            f"SELECT {ours}_id AS id, sum({theirs}_n_new)::BIGINT AS now, "
            f"sum({theirs}_n_new - {theirs}_n_old)::BIGINT AS added, max({theirs}__when) AS _when "
            f"FROM {pairs} GROUP BY ALL"
        )

    # ---- the result ----

    def _delta(
        self, runs: list[SideRun], pairs: str | None, values: list[str | None], matches: list[str | None]
    ) -> pa.Table:
        how, changes = self.join.how, []
        if how not in ("semi", "anti"):
            time = "CASE WHEN _w > 0 THEN greatest(l_time, r_time) ELSE _when END AS _time"
            changes.append(f"SELECT {self._output()}, _w, {time} FROM {pairs} WHERE _w <> 0")
        if how in ("left", "full", "semi", "anti"):
            changes.append(self._unmatched(runs[0], values[1], matches[0]))
        if how in ("right", "full"):
            changes.append(self._unmatched(runs[1], values[0], matches[1]))
        rows = f"({' UNION ALL '.join(changes)})"
        if how in ("left", "right", "full"):
            rows = self._netted(rows)
        if self._repeats:
            rows = f"(SELECT *, unnest(range(abs(_w))) FROM {rows})"
        names = [f"x.g{i} AS {quote(name)}" for i, (name, _, _) in enumerate(self.join.output)]
        return self._in_order(f"SELECT {', '.join(names)}, sign(x._w)::INTEGER AS _weight, x._time FROM {rows} x")

    @property
    def _repeats(self) -> bool:
        """Whether a change may be one of several equal rows of a bag.

        Rows of a bag that only grows are changes of their own, until they are netted. Rows of both sides of a full join
        that match none may be equal: with nulls in what is compared, or by a further condition, and nulls besides.
        """
        sides = self.sides[:1] if self.join.how in ("semi", "anti") else self.sides
        nets = self.join.how in ("left", "right", "full")
        return self.join.how == "full" or any(side.key is None and (nets or not side.growing) for side in sides)

    def _in_order(self, changes: str) -> pa.Table:
        """Return the changes, withdrawn rows first; they may be more than the memory."""
        batches = self.duck.stream(changes)
        schema = next(batches).schema
        withdrawn, inserted = Spool(schema), Spool(schema)
        for batch in batches:
            is_inserted = pc.greater(batch.column("_weight"), 0)
            if pc.all(is_inserted).as_py():
                inserted.add(batch)
                continue
            withdrawn.add(batch.filter(pc.invert(is_inserted)))
            inserted.add(batch.filter(is_inserted))
        return pa.concat_tables([withdrawn.table(), inserted.table()])

    def _output(self) -> str:
        return ", ".join(f"({sql})::{kind} AS g{i}" for i, (_, sql, kind) in enumerate(self.join.output))

    def _unmatched(self, run: SideRun, values: str | None, matches: str | None) -> str:
        """Return SQL for the changes of the rows that come out by themselves: without a match, or of a semi join with.

        `values` are the counts of the other side's values, `matches` the rows' own counts: one of them is known.
        """
        counted = self._by_value_counts(run, values) if values is not None else self._by_own_count(run, matches)
        sign = ">" if self.join.how == "semi" else "="
        weight = f"CASE WHEN p_new {sign} 0 THEN n_new ELSE 0 END - CASE WHEN p_old {sign} 0 THEN n_old ELSE 0 END"
        time = "CASE WHEN _w > 0 THEN greatest(_time, _theirs) ELSE greatest(_when, _theirs) END AS _time"
        other = self.join.right if run.side.letter == "l" else self.join.left
        missing = ", ".join(f"NULL::{kind} AS {name}" for name, kind in other)
        weighed = f"SELECT *, {weight} AS _w, {missing} FROM ({' UNION ALL '.join(counted)})"
        return f"SELECT {self._output()}, _w, {time} FROM ({weighed}) WHERE _w <> 0"

    def _columns(self, run: SideRun, alias: str) -> str:
        names = [*run.side.names, "n_old", "n_new", "_time", "_when"]
        return ", ".join(f"{alias}.{name}" for name in names)

    def _by_value_counts(self, run: SideRun, values: str) -> list[str]:
        """Return SQL for the rows whose number of matches may change, by the counts of the other side's values."""
        on = self._on("v", "t") if run.side.letter == "l" else self._on("t", "v")
        columns = self._columns(run, "v")
        rows = []
        if run.changed:
            counts = "coalesce(t.p_old, 0) AS p_old, coalesce(t.p_new, 0) AS p_new, t._when AS _theirs"
            rows.append(f"SELECT {columns}, {counts} FROM {run.versions} v LEFT JOIN {values} t ON {on}")
        if run.unchanged is not None:
            changed = f"SELECT * FROM {values} WHERE {MATCH_CHANGED}"
            counts = "t.p_old, t.p_new, t._when AS _theirs"
            rows.append(f"SELECT {columns}, {counts} FROM {run.unchanged} v JOIN ({changed}) t ON {on}")
        return rows or [self._none(run)]

    def _by_own_count(self, run: SideRun, matches: str | None) -> list[str]:
        """Return SQL for the rows whose number of matches may change, by the counts that they keep."""
        columns, rows = self._columns(run, "v"), []
        if run.changed:
            counts = f"v.{MATCHES} AS p_old, coalesce(m.now, 0) AS p_new, m._when AS _theirs"
            rows.append(f"SELECT {columns}, {counts} FROM {run.versions} v LEFT JOIN {matches} m ON m.id = v.id")
        if run.unchanged is not None:
            counts = f"v.{MATCHES} AS p_old, v.{MATCHES} + m.added AS p_new, m._when AS _theirs"
            rows.append(f"SELECT {columns}, {counts} FROM {run.unchanged} v JOIN {matches} m ON m.id = v.id")
        return rows or [self._none(run)]

    def _none(self, run: SideRun) -> str:
        numbers = ("n_old", "n_new", "_time", "_when", "p_old", "p_new", "_theirs")
        return f"SELECT {run.side.nulls(run.side.names, *numbers)} WHERE false"

    def _netted(self, rows: str) -> str:
        """Let a row without a match cancel out with an equal pair, whose other side has nothing but nulls."""
        doubtful = " OR ".join(f"({self._empty(side)})" for side in self.sides if self._may_be_missing(side))
        names = [f"g{i}" for i in range(len(self.join.output))]
        net = f"sum(_w)::BIGINT AS _w, max(_time) AS _time FROM changes WHERE {doubtful} {by_position(names)}"
        return (
            f"(WITH changes AS MATERIALIZED (SELECT * FROM {rows}) SELECT * FROM changes WHERE NOT ({doubtful}) "
            f"UNION ALL SELECT {', '.join(names)}, {net} HAVING sum(_w) <> 0)"
        )

    def _may_be_missing(self, side: TableSide) -> bool:
        return self.join.how in ("full", "left" if side.letter == "r" else "right")

    def _empty(self, side: TableSide) -> str:
        """Return the condition that the columns of a side alone are null."""
        own = [f"g{i}" for i, (_, sql, _) in enumerate(self.join.output) if sql in side.names]
        return " AND ".join(f"{name} IS NULL" for name in own) or "true"
