"""Two tables joined, kept up to date: each epoch's changes of both sides become the changes of what they make.

A pair of rows is there as often as its left row times its right row. So an epoch looks at the pairs of which one row
changed, each once: versions of the left with versions and standing rows of the right, and the other way round; its
weight is how often it is there now, less how often it was. A row that must come out alone when it meets nothing knows
how many it meets: by the tally of the other side's values, or, where a condition decides beside, by a count of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.names import quote
from headrace.kernels.groups.grouped import by_position
from headrace.kernels.joins.match_counts import MATCH_CHANGED, tallied
from headrace.kernels.joins.sides import MATCHES, Side, SideRun

if TYPE_CHECKING:
    from headrace.kernels.duck import Duck
    from headrace.kernels.joins.join_spec import JoinSpec
    from headrace.kernels.state.state import State, TableSpec

PAIRS = "join_pairs"


def sides(join: JoinSpec) -> tuple[Side, Side]:
    """Return what is kept of both sides."""
    how, plain = join.how, join.where is None
    needs = (how in ("left", "full", "semi", "anti"), how in ("right", "full"))  # how many each row meets
    columns, names = (join.left, join.right), ("left", "right")
    left, right = (
        Side(
            name=names[i],
            letter=names[i][0],
            columns=columns[i],
            key=join.keys[i],
            on=tuple(pair[i] for pair in join.on),
            met=needs[i] and not plain,
            tallied=needs[1 - i] and plain,
            whole=i == 0 or how not in ("semi", "anti") or not plain,
        )
        for i in (0, 1)
    )
    return left, right


def tables(join: JoinSpec) -> tuple[TableSpec, ...]:
    """Return the tables that are kept."""
    left, right = sides(join)
    return (*left.tables(), *right.tables())


@dataclass
class TableJoining:
    """One epoch of one join of tables in one shard."""

    duck: Duck
    join: JoinSpec
    state: State

    def run(self, left: list[pa.Table], right: list[pa.Table]) -> pa.Table:
        """Take in the deltas of both sides and return the delta of the join: what goes, then what comes."""
        parts = (left, right)
        runs = [SideRun(self.duck, side, self.state) for side in sides(self.join)]
        for run, came in zip(runs, parts, strict=True):
            if came and run.side.whole:
                run.change(came)
        tallies = [self._tally(runs, parts, i) if runs[i].side.tallied else None for i in (0, 1)]
        self._stand(runs, tallies)
        pairs = self._pairs(runs)
        counts = [self._met(run, pairs) if run.side.met else None for run in runs]
        made = self._delta(runs, pairs, tallies, counts)
        for run, met in zip(runs, counts, strict=True):
            run.keep(met)
        self._forget(runs, [pairs, *tallies, *counts])
        return made

    def _forget(self, runs: list[SideRun], relations: list[str | None]) -> None:
        """Drop what the epoch looked at: after a first load that is as much as the state."""
        named = [name for name in relations if name is not None and name.isidentifier()]
        for name in [*(name for run in runs for name in run.made), *named]:
            self.duck.run(f"DROP TABLE {name}")

    # ---- what an epoch looks at ----

    def _tally(self, runs: list[SideRun], parts: tuple[list[pa.Table], list[pa.Table]], i: int) -> str:
        """Count the rows of a side, and look up what the changed rows of the other one meet."""
        run, other = runs[i], runs[1 - i]
        on = ", ".join(run.side.on)
        moved = [f"SELECT {run.side.nulls(run.side.on)}, 0::BIGINT AS n, NULL::BIGINT AS _when WHERE false"]
        if run.changed:
            moved.append(f"SELECT {on}, n_new - n_old AS n, _when FROM {run.versions}")
        elif not run.side.whole:
            named = [self.duck.register(part) for part in parts[i]]
            moved += [f"SELECT {on}, _weight::BIGINT AS n, _time AS _when FROM {name}" for name in named]
        asked = []
        if other.changed:
            renamed = [f"{theirs} AS {ours}" for ours, theirs in zip(run.side.on, other.side.on, strict=True)]
            asked.append(f"SELECT {', '.join(renamed)} FROM {other.versions}")
        return tallied(self.duck, run.side, self.state, moved, asked)

    def _stand(self, runs: list[SideRun], tallies: list[str | None]) -> None:
        """Find the rows that stay as they are and may come into another pair, or out of their last."""
        left, right = runs
        if right.changed:
            left.stand(right.versions, right.side.on)
        elif not right.side.whole:
            left.stand(f"(SELECT * FROM {tallies[1]} WHERE {MATCH_CHANGED})", right.side.on)
        if left.changed and right.side.whole:
            right.stand(left.versions, left.side.on)

    def _on(self, left: str, right: str) -> str:
        return " AND ".join(f"{left}.{one} = {right}.{other}" for one, other in self.join.on)

    def _pairs(self, runs: list[SideRun]) -> str | None:
        """Return a relation of the pairs of which one row changed, each with `_w`: how much more often it is there."""
        left, right = runs
        if not right.side.whole:
            return None
        beside = []
        if left.changed and right.changed:
            beside.append((left.versions, right.versions))
        if left.changed:
            beside.append((left.versions, right.side.others))
        if right.changed:
            beside.append((left.side.others, right.versions))
        columns = [*left.side.names, *right.side.names, "l.n_new * r.n_new - l.n_old * r.n_old AS _w"]
        if left.side.met or right.side.met:
            columns += [f"{x}.{name} AS {x}_{name}" for x in "lr" for name in ("id", "n_old", "n_new", "_when")]
        times = "l._time AS l_time, r._time AS r_time, greatest(l._when, r._when) AS _when"
        made = [
            f"SELECT {', '.join(columns)}, {times} FROM {one} l JOIN {other} r ON {self.join.agree()}"
            for one, other in beside
        ]
        sql = " UNION ALL ".join(made)
        if left.side.met or right.side.met:
            self.duck.run(f"CREATE OR REPLACE TEMP TABLE {PAIRS} AS {sql}")
            return PAIRS
        return f"({sql})"

    def _met(self, run: SideRun, pairs: str | None) -> str:
        """Return a relation: of each row (`id`) how many it meets `now`, how many more (`moved`), and when."""
        ours, theirs = run.side.letter, "r" if run.side.letter == "l" else "l"
        name = f"join_{ours}_met"
        self.duck.run(
            f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT {ours}_id AS id, sum({theirs}_n_new)::BIGINT AS now, "
            f"sum({theirs}_n_new - {theirs}_n_old)::BIGINT AS moved, max({theirs}__when) AS _when "
            f"FROM {pairs} GROUP BY ALL"
        )
        return name

    # ---- what comes out ----

    def _delta(
        self, runs: list[SideRun], pairs: str | None, tallies: list[str | None], counts: list[str | None]
    ) -> pa.Table:
        how, made = self.join.how, []
        if how not in ("semi", "anti"):
            time = "CASE WHEN _w > 0 THEN greatest(l_time, r_time) ELSE _when END AS _time"
            made.append(f"SELECT {self._gives()}, _w, {time} FROM {pairs} WHERE _w <> 0")
        if how in ("left", "full", "semi", "anti"):
            made.append(self._alone(runs[0], tallies[1], counts[0]))
        if how in ("right", "full"):
            made.append(self._alone(runs[1], tallies[0], counts[1]))
        rows = f"({' UNION ALL '.join(made)})"
        if how in ("left", "right", "full"):
            rows = self._netted(rows)
        if None in (self.join.keys[:1] if how in ("semi", "anti") else self.join.keys):
            rows = f"(SELECT *, unnest(range(abs(_w))) FROM {rows})"
        names = [f"x.g{i} AS {quote(name)}" for i, (name, _, _) in enumerate(self.join.gives)]
        delta = self.duck.arrow(f"SELECT {', '.join(names)}, sign(x._w)::INTEGER AS _weight, x._time FROM {rows} x")
        comes = pc.greater(delta.column("_weight"), 0)
        return pa.concat_tables([delta.filter(pc.invert(comes)), delta.filter(comes)])

    def _gives(self) -> str:
        return ", ".join(f"({sql})::{kind} AS g{i}" for i, (_, sql, kind) in enumerate(self.join.gives))

    def _alone(self, run: SideRun, tally: str | None, met: str | None) -> str:
        """Return SQL for the changes of the rows that come out for what they meet: nothing, or of a semi join any."""
        counted = self._by_tally(run, tally) if tally is not None else self._by_own_count(run, met)
        sign = ">" if self.join.how == "semi" else "="
        weight = f"CASE WHEN p_new {sign} 0 THEN n_new ELSE 0 END - CASE WHEN p_old {sign} 0 THEN n_old ELSE 0 END"
        time = "CASE WHEN _w > 0 THEN greatest(_time, _theirs) ELSE greatest(_when, _theirs) END AS _time"
        other = self.join.right if run.side.letter == "l" else self.join.left
        missing = ", ".join(f"NULL::{kind} AS {name}" for name, kind in other)
        weighed = f"SELECT *, {weight} AS _w, {missing} FROM ({' UNION ALL '.join(counted)})"
        return f"SELECT {self._gives()}, _w, {time} FROM ({weighed}) WHERE _w <> 0"

    def _columns(self, run: SideRun, alias: str) -> str:
        names = [*run.side.names, "n_old", "n_new", "_time", "_when"]
        return ", ".join(f"{alias}.{name}" for name in names)

    def _by_tally(self, run: SideRun, tally: str) -> list[str]:
        """Return SQL for the rows whose number of partners may be another, by the tally of the other side."""
        on = self._on("v", "t") if run.side.letter == "l" else self._on("t", "v")
        columns = self._columns(run, "v")
        made = []
        if run.changed:
            counts = "coalesce(t.p_old, 0) AS p_old, coalesce(t.p_new, 0) AS p_new, t._when AS _theirs"
            made.append(f"SELECT {columns}, {counts} FROM {run.versions} v LEFT JOIN {tally} t ON {on}")
        if run.standing:
            crossed = f"SELECT * FROM {tally} WHERE {MATCH_CHANGED}"
            counts = "t.p_old, t.p_new, t._when AS _theirs"
            made.append(f"SELECT {columns}, {counts} FROM {run.side.others} v JOIN ({crossed}) t ON {on}")
        return made or [self._none(run)]

    def _by_own_count(self, run: SideRun, met: str | None) -> list[str]:
        """Return SQL for the rows whose number of partners may be another, by the counts that they keep."""
        columns, made = self._columns(run, "v"), []
        if run.changed:
            counts = f"v.{MATCHES} AS p_old, coalesce(m.now, 0) AS p_new, m._when AS _theirs"
            made.append(f"SELECT {columns}, {counts} FROM {run.versions} v LEFT JOIN {met} m ON m.id = v.id")
        if run.standing:
            counts = f"v.{MATCHES} AS p_old, v.{MATCHES} + m.moved AS p_new, m._when AS _theirs"
            made.append(f"SELECT {columns}, {counts} FROM {run.side.others} v JOIN {met} m ON m.id = v.id")
        return made or [self._none(run)]

    def _none(self, run: SideRun) -> str:
        numbers = ("n_old", "n_new", "_time", "_when", "p_old", "p_new", "_theirs")
        return f"SELECT {run.side.nulls(run.side.names, *numbers)} WHERE false"

    def _netted(self, rows: str) -> str:
        """Let a row alone and a pair that looks like it, with nothing but nulls of the other side, cancel out."""
        doubtful = " OR ".join(f"({self._empty(side)})" for side in sides(self.join) if self._may_miss(side))
        names = [f"g{i}" for i in range(len(self.join.gives))]
        net = f"sum(_w)::BIGINT AS _w, max(_time) AS _time FROM given WHERE {doubtful} {by_position(names)}"
        return (
            f"(WITH given AS MATERIALIZED (SELECT * FROM {rows}) SELECT * FROM given WHERE NOT ({doubtful}) "
            f"UNION ALL SELECT {', '.join(names)}, {net} HAVING sum(_w) <> 0)"
        )

    def _may_miss(self, side: Side) -> bool:
        return self.join.how in ("full", "left" if side.letter == "r" else "right")

    def _empty(self, side: Side) -> str:
        """Return the condition that the columns of a side alone are null."""
        own = [f"g{i}" for i, (_, sql, _) in enumerate(self.join.gives) if sql in side.names]
        return " AND ".join(f"{name} IS NULL" for name in own) or "true"
