"""The current rows of a table: upserts and deletes by key into state, what they changed out.

State is one row a key: the other columns and the event time of the record that made it. Each record that changes
something gives its own delta, the old row withdrawn and the new one inserted, with the record's time; one that changes
nothing gives none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.names import quote
from headrace.kernels.order import PLACE, placed
from headrace.kernels.state.runs import wanted
from headrace.kernels.state.state import COUNT, TableSpec, with_nulls

if TYPE_CHECKING:
    from headrace.kernels.duck import Duck
    from headrace.kernels.spec import Keeping
    from headrace.kernels.state.state import State

ROWS = "rows"


def kept_rows(keeping: Keeping) -> tuple[TableSpec]:
    """Return the table that is kept."""
    keys = tuple((name, kind) for name, _, kind in keeping.inside_keys)
    values = tuple((name, kind) for name, _, kind in keeping.inside_values)
    by = (tuple(name for name, _ in keys),)
    return (TableSpec(name=ROWS, keys=keys, values=(*values, ("_time", "BIGINT")), by=by),)


def arrived(duck: Duck, keeping: Keeping, rows: str, *, task: int) -> pa.Table:
    """Return relation `rows` under the names inside, with their places."""
    columns = [f"{quote(name)} AS {inside}" for inside, name, _ in (*keeping.inside_keys, *keeping.inside_values)]
    table = duck.arrow(f"SELECT {', '.join(columns)}, _weight::INTEGER AS _weight, _time FROM {rows}")
    return placed([table], task=task)[0]


@dataclass
class Upserting:
    """One epoch of one table in one shard."""

    duck: Duck
    keeping: Keeping
    state: State

    def run(self, parts: list[pa.Table]) -> pa.Table:
        """Put changes by key into the state and return the table's delta."""
        rows = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in parts)
        beside = self._beside(f"({rows})", with_nulls(parts))
        made = self.duck.arrow(self._judged(self._each_once(beside) if self._once(parts) else self._in_turn(beside)))
        last = made.filter(made.column("keeps"))
        kept = [*self.state.tables[ROWS].columns, "o_row"]
        self.state.replace(ROWS, last.select(kept), at="o_row")
        return self._delta(made)

    # -- what the records are, in SQL

    @property
    def _keys(self) -> list[str]:
        return [inside for inside, _, _ in self.keeping.inside_keys]

    @property
    def _values(self) -> list[str]:
        return [inside for inside, _, _ in self.keeping.inside_values]

    def _beside(self, rows: str, nulls: frozenset[str]) -> str:
        """Return SQL for the records and, beside each, the kept row of its key as `o_…`."""
        olds = [f"s.{name} AS o_{name}" for name in (*self._values, "_time")]
        same = self.state.matching(ROWS, "d", "s", nulls=nulls)
        near = self.state.lookup(ROWS, self._keys, rows)
        behind = "WHERE s._time IS NULL OR d._time >= s._time" if self.keeping.by_time else ""
        return (
            f"SELECT d.*, {', '.join([*olds, 's.rowid AS o_row'])} FROM {rows} d LEFT JOIN {near} s ON {same} {behind}"
        )

    def _once(self, parts: list[pa.Table]) -> bool:
        """Whether surely no key has two records."""
        keys = pa.concat_tables([part.select(self._keys) for part in parts])
        return bool(len(wanted(keys.columns, keys.num_rows)) == keys.num_rows)

    def _each_once(self, beside: str) -> str:
        """Return SQL for records, each the only one of its key, with the row before it as `b_…`."""
        before = [f"o_{name} AS b_{name}" for name in (*self._values, "_time")]
        columns = ["*", "1::BIGINT AS nth", "true AS final", *before, "o_row IS NOT NULL AS had"]
        return f"SELECT {', '.join(columns)} FROM ({beside})"

    def _in_turn(self, beside: str) -> str:
        """Return SQL for each record with its number among those of its key, and the row before it as `b_…`."""
        order = ["_time", PLACE] if self.keeping.by_time else [PLACE]
        before = [
            f"CASE WHEN nth = 1 THEN o_{name} ELSE lag({name}) OVER w END AS b_{name}"
            for name in (*self._values, "_time")
        ]
        columns = ["*", *before, "CASE WHEN nth = 1 THEN o_row IS NOT NULL ELSE lag(_weight) OVER w > 0 END AS had"]
        over = f"PARTITION BY {', '.join(self._keys)} ORDER BY {', '.join(order)}"
        numbers = "row_number() OVER w AS nth, lead(1) OVER w IS NULL AS final"
        numbered = f"SELECT *, {numbers} FROM ({beside}) WINDOW w AS ({over})"
        return f"SELECT {', '.join(columns)} FROM ({numbered}) WINDOW w AS ({over})"

    def _judged(self, judged: str) -> str:
        """Return SQL for what records do to the rows before them.

        `went`, `came`: it withdraws that row, inserts its own. `keeps`: it is the last of its key, and the state is
        not as it says.
        """
        names, has = [*self._values, "_time"], "_weight > 0"
        differs = " OR ".join(f"{name} IS DISTINCT FROM b_{name}" for name in self._values) or "false"
        stale = " OR ".join(f"{name} IS DISTINCT FROM o_{name}" for name in names)
        made = [
            *self._keys,
            *self._values,
            *(f"b_{name}" for name in self._values),
            f"CASE WHEN {has} THEN 1 ELSE 0 END::BIGINT AS {COUNT}",
            "coalesce(_time, b__time) AS _time",
            "o_row",
            "nth",
            f"{has} AND NOT (had AND NOT ({differs})) AS came",
            f"had AND (NOT {has} OR {differs}) AS went",
            f"final AND ({has} OR o_row IS NOT NULL) AND (NOT {has} OR o_row IS NULL OR {stale}) AS keeps",
        ]
        return f"SELECT {', '.join(made)} FROM ({judged})"

    # -- what they changed

    def _delta(self, made: pa.Table) -> pa.Table:
        """Return the delta; where a key changed more than once, its changes stand in their order."""
        delta = pa.concat_tables(
            [self._side(made, "went", prefix="b_", weight=-1), self._side(made, "came", prefix="", weight=1)]
        )
        if delta.num_rows and pc.max(delta.column("nth")).as_py() > 1:
            delta = delta.sort_by([("nth", "ascending"), ("_weight", "ascending")])
        return delta.drop_columns(["nth"])

    def _side(self, made: pa.Table, which: str, *, prefix: str, weight: int) -> pa.Table:
        rows = made.filter(made.column(which))
        columns = {name: rows.column(inside) for inside, name, _ in self.keeping.inside_keys}
        columns |= {name: rows.column(prefix + inside) for inside, name, _ in self.keeping.inside_values}
        columns["_weight"] = pa.repeat(pa.scalar(weight, pa.int32()), rows.num_rows)
        columns["_time"], columns["nth"] = rows.column("_time"), rows.column("nth")
        return pa.table(list(columns.values()), names=list(columns))
