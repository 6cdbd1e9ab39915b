"""Rows of two streams that match within an interval of time: what is kept, new pairs, rows without a match.

State is the rows of both sides that may still match one, in buffers that age by their times; of a side that `how`
preserves, or of which a semi join emits rows, each row has a number of its own: equal rows are several. A row is
dropped once the watermark has passed its last possible partner by more than `grace`; of a preserved side, a row without
a match comes out then. Whether a row has a match is a mark on it where that was found in the epoch in which it arrived,
and a line in a second table where it was found later: so no row is written twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.joins.band_join import Probe, band_join, reachable
from headrace.kernels.late import split_late
from headrace.kernels.op import StatefulOp, StepResult
from headrace.kernels.state.tables import TableSpec
from headrace.kernels.zones import without_zones

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.delta import Delta
    from headrace.kernels.joins.join_spec import JoinSpec
    from headrace.kernels.op import Context
    from headrace.kernels.state.tables import Column

_ROW_BITS = 32  # a shard gets fewer rows of a side in an epoch than this, and an app fewer epochs than the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSide:
    """One side. Inside, its columns are `l0…`, and `l_time` a row's time; `l_id` and `l_met` where it is marked.

    These are a row's number, and whether it has a match. `within` is what its time less the other side's must be, least
    and greatest; `preserved`: its rows come out though they have no match, and so they are marked.
    """

    letter: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    preserved: bool
    is_marked: bool
    within: tuple[int, int]

    @property
    def names(self) -> list[str]:
        """Its columns."""
        return [name for name, _ in self.columns]

    @property
    def nulls(self) -> str:
        """Its columns where there is no row of it, in SQL."""
        return ", ".join(f"NULL::{kind} AS {name}" for name, kind in self.columns)

    @property
    def reach(self) -> int:
        """How long after a row its last possible partner may come."""
        return -self.within[0]

    @property
    def id(self) -> str:
        """The column of the rows' numbers."""
        return f"{self.letter}_id"

    @property
    def time(self) -> str:
        """The column of the rows' times."""
        return f"{self.letter}_time"

    @property
    def matched(self) -> str:
        """The column that says whether a row found a match in its own epoch; of marked sides."""
        return f"{self.letter}_met"  # its name in the files of storages

    @property
    def rows(self) -> str:
        """The table of its rows."""
        return f"{self.letter}_rows"

    @property
    def matched_later(self) -> str:
        """The table of the rows that found their first match after their own epoch; of marked sides."""
        return f"{self.letter}_met_later"

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """What is kept of it."""
        specs = [TableSpec(name=self.rows, keys=(), values=self.marked, ages=self.time)]
        if self.is_marked:
            marks = ((self.id, "BIGINT"), (self.time, "BIGINT"))
            specs.append(TableSpec(name=self.matched_later, keys=(), values=marks, ages=self.time))
        return tuple(specs)

    @property
    def marked(self) -> tuple[Column, ...]:
        """Its columns with those that mark its rows."""
        marks = ((self.id, "BIGINT"), (self.matched, "BOOLEAN")) if self.is_marked else ()
        return (*self.columns, (self.time, "BIGINT"), *marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJoin(StatefulOp):
    """Rows of two streams with right time - left time in `[low, high]`: pairs, and preserved rows without a match.

    A semi join emits each left row with a match once, an anti join those without one.

    Late are the rows more than `grace` behind the watermark, as rows of the join. All in microseconds.
    """

    join: JoinSpec
    low: int
    high: int
    grace: int

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the buffers of both sides."""
        return tuple(table for side in self.sides for table in side.tables)

    @property
    def sides(self) -> tuple[StreamSide, StreamSide]:
        """What is kept of the left side and of the right one."""
        left = StreamSide(
            letter="l",
            columns=self.join.left,
            keys=tuple(left for left, _ in self.join.on),
            preserved=self.join.how in ("left", "full", "anti"),
            is_marked=self.join.how in ("left", "full", "anti", "semi"),
            within=(-self.high, -self.low),
        )
        right = StreamSide(
            letter="r",
            columns=self.join.right,
            keys=tuple(right for _, right in self.join.on),
            preserved=self.join.how in ("right", "full"),
            is_marked=self.join.how in ("right", "full"),
            within=(self.low, self.high),
        )
        return left, right

    @property
    def emits_on_watermark(self) -> bool:
        """Where rows come out without a match once nothing can match them any more."""
        return self.join.how not in ("inner", "semi")

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Drop what is over, match the rows that arrived with those of the other side, and keep them."""
        left, right = (delta.tables for delta in inputs)
        return StreamJoinRun(self, context).result_of(left, right)


class StreamJoinRun:
    """One epoch of one join in one shard."""

    def __init__(self, op: StreamJoin, context: Context) -> None:
        self.duck = context.duck
        self.op = op
        self.how = op.join.how
        self.sides = op.sides
        self.state = context.keyed
        self.epoch = context.epoch
        self.watermark = context.watermark
        self.watermark_moved = context.watermark_moved
        self.output: list[pa.Table] = []
        self.late: list[pa.Table] = []
        self.result = StepResult(delta=self.output, late=self.late)

    def result_of(self, left: list[pa.Table], right: list[pa.Table]) -> StepResult:
        """Drop what is over, match the rows that arrived with those of the other side, and keep them."""
        both = self.sides
        arrived = [
            self._in_time(side, other, parts)
            for side, other, parts in zip(both, both[::-1], (left, right), strict=True)
        ]
        for side, other in zip(both, both[::-1], strict=True):
            self._close(side, other)
        pairs = self._pairs(*both, *arrived)
        if pairs is not None and self.how == "semi":
            self._emit_matched(both[0], pairs)
        elif pairs is not None and self.how != "anti":
            self.output.append(self._named(pairs))
        for side, other, rows in zip(both, both[::-1], arrived, strict=True):
            if side.is_marked and pairs is not None:
                self._remember(side, pairs)
            if rows is not None:
                self._keep(side, other, rows, pairs)
        return self.result

    # ---- rows that arrive ----

    def _in_time(self, side: StreamSide, other: StreamSide, parts: list[pa.Table]) -> pa.Table | None:
        """Return the rows in time, numbered; late ones match nothing, and come out where their side is preserved."""
        in_time, late, counts = split_late(parts, self.op.grace, self.watermark)
        self.result.counts += counts
        for part in late:
            unmatched = self._unmatched(side, other, self.duck.register(part), time="_time")
            if side is self.sides[0] or self.how not in ("semi", "anti"):  # else it has no column of it
                self.late.append(unmatched)
            self.output += [unmatched] if side.preserved else []
        in_time = [part.select([*side.names, "_time"]) for part in in_time]
        if not side.preserved:
            in_time = [_without_nulls(part, side.keys) for part in in_time]
        rows = pa.concat_tables(in_time, promote_options="permissive") if in_time else None
        if rows is None or not rows.num_rows:
            return None
        rows = without_zones(rows.rename_columns([*side.names, side.time]))
        if not side.is_marked:
            return rows
        first = self.epoch << _ROW_BITS
        return rows.append_column(side.id, pa.array(np.arange(first, first + rows.num_rows)))

    # ---- rows that are over ----

    def _over(self, side: StreamSide) -> int | None:
        """Return the time before which rows of a side can match none any more."""
        return None if self.watermark is None else self.watermark - self.op.grace - side.reach

    def _close(self, side: StreamSide, other: StreamSide) -> None:
        """Drop the kept rows that are over; those of a preserved side without a match come out."""
        before = self._over(side)
        if before is None or self.watermark_moved is None:
            return
        if side.preserved:
            over = self.state.during(side.rows, None, before - 1)
            later = self.state.during(side.matched_later, None, before - 1)
            self._emit_unmatched(
                side, other, f"(FROM {over} ANTI JOIN {later} USING ({side.id}) WHERE NOT {side.matched})"
            )
        if side.is_marked:
            self.state.expire(side.matched_later, before)
        self.state.expire(side.rows, before)

    def _emit_unmatched(self, side: StreamSide, other: StreamSide, rows: str) -> None:
        unmatched = self._unmatched(side, other, rows, time=side.time)
        self.output += [unmatched] if unmatched.num_rows else []

    def _unmatched(self, side: StreamSide, other: StreamSide, rows: str, *, time: str) -> pa.Table:
        """Return rows of one side with nothing on the other."""
        padded = f"SELECT {', '.join(side.names)}, {other.nulls}, {time} AS _time FROM {rows}"
        return self._named(self.duck.arrow(f"SELECT {self._columns()}, _time FROM ({padded})"))

    def _columns(self) -> str:
        """Return the columns of the result, under names that differ from those of the marks."""
        columns = (f"({sql})::{kind} AS g{i}" for i, (_, sql, kind) in enumerate(self.op.join.output))
        return ", ".join([*columns, "1::INTEGER AS _weight"])

    def _named(self, rows: pa.Table) -> pa.Table:
        names = [name for name, _, _ in self.op.join.output]
        output = rows.select([*(f"g{i}" for i in range(len(names))), "_weight", "_time"])
        return output.rename_columns([*names, "_weight", "_time"])

    # ---- matches ----

    def _pairs(
        self, left: StreamSide, right: StreamSide, lefts: pa.Table | None, rights: pa.Table | None
    ) -> pa.Table | None:
        """Return the pairs with a row of this epoch, each once, and the marks of their rows."""
        pairs_of = []
        if lefts is not None:
            probe = self._probe(left, lefts)
            partners = [self._kept_rows(right, probe)] + ([self._new(right, rights)] if rights is not None else [])
            pairs_of.append(self._matches(probe, f"({' UNION ALL '.join(partners)})", right))
        if rights is not None:
            probe = self._probe(right, rights)
            pairs_of.append(self._matches(probe, f"({self._kept_rows(left, probe)})", left))
        pairs = self.duck.large(" UNION ALL ".join(pairs_of)) if pairs_of else None
        return pairs if pairs is not None and pairs.num_rows else None

    def _matches(self, probe: Probe, others: str, side: StreamSide) -> str:
        """Return the pairs of probe rows with those of the other side."""
        columns = [self._columns(), f"{'l_time' if self.how == 'semi' else 'greatest(l_time, r_time)'} AS _time"]
        columns += [f"{marked.id}, {marked.time}, {marked.matched}" for marked in self.sides if marked.is_marked]
        pairs = band_join(probe, others, side.time, side.within, self.op.join.condition)
        return f"SELECT {', '.join(columns)} FROM {pairs}"

    def _probe(self, side: StreamSide, rows: pa.Table) -> Probe:
        span = pc.min_max(rows.column(side.time)).as_py()
        return Probe(f"({self._new(side, rows)})", side.time, span["min"], span["max"])

    def _new(self, side: StreamSide, rows: pa.Table) -> str:
        mark = f", false AS {side.matched}" if side.is_marked else ""
        columns = [name for name, _ in side.marked if name != side.matched]
        return f"SELECT {', '.join(columns)}{mark} FROM {self.duck.register(rows)}"

    def _kept_rows(self, side: StreamSide, probe: Probe) -> str:
        rows = self.state.during(side.rows, *reachable(probe, side.within))
        return f"SELECT {', '.join(name for name, _ in side.marked)} FROM {rows}"

    def _emit_matched(self, side: StreamSide, pairs: pa.Table) -> None:
        """Let the rows come out that have found their first match."""
        before = self.state.during(side.matched_later, None, None)
        first = f"SELECT DISTINCT ON ({side.id}) * FROM {self.duck.register(pairs)} WHERE NOT {side.matched}"
        found = self.duck.arrow(f"FROM ({first}) ANTI JOIN {before} USING ({side.id})")
        self.output += [self._named(found)] if found.num_rows else []

    # ---- state ----

    def _remember(self, side: StreamSide, pairs: pa.Table) -> None:
        """Mark the rows of earlier epochs that found their first match now."""
        first, found = self.epoch << _ROW_BITS, self.duck.register(pairs.select([side.id, side.time, side.matched]))
        old = f"SELECT DISTINCT {side.id}, {side.time} FROM {found} WHERE {side.id} < {first} AND NOT {side.matched}"
        marked = self.state.during(side.matched_later, None, None)
        self.state.append(side.matched_later, self.duck.arrow(f"FROM ({old}) ANTI JOIN {marked} USING ({side.id})"))

    def _keep(self, side: StreamSide, other: StreamSide, rows: pa.Table, pairs: pa.Table | None) -> None:
        """Keep rows that may still match others; of a preserved side the others come out, if they have no match."""
        if side.is_marked:
            rows = rows.append_column(side.matched, pa.array(self._marked(side, rows, pairs)))
        before = self._over(side)
        if before is not None:
            over = pc.less(rows.column(side.time), before)
            if pc.any(over).as_py():
                done, rows = rows.filter(over), rows.filter(pc.invert(over))
                if side.preserved:
                    self._emit_unmatched(side, other, f"(FROM {self.duck.register(done)} WHERE NOT {side.matched})")
        self.state.append(side.rows, rows)

    def _marked(self, side: StreamSide, rows: pa.Table, pairs: pa.Table | None) -> np.ndarray:
        """Return for each row of this epoch whether it has a match."""
        matched = np.zeros(rows.num_rows, dtype=np.bool_)
        if pairs is not None:
            for chunk in pairs.column(side.id).chunks:
                numbers = chunk.to_numpy() - (self.epoch << _ROW_BITS)
                matched[numbers[numbers >= 0]] = True
        return matched


def _without_nulls(rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Return the rows that have all their keys."""
    for key in keys:
        if rows.column(key).null_count:
            rows = rows.filter(pc.is_valid(rows.column(key)))
    return rows
