"""The versions of rows that an epoch inserts and withdraws in a side of a join, found by columns instead of SQL.

What they are is said in `sides`; here a version is a position in arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.base.hashing import hash_columns
from headrace.kernels.arrays import NEVER, micros, nullable, one_array
from headrace.kernels.equal import comparable, equal
from headrace.kernels.state.matches import Probe
from headrace.kernels.state.runs import distinct
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.base.hashing import Hashes
    from headrace.kernels.equal import Mask
    from headrace.kernels.joins.sides import TableSide
    from headrace.kernels.state.keyed import KeyedState
    from headrace.kernels.state.runs import Positions


class Undecided(Exception):
    """Only SQL can tell what an epoch's rows change. Nothing has changed yet."""


@dataclass(frozen=True, slots=True)
class Versions:
    """Rows of a side with their counts before the epoch and after it, their event times, and when they changed."""

    rows: pa.Table
    old: Positions
    new: Positions
    time: Positions
    when: Positions

    def and_unchanged(self, kept: pa.Table) -> Versions:
        """Return these versions, and behind them kept rows that do not change."""
        if not kept.num_rows:
            return self
        count = kept.column(COUNT).to_numpy()
        rows = pa.concat_tables([self.rows, kept.select(self.rows.column_names)])
        added = (count, count, micros(kept.column("_time")), np.full(len(count), NEVER))
        mine = (self.old, self.new, self.time, self.when)
        return Versions(rows.combine_chunks(), *(np.concatenate(pair) for pair in zip(mine, added, strict=True)))


@dataclass(frozen=True, slots=True)
class SideChanges:
    """What an epoch changes in a side: the versions, the rows to keep in its table, and the ids of those that go."""

    versions: Versions
    kept: pa.Table
    gone: Positions


def changes(side: TableSide, state: KeyedState, rows: pa.Table) -> SideChanges:
    """Return what an epoch's delta changes in a side; nothing is written yet.

    Args:
        side: the side; of a bag, all columns are comparable and none is a float.
        state: its state.
        rows: the delta, in the types of the side's table.

    Raises:
        Undecided: a key has several new rows, say.

    """
    weights, times = rows.column("_weight").to_numpy().astype(np.int64), micros(rows.column("_time"))
    rows = rows.select(side.names)
    if side.growing:
        return _added(side, state, rows, times)
    rows, weights, times = netted(rows, weights, times)
    return (
        _of_keys(side, state, rows, weights, times)
        if side.key is not None
        else _of_rows(side, state, rows, weights, times)
    )


def _added(side: TableSide, state: KeyedState, rows: pa.Table, times: Positions) -> SideChanges:
    zeros, ones = np.zeros(len(times), np.int64), np.ones(len(times), np.int64)
    kept = _rows_of(state, side, rows, ones, times)
    return SideChanges(Versions(rows, zeros, ones, times, times), kept, np.empty(0, np.int64))


def netted(rows: pa.Table, weights: Positions, times: Positions) -> tuple[pa.Table, Positions, Positions]:
    """Let equal rows that are inserted and withdrawn cancel out; of equal ones the first stays, for all of them.

    Raises:
        Undecided: only SQL can tell which are equal.

    """
    hashes = hash_columns(rows.columns, rows.num_rows)
    if distinct(hashes):
        return rows, weights, times
    order, again = in_runs([one_array(column) for column in rows.columns], hashes)
    first = np.flatnonzero(~again)
    weights, times = np.add.reduceat(weights[order], first), np.maximum.reduceat(times[order], first)
    stays = np.flatnonzero(weights)
    stays = stays[np.argsort(order[first][stays])]  # as they arrived
    return rows.take(pa.array(order[first][stays])).combine_chunks(), weights[stays], times[stays]


def in_runs(columns: Sequence[pa.Array], hashes: Hashes) -> tuple[Positions, Mask]:
    """Return rows in an order in which equal ones follow each other, and which of them equals the one before it.

    Raises:
        Undecided: only SQL can tell whether two are equal, or different ones have one hash.

    """
    order = np.argsort(hashes, kind="stable")
    again = np.zeros(len(order), np.bool_)
    again[1:] = hashes[order[1:]] == hashes[order[:-1]]
    at = np.flatnonzero(again)
    one, other = pa.array(order[at - 1]), pa.array(order[at])
    for column in columns:
        if not (comparable(column.type) and equal(column.take(one), column.take(other), nulls=True).all()):
            raise Undecided
    return order, again


def _of_keys(side: TableSide, state: KeyedState, rows: pa.Table, weights: Positions, times: Positions) -> SideChanges:
    """Return the row that is withdrawn and the row that is inserted, of each key."""
    keys = [one_array(rows.column(name)) for name in side.identity_columns]
    hashes = hash_columns(keys, rows.num_rows)
    inserts, withdraws = np.flatnonzero(weights > 0), np.flatnonzero(weights < 0)
    if not (distinct(hashes[inserts]) and distinct(hashes[withdraws])):
        raise Undecided
    when, probes = times, inserts
    if len(withdraws):
        replaced, by, alone = _replaced(hashes, inserts, withdraws)
        pairs = pa.array(by), pa.array(replaced)
        if not all(equal(key.take(pairs[0]), key.take(pairs[1]), nulls=True).all() for key in keys):
            raise Undecided
        when, probes = times.copy(), np.concatenate([inserts, alone])
        when[by] = np.where(times[replaced] == NEVER, times[by], times[replaced])
    when = when[probes]
    probed = keys if len(probes) == rows.num_rows == len(inserts) else [key.take(pa.array(probes)) for key in keys]
    found = state.matches(side.name, side.identity_columns, Probe(probed, nulls=True))
    inserted = rows if len(inserts) == rows.num_rows else rows.take(pa.array(inserts))
    times = times[inserts]
    old, ones = np.ones(len(found.ids), np.int64), np.ones(len(inserts), np.int64)
    versions = Versions(
        pa.concat_tables([found.rows.select(side.names), inserted]).combine_chunks(),
        np.concatenate([old, 0 * ones]),
        np.concatenate([0 * old, ones]),
        np.concatenate([micros(found.rows.column("_time")), times]),
        np.concatenate([when[found.probe], times]),
    )
    return SideChanges(versions, _rows_of(state, side, inserted, ones, times), found.ids)


def _replaced(hashes: Hashes, inserts: Positions, withdraws: Positions) -> tuple[Positions, Positions, Positions]:
    """Return the withdrawn rows whose key has an inserted one, these, and the withdrawn rows whose key has none."""
    order = inserts[np.argsort(hashes[inserts])]
    if not len(order):
        return order, order, withdraws
    by = order[np.minimum(np.searchsorted(hashes[order], hashes[withdraws]), len(order) - 1)]
    both = hashes[by] == hashes[withdraws]
    return withdraws[both], by[both], withdraws[~both]


def _of_rows(side: TableSide, state: KeyedState, rows: pa.Table, weights: Positions, times: Positions) -> SideChanges:
    """Return the rows of which there are more or fewer now; what was never there cannot be withdrawn."""
    probe = Probe([one_array(rows.column(name)) for name in side.names], nulls=True)
    found = state.matches(side.name, side.names, probe)
    old, before = np.zeros(len(weights), np.int64), np.full(len(weights), NEVER)
    old[found.probe] = found.rows.column(COUNT).to_numpy()
    before[found.probe] = micros(found.rows.column("_time"))
    new = np.maximum(old + weights, 0)
    time = np.where(weights > 0, np.maximum(times, before), before)
    stays = np.flatnonzero(new)
    kept = _rows_of(state, side, rows.take(pa.array(stays)), new[stays], time[stays])
    return SideChanges(Versions(rows, old, new, time, times), kept, found.ids)


def _rows_of(state: KeyedState, side: TableSide, rows: pa.Table, count: Positions, time: Positions) -> pa.Table:
    """Return rows as the side's table keeps them."""
    schema = state.schema(side.name)
    numbers = {COUNT: pa.array(count), "_time": nullable(time)}
    return pa.table([numbers[name] if name in numbers else rows.column(name) for name in schema.names], schema=schema)


def comparable_columns(schema: pa.Schema, names: Sequence[str], *, floats: bool) -> bool:
    """Return whether columns are compared here; `floats`: floats too, of which two that are equal may differ."""
    kinds = [schema.field(name).type for name in names]
    return all(comparable(kind) and (floats or not pa.types.is_floating(kind)) for kind in kinds)
