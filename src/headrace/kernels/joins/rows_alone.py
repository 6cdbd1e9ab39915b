"""Rows of a join that come out by themselves: without a match, or of a semi join with one; by columns instead of SQL.

It is what `match_counts` and `table_join` compute for joins without a further condition, whose values are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.base.hashing import hash_columns
from headrace.kernels.arrays import NEVER, micros, nullable, one_array
from headrace.kernels.equal import is_valid
from headrace.kernels.joins.versions import in_runs, netted
from headrace.kernels.state.matches import Probe
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.joins.join_spec import JoinSpec
    from headrace.kernels.joins.sides import TableSide
    from headrace.kernels.joins.versions import SideChanges
    from headrace.kernels.state.keyed import KeyedState
    from headrace.kernels.state.runs import Positions


@dataclass(frozen=True, slots=True)
class ValueCounts:
    """Values of a side, each once: how many rows have it before the epoch and after it, and when that changed.

    `probed` is for each row that asked the number of its value, or -1 where that is null. `ids` are the kept counts
    that are replaced.
    """

    values: list[pa.Array]
    old: Positions
    new: Positions
    when: Positions
    probed: Positions
    ids: Positions

    @staticmethod
    def of(side: TableSide, state: KeyedState, changed: pa.Table, probe: Sequence[pa.Array]) -> ValueCounts:
        """Return the values that rows change, or ask for; nothing is written yet.

        Args:
            side: whose values are counted.
            state: its state.
            changed: the columns `on`, then `more`, how many more rows have the value, and `when`.
            probe: the columns of the rows that ask, of the same types.

        Raises:
            Undecided: two values have one hash.

        """
        asking, counted = len(probe[0]), changed.num_rows
        columns = [
            pa.concat_arrays([one_array(changed.column(name)), probed])
            for name, probed in zip(side.on, probe, strict=True)
        ]
        number, first = _numbered(columns)
        there = number[:counted] >= 0
        more, when = np.zeros(len(first), np.int64), np.full(len(first), NEVER)
        np.add.at(more, number[:counted][there], changed.column("more").to_numpy()[there])
        np.maximum.at(when, number[:counted][there], changed.column("when").to_numpy()[there])
        values = [column.take(pa.array(first)) for column in columns]
        old = np.zeros(len(first), np.int64)
        found = state.matches(side.value_counts, side.on, Probe(values, nulls=False))
        old[found.probe] = found.rows.column(COUNT).to_numpy()
        new = np.maximum(old + more, 0)
        ids = found.ids[(new != old)[found.probe]]
        return ValueCounts(values, old, new, np.where(more != 0, when, NEVER), number[counted : counted + asking], ids)

    def write(self, side: TableSide, state: KeyedState) -> None:
        """Keep the counts that changed."""
        kept = np.flatnonzero((self.new != self.old) & (self.new > 0))
        columns = {name: column.take(pa.array(kept)) for name, column in zip(side.on, self.values, strict=True)}
        columns[COUNT] = pa.array(self.new[kept])
        schema = state.schema(side.value_counts)
        state.put(side.value_counts, pa.table([columns[name] for name in schema.names], schema=schema), self.ids)


def _numbered(columns: Sequence[pa.Array]) -> tuple[Positions, Positions]:
    """Return the number of each row's value, or -1 where one of its columns is null, and the first row of each value.

    Raises:
        Undecided: two values have one hash.

    """
    rows = np.flatnonzero(np.logical_and.reduce([is_valid(column) for column in columns]))
    number = np.full(len(columns[0]), -1)
    hashes = hash_columns(columns, len(number))[rows]
    order, again = in_runs([column.take(pa.array(rows)) for column in columns], hashes)
    order = rows[order]
    number[order] = np.cumsum(~again) - 1
    return number, order[~again]


def alone(
    join: JoinSpec, sides: tuple[TableSide, TableSide], state: KeyedState, changes: SideChanges, counts: ValueCounts,
    *, like: pa.Table | None, most: int,
) -> pa.Table:  # fmt: skip
    """Return the changes of the rows that come out by themselves, withdrawn ones first.

    Args:
        join: the join.
        sides: the side whose rows these are, and the other one.
        state: their state.
        changes: what the epoch changes in the side.
        counts: of the other side's values; the rows of `changes` have asked for theirs.
        like: pairs of an outer join that look like such rows.
        most: so many bytes of rows are looked up at most.

    Raises:
        TooMany: there are more.
        Undecided: only SQL can tell which rows are equal.

    """
    side, other = sides
    turned = np.flatnonzero((counts.old == 0) != (counts.new == 0))
    probe = Probe([column.take(pa.array(turned)) for column in counts.values], nulls=False)
    found = state.matches(side.name, side.on, probe, most=most)
    found = found.only(np.flatnonzero(~np.isin(found.ids, changes.gone)))
    rows = changes.versions.and_unchanged(found.rows)
    at = np.concatenate([counts.probed, turned[found.probe]])
    valued = at >= 0
    before, after = (np.where(valued, each[at], 0) if len(each) else 0 * at for each in (counts.old, counts.new))
    theirs = np.where(valued, counts.when[at], NEVER) if len(counts.when) else np.full(len(at), NEVER)
    out_now, out_before = (after > 0, before > 0) if join.how == "semi" else (after == 0, before == 0)
    weights = np.where(out_now, rows.new, 0) - np.where(out_before, rows.old, 0)
    times = np.maximum(np.where(weights > 0, rows.time, rows.when), theirs)
    changed = np.flatnonzero(weights)
    own = list(dict.fromkeys(sql for _, sql, _ in join.output if sql in side.names))
    shown, weights, times = rows.rows.select(own).take(pa.array(changed)), weights[changed], times[changed]
    if like is not None:
        names = {sql: name for name, sql, _ in join.output}
        also = pa.table([like.column(names[sql]) for sql in own], schema=shown.schema)
        weights = np.concatenate([weights, like.column("_weight").to_numpy().astype(np.int64)])
        times = np.concatenate([times, micros(like.column("_time"))])
        shown, weights, times = netted(pa.concat_tables([shown, also]).combine_chunks(), weights, times)
    order = np.concatenate([np.flatnonzero(weights < 0), np.flatnonzero(weights > 0)])
    order = np.repeat(order, np.abs(weights[order]))
    missing = state.schema(other.name) if other.keeps_rows else None
    columns, taken = {}, shown.take(pa.array(order))
    for name, sql, _ in join.output:
        if sql in own:
            columns[name] = taken.column(own.index(sql))
        elif missing is not None:
            columns[name] = pa.nulls(len(order), missing.field(sql).type)
    columns["_weight"] = pa.array(np.sign(weights[order]).astype(np.int32))
    columns["_time"] = nullable(times[order])
    return pa.table(columns)


def doubtful(join: JoinSpec, other: TableSide, pairs: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the pairs whose row of the other side shows a value, and the others: they look like rows without a match.

    Where such a row comes and an equal one goes, nothing has changed.
    """
    shown = [one_array(pairs.column(name)) for name, sql, _ in join.output if sql in other.names]
    known = np.logical_or.reduce([is_valid(column) for column in shown])
    return (
        (pairs, pairs.slice(0, 0)) if known.all() else (pairs.filter(pa.array(known)), pairs.filter(pa.array(~known)))
    )
