"""A side of a join of tables: its rows as they are kept, and the versions of rows that an epoch inserts and withdraws.

A row is identified by its table's key. Without a key the table is a bag: the whole row is its identity, and duplicates
are counted. A *version* is a row with its count before the epoch (`n_old`) and after it (`n_new`), its event time
`_time`, the time of the change `_when` (null: it did not change), and an `id` of its own in the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.kernels.sql import by_position, with_nulls
from headrace.kernels.state.tables import COUNT, TableSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from headrace.kernels.duck import Duck
    from headrace.kernels.state.keyed import KeyedState
    from headrace.kernels.state.tables import Column

MATCHES = "_met"  # its name in the files of storages
"""The column with the number of rows of the other side that match a kept row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSide:
    """What is kept of a side, under `name`; `letter` is what its columns begin with.

    `on` are the columns that equal those of the other side where rows match. `growing`: it has no key, and its rows
    are only added, so that no row is looked up but by `on`, and equal ones are kept as often as they came.
    `counts_matches`: with each row the number of its matches is kept. `counts_values`: the number of rows of each
    value of `on` is kept. `keeps_rows` False: nothing else is.
    """

    name: str
    letter: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] | None
    on: tuple[str, ...]
    counts_matches: bool
    counts_values: bool
    keeps_rows: bool
    growing: bool = False

    @property
    def names(self) -> list[str]:
        """Its columns."""
        return [name for name, _ in self.columns]

    @property
    def identity_columns(self) -> list[str]:
        """The columns that identify a row."""
        return self.names if self.key is None else list(self.key)

    @property
    def value_counts(self) -> str:
        """The table with the number of rows of each value of `on`."""
        return f"{self.name}_keys"

    def nulls(self, columns: Iterable[str], *numbers: str) -> str:
        """Return SQL for columns of the side, and numbers, without a value."""
        kinds = dict(self.columns)
        nulls = [f"NULL::{kinds[name]} AS {name}" for name in columns]
        return ", ".join([*nulls, *(f"NULL::BIGINT AS {name}" for name in numbers)])

    def tables(self) -> list[TableSpec]:
        """Return the tables that are kept."""
        kinds, identity = dict(self.columns), self.identity_columns
        values = [(name, kinds[name]) for name in self.names if name not in identity]
        values += [("_time", "BIGINT"), *([(MATCHES, "BIGINT")] if self.counts_matches else [])]
        keys = tuple((name, kinds[name]) for name in identity)
        by = (self.on,) if self.growing else tuple(dict.fromkeys((tuple(identity), self.on)))
        specs = [TableSpec(name=self.name, keys=keys, values=tuple(values), by=by)] if self.keeps_rows else []
        if self.counts_values:
            on = tuple((name, kinds[name]) for name in self.on)
            specs.append(TableSpec(name=self.value_counts, keys=on, values=(), by=(self.on,)))
        return specs


@dataclass
class SideRun:
    """One epoch of one side in one shard; the relations that it names are computed once.

    `changes` are the identities in the epoch's delta, each with the kept row as `o_…`; `unchanged` the rows that do not
    change, but may match a change of the other side. None: there are none.
    """

    duck: Duck
    side: TableSide
    state: KeyedState
    changed: bool = False
    """Whether there are versions."""
    changes: str | None = None
    unchanged: str | None = None

    def find_changes(self, parts: list[pa.Table]) -> None:
        """Find what an epoch's delta changes; nothing is written yet."""
        rows = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in parts)
        net = self._net(f"({rows})")
        if self.side.key is not None:
            net = self._by_key(net)
        olds = [f"s.{name} AS o_{name}" for name in self._other_columns]
        kept = self.state.lookup(self.side.name, self.side.identity_columns, f"({rows})")
        same = self.state.matching(self.side.name, "d", "s", nulls=with_nulls(parts))
        self.changes = self.duck.register_large(
            f"SELECT row_number() OVER () AS nr, d.*, {', '.join(olds)}, s.rowid AS o_row FROM ({net}) d "
            f"LEFT JOIN {kept} s ON {same}",
        )
        self.changed = True

    def find_unchanged(self, probe: str, columns: Sequence[str]) -> None:
        """Find the kept rows that do not change and whose `on` equals `columns` of a row of relation `probe`."""
        kept = self.state.may_match(self.side.name, self.side.on, probe, named=columns)
        if kept is None:
            return
        equal = " AND ".join(f"s.{own} = v.{other}" for own, other in zip(self.side.on, columns, strict=True))
        values = [*(f"s.{name}" for name in self.side.names), f"s.{COUNT} AS n_old", f"s.{COUNT} AS n_new"]
        values += ["s._time", "NULL::BIGINT AS _when", "s.rowid AS id"]
        values += [f"s.{MATCHES}"] if self.side.counts_matches else []
        replaced = self._replaced
        self.unchanged = self.duck.register_large(
            f"SELECT * FROM (SELECT {', '.join(values)} FROM {kept} s SEMI JOIN {probe} v ON {equal}) "
            f"{'' if replaced is None else f'WHERE id NOT IN ({replaced})'}",
        )

    @property
    def _replaced(self) -> str | None:
        """Return SQL for the ids of kept rows that the epoch replaces; None: it replaces none."""
        return f"SELECT o_row FROM {self.changes} WHERE o_row IS NOT NULL" if self.changed else None

    def keep(self, matches: str | None) -> None:
        """Write what changed to the state.

        `matches`, where they are counted: a relation of the number of matches `now` of a version or an unchanged row
        (`id`), and how many more these are than before (`added`).
        """
        if self.changed:
            self._keep_changes(matches)
        if self.unchanged is not None and matches is not None:
            self._keep_counts(matches)

    def _keep_changes(self, matches: str | None) -> None:
        identity = self.side.identity_columns
        columns = [*(f"c.{name}" for name in identity), f"{self._now('c')} AS {COUNT}"]
        columns += [f"c.{name}" for name in self.side.names if name not in identity]
        columns.append(f"{self._time('c')} AS _time")
        join = ""
        if matches is not None:
            columns.append(f"coalesce(m.now, 0)::BIGINT AS {MATCHES}")
            join = f" LEFT JOIN {matches} m ON m.id = {_new_id('c.nr')}"
        rows = self.duck.arrow(
            f"SELECT {', '.join(columns)}, c.o_row FROM {self.changes} c{join} "
            f"WHERE {self._now('c')} > 0 OR c.o_row IS NOT NULL"
        )
        self.state.replace(self.side.name, rows, at="o_row")

    def _keep_counts(self, matches: str) -> None:
        new = {COUNT: "o.n_new::BIGINT", MATCHES: f"(o.{MATCHES} + m.added)::BIGINT"}
        columns = [f"{new.get(name, f'o.{name}')} AS {name}" for name in self.state.tables[self.side.name].columns]
        rows = self.duck.arrow(
            f"SELECT {', '.join(columns)}, o.id AS o_row FROM {self.unchanged} o "
            f"JOIN {matches} m ON m.id = o.id WHERE m.added <> 0"
        )
        self.state.replace(self.side.name, rows, at="o_row")

    @property
    def versions(self) -> str:
        """Return a relation of the versions that the epoch inserts and withdraws."""
        return f"({self._versions_of_rows() if self.side.key is None else self._versions_of_keys()})"

    @property
    def no_versions(self) -> str:
        """Return a relation like `versions` that has none."""
        met = [MATCHES] if self.side.counts_matches else []
        return (
            f"(SELECT {self.side.nulls(self.side.names, 'n_old', 'n_new', '_time', '_when', 'id', *met)} WHERE false)"
        )

    # -- what changed, in SQL

    @property
    def _other_columns(self) -> list[str]:
        return [name for name in self.state.tables[self.side.name].columns if name not in self.side.identity_columns]

    def _net(self, rows: str) -> str:
        """Return SQL for each row that was inserted or withdrawn, once; what cancels out is left out."""
        names = self.side.names
        net = f"sum(_weight)::BIGINT AS {COUNT}, max(_time) AS _time"
        return f"SELECT {', '.join([*names, net])} FROM {rows} {by_position(names)} HAVING sum(_weight) <> 0"

    def _by_key(self, net: str) -> str:
        """Return SQL for each key once, with the row that it has now (`_n` 1), or none (0)."""
        identity = self.side.identity_columns
        others = [name for name in self.side.names if name not in identity]
        columns = [
            *identity,
            *(f"any_value({name}) FILTER ({COUNT} > 0) AS {name}" for name in others),
            f"count(*) FILTER ({COUNT} > 0) AS {COUNT}",
            f"max(_time) FILTER ({COUNT} > 0) AS _time",
            f"max(_time) FILTER ({COUNT} < 0) AS _withdrawn",
        ]
        grouped = by_position(identity) or "HAVING count(*) > 0"  # without a key there is a group even of no rows
        return f"SELECT {', '.join(columns)} FROM ({net}) {grouped}"

    def _versions_of_keys(self) -> str:
        """Return SQL for the row that is withdrawn and the row that is inserted, of each key."""
        identity = self.side.identity_columns
        olds = [name if name in identity else f"o_{name} AS {name}" for name in self.side.names]
        withdrawn = [*olds, "1::BIGINT AS n_old", "0::BIGINT AS n_new", "o__time AS _time"]
        withdrawn += ["coalesce(_withdrawn, _time) AS _when", "-2 * nr AS id"]
        withdrawn += [f"o_{MATCHES} AS {MATCHES}"] if self.side.counts_matches else []
        inserted = [*self.side.names, "0::BIGINT", "1::BIGINT", "_time", "_time", _new_id("nr")]
        inserted += ["0::BIGINT"] if self.side.counts_matches else []
        return (
            f"SELECT {', '.join(withdrawn)} FROM {self.changes} WHERE o_row IS NOT NULL UNION ALL "
            f"SELECT {', '.join(inserted)} FROM {self.changes} WHERE {COUNT} > 0"
        )

    def _versions_of_rows(self) -> str:
        """Return SQL for the rows of which there are more or fewer now; what was never there cannot be withdrawn."""
        columns = [*self.side.names, f"coalesce(o_{COUNT}, 0) AS n_old", f"{self._now('c')} AS n_new"]
        columns += [f"{self._time('c')} AS _time", "_time AS _when", f"{_new_id('nr')} AS id"]
        columns += [f"coalesce(o_{MATCHES}, 0) AS {MATCHES}"] if self.side.counts_matches else []
        return f"SELECT {', '.join(columns)} FROM {self.changes} c"

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


def _new_id(nr: str) -> str:
    return f"-2 * {nr} - 1"
