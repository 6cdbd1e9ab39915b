"""The current rows of a table: upserts and deletes by key into state, and the changes that they cause.

State is one row a key: the other columns and the event time of its record. Each record that changes something has its
own delta, the old row withdrawn and the new one inserted, with the record's time; one that changes nothing has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.names import quote
from headrace.kernels import upserts
from headrace.kernels.counts import Counts
from headrace.kernels.op import Operator, StatefulOp, StepResult
from headrace.kernels.order import ORDER, numbered
from headrace.kernels.sql import with_nulls
from headrace.kernels.state.runs import probe_hashes
from headrace.kernels.state.tables import COUNT, TableSpec
from headrace.kernels.table_columns import TableColumns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.delta import Delta
    from headrace.kernels.op import Context
    from headrace.kernels.state.tables import Column

ROWS = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival(Operator):
    """Rows under the names inside, each with `_order`: how they arrived, whatever an exchange does to them."""

    columns: TableColumns
    arrived: str | None = None

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Return the rows, renamed and numbered."""
        rows, duck = inputs[0].relation, context.duck
        if rows is None:
            return StepResult()
        columns = [f"{quote(name)} AS {inside}" for inside, name, _ in (*self.columns.keys, *self.columns.values)]
        columns += ["_weight::INTEGER AS _weight", "_time", *([quote(self.arrived)] if self.arrived else [])]
        table = duck.arrow(f"SELECT {', '.join(columns)} FROM {rows}")
        return StepResult(numbered([table], task=context.task), counts=Counts(rows_in=table.num_rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsert(StatefulOp):
    """Upserts (`_weight` 1) and deletes (-1) by key into the state; the result is the table's delta, change by change.

    `by_time`: of two rows of a key the one of the greater event time stays. `arrived`: a column of the delta, with the
    time at which the record was stored that caused the change.
    """

    timed: ClassVar[bool] = False

    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    by_time: bool
    arrived: str | None = None

    @property
    def named(self) -> TableColumns:
        """The columns under their names inside."""
        return TableColumns.of(self.columns, self.keys)

    def tables(self) -> tuple[TableSpec]:
        """Return the table of the current rows."""
        keys = tuple((name, kind) for name, _, kind in self.named.keys)
        values = tuple((name, kind) for name, _, kind in self.named.values)
        by = (tuple(name for name, _ in keys),)
        return (TableSpec(name=ROWS, keys=keys, values=(*values, ("_time", "BIGINT")), by=by),)

    def before_exchange(self, side: int, rows: int, *, output: int, late: int | None) -> Operator:
        """Number the rows as they arrive."""
        del side, late
        return Arrival(step=self.step, inputs=(rows,), output=output, columns=self.named, arrived=self.arrived)

    def exchange_keys(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Return the keys under their names inside."""
        del keys
        return tuple(inside for inside, _, _ in self.named.keys)

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Put changes by key into the state and return the table's delta."""
        parts, state = inputs[0].tables, context.keyed
        if not parts:
            return StepResult()
        once, others = upserts.records(state, ROWS, self.named, parts, self.arrived)
        deltas = [] if once is None else [once.delta(by_time=self.by_time)]
        if others:
            deltas.append(UpsertRun(self, context).delta(others))
        return StepResult([deltas[0] if len(deltas) == 1 else pa.concat_tables(deltas)])

    def snapshot(self, context: Context) -> str:
        """Return the current rows, each with its event time; they arrived before all others."""
        columns = [f"{inside} AS {quote(name)}" for inside, name, _ in (*self.named.keys, *self.named.values)]
        columns += ["1::INTEGER AS _weight", "_time"]
        columns += [f"0::BIGINT AS {quote(self.arrived)}"] if self.arrived else []
        return f"(SELECT {', '.join(columns)} FROM {context.state.name(ROWS)})"


class UpsertRun:
    """One epoch of one table in one shard, that has rows."""

    def __init__(self, op: Upsert, context: Context) -> None:
        self.duck = context.duck
        self.state = context.state
        self.columns = op.named
        self.by_time = op.by_time
        self.arrived = op.arrived

    def delta(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Put changes by key into the state and return the table's delta."""
        rows = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in parts)
        records = self._with_kept(f"({rows})", with_nulls(parts))
        with_previous = self._each_once(records) if self._once(parts) else self._in_turn(records)
        changes = self.duck.arrow(self._changes(with_previous))
        last = changes.filter(changes.column("is_kept"))
        self.state.replace(ROWS, last.select([*self.state.tables[ROWS].columns, "o_row"]), at="o_row")
        return self._delta(changes)

    # -- what the records do, in SQL

    @property
    def _keys(self) -> list[str]:
        return [inside for inside, _, _ in self.columns.keys]

    @property
    def _values(self) -> list[str]:
        return [inside for inside, _, _ in self.columns.values]

    def _with_kept(self, rows: str, nulls: frozenset[str]) -> str:
        """Return SQL for the records, each with the kept row of its key as `o_…`."""
        olds = [f"s.{name} AS o_{name}" for name in (*self._values, "_time")]
        same = self.state.matching(ROWS, "d", "s", nulls=nulls)
        kept = self.state.lookup(ROWS, self._keys, rows)
        newer = "WHERE s._time IS NULL OR d._time >= s._time" if self.by_time else ""
        return (
            f"SELECT d.*, {', '.join([*olds, 's.rowid AS o_row'])} FROM {rows} d LEFT JOIN {kept} s ON {same} {newer}"
        )

    def _once(self, parts: Sequence[pa.Table]) -> bool:
        """Whether surely no key has two records."""
        keys = pa.concat_tables([part.select(self._keys) for part in parts])
        return bool(len(probe_hashes(keys.columns, keys.num_rows)) == keys.num_rows)

    def _each_once(self, records: str) -> str:
        """Return SQL for records, each the only one of its key, with the row before it as `b_…`."""
        before = [f"o_{name} AS b_{name}" for name in (*self._values, "_time")]
        columns = ["*", "1::BIGINT AS nth", "true AS final", *before, "o_row IS NOT NULL AS had"]
        return f"SELECT {', '.join(columns)} FROM ({records})"

    def _in_turn(self, records: str) -> str:
        """Return SQL for each record with its number among those of its key, and the row before it as `b_…`."""
        order = [quote(self.arrived), ORDER] if self.by_time and self.arrived else [ORDER]
        if self.by_time:
            records = self._newest_yet(records, order)
        before = [
            f"CASE WHEN nth = 1 THEN o_{name} ELSE lag({name}) OVER w END AS b_{name}"
            for name in (*self._values, "_time")
        ]
        columns = ["*", *before, "CASE WHEN nth = 1 THEN o_row IS NOT NULL ELSE lag(_weight) OVER w > 0 END AS had"]
        over = f"PARTITION BY {', '.join(self._keys)} ORDER BY {', '.join(order)}"
        numbers = "row_number() OVER w AS nth, lead(1) OVER w IS NULL AS final"
        numbered = f"SELECT *, {numbers} FROM ({records}) WINDOW w AS ({over})"
        return f"SELECT {', '.join(columns)} FROM ({numbered}) WINDOW w AS ({over})"

    def _newest_yet(self, records: str, order: list[str]) -> str:
        """Return SQL for the records that no earlier one of their key is newer than: an older one changes nothing."""
        over = f"PARTITION BY {', '.join(self._keys)} ORDER BY {', '.join(order)} ROWS UNBOUNDED PRECEDING"
        return f"SELECT * FROM ({records}) QUALIFY _time >= max(_time) OVER ({over})"

    def _changes(self, records: str) -> str:
        """Return SQL for what records do to the rows before them.

        `withdraws`, `inserts`: a record withdraws that row, inserts its own. `is_kept`: it is the last of its key, and
        the state has to change.
        """
        names, has = [*self._values, "_time"], "_weight > 0"
        differs = " OR ".join(_differs(name, kind) for name, _, kind in self.columns.values) or "false"
        stale = " OR ".join(f"{name} IS DISTINCT FROM o_{name}" for name in names)
        columns = [
            *self._keys,
            *self._values,
            *(f"b_{name}" for name in self._values),
            f"CASE WHEN {has} THEN 1 ELSE 0 END::BIGINT AS {COUNT}",
            "coalesce(_time, b__time) AS _time",
            *([quote(self.arrived)] if self.arrived else []),
            "o_row",
            "nth",
            f"{has} AND NOT (had AND NOT ({differs})) AS inserts",
            f"had AND (NOT {has} OR {differs}) AS withdraws",
            f"final AND ({has} OR o_row IS NOT NULL) AND (NOT {has} OR o_row IS NULL OR {stale}) AS is_kept",
        ]
        return f"SELECT {', '.join(columns)} FROM ({records})"

    # -- the delta

    def _delta(self, changes: pa.Table) -> pa.Table:
        """Return the delta; where a key changed more than once, its changes are in their order."""
        delta = pa.concat_tables(
            [
                self._rows(changes, "withdraws", prefix="b_", weight=-1),
                self._rows(changes, "inserts", prefix="", weight=1),
            ]
        )
        if delta.num_rows and pc.max(delta.column("nth")).as_py() > 1:
            delta = delta.sort_by([("nth", "ascending"), ("_weight", "ascending")])
        return delta.drop_columns(["nth"])

    def _rows(self, changes: pa.Table, which: str, *, prefix: str, weight: int) -> pa.Table:
        rows = changes.filter(changes.column(which))
        columns = {name: rows.column(inside) for inside, name, _ in self.columns.keys}
        columns |= {name: rows.column(prefix + inside) for inside, name, _ in self.columns.values}
        columns["_weight"] = pa.repeat(pa.scalar(weight, pa.int32()), rows.num_rows)
        for name in ("_time", *([self.arrived] if self.arrived else []), "nth"):
            columns[name] = rows.column(name)
        return pa.table(list(columns.values()), names=list(columns))


def _differs(name: str, kind: str) -> str:
    """Return the condition that a record changes a value; 0.0 and -0.0 are equal, and not the same row."""
    changed = f"{name} IS DISTINCT FROM b_{name}"
    if kind in ("FLOAT", "DOUBLE"):
        return f"{changed} OR signbit({name}) IS DISTINCT FROM signbit(b_{name})"
    if "FLOAT" in kind or "DOUBLE" in kind:
        return f"{changed} OR {name}::VARCHAR IS DISTINCT FROM b_{name}::VARCHAR"
    return changed
