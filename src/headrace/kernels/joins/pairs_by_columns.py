"""A join of tables in a small epoch: the pairs of which one row changed, found by columns instead of SQL.

It is what `table_join` computes, pair by pair; `rows_alone` are those that come out by themselves. It does not know
full joins, further conditions, and what DuckDB alone compares; and it hands back what may be more than the memory,
before it has changed anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.base.hashing import hash_columns
from headrace.kernels.arrays import as_one, micros, nullable, one_array, room
from headrace.kernels.duck import ROWS_PER_BATCH
from headrace.kernels.equal import comparable_with, equal, is_valid
from headrace.kernels.joins.rows_alone import ValueCounts, alone, doubtful
from headrace.kernels.joins.versions import Undecided, changes, comparable_columns
from headrace.kernels.spool import Spool
from headrace.kernels.state.matches import Probe
from headrace.kernels.state.runs import Index, TooMany

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.joins.join_spec import JoinSpec
    from headrace.kernels.joins.sides import TableSide
    from headrace.kernels.joins.versions import SideChanges, Versions
    from headrace.kernels.state.keyed import KeyedState
    from headrace.kernels.state.matches import Matches
    from headrace.kernels.state.runs import Positions

MOST_PAIRS = 1 << 20
"""More pairs at once are joined sooner by DuckDB, which also needs no memory for all of them."""


def covers(join: JoinSpec, sides: Sequence[TableSide], state: KeyedState) -> bool:
    """Return whether a join's rows are found here."""
    if join.how == "full" or join.where is not None or not all(side.on and side.identity_columns for side in sides):
        return False
    schemas = [state.schema(side.name if side.keeps_rows else side.value_counts) for side in sides]
    identities = all(
        side.growing or comparable_columns(schema, side.identity_columns, floats=side.key is not None)
        for side, schema in zip(sides, schemas, strict=True)
        if side.keeps_rows
    )
    pairs = [(schemas[0].field(one).type, schemas[1].field(other).type) for one, other in join.on]
    on = all(comparable_with(one, other) for one, other in pairs)
    if join.how != "inner":  # values are counted under one of several that are equal: they must not differ
        on = on and all(one == other and not pa.types.is_floating(one) for one, other in pairs)
    shown = sides[:1] if join.how in ("semi", "anti") else sides
    seen = all(any(sql in side.names for _, sql, _ in join.output) for side in shown)
    kinds = dict((*join.left, *join.right))
    return identities and on and seen and all(kinds.get(sql) == kind for _, sql, kind in join.output)


def delta(
    join: JoinSpec, sides: tuple[TableSide, TableSide], state: KeyedState, parts: Sequence[list[pa.Table]]
) -> pa.Table | None:
    """Take in the deltas of both sides and return the delta of the join: withdrawn rows, then inserted ones.

    None where it is left to SQL: then nothing has changed.
    """
    if not covers(join, sides, state):
        return None
    try:
        run = _Run(join, sides, state, room())
        rows = [run.arrived(i, arrived) for i, arrived in enumerate(parts)]
        if any(part is None for part in rows):
            return None
        return run.delta(rows)
    except (Undecided, TooMany):
        return None


@dataclass
class _Run:
    join: JoinSpec
    sides: tuple[TableSide, TableSide]
    state: KeyedState
    room: int
    """In bytes, for rows of the result, and for rows that are looked up."""

    def arrived(self, i: int, parts: list[pa.Table]) -> pa.Table | None:
        """Return the delta of a side as one table; None where it is left to SQL."""
        side = self.sides[i]
        kept, names = self.state.schema(side.name if side.keeps_rows else side.value_counts), side.names
        schema = pa.schema([kept.field(name) for name in (names if side.keeps_rows else side.on)])
        schema = schema.append(pa.field("_weight", pa.int32())).append(pa.field("_time", pa.int64()))
        return as_one([part.select(schema.names) for part in parts], schema)

    def delta(self, rows: Sequence[pa.Table]) -> pa.Table:
        """Return the delta of the join and write the rows of both sides, and the counts of their values."""
        sides, how = self.sides, self.join.how
        changed = [
            changes(side, self.state, part) if side.keeps_rows else None for side, part in zip(sides, rows, strict=True)
        ]
        counts = self._counts(changed, rows)
        found = []
        ours, theirs = changed
        if ours is not None and theirs is not None and how not in ("semi", "anti"):
            found.append(self._pairs(ours, theirs))
        for i in (0, 1):
            counted, own = counts[1 - i], changed[i]
            if counted is not None and own is not None:
                other, like = sides[1 - i], None
                if found:
                    found[0], like = doubtful(self.join, other, found[0])
                both = sides[i], other
                found.append(alone(self.join, both, self.state, own, counted, like=like, most=self.room))
        for side, of, counted in zip(sides, changed, counts, strict=True):
            if of is not None:
                self.state.put(side.name, of.kept, of.gone)
            if counted is not None:
                counted.write(side, self.state)
        return found[0] if len(found) == 1 else _withdrawn_first(found)

    def _counts(self, changed: Sequence[SideChanges | None], rows: Sequence[pa.Table]) -> list[ValueCounts | None]:
        """Return for each side the counts of its values, where they are kept."""
        counts: list[ValueCounts | None] = []
        for i, side in enumerate(self.sides):
            own, other = changed[i], changed[1 - i]
            if not side.counts_values or other is None:
                counts.append(None)
                continue
            if own is None:
                part, more, when = rows[i], rows[i].column("_weight").cast(pa.int64()), micros(rows[i].column("_time"))
            else:
                part, more = own.versions.rows, pa.array(own.versions.new - own.versions.old)
                when = own.versions.when
            names = [*side.on, "more", "when"]
            table = pa.table([*(part.column(name) for name in side.on), more, pa.array(when)], names=names)
            asking = [one_array(other.versions.rows.column(name)) for name in self.sides[1 - i].on]
            counts.append(ValueCounts.of(side, self.state, table, asking))
        return counts

    def _pairs(self, left: SideChanges, right: SideChanges) -> pa.Table:
        """Return the changes of pairs, withdrawn ones first."""
        changed, ours, theirs = (left, right), left.versions, right.versions
        l_unchanged, r_unchanged = self._unchanged(0, changed), self._unchanged(1, changed)
        counts = len(ours.new), len(theirs.new)
        if len(l_unchanged.ids) + len(r_unchanged.ids) > MOST_PAIRS:
            raise TooMany
        both = [
            self._versions_that_match(ours, theirs),
            (r_unchanged.probe, counts[1] + np.arange(len(r_unchanged.ids))),
            (counts[0] + np.arange(len(l_unchanged.ids)), l_unchanged.probe),
        ]
        lefts, rights = (np.concatenate(numbers) for numbers in zip(*both, strict=True))
        pairs = _Pairs(ours.and_unchanged(l_unchanged.rows), theirs.and_unchanged(r_unchanged.rows), lefts, rights)
        return pairs.delta(self.join)

    def _unchanged(self, i: int, changed: Sequence[SideChanges]) -> Matches:
        """Return the kept rows of a side that do not change and match a version of the other one."""
        own, other = self.sides[i], self.sides[1 - i]
        versions = changed[1 - i].versions.rows
        probe = Probe([one_array(versions.column(name)) for name in other.on], nulls=False)
        found = self.state.matches(own.name, own.on, probe, most=self.room)
        gone = np.sort(changed[i].gone)
        if not len(gone) or not len(found.ids):
            return found
        stays = gone[np.minimum(np.searchsorted(gone, found.ids), len(gone) - 1)] != found.ids
        return found if stays.all() else found.only(stays)

    def _versions_that_match(self, ours: Versions, theirs: Versions) -> tuple[Positions, Positions]:
        """Return the numbers of the versions of both sides that match each other."""
        on = [
            [one_array(versions.rows.column(name)) for name in side.on]
            for versions, side in zip((ours, theirs), self.sides, strict=True)
        ]
        indexes = []
        for columns, versions in zip(on, (ours, theirs), strict=True):
            index = Index.of(hash_columns(columns, len(versions.new)))
            if any(column.null_count for column in columns):
                there = np.logical_and.reduce([is_valid(column) for column in columns])[index.positions]
                index = Index(index.hashes[there], index.positions[there])
            indexes.append(index)
        which, rights = indexes[1].pairs(indexes[0].hashes, MOST_PAIRS)
        lefts = indexes[0].positions[which]
        for one, other in zip(*on, strict=True):
            same = equal(one.take(pa.array(lefts)), other.take(pa.array(rights)), nulls=False)
            if not same.all():
                lefts, rights = lefts[same], rights[same]
        return lefts, rights


class _Pairs:
    """Pairs of rows of two sides by their numbers, and how much more often each is there after the epoch."""

    def __init__(self, ours: Versions, theirs: Versions, lefts: Positions, rights: Positions) -> None:
        more = ours.new[lefts] * theirs.new[rights] - ours.old[lefts] * theirs.old[rights]
        first, last = np.flatnonzero(more < 0), np.flatnonzero(more > 0)
        order = np.concatenate([first, last])
        times = np.abs(more[order])
        self.ours, self.theirs, self.withdrawn = ours, theirs, int(times[: len(first)].sum())
        if (times > 1).any():
            order = np.repeat(order, times)
        self.lefts, self.rights = lefts[order], rights[order]

    def delta(self, join: JoinSpec) -> pa.Table:
        """Return the rows of the result, withdrawn ones first; they may be more than the memory."""
        first = [name for name, _ in join.left]
        fields = [
            (self.ours if sql in first else self.theirs).rows.schema.field(sql).with_name(name)
            for name, sql, _ in join.output
        ]
        schema = pa.schema([*fields, pa.field("_weight", pa.int32()), pa.field("_time", pa.int64())])
        spool = Spool(schema)
        for at in range(0, len(self.lefts), ROWS_PER_BATCH):
            spool.add(self._rows(join, at, at + ROWS_PER_BATCH, schema))
        return spool.table()

    def _rows(self, join: JoinSpec, at: int, end: int, schema: pa.Schema) -> pa.RecordBatch:
        lefts, rights = self.lefts[at:end], self.rights[at:end]
        withdrawn = np.arange(at, at + len(lefts)) < self.withdrawn
        rows = {name: (self.ours.rows, pa.array(lefts)) for name, _ in join.left}
        rows |= {name: (self.theirs.rows, pa.array(rights)) for name, _ in join.right}
        columns = [one_array(rows[sql][0].column(sql)).take(rows[sql][1]) for _, sql, _ in join.output]
        inserted = np.maximum(self.ours.time[lefts], self.theirs.time[rights])
        changed = np.maximum(self.ours.when[lefts], self.theirs.when[rights])
        time = nullable(np.where(withdrawn, changed, inserted))
        weights = pa.array(np.where(withdrawn, -1, 1).astype(np.int32))
        return pa.RecordBatch.from_arrays([*columns, weights, time], schema=schema)


def _withdrawn_first(parts: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of several tables, each with its withdrawn rows first, as one of the same order."""
    cuts = [int(np.count_nonzero(part.column("_weight").to_numpy() < 0)) for part in parts]
    first = [part.slice(0, cut) for part, cut in zip(parts, cuts, strict=True)]
    return pa.concat_tables([*first, *(part.slice(cut) for part, cut in zip(parts, cuts, strict=True))])
