"""Groups as cells of arrays: where keys and panes are few, the place of a row's group is computed, not searched.

A group is a number: its keys, each numbered from 0, and its pane, as the digits. So counts and sums are additions into
arrays at these numbers, a quarter of the time that a hash table takes. That holds for whole numbers of which no sum
overflows; other accumulators, keys without numbers, and groups that are rare among the numbers are left to SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.names import quote
from headrace.kernels.arrays import one_array, room
from headrace.kernels.groups.accumulated import (
    Accumulated,
    Carried,
    folds,
    folds_of,
    narrow_sums,
    numbers,
    reach_of,
    wanted_of,
)
from headrace.kernels.groups.chunks import runs_of
from headrace.kernels.groups.panes import PaneSql
from headrace.kernels.groups.run_groups import run_groups
from headrace.kernels.groups.ungrouped import each_alone, shrinks
from headrace.kernels.groups.windows import Panes
from headrace.kernels.state.tables import COUNT
from headrace.kernels.zones import without_zones

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace.kernels.duck import Duck
    from headrace.kernels.groups.grouping import Grouping

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

FEW = 4_096
"""So few rows are grouped sooner by SQL: a statement more costs more than it saves."""
MOST = 1 << 24
"""More rows at once are left to SQL, which spills what does not fit into the memory."""
CELLS_A_ROW = 4
"""With more cells than this for each row most would be empty, and SQL is as fast."""
ROWS_A_CELL = 2
"""With fewer rows for each cell chunks of sessions are sooner found by sorting."""
_CELL_BYTES = 64
"""What so many arrays of 64 bits take, and what is made of them."""
_BATCH = 1 << 17
"""Rows that are added at a time: what is computed of them stays in the processor's cache."""
_SAMPLE, _KINDS = 1 << 14, 4
"""Keys without numbers get some where a sample of so many rows has each value so often."""


def covers(grouping: Grouping) -> bool:
    """Return whether rows can be grouped: rows that are only added, and accumulators of whole numbers."""
    plain = not (grouping.sliding or grouping.layers or grouping.users)
    return plain and grouping.insert_only and all(each.whole is not None for each in grouping.accumulators)


def covers_fold(grouping: Grouping) -> bool:
    """Return whether partial groups can be put together."""
    plain = not (grouping.session or grouping.sliding)
    return plain and folds(grouping)


def partial_groups(
    duck: Duck, grouping: Grouping, rows: str, known: Sequence[pa.Table] | None = None
) -> pa.Table | None:
    """Return the partial groups of relation `rows`, as the SQL of `partial` does, or None where that has to do it.

    Where groups are nearly as many as rows, each row is one, and keys come several times.

    `known`: tables with the rows' own columns, where there are such.
    """
    time, inside = "_time", "true"
    if grouping.panes is not None:
        sql = PaneSql(grouping.panes)
        time, inside = sql.time, sql.inside(sql.time)
    plain = known if time == "_time" and inside == "true" else None
    read = _read(duck, grouping, f"SELECT *, {time} AS _at FROM {rows} WHERE {inside}", plain)
    if read is None:
        return None
    found = Cells.of(read, grouping, "_at")
    if found is not None:
        return _groups(*found, _given(grouping), grouping, counts=None)
    if shrinks(read, _keys(grouping), grouping.panes):
        return None
    return each_alone(read, _keys(grouping), _given(grouping), grouping.panes)


def chunk_groups(duck: Duck, grouping: Grouping, rows: str, known: Sequence[pa.Table] | None = None) -> pa.Table | None:
    """Return the partial groups of sessions' chunks of relation `rows`, or None where SQL has to find them.

    `known`: tables with the rows' own columns, where there are such.
    """
    assert grouping.session is not None  # noqa: S101 -- asked before
    read = _read(duck, grouping, f"SELECT *, _time AS _at FROM {rows}", known)
    if read is None:
        return None
    found = Cells.of(read, grouping, "_at")
    if found is not None:
        return _groups(*found, _given(grouping), grouping, counts=None)
    runs = runs_of(read, _keys(grouping), first="_at", last="_at", gap=grouping.session.gap)
    return None if runs is None else run_groups(runs, read, _given(grouping), counts=None)


def _keys(grouping: Grouping) -> list[str]:
    return [f"k{i}" for i in range(len(grouping.keys))]


def _arguments(grouping: Grouping) -> list[str]:
    return list(dict.fromkeys(each.whole[1] for each in grouping.accumulators if each.whole is not None))


def _given(grouping: Grouping) -> list[tuple[str, str]]:
    """Return for each accumulator its function, and the column of its argument."""
    arguments = _arguments(grouping)
    return [(each.whole[0], f"a{arguments.index(each.whole[1])}") for each in grouping.accumulators if each.whole]


def _read(duck: Duck, grouping: Grouping, rows: str, known: Sequence[pa.Table] | None) -> pa.Table | None:
    """Return keys, the arguments of accumulators, and `_at` of rows, or None where these are too few or too many."""
    wanted = {f"k{i}": sql for i, (_, sql, _) in enumerate(grouping.keys)}
    wanted |= {f"a{i}": sql for i, sql in enumerate(_arguments(grouping))}
    read = None if known is None else _chosen(known, {**wanted, "_at": "_time"})
    if read is None:
        columns = [f"{sql} AS {name}" for name, sql in wanted.items()]
        read = duck.large(f"SELECT {', '.join([*columns, '_at'])} FROM ({rows})")
    return read if FEW <= read.num_rows <= MOST and read.nbytes <= room() else None


def _chosen(known: Sequence[pa.Table], wanted: Mapping[str, str]) -> pa.Table | None:
    """Return columns of tables under other names, without a copy; None where some have to be computed."""
    names = {quote(name): name for name in known[0].column_names} | {"_time": "_time"} if known else {}
    if not all(sql in names for sql in wanted.values()):
        return None
    parts = [without_zones(part.select([names[sql] for sql in wanted.values()])) for part in known]
    if any(not part.schema.equals(parts[0].schema) or part.column(-1).null_count for part in parts):
        return None
    return pa.concat_tables([part.rename_columns(list(wanted)) for part in parts])


def folded(grouping: Grouping, parts: Sequence[pa.Table]) -> pa.Table | None:
    """Return the partial groups of several tasks with one row a key, or None where SQL has to put them together."""
    total = sum(part.num_rows for part in parts)
    if not FEW <= total <= MOST:
        return None
    kept = [f"p{i}" for i in range(len(grouping.accumulators))]
    columns = [*_keys(grouping), "_pane" if grouping.panes else "_time", COUNT, *kept]
    try:
        rows = pa.concat_tables(narrow_sums(part.select(columns), grouping) for part in parts if part.num_rows)
    except pa.ArrowInvalid:  # a sum is wider than 64 bits
        return None
    rows = rows.append_column("_at", rows["_pane" if grouping.panes else "_time"])
    found = Cells.of(rows, grouping, "_at")
    if found is None:
        return None
    rows, cells = found
    return _groups(rows, cells, folds_of(grouping, rows), grouping, counts=COUNT)


@dataclass(frozen=True)
class Cells:
    """The groups of rows as numbers; `count` there are, made of digits of these `sizes`, the last one of the pane.

    `least`: what to subtract from a key's values, and `named` the function from its numbers to its values. Panes are
    counted from `first`. Those of sessions are so wide that all rows of one are in one chunk, and rows of two that do
    not follow each other are not: the cells of a key are in order, so `begins` says where chunks begin.
    """

    count: int
    sizes: tuple[int, ...]
    least: tuple[int, ...]
    named: tuple[Callable[[Numbers], pa.Array], ...]
    panes: Panes | None
    first: int
    gap: int | None

    @staticmethod
    def of(rows: pa.Table, grouping: Grouping, time: str) -> tuple[pa.Table, Cells] | None:
        """Return rows with keys that are numbers, and their cells; None where there are too many."""
        most = min(CELLS_A_ROW * rows.num_rows, room() // _CELL_BYTES)
        first, count, panes, gap = 0, 1, grouping.panes, None
        if grouping.session is not None:
            gap = grouping.session.gap
            panes = Panes(size=gap + 1, every=gap + 1, pane=gap + 1, grace=0, offset=0)
            most = min(most, rows.num_rows // ROWS_A_CELL)
        if panes is not None:
            span = pc.min_max(rows[time]).as_py()
            first = (span["min"] - panes.offset) // panes.pane
            count = (span["max"] - panes.offset) // panes.pane - first + 1
        sizes, keys = [count], list[_Key]()
        for i in reversed(range(len(grouping.keys))):
            key = _numbered(rows[f"k{i}"], most // count) if count <= most else None
            if key is None:
                return None
            rows = rows.set_column(rows.schema.get_field_index(f"k{i}"), f"k{i}", key.numbers)
            count *= key.size
            sizes.insert(0, key.size)
            keys.insert(0, key)
        if count > most:
            return None
        least, named = tuple(key.least for key in keys), tuple(key.values for key in keys)
        return rows, Cells(count, tuple(sizes), least, named, panes, first, gap)

    def added(self, rows: pa.Table) -> Iterator[tuple[Numbers, pa.RecordBatch]]:
        """Yield the cells of rows, some at a time; what was yielded before is written over."""
        batches = rows.to_batches(_BATCH)
        if rows.num_rows < len(batches) * FEW:
            batches = rows.combine_chunks().to_batches(_BATCH)
        longest = max(map(len, batches), default=0)
        memory = np.full((2, longest), 0, np.int64)  # new memory for each batch would cost twice what is computed
        for batch in batches:
            codes, digit = memory[:, : len(batch)]
            for i, least in enumerate(self.least):
                into = digit if i else codes
                np.subtract(batch.column(f"k{i}").to_numpy(), least, out=into, dtype=np.int64)
                if i:
                    _append(codes, digit, self.sizes[i])
            if self.panes is not None and self.sizes[-1] > 1:
                into = digit if self.least else codes
                np.subtract(numbers(batch.column("_at")), self.panes.offset + self.first * self.panes.pane, out=into)
                np.floor_divide(into, self.panes.pane, out=into)
                if self.least:
                    _append(codes, digit, self.sizes[-1])
            elif not self.least:
                codes[:] = 0
            yield codes, batch

    def begins(self, used: Numbers, firsts: Numbers, lasts: Numbers, *, gap: int) -> Numbers:
        """Return which of the used cells begin a chunk, by the first and the last time in each."""
        keys = used // self.sizes[-1]
        return np.flatnonzero(np.r_[True, (keys[1:] != keys[:-1]) | (firsts[1:] - lasts[:-1] > gap)])

    def columns(self, used: Numbers) -> dict[str, Any]:
        """Return the keys of some cells, and the starts of their panes."""
        digits: list[Numbers] = []
        for size in self.sizes[:0:-1]:
            used, digit = np.divmod(used, size)
            digits.insert(0, digit)
        *keys, panes = used, *digits
        columns: dict[str, Any] = {f"k{i}": named(keys[i]) for i, named in enumerate(self.named)}
        if self.panes is not None:
            columns["_pane"] = (panes + self.first) * self.panes.pane + self.panes.offset
        return columns


def _append(codes: Numbers, digit: Numbers, size: int) -> None:
    """Give numbers one more digit, in their place."""
    codes *= size
    codes += digit


@dataclass(frozen=True)
class _Key:
    """A key's numbers from `least` on, how many there may be, and the function from numbers to values."""

    numbers: pa.ChunkedArray
    least: int
    size: int
    values: Callable[[Numbers], pa.Array]


def _numbered(column: pa.ChunkedArray, most: int) -> _Key | None:
    """Return a key as numbers; None where they are too many, or there are none."""
    kind = column.type
    if pa.types.is_signed_integer(kind) and not column.null_count:
        span = pc.min_max(column).as_py()
        least, size = span["min"], span["max"] - span["min"] + 1
        if size > most:
            return None
        return _Key(column, least, size, lambda numbers: pa.array(numbers + least, pa.int64()).cast(kind))
    if pa.types.is_floating(kind) or kind.num_fields or not _repeats(column):  # equal doubles may differ in bits
        return None
    values = one_array(column)
    if isinstance(values, pa.ChunkedArray):
        return None
    encoded = values.dictionary_encode(null_encoding="encode")
    names, size = encoded.dictionary, len(encoded.dictionary)
    numbers = pa.chunked_array([encoded.indices])
    return None if size > most else _Key(numbers, 0, size, lambda numbers: names.take(pa.array(numbers)))


def _repeats(column: pa.ChunkedArray) -> bool:
    """Return whether the first values are so few that numbering all is sooner done than to group by them."""
    sample = column.slice(0, _SAMPLE)
    try:
        return len(pc.unique(sample)) * _KINDS <= len(sample)
    except pa.ArrowNotImplementedError:
        return False


def _groups(
    rows: pa.Table, cells: Cells, given: Sequence[tuple[str, str]], grouping: Grouping, *, counts: str | None
) -> pa.Table | None:
    """Return the groups of rows: keys, pane, count, accumulators and, without panes, the greatest `_at`.

    Args:
        rows: the rows, with the columns of accumulators.
        cells: where they are.
        given: for each accumulator its function and its column.
        grouping: what is grouped.
        counts: the column that says how many rows a row stands for.

    """
    reach = reach_of(rows, given, counts)
    if reach is None:
        return None
    wanted = wanted_of(rows, given, counts)
    arrays = Accumulated(cells.count, Carried.of(rows, wanted, reach))
    if grouping.panes is None:
        wanted.append(("max", "_at"))
    if cells.gap is not None:
        wanted.append(("min", "_at"))
    for codes, batch in cells.added(rows):
        arrays.add(codes, batch, wanted)
    used = np.flatnonzero(arrays.rows)
    arrays.keep(used)
    if cells.gap is not None:
        begins = cells.begins(used, arrays.of[("min", "_at")], arrays.of[("max", "_at")], gap=cells.gap)
        arrays.join(begins)
        used = used[begins]
    columns = cells.columns(used)
    columns[COUNT] = arrays.rows if counts is None else arrays.value("sum", counts, rows)
    columns |= {f"p{i}": arrays.value(how, name, rows) for i, (how, name) in enumerate(given)}
    if cells.gap is not None:
        columns["_pane"] = arrays.of[("min", "_at")]
    if grouping.panes is None:
        columns["_time"] = arrays.value("max", "_at", rows)
    return pa.table(columns)
