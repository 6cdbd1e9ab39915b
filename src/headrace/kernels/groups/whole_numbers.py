"""Groups without windows that keep counts and sums of whole numbers, by columns instead of SQL.

It is what `partial` and `aggregate` compute, group by group. Numbers that might overflow 64 bits are left to SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.base.hashing import hash_columns
from headrace.base.names import quote
from headrace.kernels.arrays import as_one, micros, nullable, one_array, room
from headrace.kernels.duck import without_zones
from headrace.kernels.equal import comparable, equal, is_valid
from headrace.kernels.groups.grouping import GROUPS
from headrace.kernels.groups.single_row_results import BARE, INSERTED, WITHDRAWN
from headrace.kernels.state.keyed import KeyedState
from headrace.kernels.state.matches import Probe
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.aggregates.aggregate_spec import Form
    from headrace.kernels.groups.grouping import Grouping
    from headrace.kernels.state.state import State

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

HUGE = pa.decimal128(38, 0)
_MOST = float(1 << 62)


class Unknown(Exception):
    """It is left to SQL. Nothing has changed yet."""


def covers(grouping: Grouping) -> bool:
    """Return whether a grouping's partial groups, and what it keeps, are computed here."""
    kept = all(each.whole is not None and each.whole[0] in ("count", "sum") for each in grouping.accumulators)
    return bool(grouping.keys) and kept and not (grouping.windowed or grouping.multisets or grouping.layers)


# ---- before the exchange ----


def partial(grouping: Grouping, parts: Sequence[pa.Table]) -> pa.Table | None:
    """Return the partial groups of rows; None where they are left to SQL."""
    if not covers(grouping):
        return None
    try:
        return _partial(grouping, parts)
    except Unknown:
        return None


def _partial(grouping: Grouping, parts: Sequence[pa.Table]) -> pa.Table:
    names = {quote(name): name for name in parts[0].column_names}
    wanted = [each.whole for each in grouping.accumulators if each.whole is not None]
    read = [*(sql for _, sql, _ in grouping.keys), *(sql for _, sql in wanted)]
    if not all(sql in names for sql in read) or sum(part.nbytes for part in parts) > room():
        raise Unknown
    columns = list(dict.fromkeys([*(names[sql] for sql in read), "_weight", "_time"]))
    tables = [without_zones(part.select(columns)) for part in parts]
    if any(not table.schema.equals(tables[0].schema) for table in tables):
        raise Unknown
    rows = pa.concat_tables(tables).combine_chunks()
    weights = rows.column("_weight").to_numpy().astype(np.int64)
    numbers = [np.ones(len(weights), np.int64) if grouping.insert_only else weights]
    for how, sql in wanted:
        column = one_array(rows.column(names[sql]))
        if how == "count":
            numbers.append(numbers[0] * is_valid(column) if column.null_count else numbers[0])
        else:
            numbers.append(_product(numbers[0], _whole(column)))
    keys = [one_array(rows.column(names[sql])) for _, sql, _ in grouping.keys]
    return _summed(keys, numbers, micros(rows.column("_time"))).table(grouping)


def _product(weights: Numbers, values: Numbers) -> Numbers:
    if _greatest(weights) * _greatest(values) > _MOST:
        raise Unknown
    return weights * values


@dataclass(frozen=True, slots=True)
class _Groups:
    """Groups, each once: their keys, the counts of rows and the accumulators, and their times."""

    keys: list[pa.Array]
    numbers: list[Numbers]
    time: Numbers

    def table(self, grouping: Grouping) -> pa.Table:
        """Return them as partial groups."""
        kept = zip(grouping.accumulators, self.numbers[1:], strict=True)
        columns = {f"k{i}": key for i, key in enumerate(self.keys)}
        columns |= {COUNT: pa.array(self.numbers[0])}
        columns |= {f"p{i}": _typed(numbers, each.type) for i, (each, numbers) in enumerate(kept)}
        columns |= {"_time": nullable(self.time)}
        return pa.table(list(columns.values()), names=list(columns))


def _summed(keys: list[pa.Array], numbers: list[Numbers], time: Numbers) -> _Groups:
    """Return rows of groups put together, with the sums of their numbers and the greatest time."""
    if not all(comparable(key.type) and not pa.types.is_floating(key.type) for key in keys):
        raise Unknown
    hashes = hash_columns(keys, len(time))
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    again = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
    if not len(again):
        return _Groups(keys, numbers, time)
    one, other = pa.array(order[again - 1]), pa.array(order[again])
    if not all(equal(key.take(one), key.take(other), nulls=True).all() for key in keys):
        raise Unknown
    if any(_greatest(each) * len(each) > _MOST for each in numbers):
        raise Unknown
    starts = np.ones(len(order), np.bool_)
    starts[again] = False
    first = np.flatnonzero(starts)
    chosen = pa.array(order[first])
    return _Groups(
        [key.take(chosen) for key in keys],
        [np.add.reduceat(each[order], first) for each in numbers],
        np.maximum.reduceat(time[order], first),
    )


# ---- after it ----


def merged(grouping: Grouping, state: State, parts: Sequence[pa.Table]) -> pa.Table | None:
    """Put partial groups into the state and return the changed groups, as `SingleRowSql` does.

    None where they are left to SQL: then nothing has changed.
    """
    forms = _forms(grouping)
    if forms is None or not covers(grouping) or grouping.final or not isinstance(state, KeyedState):
        return None
    try:
        return _Merge(grouping, state, forms).rows(parts)
    except Unknown:
        return None


def _forms(grouping: Grouping) -> list[Form] | None:
    """Return what the results are, where each is a bare call whose form is known."""
    bare = [BARE.fullmatch(sql) for _, sql, _ in grouping.results]
    forms = [grouping.forms[int(found[1])] for found in bare if found is not None and grouping.forms]
    known = [form for form in forms if form is not None]
    return known if len(known) == len(bare) else None


@dataclass(frozen=True, slots=True)
class _Merge:
    grouping: Grouping
    state: KeyedState
    forms: list[Form]

    def rows(self, parts: Sequence[pa.Table]) -> pa.Table:
        schema = self.state.schema(GROUPS)
        arrived = as_one(parts, schema.append(pa.field("_time", pa.int64())))
        if arrived is None:
            raise Unknown
        names = schema.names
        keys = [name for name, _ in self.state.tables[GROUPS].keys]
        numbers = [_whole(one_array(arrived.column(name))) for name in names[len(keys) :]]
        groups = _summed([one_array(arrived.column(key)) for key in keys], numbers, micros(arrived.column("_time")))
        found = self.state.matches(GROUPS, keys, Probe(groups.keys, nulls=True))
        olds = [np.zeros(len(groups.time), np.int64) for _ in numbers]
        for old, name in zip(olds, names[len(keys) :], strict=True):
            old[found.probe] = _whole(one_array(found.rows.column(name)))
        if any(_greatest(old) + _greatest(more) > _MOST for old, more in zip(olds, groups.numbers, strict=True)):
            raise Unknown
        news = [old + more for old, more in zip(olds, groups.numbers, strict=True)]
        had = np.zeros(len(groups.time), np.bool_)
        had[found.probe] = True
        stays = news[0] != 0
        kept = _Groups(groups.keys, news, groups.time).table(self.grouping)
        self.state.put(GROUPS, kept.select(names).filter(pa.array(stays)), found.ids)
        return self._changes(kept, olds, news, had)

    def _changes(self, kept: pa.Table, olds: list[Numbers], news: list[Numbers], had: Any) -> pa.Table:
        """Return the changed groups with their results of now and of before."""
        differs, all_ = np.zeros(len(had), np.bool_), np.ones(len(had), np.bool_)
        columns: dict[str, pa.Array] = {}
        for i, form in enumerate(self.forms):
            new, new_there = _result(form, news, all_)
            old, old_there = _result(form, olds, had)
            differs |= (new_there != old_there) | (new_there & old_there & (new != old))
            columns |= {f"r{i}": pa.array(new, mask=~new_there), f"q{i}": pa.array(old, mask=~old_there)}
        columns[INSERTED] = pa.array((news[0] > 0) & (~had | differs))
        columns[WITHDRAWN] = pa.array((olds[0] > 0) & ((news[0] == 0) | differs))
        for name, column in columns.items():
            kept = kept.append_column(name, column)
        return kept


def _result(form: Form, numbers: list[Numbers], there: Any) -> tuple[Numbers, Any]:
    """Return the values of a call, and where they are not null; `there` are the groups that are."""
    values = numbers[0] if form.of is None else numbers[1 + form.of]
    return values, there if form.where is None else there & (numbers[0] > 0) & (numbers[1 + form.where] > 0)


# ---- whole numbers ----


def _whole(column: pa.Array) -> Numbers:
    """Return whole numbers of any width as those of 64 bits; null is 0."""
    if column.null_count:
        column = column.fill_null(0)
    if pa.types.is_signed_integer(column.type):
        numbers: Numbers = column.to_numpy().astype(np.int64, copy=False)
        return numbers
    if column.type != HUGE:
        raise Unknown
    words = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset : 2 * (column.offset + len(column))]
    low, high = words[::2], words[1::2]
    if (high != low >> 63).any():
        raise Unknown
    return low


def _typed(numbers: Numbers, kind: str) -> pa.Array:
    """Return numbers as a column of BIGINT or HUGEINT."""
    if kind != "HUGEINT":
        return pa.array(numbers)
    words = np.column_stack((numbers, numbers >> 63))
    return pa.Array.from_buffers(HUGE, len(numbers), [None, pa.py_buffer(words)])


def _greatest(numbers: Numbers) -> float:
    """Return the greatest absolute value."""
    return max(float(numbers.max()), -float(numbers.min())) if len(numbers) else 0.0
