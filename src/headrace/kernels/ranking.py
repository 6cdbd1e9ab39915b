"""The n first rows of each group, in a stated order: the first of a part, and how those of the whole change.

State is `best`, the rows that were given out, and, where rows can be withdrawn, all `rows`, so that the next one can
take the place of one that is withdrawn. Both are multisets. A group is ranked anew from its best rows and the new ones;
from all its rows only when one of the best was withdrawn. Groups without a change are not read.

Inside, columns are called `c0…` whatever the user calls them, and `o0…` are the computed terms of the order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from headrace.base.names import quote
from headrace.kernels.sql import alike, by_position, with_nulls
from headrace.kernels.state.tables import COUNT, TableSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.kernels.duck import Duck
    from headrace.kernels.groups.windows import Panes
    from headrace.kernels.state.state import State
    from headrace.kernels.state.tables import Column

Ties = Literal["row_number", "rank", "dense_rank"]
BEST, ROWS = "best", "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The `n` first rows of each group. Inside, columns are `c0…`, and the computed terms of the order are `o0…`.

    `group` are numbers of columns, `terms` the types of `o0…`, `order` SQL over both. `n` is a number, or a column of
    the group. `ties`: rows that `order` leaves equal have positions of their own ("row_number"), or share one ("rank",
    "dense_rank"). With `panes` the last column (the last of the group too) says in which window a row is.
    """

    columns: tuple[Column, ...]
    group: tuple[int, ...]
    terms: tuple[str, ...]
    order: tuple[str, ...]
    n: str
    rank: str | None
    insert_only: bool
    ties: Ties = "row_number"
    panes: Panes | None = None
    final: bool = False

    @property
    def shares(self) -> bool:
        """Whether equal rows share a position."""
        return self.ties != "row_number"


def tables(ranking: Ranking) -> tuple[TableSpec, ...]:
    """Return the tables that are kept."""
    keys = tuple((f"c{i}", kind) for i, (_, kind) in enumerate(ranking.columns))
    values = tuple((f"o{i}", kind) for i, kind in enumerate(ranking.terms))
    by: dict[str, tuple[tuple[str, ...], ...]] = {BEST: (), ROWS: ()}
    if ranking.panes is None:  # windows that close are found by scanning
        group = tuple(group_of(ranking))
        by = {BEST: (group,), ROWS: tuple(dict.fromkeys((tuple(columns_of(ranking)), group)))}
    names = (BEST,) if ranking.insert_only else (BEST, ROWS)
    return tuple(TableSpec(name=name, keys=keys, values=values, by=by[name]) for name in names)


@dataclass
class RankingRun:
    """One epoch of one ranking in one shard."""

    duck: Duck
    ranking: Ranking
    state: State
    _nulls: frozenset[str] = field(default=frozenset(), init=False)
    """The columns in which the changed rows have nulls."""

    def run(self, parts: list[pa.Table]) -> pa.Table | None:
        """Take in rows (columns, order terms, `_n` and `_time`) and return the delta of the first n of each group."""
        delta = self._netted(parts) if parts else None
        if delta is None or not delta.num_rows:
            return None
        self._nulls = with_nulls([delta])
        changed = self.duck.register(delta)
        self._before(changed)
        if not self.ranking.insert_only:
            self._update_rows(changed)
            self._shrunk(changed)
        self._compare(changed)
        self._keep_best()
        return self._delta(changed)

    def current(self, time: int) -> pa.Table:
        """Return the rows that were given out, as inserts at a time."""
        return self.duck.arrow(f"{self._given_out('true', str(time))} ORDER BY {self._order_given_out}")

    @property
    def _order_given_out(self) -> str:
        return ", ".join([*(f"x.{name}" for name in group_of(self.ranking)), "x._position", *self._tied("x")])

    def _given_out(self, where: str, time: str) -> str:
        """Return SQL for rows that were given out, in their positions."""
        ranked = f"SELECT *, {self._ahead()} AS _ahead FROM {self.state.name(BEST)} WHERE {where}"
        rows = f"SELECT *, {self._each('_ahead', COUNT)} AS _position FROM ({ranked})"
        columns = self._named()
        if self.ranking.rank is not None:
            columns.append(f"x._position::INTEGER AS {quote(self.ranking.rank)}")
        columns += ["1::INTEGER AS _weight", f"{time}::BIGINT AS _time"]
        return f"SELECT {', '.join(columns)} FROM ({rows}) x"

    def _netted(self, parts: list[pa.Table]) -> pa.Table:
        """Return each row that was inserted or withdrawn once, with its count; what cancels out is left out."""
        rows = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in parts)
        columns = columns_of(self.ranking)
        terms = [f"any_value({name}) AS {name}" for name in terms_of(self.ranking)]
        net = f"sum({COUNT})::BIGINT AS {COUNT}, max(_time) AS _time"
        return self.duck.arrow(
            f"SELECT {', '.join([*columns, *terms, net])} FROM ({rows}) {by_position(columns)} HAVING sum({COUNT}) <> 0"
        )

    def _update_rows(self, changed: str) -> None:
        """Bring the multiset of all rows up to date."""
        columns = [f"d.{name}" for name in [*columns_of(self.ranking), *terms_of(self.ranking)]]
        count = f"(coalesce(s.{COUNT}, 0) + d.{COUNT})::BIGINT AS {COUNT}"
        kept = self.state.lookup(ROWS, columns_of(self.ranking), changed)
        same = self.state.matching(ROWS, "d", "s", nulls=self._nulls)
        rows = self.duck.arrow(
            f"SELECT {', '.join([*columns, count, 's.rowid AS o_row'])} FROM {changed} d LEFT JOIN {kept} s ON {same}"
        )
        self.state.replace(ROWS, rows, at="o_row")

    def _before(self, changed: str) -> None:
        """Create `top_before`: the rows of the touched groups that were given out.

        Each row has the number of rows before it, where positions are given out.
        """
        names = [*columns_of(self.ranking), COUNT, *terms_of(self.ranking)]
        columns = [*(f"s.{name}" for name in names), "s.rowid AS o_row"]
        touched = f"(SELECT DISTINCT {', '.join(group_of(self.ranking)) or '1'} FROM {changed})"
        kept = (
            f"SELECT {', '.join(columns)} FROM {self.state.lookup(BEST, group_of(self.ranking), touched)} s "
            f"SEMI JOIN {touched} t ON {alike('s', 't', group_of(self.ranking))}"
        )
        ahead = "NULL::BIGINT" if self.ranking.rank is None else self._ahead()
        self._create("top_before", f"SELECT *, {ahead} AS _ahead FROM ({kept})")

    def _shrunk(self, changed: str) -> None:
        """Create `top_shrunk`: the groups of which a row that was given out is withdrawn."""
        group = [f"b.{name}" for name in group_of(self.ranking)]
        withdrawn = f"SELECT * FROM {changed} WHERE {COUNT} < 0"
        same = alike("b", "d", columns_of(self.ranking))
        self._create(
            "top_shrunk", f"SELECT DISTINCT {', '.join(group) or '1'} FROM top_before b JOIN ({withdrawn}) d ON {same}"
        )

    def _candidates(self, changed: str) -> str:
        """Return SQL for rows among which are the first n of the touched groups."""
        names = [*columns_of(self.ranking), *terms_of(self.ranking)]
        rows = f"SELECT * FROM (SELECT {', '.join([*names, COUNT])} FROM top_before UNION ALL "
        rows += f"SELECT {', '.join([*names, COUNT])} FROM {changed} WHERE {COUNT} > 0) x"
        if not self.ranking.insert_only:
            rows += f" ANTI JOIN top_shrunk t ON {alike('x', 't', group_of(self.ranking))}"
        terms = [f"any_value({name}) AS {name}" for name in terms_of(self.ranking)]
        columns = columns_of(self.ranking)
        once = f"SELECT {', '.join([*columns, *terms, f'sum({COUNT})::BIGINT AS {COUNT}'])} FROM ({rows}) "
        once += by_position(columns)
        if self.ranking.insert_only:
            return once
        every = (
            f"SELECT {', '.join(f's.{name}' for name in [*names, COUNT])} "
            f"FROM {self.state.lookup(ROWS, group_of(self.ranking), 'top_shrunk')} s "
            f"SEMI JOIN top_shrunk t ON {alike('s', 't', group_of(self.ranking))} "
            f"WHERE s.{COUNT} > 0"  # after a reset rows may be withdrawn that were never seen to be inserted
        )
        return f"{once} UNION ALL {every}"

    def _compare(self, changed: str) -> None:
        """Create `top_changes`: rows that enter, leave or, where positions are given out, move."""
        n, names = self.ranking.n, [*columns_of(self.ranking), *terms_of(self.ranking)]
        ranked = f"SELECT *, {self._ahead()} AS _ahead FROM ({self._candidates(changed)})"
        count = COUNT if self.ranking.shares else f"least({COUNT}, {n} - _ahead) AS {COUNT}"
        after = f"SELECT {', '.join(names)}, _ahead, {count} FROM ({ranked}) WHERE _ahead < {n}"
        either = [f"CASE WHEN a.{COUNT} IS NULL THEN b.{name} ELSE a.{name} END AS {name}" for name in names]
        counts = f"coalesce(a.{COUNT}, 0) AS {COUNT}, coalesce(b.{COUNT}, 0) AS b_n"
        differs = f"a.{COUNT} IS DISTINCT FROM b.{COUNT}"
        if self.ranking.rank is not None:
            differs += " OR a._ahead IS DISTINCT FROM b._ahead"
        self._create(
            "top_changes",
            f"SELECT {', '.join([*either, counts])}, a._ahead, b._ahead AS b_ahead, b.o_row FROM top_before b "
            f"FULL JOIN ({after}) a ON {alike('a', 'b', columns_of(self.ranking))} WHERE {differs}",
        )

    def _keep_best(self) -> None:
        names = ", ".join([*columns_of(self.ranking), COUNT, *terms_of(self.ranking), "o_row"])
        rows = self.duck.arrow(f"SELECT {names} FROM top_changes WHERE {COUNT} <> b_n")
        self.state.replace(BEST, rows, at="o_row")

    def _named(self) -> list[str]:
        """Return the step's columns, of rows `x`."""
        columns = zip(columns_of(self.ranking), self.ranking.columns, strict=True)
        return [f"x.{inner} AS {quote(name)}" for inner, (name, _) in columns]

    def _delta(self, changed: str) -> pa.Table | None:
        """Return the delta: what is withdrawn, then what is inserted, each at the time of the rows that caused it."""
        columns = self._named()
        withdrawn, inserted = self._positions("b_ahead", "b_n"), self._positions("_ahead", COUNT)
        if self.ranking.rank is not None:
            columns.append(f"x._position::INTEGER AS {quote(self.ranking.rank)}")
        if self.ranking.rank is None or self.ranking.shares:
            stays = "true" if self.ranking.rank is None else "_ahead IS NOT DISTINCT FROM b_ahead"
            withdrawn = self._copies("b_ahead", f"b_n - CASE WHEN {stays} THEN {COUNT} ELSE 0 END")
            inserted = self._copies("_ahead", f"{COUNT} - CASE WHEN {stays} THEN b_n ELSE 0 END")
        else:
            withdrawn += f" WHERE ({COUNT} > 0 AND _position > _ahead AND _position <= _ahead + {COUNT}) IS NOT TRUE"
            inserted += " WHERE (b_n > 0 AND _position > b_ahead AND _position <= b_ahead + b_n) IS NOT TRUE"
        rows = f"SELECT *, -1::INTEGER AS _weight FROM ({withdrawn}) UNION ALL "
        rows += f"SELECT *, 1::INTEGER AS _weight FROM ({inserted})"
        group = [f"x.{name}" for name in group_of(self.ranking)]
        order = ", ".join(["x._weight", *group, "x._ahead", "x._position", *self._tied("x")])
        return self.duck.arrow(
            f"SELECT {', '.join(columns)}, x._weight, t._time FROM ({rows}) x JOIN ({self._times(changed)}) t "
            f"ON {alike('x', 't', group_of(self.ranking))} ORDER BY {order}"
        )

    def _tied(self, alias: str) -> list[str]:
        """Return the columns that order rows of one position."""
        return [f"{alias}.{name}" for name in columns_of(self.ranking)] if self.ranking.shares else []

    def _each(self, ahead: str, count: str) -> str:
        """Return SQL that makes rows of the copies of a row: the position of each."""
        if self.ranking.shares:
            return f"unnest(list_resize([{ahead} + 1], {count}, {ahead} + 1))"
        return f"unnest(range({ahead} + 1, {ahead} + {count} + 1))"

    @staticmethod
    def _copies(ahead: str, count: str) -> str:
        """Return SQL for so many copies of each row, all of one position."""
        return (
            f"SELECT * EXCLUDE _copies, unnest(list_resize([{ahead} + 1], _copies, {ahead} + 1)) AS _position "
            f"FROM (SELECT *, ({count})::BIGINT AS _copies FROM top_changes) WHERE _copies > 0"
        )

    @staticmethod
    def _positions(ahead: str, count: str) -> str:
        """Return SQL for one row a position."""
        position = f"unnest(range({ahead} + 1, {ahead} + {count} + 1))"
        return f"SELECT * FROM (SELECT *, {position} AS _position FROM top_changes WHERE {count} > 0)"

    def _times(self, changed: str) -> str:
        """Return SQL for the event time of each group's change: the greatest of the rows that caused it."""
        group = [f"d.{name}" for name in group_of(self.ranking)]
        caused_it = f"(d.{COUNT} > 0 AND x.{COUNT} > x.b_n) OR (d.{COUNT} < 0 AND x.{COUNT} < x.b_n)"
        time = f"coalesce(max(d._time) FILTER ({caused_it}), max(d._time)) AS _time"
        return (
            f"SELECT {', '.join([*group, time])} FROM {changed} d LEFT JOIN top_changes x "
            f"ON {alike('d', 'x', columns_of(self.ranking))} {by_position(group)}"
        )

    def _ahead(self) -> str:
        """Return SQL for how many rows of its group are before a row."""
        if self.ranking.ties == "dense_rank":
            return f"(dense_rank() OVER ({window_of(self.ranking)}) - 1)::BIGINT"
        if self.ranking.ties == "rank":
            before = "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE GROUP"
            return f"coalesce(sum({COUNT}) OVER ({window_of(self.ranking)} {before}), 0)::BIGINT"
        return f"(sum({COUNT}) OVER ({window_of(self.ranking)} ROWS UNBOUNDED PRECEDING) - {COUNT})::BIGINT"

    def _create(self, name: str, sql: str) -> None:
        self.duck.run(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")


def columns_of(ranking: Ranking) -> list[str]:
    """Return the names inside of a ranking's columns."""
    return [f"c{i}" for i in range(len(ranking.columns))]


def terms_of(ranking: Ranking) -> list[str]:
    """Return the names inside of the computed terms of the order."""
    return [f"o{i}" for i in range(len(ranking.terms))]


def group_of(ranking: Ranking) -> list[str]:
    """Return the names inside of the columns that make a group."""
    return [f"c{i}" for i in ranking.group]


def window_of(ranking: Ranking, *, decided: bool = True) -> str:
    """Return the inside of OVER (…): the order of the user's, then the whole row, ascending, so that it is one.

    Where equal rows share a position, or the order need not be `decided`, the whole row does not tell them apart.
    """
    group = ", ".join(group_of(ranking))
    whole = [f"{name} ASC NULLS FIRST" for name in columns_of(ranking)] if decided and not ranking.shares else []
    order = [*ranking.order, *whole]
    return f"{f'PARTITION BY {group} ' if group else ''}ORDER BY {', '.join(order)}"
