"""Groups without windows that keep counts, sums, minima and maxima of whole numbers, by columns instead of SQL.

It is what `partial` and `aggregate` compute, group by group. Numbers that might overflow 64 bits are left to SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.base.hashing import hash_columns
from headrace.base.names import quote
from headrace.kernels.arrays import as_64_bits, as_128_bits, as_one, micros, nullable, one_array, room
from headrace.kernels.equal import comparable, equal, is_valid
from headrace.kernels.groups.accumulated import narrow_sums
from headrace.kernels.groups.grouping import GROUPS
from headrace.kernels.groups.single_row_results import BARE, INSERTED, WITHDRAWN
from headrace.kernels.state.keyed import KeyedState
from headrace.kernels.state.matches import Probe
from headrace.kernels.state.tables import COUNT
from headrace.kernels.zones import without_zones

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.aggregates.aggregate_spec import Form
    from headrace.kernels.groups.grouping import Grouping
    from headrace.kernels.state.state import State

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

HUGE = pa.decimal128(38, 0)
MOST_GROUPS = 1 << 16
"""More partial groups than this are sooner put together by SQL."""
_MOST = float(1 << 62)


class Unknown(Exception):
    """It is left to SQL. Nothing has changed yet."""


def covers(grouping: Grouping) -> bool:
    """Return whether a grouping's partial groups, and what it keeps, are computed here."""
    return _keeps_numbers(grouping) and not (grouping.windowed or grouping.layers)


def _keeps_numbers(grouping: Grouping) -> bool:
    kept = all(each.whole is not None and each.type in _ARROW for each in grouping.accumulators)
    return kept and not grouping.multisets


# ---- numbers ----

_ARROW = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "HUGEINT": HUGE,
    "TIMESTAMP": pa.timestamp("us"),
    "DOUBLE": pa.float64(),
}
_WORDS = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True)
class _Column:
    """How the numbers of a column are put together: by "sum", "min" or "max"; and its type.

    They are numbers of 64 bits. Of extremes, null is the number that loses to all others.
    """

    how: str
    kind: str

    @property
    def null(self) -> int:
        """The number that changes no other one."""
        return {"sum": 0, "min": _WORDS.max, "max": _WORDS.min}[self.how]

    def read(self, column: pa.Array) -> Numbers:
        """Return the numbers of a column."""
        if pa.types.is_timestamp(column.type):
            column = column.view(pa.int64())
        nulls = column.null_count
        if nulls:
            column = column.cast(pa.int64()).fill_null(self.null) if column.type != HUGE else column.fill_null(0)
        numbers = _narrow(column) if column.type == HUGE else column.to_numpy().astype(np.int64, copy=False)
        if self.how != "sum" and np.count_nonzero(numbers == self.null) != nulls:
            raise Unknown
        return numbers

    def array(self, numbers: Any, there: Any = None) -> pa.Array:
        """Return numbers as a column; null where they are not `there`, or are no extreme."""
        if self.kind == "HUGEINT":
            return as_128_bits(numbers, HUGE)
        missing = None if there is None else ~there
        if self.how != "sum":
            missing = numbers == self.null
            numbers = np.where(missing, 0, numbers)
        return pa.array(numbers, mask=missing).cast(_ARROW[self.kind])

    def among(self, numbers: Numbers, first: Any) -> Numbers:
        """Return those of each group, put together; groups begin at `first`."""
        together: Numbers = self._function.reduceat(numbers, first)
        return together

    def added(self, old: Numbers, more: Numbers) -> Numbers:
        """Return old numbers with more."""
        if self.how == "sum" and _greatest(old) + _greatest(more) > _MOST:
            raise Unknown
        together: Numbers = self._function(old, more)
        return together

    @property
    def _function(self) -> Any:
        return {"sum": np.add, "min": np.minimum, "max": np.maximum}[self.how]


_ROWS = _Column("sum", "BIGINT")


def _columns(grouping: Grouping) -> list[_Column]:
    """Return the count of rows, and the accumulators."""
    return [_ROWS, *(_Column(each.fold, each.type) for each in grouping.accumulators)]


def _narrow(column: pa.Array) -> Numbers:
    """Return numbers of 128 bits as those of 64."""
    numbers = as_64_bits(column)
    if numbers is None:
        raise Unknown
    return numbers


def _greatest(numbers: Numbers) -> float:
    """Return the greatest absolute value."""
    return max(float(numbers.max()), -float(numbers.min())) if len(numbers) else 0.0


# ---- before the exchange ----


def partial(grouping: Grouping, parts: Sequence[pa.Table]) -> pa.Table | None:
    """Return the partial groups of rows; None where they are left to SQL, as where `parts` lack a column."""
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
    there = {quote("_weight"), quote("_time"), *read} <= names.keys()
    if not there or sum(part.nbytes for part in parts) > room():
        raise Unknown
    columns = list(dict.fromkeys([*(names[sql] for sql in read), "_weight", "_time"]))
    tables = [without_zones(part.select(columns)) for part in parts]
    if any(not table.schema.equals(tables[0].schema) for table in tables):
        raise Unknown
    rows = pa.concat_tables(tables).combine_chunks()
    weights = rows.column("_weight").to_numpy().astype(np.int64)
    numbers = [np.ones(len(weights), np.int64) if grouping.insert_only else weights]
    for (how, sql), kept in zip(wanted, _columns(grouping)[1:], strict=True):
        column = one_array(rows.column(names[sql]))
        if how == "count":
            numbers.append(numbers[0] * is_valid(column) if column.null_count else numbers[0])
        elif how == "sum":
            numbers.append(_product(numbers[0], kept.read(column)))
        else:
            numbers.append(kept.read(column))
    keys = [one_array(rows.column(names[sql])) for _, sql, _ in grouping.keys]
    return _together(_columns(grouping), keys, numbers, micros(rows.column("_time"))).table(grouping)


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
        kept = zip(_columns(grouping)[1:], self.numbers[1:], strict=True)
        columns = {f"k{i}": key for i, key in enumerate(self.keys)}
        columns |= {COUNT: pa.array(self.numbers[0])}
        columns |= {f"p{i}": column.array(numbers) for i, (column, numbers) in enumerate(kept)}
        columns |= {"_time": nullable(self.time)}
        return pa.table(list(columns.values()), names=list(columns))


def _together(columns: list[_Column], keys: list[pa.Array], numbers: list[Numbers], time: Numbers) -> _Groups:
    """Return rows of groups put together, with the sums or extremes of their numbers and the greatest time."""
    if not all(comparable(key.type) and not pa.types.is_floating(key.type) for key in keys):
        raise Unknown
    hashes = hash_columns(keys, len(time))
    order = np.argsort(hashes)
    hashes = hashes[order]
    again = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
    if not len(again):
        return _Groups(keys, numbers, time)
    one, other = pa.array(order[again - 1]), pa.array(order[again])
    if not all(equal(key.take(one), key.take(other), nulls=True).all() for key in keys):
        raise Unknown
    if any(
        column.how == "sum" and _greatest(each) * len(each) > _MOST
        for column, each in zip(columns, numbers, strict=True)
    ):
        raise Unknown
    starts = np.ones(len(order), np.bool_)
    starts[again] = False
    first = np.flatnonzero(starts)
    chosen = pa.array(order[first])
    return _Groups(
        [key.take(chosen) for key in keys],
        [column.among(each[order], first) for column, each in zip(columns, numbers, strict=True)],
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


def of_new_windows(grouping: Grouping, parts: Sequence[pa.Table], *, once: bool) -> pa.Table | None:
    """Return groups of windows, none of which is kept yet, as `SingleRowSql` does; None where they are left to SQL.

    Args:
        grouping: one whose results are of single rows, in panes.
        parts: the partial groups, of one schema but for the width of sums.
        once: whether each of them is there once.

    """
    forms, there = _forms(grouping), [part for part in parts if part.num_rows]
    if forms is None or not _keeps_numbers(grouping) or grouping.panes is None or not there:
        return None
    columns = _columns(grouping)
    names = [COUNT, *(f"p{i}" for i in range(len(grouping.accumulators)))]
    by = [*(f"k{i}" for i in range(len(grouping.keys))), "_pane"]
    try:
        numbers = [
            np.concatenate([column.read(one_array(part.column(name))) for part in there])
            for column, name in zip(columns, names, strict=True)
        ]
        keys = [one_array(column) for column in pa.concat_tables(part.select(by) for part in there).columns]
        groups = _Groups(keys, numbers, micros(keys[-1]))
        if not once:
            groups = _together(columns, groups.keys, groups.numbers, groups.time)
    except Unknown:
        return None
    changed = groups.table(grouping).rename_columns([*by, *names, "_time"])
    count = changed.num_rows
    olds = [np.full(count, column.null) for column in columns]
    rows = _Results(grouping, forms).beside(changed, olds, groups.numbers, np.zeros(count, np.bool_))
    return rows.append_column("o_row", pa.nulls(count, pa.int64()))


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
        schema, columns = self.state.schema(GROUPS), _columns(self.grouping)
        arrived = self._arrived(parts, schema.append(pa.field("_time", pa.int64())))
        keys = [name for name, _ in self.state.tables[GROUPS].keys]
        kept = list(zip(columns, schema.names[len(keys) :], strict=True))
        numbers = [column.read(one_array(arrived.column(name))) for column, name in kept]
        by = [one_array(arrived.column(key)) for key in keys]
        groups = _together(columns, by, numbers, micros(arrived.column("_time")))
        found = self.state.matches(GROUPS, keys, Probe(groups.keys, nulls=True, rows=len(groups.time)))
        had = np.zeros(len(groups.time), np.bool_)
        had[found.probe] = True
        olds = [np.full(len(had), column.null) for column in columns]
        for old, (column, name) in zip(olds, kept, strict=True):
            old[found.probe] = column.read(one_array(found.rows.column(name)))
        news = [column.added(*both) for column, *both in zip(columns, olds, groups.numbers, strict=True)]
        changed = _Groups(groups.keys, news, groups.time).table(self.grouping)
        stays = pa.array(news[0] != 0)
        self.state.put(GROUPS, changed.select(schema.names).filter(stays), found.ids)
        return _Results(self.grouping, self.forms).beside(changed, olds, news, had)

    def _arrived(self, parts: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
        """Return partial groups as one table; tasks may have computed sums as 64 bits, where the state has 128."""
        narrow = [
            number for number, each in enumerate(schema)
            if each.type == HUGE and any(part.schema.field(each.name).type == pa.int64() for part in parts)
        ]  # fmt: skip
        if narrow:
            for number in narrow:
                schema = schema.set(number, pa.field(schema.names[number], pa.int64()))
            try:
                parts = [narrow_sums(part, self.grouping) for part in parts]
            except pa.ArrowInvalid:
                raise Unknown from None
        arrived = as_one(parts, schema)
        if arrived is None:
            raise Unknown
        return arrived


@dataclass(frozen=True, slots=True)
class _Results:
    grouping: Grouping
    forms: list[Form]

    def beside(self, changed: pa.Table, olds: list[Numbers], news: list[Numbers], had: Any) -> pa.Table:
        """Return the changed groups with their results of now and of before; `had`: they were there before."""
        differs, every = np.zeros(len(had), np.bool_), np.ones(len(had), np.bool_)
        columns: dict[str, pa.Array] = {}
        for i, form in enumerate(self.forms):
            kind, new, new_there = self._result(form, news, every)
            kind, old, old_there = self._result(form, olds, had)
            differs |= (new_there != old_there) | (new_there & old_there & (new != old))
            columns |= {f"r{i}": kind.array(new, new_there), f"q{i}": kind.array(old, old_there)}
        columns[INSERTED] = pa.array((news[0] > 0) & (~had | differs))
        columns[WITHDRAWN] = pa.array((olds[0] > 0) & ((news[0] == 0) | differs))
        for name, column in columns.items():
            changed = changed.append_column(name, column)
        return changed

    def _result(self, form: Form, numbers: list[Numbers], there: Any) -> tuple[_Column, Any, Any]:
        """Return the values of a call and where they are not null; `there` are the groups that are."""
        if form.of is None:
            return _ROWS, numbers[0], there
        column, values = _columns(self.grouping)[1 + form.of], numbers[1 + form.of]
        if column.how != "sum":
            return column, values, there & (values != column.null)
        if form.where is None:
            return _ROWS, values, there
        count = numbers[1 + form.where]
        there = there & (numbers[0] > 0) & (count > 0)
        if not form.mean:
            return _ROWS, values, there
        return _Column("sum", "DOUBLE"), values / np.where(there, count, 1), there
