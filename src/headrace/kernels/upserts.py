"""Upserts and deletes of an epoch, of keys that have one record each, by columns instead of SQL.

It is what `latest` computes, record by record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.hashing import hash_columns
from headrace.kernels.arrays import as_one, one_array
from headrace.kernels.equal import comparable, equal
from headrace.kernels.state.matches import Probe
from headrace.kernels.state.runs import distinct
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.base.hashing import Hashes
    from headrace.kernels.state.keyed import KeyedState
    from headrace.kernels.table_columns import TableColumns

    Mask = np.ndarray[Any, np.dtype[np.bool_]]

TIME, WEIGHT = "_time", "_weight"


def covers(schema: pa.Schema) -> bool:
    """Return whether all columns of a table are compared here."""
    return all(comparable(field.type) for field in schema)


def records(
    state: KeyedState, table: str, columns: TableColumns, parts: Sequence[pa.Table], arrived: str | None
) -> tuple[Records | None, Sequence[pa.Table]]:
    """Return an epoch's records of keys that have one each, and those that are left to SQL.

    Args:
        state: where the current rows are kept.
        table: in which table.
        columns: its columns.
        parts: the records, under the names inside.
        arrived: a column that goes through to the delta.

    """
    schema = state.schema(table)
    if not covers(schema):
        return None, parts
    inside = [schema.field(name) for name, _, _ in (*columns.keys, *columns.values)]
    whole = [pa.field(name, pa.int64()) for name in (TIME, arrived) if name]
    rows = as_one(parts, pa.schema([*inside, pa.field(WEIGHT, pa.int32()), *whole]))
    if rows is None:
        return None, parts
    hashes = hash_columns([rows.column(name) for name, _, _ in columns.keys], rows.num_rows)
    if distinct(hashes):
        return Records(state, table, columns, rows, arrived), ()
    once = _alone(hashes)
    others = pa.concat_tables(parts).filter(pa.array(~once))
    return Records(state, table, columns, rows.filter(pa.array(once)).combine_chunks(), arrived), (others,)


def _alone(hashes: Hashes) -> Mask:
    """Return which hashes no other one is equal to."""
    order = np.argsort(hashes)
    again = hashes[order[1:]] == hashes[order[:-1]]
    alone = np.ones(len(hashes), np.bool_)
    alone[order[1:][again]] = alone[order[:-1][again]] = False
    return alone


@dataclass(frozen=True, slots=True)
class Records:
    """The records of an epoch in one shard, each the only one of its key."""

    state: KeyedState
    table: str
    columns: TableColumns
    rows: pa.Table
    arrived: str | None

    def delta(self, *, by_time: bool) -> pa.Table:
        """Put the records into the state and return the table's delta; `by_time`: only those that are not older."""
        keys = [name for name, _, _ in self.columns.keys]
        probe = Probe([one_array(self.rows.column(name)) for name in keys], nulls=True)
        found = self.state.matches(self.table, keys, probe)
        if not len(found.ids):
            return self._inserted()
        at = found.aligned(self.rows.num_rows)
        rows, had = self.rows, at >= 0
        before = found.rows if _in_order(at) else found.rows.take(pa.array(at, mask=~had))
        if by_time:
            newer = _newer(one_array(rows.column(TIME)), one_array(before.column(TIME)))
            if not newer.all():
                rows, before, at, had = (
                    rows.filter(pa.array(newer)),
                    before.filter(pa.array(newer)),
                    at[newer],
                    had[newer],
                )
        has = rows.column(WEIGHT).to_numpy() > 0
        differs = np.zeros(rows.num_rows, np.bool_)
        for name, _, _ in self.columns.values:
            differs |= ~_same(rows, before, name) | _turned(rows, before, name)
        changed = differs | ~_same(rows, before, TIME)
        time = pc.coalesce(rows.column(TIME), before.column(TIME))
        rows = rows.set_column(rows.column_names.index(TIME), TIME, time)
        kept = (has | had) & (~has | ~had | changed)
        self._keep(rows, has & kept, found.ids[at[had & kept]])
        withdraws, inserts = had & (~has | differs), has & (~had | differs)
        return pa.concat_tables([self._changes(rows, before, withdraws, -1), self._changes(rows, rows, inserts, 1)])

    def _inserted(self) -> pa.Table:
        """Insert records of keys that are all new; there is nothing that deletes could delete."""
        has = self.rows.column(WEIGHT).to_numpy() > 0
        self._keep(self.rows, has, np.empty(0, np.int64))
        return self._changes(self.rows, self.rows, has, 1)

    def _keep(self, rows: pa.Table, which: Mask, gone: Any) -> None:
        schema, kept = self.state.schema(self.table), _filtered(rows, which)
        count = pa.repeat(1, kept.num_rows)
        columns = [count if name == COUNT else kept.column(name) for name in schema.names]
        self.state.put(self.table, pa.table(columns, schema=schema), gone)

    def _changes(self, rows: pa.Table, values: pa.Table, which: Mask, weight: int) -> pa.Table:
        """Return rows of the delta: of some records the keys and times, and their own or the old values."""
        rows, values = _filtered(rows, which), _filtered(values, which)
        columns = {name: rows.column(inside) for inside, name, _ in self.columns.keys}
        columns |= {name: values.column(inside) for inside, name, _ in self.columns.values}
        columns[WEIGHT] = pa.repeat(pa.scalar(weight, pa.int32()), rows.num_rows)
        columns |= {name: rows.column(name) for name in (TIME, *([self.arrived] if self.arrived else []))}
        return pa.table(list(columns.values()), names=list(columns))


def _same(rows: pa.Table, before: pa.Table, name: str) -> Mask:
    return equal(one_array(rows.column(name)), one_array(before.column(name)), nulls=True)


def _turned(rows: pa.Table, before: pa.Table, name: str) -> Mask:
    """Return where one of two values has the other sign: 0.0 and -0.0 are equal, and not the same row."""
    if not pa.types.is_floating(rows.schema.field(name).type):
        return np.zeros(rows.num_rows, np.bool_)
    one, other = (np.signbit(one_array(of.column(name)).fill_null(0.0).to_numpy()) for of in (rows, before))
    turned: Mask = one != other
    return turned


def _newer(time: pa.Array, before: pa.Array) -> Mask:
    """Return which records have no kept row with a later time than theirs."""
    newer = pc.or_kleene(pc.is_null(before), pc.greater_equal(time, before))
    mask: Mask = newer.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003 -- Arrow's own
    return mask


def _in_order(at: Any) -> bool:
    """Return whether each record has a match, which is at the same place."""
    return bool((at == np.arange(len(at))).all())


def _filtered(rows: pa.Table, which: Mask) -> pa.Table:
    return rows if which.all() else rows.filter(pa.array(which))
