"""A table whose changes wait: of each key only the last one of a period comes out.

State is `shown`, the rows that have come out, and `waiting`, the changes since. They come out when the watermark enters
another period: the rows that have come out are withdrawn, and those that are there now inserted, unless they are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.base.time import END_OF_TIME
from headrace.kernels.counts import Counts
from headrace.kernels.op import StatefulOp, StepResult
from headrace.kernels.sql import by_position, with_nulls
from headrace.kernels.state.tables import COUNT, TableSpec
from headrace.kernels.table_columns import TableColumns

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headrace.kernels.delta import Delta
    from headrace.kernels.op import Context
    from headrace.kernels.state.tables import Column

SHOWN, WAITING = "shown", "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppress(StatefulOp):
    """Changes of rows by key, in microseconds `every` so often; the oldest ones earlier, if more than `size` wait."""

    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    every: int | None
    size: int | None

    @property
    def named(self) -> TableColumns:
        """The columns under their names inside."""
        return TableColumns.of(self.columns, self.keys)

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the rows that have come out, and the changes that wait."""
        keys = tuple((name, kind) for name, _, kind in self.named.keys)
        values = (*((name, kind) for name, _, kind in self.named.values), ("_time", "BIGINT"))
        by = (tuple(name for name, _ in keys),)
        waits = (*values, ("present", "BOOLEAN"), ("since", "BIGINT"))
        return (
            TableSpec(name=SHOWN, keys=keys, values=values, by=by),
            TableSpec(name=WAITING, keys=keys, values=waits, by=by),
        )

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Let changes come out whose time has come, and take in new ones."""
        parts = inputs[0].tables
        run = SuppressRun(self, context)
        delta = run.all() if self._period_ended(context.previous, context.watermark) else []
        if parts:
            run.take(parts)
            delta = run.netted(delta, run.beyond(self.size))
        context.keyed.oldest = context.keyed.minimum(WAITING, "_time")
        return StepResult(delta, counts=Counts(rows_in=sum(part.num_rows for part in parts)))

    def _period_ended(self, previous: int | None, watermark: int | None) -> bool:
        """Whether the watermark has entered another period, or the end of the input is reached."""
        if watermark is None or watermark == previous:
            return False
        if watermark >= END_OF_TIME:
            return True
        return self.every is not None and previous is not None and previous // self.every != watermark // self.every

    def snapshot(self, context: Context) -> str:
        """Return the rows that have come out."""
        columns = [f"{inside} AS {quote(name)}" for inside, name, _ in (*self.named.keys, *self.named.values)]
        return f"(SELECT {', '.join(columns)}, 1::INTEGER AS _weight, _time FROM {context.state.name(SHOWN)})"


class SuppressRun:
    """One epoch of one table in one shard."""

    def __init__(self, op: Suppress, context: Context) -> None:
        self.duck, self.state = context.duck, context.state
        self.columns, self.epoch = op.named, context.epoch
        self.keys = [name for name, _, _ in self.columns.keys]
        self.values = [name for name, _, _ in self.columns.values]

    def all(self) -> list[pa.Table]:
        """Return what comes out since a period has ended: all that waits."""
        return self._come_out("")

    def beyond(self, size: int | None) -> list[pa.Table]:
        """Return what comes out since too many changes wait: those that have waited longest."""
        if size is None:
            return []
        order = ", ".join(["since", *(f"{key} ASC NULLS FIRST" for key in self.keys)])
        return self._come_out(f"QUALIFY row_number() OVER (ORDER BY {order}) <= count(*) OVER () - {size}")

    def netted(self, first: list[pa.Table], then: list[pa.Table]) -> list[pa.Table]:
        """Return two deltas as one: a row that the first inserts may be withdrawn by the other."""
        if not first or not then:
            return first + then
        names = [quote(name) for _, name, _ in (*self.columns.keys, *self.columns.values)]
        rows = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in (*first, *then))
        net = "sum(_weight)::INTEGER AS _weight, max(_time) AS _time"
        return [
            self.duck.arrow(
                f"SELECT {', '.join([*names, net])} FROM ({rows}) {by_position(names)} HAVING sum(_weight) <> 0 "
                "ORDER BY _weight"
            )
        ]

    def take(self, parts: list[pa.Table]) -> None:
        """Let an epoch's changes wait: of each key the row that is there now."""
        rows = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in parts)
        own = [f"{quote(name)} AS {inside}" for inside, name, _ in (*self.columns.keys, *self.columns.values)]
        names = [*self.keys, *self.values]
        net = f"SELECT {', '.join(own)}, sum(_weight) AS n, max(_time) AS _time FROM ({rows}) {by_position(names)}"
        last = [f"any_value({name}) FILTER (n > 0) AS {name}" for name in self.values]
        last += ["max(_time) AS _time", "count(*) FILTER (n > 0) > 0 AS present"]
        by_key = (
            f"SELECT {', '.join([*self.keys, *last])} FROM ({net} HAVING sum(_weight) <> 0) {by_position(self.keys)}"
        )
        changed = self.duck.arrow(by_key if self.keys else f"{by_key} HAVING count(*) > 0")
        if not changed.num_rows:
            return
        changes = self.duck.register(changed)
        kept = self.state.lookup(WAITING, self.keys, changes)
        same = self.state.matching(WAITING, "d", "s", nulls=with_nulls([changed]))
        columns = [*(f"d.{name}" for name in (*names, "_time", "present")), f"coalesce(s.since, {self.epoch}) AS since"]
        columns += [f"1::BIGINT AS {COUNT}", "s.rowid AS o_row"]
        waiting = self.duck.arrow(f"SELECT {', '.join(columns)} FROM {changes} d LEFT JOIN {kept} s ON {same}")
        self.state.replace(WAITING, waiting, at="o_row")

    def _come_out(self, which: str) -> list[pa.Table]:
        """Return the delta of waiting changes, and show them from now on."""
        due = self.duck.arrow(f"SELECT *, rowid AS w_row FROM {self.state.name(WAITING)} {which}")
        if not due.num_rows:
            return []
        changes = self.duck.register(due)
        shown = self.state.lookup(SHOWN, self.keys, changes)
        same = self.state.matching(SHOWN, "d", "s", nulls=with_nulls([due]))
        old = [f"s.{name} AS o_{name}" for name in self.values]
        joined = f"SELECT {', '.join(['d.*', *old, 's.rowid AS o_row'])} FROM {changes} d LEFT JOIN {shown} s ON {same}"
        both = self.duck.register(self.duck.arrow(joined))
        differs = " OR ".join(f"{name} IS DISTINCT FROM o_{name}" for name in self.values) or "false"
        stored = ", ".join([*self.keys, *self.values, "_time", f"present::BIGINT AS {COUNT}", "o_row"])
        changed = f"CASE WHEN present THEN o_row IS NULL OR {differs} ELSE o_row IS NOT NULL END"
        self.state.replace(SHOWN, self.duck.arrow(f"SELECT {stored} FROM {both} WHERE {changed}"), at="o_row")
        gone = ", ".join([*(c for c in self.state.tables[WAITING].columns if c != COUNT), f"0::BIGINT AS {COUNT}"])
        self.state.replace(WAITING, self.duck.arrow(f"SELECT {gone}, w_row AS o_row FROM {both}"), at="o_row")
        keys = [f"{inside} AS {quote(name)}" for inside, name, _ in self.columns.keys]
        before = [f"o_{inside} AS {quote(name)}" for inside, name, _ in self.columns.values]
        now = [f"{inside} AS {quote(name)}" for inside, name, _ in self.columns.values]
        delta = self.duck.arrow(
            f"SELECT {', '.join([*keys, *before])}, -1::INTEGER AS _weight, _time FROM {both} "
            f"WHERE o_row IS NOT NULL AND {changed} UNION ALL "
            f"SELECT {', '.join([*keys, *now])}, 1::INTEGER AS _weight, _time FROM {both} WHERE present AND {changed}"
        )
        return [delta]
