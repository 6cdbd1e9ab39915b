"""A side of a join of tables: its rows as they are kept, and as versions that an epoch makes and unmakes.

A row is told by its table's key, or else by all of its columns, and then counts as often as it is there. A *version*
is a row with how often it was there before the epoch (`n_old`) and is after it (`n_new`), its event time `_time`, the
time of the change `_when` (null: it did not change), and an `id` of its own in the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.kernels.groups.grouped import by_position
from headrace.kernels.state.state import COUNT, TableSpec, with_nulls

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from headrace.kernels.duck import Duck
    from headrace.kernels.spec import Column
    from headrace.kernels.state.state import State

MATCHES = "_met"
"""How many rows of the other side a kept row meets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What is kept of a side, under `name`; `letter` is what its columns begin with.

    `on` are the columns in which it agrees with the other side. `met`: beside each row is kept how many it meets.
    `tallied`: it is kept how many rows each value of `on` has. `whole` False: nothing else is.
    """

    name: str
    letter: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] | None
    on: tuple[str, ...]
    met: bool
    tallied: bool
    whole: bool

    @property
    def names(self) -> list[str]:
        """Its columns."""
        return [name for name, _ in self.columns]

    @property
    def identity_columns(self) -> list[str]:
        """The columns that tell a row."""
        return self.names if self.key is None else list(self.key)

    @property
    def tally(self) -> str:
        """The name of the table that counts rows."""
        return f"{self.name}_keys"

    @property
    def others(self) -> str:
        """The temporary table of the rows that stay, and stand beside a change of the other side."""
        return f"join_{self.letter}_others"

    @property
    def changes(self) -> str:
        """The temporary table of what is told in the epoch's delta, once each, beside the kept row as `o_…`."""
        return f"join_{self.letter}_changes"

    def nulls(self, columns: Iterable[str], *numbers: str) -> str:
        """Return SQL for columns of the side, and numbers, without a value."""
        kinds = dict(self.columns)
        made = [f"NULL::{kinds[name]} AS {name}" for name in columns]
        return ", ".join([*made, *(f"NULL::BIGINT AS {name}" for name in numbers)])

    def tables(self) -> list[TableSpec]:
        """Return the tables that are kept."""
        kinds, told = dict(self.columns), self.identity_columns
        values = [(name, kinds[name]) for name in self.names if name not in told]
        values += [("_time", "BIGINT"), *([(MATCHES, "BIGINT")] if self.met else [])]
        keys = tuple((name, kinds[name]) for name in told)
        by = tuple(dict.fromkeys((tuple(told), self.on)))
        made = [TableSpec(name=self.name, keys=keys, values=tuple(values), by=by)] if self.whole else []
        if self.tallied:
            on = tuple((name, kinds[name]) for name in self.on)
            made.append(TableSpec(name=self.tally, keys=on, values=(), by=(self.on,)))
        return made


@dataclass
class SideRun:
    """One epoch of one side in one shard."""

    duck: Duck
    side: Side
    state: State
    changed: bool = False
    """Whether there are versions."""
    standing: bool = False
    """Whether there are others."""
    made: list[str] = field(default_factory=list)
    """The temporary tables."""

    def change(self, parts: list[pa.Table]) -> None:
        """Find what an epoch's delta changes; nothing is written yet."""
        rows = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in parts)
        net = self._net(f"({rows})")
        if self.side.key is not None:
            net = self._by_key(net)
        olds = [f"s.{name} AS o_{name}" for name in self._kept]
        near = self.state.lookup(self.side.name, self.side.identity_columns, f"({rows})")
        same = self.state.matching(self.side.name, "d", "s", nulls=with_nulls(parts))
        self._make(
            self.side.changes,
            f"SELECT row_number() OVER () AS nr, d.*, {', '.join(olds)}, s.rowid AS o_row FROM ({net}) d "
            f"LEFT JOIN {near} s ON {same}",
        )
        self.changed = True

    def stand(self, beside: str, columns: Sequence[str]) -> None:
        """Find the kept rows that do not change and agree in `on` with `columns` of a row of relation `beside`."""
        near = self.state.lookup(self.side.name, self.side.on, beside, named=columns)
        agree = " AND ".join(f"s.{one} = v.{other}" for one, other in zip(self.side.on, columns, strict=True))
        made = [*(f"s.{name}" for name in self.side.names), f"s.{COUNT} AS n_old", f"s.{COUNT} AS n_new"]
        made += ["s._time", "NULL::BIGINT AS _when", "s.rowid AS id", *([f"s.{MATCHES}"] if self.side.met else [])]
        known = f"SELECT o_row FROM {self.side.changes} WHERE o_row IS NOT NULL"
        self._make(
            self.side.others,
            f"SELECT * FROM (SELECT {', '.join(made)} FROM {near} s SEMI JOIN {beside} v ON {agree}) "
            f"{f'WHERE id NOT IN ({known})' if self.changed else ''}",
        )
        self.standing = True

    def keep(self, met: str | None) -> None:
        """Write what changed to the state.

        `met`, where partners are counted: of a version or a row that stands (`id`) how many it meets `now`, and how
        many more these are (`moved`).
        """
        if self.changed:
            self._keep_changes(met)
        if self.standing and met is not None:
            self._keep_counts(met)

    def _keep_changes(self, met: str | None) -> None:
        told = self.side.identity_columns
        columns = [*(f"c.{name}" for name in told), f"{self._now('c')} AS {COUNT}"]
        columns += [f"c.{name}" for name in self.side.names if name not in told]
        columns.append(f"{self._time('c')} AS _time")
        beside = ""
        if met is not None:
            columns.append(f"coalesce(m.now, 0)::BIGINT AS {MATCHES}")
            beside = f" LEFT JOIN {met} m ON m.id = {_new_id('c.nr')}"
        rows = self.duck.arrow(
            f"SELECT {', '.join(columns)}, c.o_row FROM {self.side.changes} c{beside} "
            f"WHERE {self._now('c')} > 0 OR c.o_row IS NOT NULL"
        )
        self.state.replace(self.side.name, rows, at="o_row")

    def _keep_counts(self, met: str) -> None:
        made = {COUNT: "o.n_new::BIGINT", MATCHES: f"(o.{MATCHES} + m.moved)::BIGINT"}
        columns = [f"{made.get(name, f'o.{name}')} AS {name}" for name in self.state.tables[self.side.name].columns]
        rows = self.duck.arrow(
            f"SELECT {', '.join(columns)}, o.id AS o_row FROM {self.side.others} o "
            f"JOIN {met} m ON m.id = o.id WHERE m.moved <> 0"
        )
        self.state.replace(self.side.name, rows, at="o_row")

    @property
    def versions(self) -> str:
        """Return a relation of the versions that the epoch makes and unmakes."""
        return f"({self._versions_of_rows() if self.side.key is None else self._versions_of_keys()})"

    # -- what changed, in SQL

    @property
    def _kept(self) -> list[str]:
        return [name for name in self.state.tables[self.side.name].columns if name not in self.side.identity_columns]

    def _net(self, rows: str) -> str:
        """Return SQL for each row that came or went once; what cancels out is gone."""
        names = self.side.names
        net = f"sum(_weight)::BIGINT AS {COUNT}, max(_time) AS _time"
        return f"SELECT {', '.join([*names, net])} FROM {rows} {by_position(names)} HAVING sum(_weight) <> 0"

    def _by_key(self, net: str) -> str:
        """Return SQL for each key once, with the row that it has now (`_n` 1), or none (0)."""
        told = self.side.identity_columns
        came = [f"any_value({name}) FILTER ({COUNT} > 0) AS {name}" for name in self.side.names if name not in told]
        made = [
            *told,
            *came,
            f"count(*) FILTER ({COUNT} > 0) AS {COUNT}",
            f"max(_time) FILTER ({COUNT} > 0) AS _time",
            f"max(_time) FILTER ({COUNT} < 0) AS _went",
        ]
        return f"SELECT {', '.join(made)} FROM ({net}) {by_position(told)}"

    def _versions_of_keys(self) -> str:
        """Return SQL for the row that goes and the row that comes, of each key."""
        told = self.side.identity_columns
        olds = [name if name in told else f"o_{name} AS {name}" for name in self.side.names]
        went = [*olds, "1::BIGINT AS n_old", "0::BIGINT AS n_new", "o__time AS _time"]
        went += [
            "coalesce(_went, _time) AS _when",
            "-2 * nr AS id",
            *([f"o_{MATCHES} AS {MATCHES}"] if self.side.met else []),
        ]
        came = [*self.side.names, "0::BIGINT", "1::BIGINT", "_time", "_time", _new_id("nr")]
        came += ["0::BIGINT"] if self.side.met else []
        return (
            f"SELECT {', '.join(went)} FROM {self.side.changes} WHERE o_row IS NOT NULL UNION ALL "
            f"SELECT {', '.join(came)} FROM {self.side.changes} WHERE {COUNT} > 0"
        )

    def _versions_of_rows(self) -> str:
        """Return SQL for the rows of which there are more or fewer now; what was never there cannot go."""
        columns = [*self.side.names, f"coalesce(o_{COUNT}, 0) AS n_old", f"{self._now('c')} AS n_new"]
        columns += [f"{self._time('c')} AS _time", "_time AS _when", f"{_new_id('nr')} AS id"]
        columns += [f"coalesce(o_{MATCHES}, 0) AS {MATCHES}"] if self.side.met else []
        return f"SELECT {', '.join(columns)} FROM {self.side.changes} c"

    def _now(self, alias: str) -> str:
        """Return SQL for how often a row is there now."""
        if self.side.key is not None:
            return f"least({alias}.{COUNT}, 1)"
        return f"greatest(coalesce({alias}.o_{COUNT}, 0) + {alias}.{COUNT}, 0)::BIGINT"

    def _time(self, alias: str) -> str:
        """Return SQL for the event time of a row that is there: of equal rows the greatest."""
        if self.side.key is not None:
            return f"{alias}._time"
        return f"CASE WHEN {alias}.{COUNT} > 0 THEN greatest({alias}._time, {alias}.o__time) ELSE {alias}.o__time END"

    def _make(self, name: str, sql: str) -> None:
        self.duck.run(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")
        self.made.append(name)


def _new_id(nr: str) -> str:
    return f"-2 * {nr} - 1"
