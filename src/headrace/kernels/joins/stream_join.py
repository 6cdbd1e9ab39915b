"""Rows of two streams that meet within a time: what is kept of each side, which pairs an epoch adds, who is left alone.

State is the rows of both sides that may still meet one, in buffers that age by their times; of a side that `how`
preserves each has a number of its own: equal rows are several. A row is dropped once the watermark has passed its last
possible partner by more than `grace`; of a preserved side, one that met none comes out then. Whether a row has met one
is a mark on it where that was in the epoch in which it came, and a line in a second table where it was later: so no row
is written twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.dedupe import judged
from headrace.kernels.duck import without_zones
from headrace.kernels.groups.grouped import Counts
from headrace.kernels.joins.band_join import Came, band_lookup, reachable
from headrace.kernels.state.state import TableSpec

if TYPE_CHECKING:
    from headrace.kernels.duck import Duck
    from headrace.kernels.spec import Column, StreamJoin
    from headrace.kernels.state.keyed import KeyedState

_ROW_BITS = 32  # a shard gets fewer rows of a side in an epoch than this, and an app fewer epochs than the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side. Inside, its columns are `l0…`, and `l_time` a row's time; `l_id` and `l_met` where it is preserved.

    These are a row's number, and whether it met one. `within` is what its time less the other side's must be, least and
    greatest; `preserved`: its rows come out though they meet none.
    """

    letter: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    preserved: bool
    within: tuple[int, int]

    @property
    def names(self) -> list[str]:
        """Its columns."""
        return [name for name, _ in self.columns]

    @property
    def nothing(self) -> str:
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
    def met(self) -> str:
        """The column that says whether a row met one in its own epoch; of preserved sides."""
        return f"{self.letter}_met"

    @property
    def kept(self) -> str:
        """The table of its rows."""
        return f"{self.letter}_rows"

    @property
    def met_later(self) -> str:
        """The table of the rows that first met one after their own epoch; of preserved sides."""
        return f"{self.letter}_met_later"

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """What is kept of it."""
        made = [TableSpec(name=self.kept, keys=(), values=self.marked, ages=self.time)]
        if self.preserved:
            marks = ((self.id, "BIGINT"), (self.time, "BIGINT"))
            made.append(TableSpec(name=self.met_later, keys=(), values=marks, ages=self.time))
        return tuple(made)

    @property
    def marked(self) -> tuple[Column, ...]:
        """Its columns with those that mark its rows."""
        marks = ((self.id, "BIGINT"), (self.met, "BOOLEAN")) if self.preserved else ()
        return (*self.columns, (self.time, "BIGINT"), *marks)


def sides(op: StreamJoin) -> tuple[Side, Side]:
    """Return both sides, left and right."""
    join = op.join
    left = Side(
        letter="l",
        columns=join.left,
        keys=tuple(left for left, _ in join.on),
        preserved=join.how in ("left", "full"),
        within=(-op.high, -op.low),
    )
    right = Side(
        letter="r",
        columns=join.right,
        keys=tuple(right for _, right in join.on),
        preserved=join.how in ("right", "full"),
        within=(op.low, op.high),
    )
    return left, right


def tables(op: StreamJoin) -> tuple[TableSpec, ...]:
    """Return the tables that are kept."""
    return tuple(table for side in sides(op) for table in side.tables)


@dataclass
class Joining:
    """One epoch of one join in one shard; `run` fills what comes out, what is late, and the counts."""

    duck: Duck
    op: StreamJoin
    state: KeyedState
    epoch: int
    watermark: int | None
    previous: int | None
    out: list[pa.Table] = field(default_factory=list)
    late: list[pa.Table] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)

    def run(self, left: list[pa.Table], right: list[pa.Table]) -> None:
        """Drop what is over, let the rows that came meet those of the other side, and keep them."""
        both = sides(self.op)
        came = [
            self._in_time(side, other, parts)
            for side, other, parts in zip(both, both[::-1], (left, right), strict=True)
        ]
        for side, other in zip(both, both[::-1], strict=True):
            self._close(side, other)
        pairs = self._pairs(*both, *came)
        if pairs is not None:
            self.out.append(self._named(pairs))
        for side, other, rows in zip(both, both[::-1], came, strict=True):
            if side.preserved and pairs is not None:
                self._remember(side, pairs)
            if rows is not None:
                self._keep(side, other, rows, pairs)
        self.counts.rows_out = sum(part.num_rows for part in self.out)

    # ---- what comes ----

    def _in_time(self, side: Side, other: Side, parts: list[pa.Table]) -> pa.Table | None:
        """Return the rows in time, numbered; late ones meet nothing, and come out where their side is preserved."""
        taken, late, counts = judged(parts, self.op.grace, self.watermark)
        self.counts += counts
        for part in late:
            alone = self._alone(side, other, self.duck.register(part), time="_time")
            self.late.append(alone)
            self.out += [alone] if side.preserved else []
        taken = [part.select([*side.names, "_time"]) for part in taken]
        if not side.preserved:
            taken = [_without_nulls(part, side.keys) for part in taken]
        rows = pa.concat_tables(taken, promote_options="permissive") if taken else None
        if rows is None or not rows.num_rows:
            return None
        rows = without_zones(rows.rename_columns([*side.names, side.time]))
        if not side.preserved:
            return rows
        first = self.epoch << _ROW_BITS
        return rows.append_column(side.id, pa.array(np.arange(first, first + rows.num_rows)))

    # ---- what is over ----

    def _over(self, side: Side) -> int | None:
        """Return the time before which rows of a side can meet none any more."""
        return None if self.watermark is None else self.watermark - self.op.grace - side.reach

    def _close(self, side: Side, other: Side) -> None:
        """Drop the kept rows that are over; those of a preserved side that met none come out."""
        before = self._over(side)
        if before is None or self.watermark == self.previous:
            return
        if side.preserved:
            over = self.state.during(side.kept, None, before - 1)
            later = self.state.during(side.met_later, None, before - 1)
            self._give_alone(side, other, f"(FROM {over} ANTI JOIN {later} USING ({side.id}) WHERE NOT {side.met})")
            self.state.expire(side.met_later, before)
        self.state.expire(side.kept, before)

    def _give_alone(self, side: Side, other: Side, rows: str) -> None:
        alone = self._alone(side, other, rows, time=side.time)
        self.out += [alone] if alone.num_rows else []

    def _alone(self, side: Side, other: Side, rows: str, *, time: str) -> pa.Table:
        """Return rows of one side with nothing on the other."""
        beside = f"SELECT {', '.join(side.names)}, {other.nothing}, {time} AS _time FROM {rows}"
        return self._named(self.duck.arrow(f"SELECT {self._gives()}, _time FROM ({beside})"))

    def _gives(self) -> str:
        """Return what comes out, under names that meet none of the marks'."""
        made = (f"({sql})::{kind} AS g{i}" for i, (_, sql, kind) in enumerate(self.op.join.gives))
        return ", ".join([*made, "1::INTEGER AS _weight"])

    def _named(self, made: pa.Table) -> pa.Table:
        names = [name for name, _, _ in self.op.join.gives]
        given = made.select([*(f"g{i}" for i in range(len(names))), "_weight", "_time"])
        return given.rename_columns([*names, "_weight", "_time"])

    # ---- what meets ----

    def _pairs(self, left: Side, right: Side, lefts: pa.Table | None, rights: pa.Table | None) -> pa.Table | None:
        """Return the pairs in which a row of this epoch is, each once; beside them the marks of their rows."""
        made = []
        if lefts is not None:
            came = self._came(left, lefts)
            partners = [self._kept_near(right, came)] + ([self._new(right, rights)] if rights is not None else [])
            made.append(self._met(came, f"({' UNION ALL '.join(partners)})", right))
        if rights is not None:
            came = self._came(right, rights)
            made.append(self._met(came, f"({self._kept_near(left, came)})", left))
        pairs = self.duck.arrow(" UNION ALL ".join(made)) if made else None
        return pairs if pairs is not None and pairs.num_rows else None

    def _met(self, came: Came, others: str, side: Side) -> str:
        """Return the pairs of rows that came with those of the other side."""
        columns = [self._gives(), "greatest(l_time, r_time) AS _time"]
        columns += [f"{each.id}, {each.time}, {each.met}" for each in sides(self.op) if each.preserved]
        pairs = band_lookup(came, others, side.time, side.within, self.op.join.agree())
        return f"SELECT {', '.join(columns)} FROM {pairs}"

    def _came(self, side: Side, rows: pa.Table) -> Came:
        span = pc.min_max(rows.column(side.time)).as_py()
        return Came(f"({self._new(side, rows)})", side.time, span["min"], span["max"])

    def _new(self, side: Side, rows: pa.Table) -> str:
        met = f", false AS {side.met}" if side.preserved else ""
        columns = [name for name, _ in side.marked if name != side.met]
        return f"SELECT {', '.join(columns)}{met} FROM {self.duck.register(rows)}"

    def _kept_near(self, side: Side, came: Came) -> str:
        near_ones = self.state.during(side.kept, *reachable(came, side.within))
        return f"SELECT {', '.join(name for name, _ in side.marked)} FROM {near_ones}"

    # ---- what is kept ----

    def _remember(self, side: Side, pairs: pa.Table) -> None:
        """Mark the rows of earlier epochs that met their first partner now."""
        first, found = self.epoch << _ROW_BITS, self.duck.register(pairs.select([side.id, side.time, side.met]))
        old = f"SELECT DISTINCT {side.id}, {side.time} FROM {found} WHERE {side.id} < {first} AND NOT {side.met}"
        known = self.state.during(side.met_later, None, None)
        self.state.put(side.met_later, self.duck.arrow(f"FROM ({old}) ANTI JOIN {known} USING ({side.id})"))

    def _keep(self, side: Side, other: Side, rows: pa.Table, pairs: pa.Table | None) -> None:
        """Keep rows that may still meet others; those that may not, and met none, come out where that is asked."""
        if side.preserved:
            rows = rows.append_column(side.met, pa.array(self._marked(side, rows, pairs)))
        before = self._over(side)
        if before is not None:
            over = pc.less(rows.column(side.time), before)
            if pc.any(over).as_py():
                done, rows = rows.filter(over), rows.filter(pc.invert(over))
                if side.preserved:
                    self._give_alone(side, other, f"(FROM {self.duck.register(done)} WHERE NOT {side.met})")
        self.state.put(side.kept, rows)

    def _marked(self, side: Side, rows: pa.Table, pairs: pa.Table | None) -> np.ndarray:
        """Return for each row that came whether it met one."""
        met = np.zeros(rows.num_rows, dtype=np.bool_)
        if pairs is not None:
            places = pairs.column(side.id).to_numpy() - (self.epoch << _ROW_BITS)
            met[places[places >= 0]] = True
        return met


def _without_nulls(rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Return the rows that have all their keys."""
    for key in keys:
        if rows.column(key).null_count:
            rows = rows.filter(pc.is_valid(rows.column(key)))
    return rows
