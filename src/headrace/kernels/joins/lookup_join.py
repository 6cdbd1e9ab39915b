"""Rows of a stream, each beside the table's rows that it meets when it arrives; what the table does triggers nothing.

State is the table's rows as they were after the epoch before. Inside an epoch both inputs are merged by event time, of
equal times the table's change first: a row of the stream meets the table as the earlier epochs left it, changed by
those changes of its own epoch whose time is not above the row's. So a replay of the epoch gives the same answer.

The changes of one key take effect in the order in which the table made them, none before an earlier one: where times go
back, at the greatest time so far. So of two changes whose offsets and times disagree the one of the greater offset is
in force from the greater time on, and in every later epoch; before that time rows meet what was there before both.

Where the table's changes come in no order that is known (it has no key, or a key that does not decide its shard), each
row is counted by itself: it is met from the time at which it came till that at which it went.

Rows come out in the order of the stream's, each at its own event time: what is looked up does not move it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.names import quote
from headrace.kernels.order import PLACE, in_place, placed
from headrace.kernels.state.state import COUNT, TableSpec, with_nulls

if TYPE_CHECKING:
    from headrace.kernels.duck import Duck
    from headrace.kernels.spec import LookupJoin
    from headrace.kernels.state.state import State

ROWS = "rows"
ALWAYS, NEVER = -(1 << 63), (1 << 63) - 1


def tables(op: LookupJoin) -> tuple[TableSpec]:
    """Return the table that is kept: a row a key, or, where the table has none to go by, the whole row."""
    columns, key = op.join.right, _identity(op)
    keys = tuple((name, kind) for name, kind in columns if name in key)
    values = tuple((name, kind) for name, kind in columns if name not in key)
    by = tuple(dict.fromkeys((tuple(name for name, _ in keys), _met_by(op))))
    return (TableSpec(name=ROWS, keys=keys, values=values, by=by),)


def _met_by(op: LookupJoin) -> tuple[str, ...]:
    """Return the columns of the table in which it agrees with the stream."""
    return tuple(there for _, there in op.join.on)


def _identity(op: LookupJoin) -> tuple[str, ...]:
    """Return the columns that tell a row of the table from another."""
    key = op.join.keys[1]
    return key if op.ordered and key is not None else tuple(name for name, _ in op.join.right)


def in_force(duck: Duck, parts: list[pa.Table], key: tuple[str, ...]) -> list[pa.Table]:
    """Return changes with the times from which they are in force: of a key none before an earlier one.

    For where changes of one key part, to the shards of other columns: said before they do.
    """
    if all(pc.min(part.column("_weight")).as_py() == 1 for part in parts):
        return parts  # each is the first of its key
    rows = " UNION ALL ".join(f"SELECT * FROM {duck.register(part)}" for part in placed(parts))
    latest = f"max(_time) OVER ({_by(key)}ORDER BY {PLACE} ROWS UNBOUNDED PRECEDING)"
    return [duck.arrow(f"SELECT * REPLACE ({latest} AS _time) FROM ({rows}) ORDER BY {PLACE}").drop_columns([PLACE])]


@dataclass
class LookingUp:
    """One epoch of one lookup in one shard."""

    duck: Duck
    op: LookupJoin
    state: State

    def run(self, left: list[pa.Table], right: list[pa.Table]) -> pa.Table | None:
        """Return the stream's rows with what they meet; then the table's changes are in the state."""
        changes = self._changes(right) if right else None
        known = None if changes is None else self.duck.register(changes)
        made = self._met(left, known) if left else None
        if changes is not None:
            self._keep(changes)
        return made

    # -- the table's changes

    def _changes(self, right: list[pa.Table]) -> pa.Table:
        """Return the changes with how the state stood (`o_row`, `o_n`) and what each leaves, till the next one.

        `n` rows are there from `_from` on, until `_until` (null: no later change of the same in this epoch); `nth`
        is a change's place among those of the same.
        """
        keys = [there for _, there in self.op.join.on]
        parts = [part.filter(all_known(part, keys)) for part in placed(right)]
        rows = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in parts)
        told = [name for name, _ in self.state.tables[ROWS].keys]
        near = self.state.lookup(ROWS, told, f"({rows})")
        same = self.state.matching(ROWS, "d", "s", nulls=with_nulls(parts))
        beside = f"SELECT d.*, s.rowid AS o_row, s.{COUNT} AS o_n FROM ({rows}) d LEFT JOIN {near} s ON {same}"
        if self.op.ordered and all(pc.min(part.column("_weight")).as_py() == 1 for part in parts if part.num_rows):
            return self.duck.arrow(
                f"SELECT *, 1 AS n, _time AS _from, NULL::BIGINT AS _until, 1 AS nth FROM ({beside})"
            )
        by = _by(_identity(self.op))
        order = PLACE if self.op.ordered else f"_time, {PLACE}"
        over = f"({by}ORDER BY {order} ROWS UNBOUNDED PRECEDING)"
        left = (
            "CASE WHEN _weight > 0 THEN 1 ELSE 0 END" if self.op.ordered else "coalesce(o_n, 0) + sum(_weight) OVER w"
        )
        timed = (
            f"SELECT *, max(_time) OVER w AS _from, row_number() OVER w AS nth, ({left})::BIGINT AS n "
            f"FROM ({beside}) WINDOW w AS {over}"
        )
        following = f"lead(_from) OVER ({by}ORDER BY nth) AS _until"
        return self.duck.arrow(f"SELECT *, {following} FROM ({timed})")

    def _keep(self, changes: pa.Table) -> None:
        """Put what the last change of each leaves into the state."""
        names = [name for name in self.state.tables[ROWS].columns if name != COUNT]
        last = changes.filter(pc.is_null(changes.column("_until")))
        counts = pc.max_element_wise(last.column("n"), 0)
        rows = last.select([*names, "o_row"]).append_column(COUNT, counts.cast(pa.int64()))
        there = pc.or_(pc.greater(counts, 0), pc.is_valid(last.column("o_row")))
        self.state.replace(ROWS, rows.filter(there), at="o_row")

    # -- what the stream meets

    def _met(self, left: list[pa.Table], changes: str | None) -> pa.Table:
        """Return the step's delta."""
        rows = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in placed(left))
        gives = [f"{sql}::{kind} AS {quote(name)}" for name, sql, kind in self.op.join.gives]
        agree = self.op.join.agree()
        if changes is not None:
            agree += " AND l._time >= r._from AND l._time < r._until"
        columns = [*gives, "l._weight", "l._time", f"l.{PLACE}"]
        if not self.op.ordered:
            columns.append(f"unnest(range(greatest(coalesce(r.{COUNT}, 1), 1)))")
        here = [name for name, _ in self.op.join.on]
        table = self._table(self.state.lookup(ROWS, _met_by(self.op), f"({rows})", named=here), changes)
        how = "LEFT JOIN" if self.op.join.how == "left" else "JOIN"
        made = self.duck.arrow(f"SELECT {', '.join(columns)} FROM ({rows}) l {how} {table} r ON {agree}")
        return in_place(made, len(gives) + 2)

    def _table(self, state: str, changes: str | None) -> str:
        """Return SQL for rows of the table, where some change in this epoch with the times between which they stand."""
        if changes is None:
            return state
        names = ", ".join(name for name, _ in self.op.join.right)
        touched = f"SELECT o_row FROM {changes} WHERE o_row IS NOT NULL"
        went = " AND _weight < 0" if self.op.ordered else ""  # of a key the first to go is the row that is kept
        return (
            f"(SELECT {names}, {COUNT}, {ALWAYS} AS _from, {NEVER} AS _until FROM {state} s "
            f"WHERE s.rowid NOT IN ({touched}) UNION ALL "
            f"SELECT {names}, o_n, {ALWAYS}, _from FROM {changes} WHERE nth = 1 AND o_row IS NOT NULL{went} UNION ALL "
            f"SELECT {names}, n, _from, coalesce(_until, {NEVER}) FROM {changes} "
            f"WHERE n > 0 AND _from IS DISTINCT FROM _until)"
        )


def _by(key: tuple[str, ...]) -> str:
    """Return how rows are parted by a key; of the one row of a whole, not at all."""
    return f"PARTITION BY {', '.join(key)} " if key else ""


def all_known(part: pa.Table, columns: list[str]) -> pa.Array:
    """Return which rows have no null in the columns: the others meet nothing."""
    known = pc.is_valid(part.column(columns[0]))
    for name in columns[1:]:
        known = pc.and_(known, pc.is_valid(part.column(name)))
    return known
