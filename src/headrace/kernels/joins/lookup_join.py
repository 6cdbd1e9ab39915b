"""Rows of a stream, each with the table's rows that match it when it arrives; changes of the table trigger nothing.

State is the table's rows as they were after the epoch before. Inside an epoch both inputs are merged by arrival, the
time at which a record was stored, of equal times the table's change first: a row of the stream matches the table as the
earlier epochs left it, changed by those changes of its own epoch that did not arrive after the row. The planner cuts
epochs in the same order (`engine/arrival.py`), so the result is the same for every cut of the input.

In what the operator reads, `_time` of a change is its arrival, and `_arrival` that of a row of the stream. Event times
have no part in it. What arrived at no instant (the net change of an aggregate, a row that a watermark released) has
`FIRST` as a change and `LAST` as a row: rows see what their epoch leaves.

The changes of one key take effect in the order in which the table changed, none before an earlier one. Where they come
in no known order (the table has no key, or a key that does not decide its shard), each row is counted by itself: it
matches from when it was inserted till it was withdrawn.

Rows come out in the order of the stream's, each at its own event time: a lookup does not change it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.names import quote
from headrace.kernels.counts import Counts
from headrace.kernels.op import Operator, StatefulOp, StepResult
from headrace.kernels.order import ORDER, in_order, numbered
from headrace.kernels.sql import with_nulls
from headrace.kernels.state.tables import COUNT, TableSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.delta import Delta
    from headrace.kernels.duck import Duck
    from headrace.kernels.joins.join_spec import JoinSpec
    from headrace.kernels.op import Context

ROWS = "rows"
ALWAYS, NEVER = -(1 << 63), (1 << 63) - 1
FIRST, LAST = 0, NEVER - 1
"""The arrival of a table's change, and of a stream's row, that arrived at no instant."""
ARRIVAL = "_arrival"
"""The column of the stream's rows with their arrival."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveTimes(Operator):
    """Changes of a table, in their order, with the times from which they are in force: none before an earlier one's.

    `key` identifies the row of a change.
    """

    key: tuple[str, ...]

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Return the changes with these times."""
        return StepResult(effective_times(context.duck, inputs[0].tables, self.key))


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupJoin(StatefulOp):
    """Rows of a stream, each with the rows of a table that match it when it arrives."""

    timed: ClassVar[bool] = False

    join: JoinSpec
    arrived: str | None = None
    """A column of the delta: the arrival of the stream's row, for the next lookup."""

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a row of the table: its key, or, where its changes have no order, the whole row."""
        key = self.join.keys[1]
        return key if self.join.ordered and key is not None else tuple(name for name, _ in self.join.right)

    @property
    def shared(self) -> tuple[str, ...]:
        """The columns of the table that equal those of the stream where rows match."""
        return tuple(theirs for _, theirs in self.join.on)

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the table of the table's rows."""
        columns, identity = self.join.right, self.identity
        keys = tuple((name, kind) for name, kind in columns if name in identity)
        values = tuple((name, kind) for name, kind in columns if name not in identity)
        by = tuple(dict.fromkeys((tuple(name for name, _ in keys), self.shared)))
        return (TableSpec(name=ROWS, keys=keys, values=values, by=by),)

    def before_exchange(self, side: int, rows: int, *, output: int, late: int | None) -> Operator | None:
        """Order the changes of a key where an exchange spreads them over the shards of other columns."""
        del late
        key = self.join.keys[1]
        if side == 0 or not self.join.ordered or key is None or set(self.shared) <= set(key):
            return None
        return EffectiveTimes(step=self.step, inputs=(rows,), output=output, key=key)

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Return the stream's rows with their matches; then the table's changes are in the state."""
        left, right = (delta.tables for delta in inputs)
        delta = LookupRun(self, context).delta(left, right) if left or right else None
        counts = Counts(rows_in=sum(part.num_rows for part in left))
        return StepResult([] if delta is None else [delta], counts=counts)


def effective_times(duck: Duck, parts: list[pa.Table], key: tuple[str, ...]) -> list[pa.Table]:
    """Return changes with the times from which they are in force: of a key none before an earlier one.

    It is called before an exchange that spreads the changes of a key: after it nobody knows their order.
    """
    if all(pc.min(part.column("_weight")).as_py() == 1 for part in parts):
        return parts  # each is the first of its key
    rows = " UNION ALL ".join(f"SELECT * FROM {duck.register(part)}" for part in numbered(parts))
    latest = f"max(_time) OVER ({_by(key)}ORDER BY {ORDER} ROWS UNBOUNDED PRECEDING)"
    return [duck.arrow(f"SELECT * REPLACE ({latest} AS _time) FROM ({rows}) ORDER BY {ORDER}").drop_columns([ORDER])]


class LookupRun:
    """One epoch of one lookup in one shard, that has rows."""

    def __init__(self, op: LookupJoin, context: Context) -> None:
        self.duck = context.duck
        self.state = context.state
        self.op = op
        self.join = op.join

    def delta(self, left: list[pa.Table], right: list[pa.Table]) -> pa.Table | None:
        """Return the stream's rows with their matches; then the table's changes are in the state."""
        changes = self.changes(right) if right else None
        relation = None if changes is None else self.duck.register(changes)
        matches = self._matches(left, relation) if left else None
        if changes is not None:
            self.keep(changes)
        return matches

    # -- the table's changes

    def changes(self, right: list[pa.Table]) -> pa.Table:
        """Return the changes with the kept row (`o_row`, `o_n`) and the rows that each leaves, till the next one.

        `n` rows are there from `_from` on, until `_until` (null: no later change of the same in this epoch); `nth`
        is a change's number among those of the same.
        """
        parts = [part.filter(no_nulls(part, self.op.shared)) for part in numbered(right)]
        rows = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in parts)
        identity = [name for name, _ in self.state.tables[ROWS].keys]
        kept = self.state.lookup(ROWS, identity, f"({rows})")
        same = self.state.matching(ROWS, "d", "s", nulls=with_nulls(parts))
        with_kept = f"SELECT d.*, s.rowid AS o_row, s.{COUNT} AS o_n FROM ({rows}) d LEFT JOIN {kept} s ON {same}"
        if self.join.ordered and all(pc.min(part.column("_weight")).as_py() == 1 for part in parts if part.num_rows):
            return self.duck.arrow(
                f"SELECT *, 1 AS n, _time AS _from, NULL::BIGINT AS _until, 1 AS nth FROM ({with_kept})"
            )
        by = _by(self.op.identity)
        order = ORDER if self.join.ordered else f"_time, {ORDER}"
        over = f"({by}ORDER BY {order} ROWS UNBOUNDED PRECEDING)"
        left = (
            "CASE WHEN _weight > 0 THEN 1 ELSE 0 END" if self.join.ordered else "coalesce(o_n, 0) + sum(_weight) OVER w"
        )
        timed = (
            f"SELECT *, max(_time) OVER w AS _from, row_number() OVER w AS nth, ({left})::BIGINT AS n "
            f"FROM ({with_kept}) WINDOW w AS {over}"
        )
        following = f"lead(_from) OVER ({by}ORDER BY nth) AS _until"
        return self.duck.arrow(f"SELECT *, {following} FROM ({timed})")

    def keep(self, changes: pa.Table) -> None:
        """Put what the last change of each leaves into the state."""
        names = [name for name in self.state.tables[ROWS].columns if name != COUNT]
        last = changes.filter(pc.is_null(changes.column("_until")))
        counts = pc.max_element_wise(last.column("n"), 0)
        rows = last.select([*names, "o_row"]).append_column(COUNT, counts.cast(pa.int64()))
        there = pc.or_(pc.greater(counts, 0), pc.is_valid(last.column("o_row")))
        self.state.replace(ROWS, rows.filter(there), at="o_row")

    # -- the stream's matches

    def _matches(self, left: list[pa.Table], changes: str | None) -> pa.Table:
        """Return the step's delta."""
        rows = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in numbered(left))
        output = [f"{sql}::{kind} AS {quote(name)}" for name, sql, kind in self.join.output]
        condition = self.join.condition
        if changes is not None:
            condition += f" AND l.{ARRIVAL} >= r._from AND l.{ARRIVAL} < r._until"
        columns = [*output, "l._weight", "l._time"]
        if self.op.arrived is not None:
            columns.append(f"l.{ARRIVAL} AS {quote(self.op.arrived)}")
        passed = len(columns)
        columns.append(f"l.{ORDER}")
        if not self.join.ordered:
            columns.append(f"unnest(range(greatest(coalesce(r.{COUNT}, 1), 1)))")
        probe = [name for name, _ in self.join.on]
        kept = self.state.lookup(ROWS, self.op.shared, f"({rows})", named=probe)
        table = kept if changes is None else self.table(kept, changes, [name for name, _ in self.join.right])
        how = "LEFT JOIN" if self.join.how == "left" else "JOIN"
        matches = self.duck.large(f"SELECT {', '.join(columns)} FROM ({rows}) l {how} {table} r ON {condition}")
        return in_order(matches, passed)

    def table(self, state: str, changes: str, columns: Sequence[str]) -> str:
        """Return SQL for rows of the table, where some change in this epoch, with the times of their presence."""
        names = ", ".join(columns)
        touched = f"SELECT o_row FROM {changes} WHERE o_row IS NOT NULL"
        # of a key the first row to be withdrawn is the kept one
        first = f"nth = 1 AND o_row IS NOT NULL{' AND _weight < 0' if self.join.ordered else ''}"
        return (
            f"(SELECT {names}, {COUNT}, {ALWAYS} AS _from, {NEVER} AS _until FROM {state} s "
            f"WHERE s.rowid NOT IN ({touched}) UNION ALL "
            f"SELECT {names}, o_n, {ALWAYS}, _from FROM {changes} WHERE {first} UNION ALL "
            f"SELECT {names}, n, _from, coalesce(_until, {NEVER}) FROM {changes} "
            f"WHERE n > 0 AND _from IS DISTINCT FROM _until)"
        )


def _by(key: tuple[str, ...]) -> str:
    """Return PARTITION BY a key, or nothing for the key without columns of a table with one row."""
    return f"PARTITION BY {', '.join(key)} " if key else ""


def no_nulls(part: pa.Table, columns: Sequence[str]) -> pa.Array:
    """Return which rows have no null in the columns: the others match nothing."""
    valid = pc.is_valid(part.column(columns[0]))
    for name in columns[1:]:
        valid = pc.and_(valid, pc.is_valid(part.column(name)))
    return valid
