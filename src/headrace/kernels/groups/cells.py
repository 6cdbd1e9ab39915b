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
from headrace.kernels.groups.chunks import runs_of
from headrace.kernels.groups.panes import PaneSql
from headrace.kernels.state.tables import COUNT
from headrace.kernels.zones import without_zones

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace.kernels.duck import Duck
    from headrace.kernels.groups.chunks import Runs
    from headrace.kernels.groups.grouping import Grouping
    from headrace.kernels.groups.windows import Panes

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

FEW = 4_096
"""So few rows are grouped sooner by SQL: a statement more costs more than it saves."""
MOST = 1 << 24
"""More rows at once are left to SQL, which spills what does not fit into the memory."""
CELLS_A_ROW = 4
"""With more cells than this for each row most would be empty, and SQL is as fast."""
_CELL_BYTES = 64
"""What so many arrays of 64 bits take, and what is made of them."""
_BATCH = 1 << 17
"""Rows that are added at a time: what is computed of them stays in the processor's cache."""
_SAMPLE, _KINDS = 1 << 14, 4
"""Keys without numbers get some where a sample of so many rows has each value so often."""
_OVERFLOW = 1 << 63
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "TIMESTAMP")


def covers(grouping: Grouping) -> bool:
    """Return whether rows can be grouped: rows that are only added, and accumulators of whole numbers."""
    plain = not (grouping.sliding or grouping.layers or grouping.users)
    return plain and grouping.insert_only and all(each.whole is not None for each in grouping.accumulators)


def covers_fold(grouping: Grouping) -> bool:
    """Return whether partial groups can be put together."""
    plain = not (grouping.session or grouping.sliding)
    return plain and _folds(grouping)


def _folds(grouping: Grouping) -> bool:
    return all(each.fold in ("sum", "min", "max") and each.type in _WHOLE for each in grouping.accumulators)


def partial_groups(
    duck: Duck, grouping: Grouping, rows: str, known: Sequence[pa.Table] | None = None
) -> pa.Table | None:
    """Return the partial groups of relation `rows`, as the SQL of `partial` does, or None where that has to do it.

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
    if found is None:
        return None
    read, cells = found
    return _groups(cells, read, _given(grouping), grouping, counts=None)


def chunk_groups(duck: Duck, grouping: Grouping, rows: str) -> pa.Table | None:
    """Return the partial groups of sessions' chunks of relation `rows`, or None where SQL has to find them."""
    assert grouping.session is not None  # noqa: S101 -- asked before
    read = _read(duck, grouping, f"SELECT *, _time AS _at FROM {rows}", None)
    if read is None:
        return None
    runs = runs_of(read, _keys(grouping), first="_at", last="_at", gap=grouping.session.gap)
    if runs is None:
        return None
    return _groups(RunCells(runs, read), read, _given(grouping), grouping, counts=None)


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
        rows = pa.concat_tables(_narrow(part.select(columns), grouping) for part in parts if part.num_rows)
    except pa.ArrowInvalid:  # a sum is wider than 64 bits
        return None
    rows = rows.append_column("_at", rows["_pane" if grouping.panes else "_time"])
    found = Cells.of(rows, grouping, "_at")
    if found is None:
        return None
    rows, cells = found
    return _groups(cells, rows, _folds_of(grouping, rows), grouping, counts=COUNT)


def _folds_of(grouping: Grouping, rows: pa.Table) -> list[tuple[str, str]]:
    """Return for each accumulator its fold and its column: one that equals the counts is not added up again."""
    names = [f"p{i}" for i in range(len(grouping.accumulators))]
    return [
        (each.fold, COUNT if rows[name].equals(rows[COUNT]) else name)
        for each, name in zip(grouping.accumulators, names, strict=True)
    ]


def island_groups(grouping: Grouping, spans: pa.Table, runs: Runs) -> pa.Table | None:
    """Return the sessions that runs of spans make together, of those with a new span, or None where SQL has to.

    A span is new that has no `o_row`. A session has its keys, `_pane`, `_last`, count and accumulators.
    """
    if not (_folds(grouping) and FEW <= len(spans) <= MOST):
        return None
    try:
        spans = _narrow(spans, grouping)
    except pa.ArrowInvalid:  # a sum is wider than 64 bits
        return None
    spans = spans.append_column("_at", spans["_last"])
    cells = RunCells(runs, spans)
    groups = _groups(cells, spans, _folds_of(grouping, spans), grouping, counts=COUNT)
    if groups is None:
        return None
    new = np.bincount(cells.of_rows[spans["o_row"].is_null().to_numpy()], minlength=cells.count) > 0
    return groups.rename_columns({"_time": "_last"}).filter(pa.array(new))


def _narrow(part: pa.Table, grouping: Grouping) -> pa.Table:
    """Return partial groups with sums as 64 bits."""
    for i, accumulator in enumerate(grouping.accumulators):
        at = part.schema.get_field_index(f"p{i}")
        if accumulator.type == "HUGEINT" and not pa.types.is_int64(part.schema.field(at).type):
            part = part.set_column(at, f"p{i}", part.column(at).cast(pa.int64()))
    return part


@dataclass(frozen=True)
class Cells:
    """The groups of rows as numbers; `count` there are, made of digits of these `sizes`, the last one of the pane.

    `least`: what to subtract from a key's values, and `named` the function from its numbers to its values. Panes are
    counted from `first`.
    """

    count: int
    sizes: tuple[int, ...]
    least: tuple[int, ...]
    named: tuple[Callable[[Numbers], pa.Array], ...]
    panes: Panes | None
    first: int

    @staticmethod
    def of(rows: pa.Table, grouping: Grouping, time: str) -> tuple[pa.Table, Cells] | None:
        """Return rows with keys that are numbers, and their cells; None where there are too many."""
        most = min(CELLS_A_ROW * rows.num_rows, room() // _CELL_BYTES)
        first, count, panes = 0, 1, grouping.panes
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
        return rows, Cells(count, tuple(sizes), least, named, panes, first)

    def added(self, rows: pa.Table) -> Iterator[tuple[Numbers, pa.RecordBatch]]:
        """Yield the cells of rows, some at a time."""
        batches = rows.to_batches(_BATCH)
        if rows.num_rows < len(batches) * FEW:
            batches = rows.combine_chunks().to_batches(_BATCH)
        for batch in batches:
            codes = np.zeros(len(batch), np.int64)
            for i, least in enumerate(self.least):
                codes *= self.sizes[i]
                codes += np.subtract(batch.column(f"k{i}").to_numpy(), least, dtype=np.int64)
            codes *= self.sizes[-1]
            if self.panes is not None:
                codes += (_numbers(batch.column("_at")) - self.panes.offset) // self.panes.pane
                codes -= self.first
            yield codes, batch

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


class RunCells:
    """A cell for each run of rows of one key, all of them used."""

    panes: Panes | None = None

    def __init__(self, runs: Runs, rows: pa.Table) -> None:
        self.count = len(runs.begins)
        self.of_rows = runs.of_rows(np.arange(self.count))
        self._firsts = runs.firsts
        self._runs = runs
        self._keys = rows.select([name for name in rows.column_names if name[0] == "k"])

    def added(self, rows: pa.Table) -> Iterator[tuple[Numbers, pa.RecordBatch]]:
        """Yield the cells of rows, some at a time."""
        at = 0
        for batch in rows.to_batches():
            yield self.of_rows[at : at + len(batch)], batch
            at += len(batch)

    def columns(self, used: Numbers) -> dict[str, Any]:
        """Return the keys of the runs, and the times at which these begin."""
        del used
        keys = self._keys.take(pa.array(self._firsts))
        return {**dict(zip(keys.column_names, keys.columns, strict=True)), "_pane": self._runs.starts[self._firsts]}


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


def _numbers(values: pa.Array | pa.ChunkedArray) -> Numbers:
    """Return whole numbers or times without nulls."""
    numbers: Numbers = (values.view(pa.int64()) if pa.types.is_timestamp(values.type) else values).to_numpy()
    return numbers.astype(np.int64, copy=False)


def _groups(
    cells: Cells | RunCells, rows: pa.Table, given: Sequence[tuple[str, str]], grouping: Grouping, *, counts: str | None
) -> pa.Table | None:
    """Return the groups of rows: keys, pane, count, accumulators and, without panes, the greatest `_at`.

    Args:
        cells: where they are.
        rows: the rows, with the columns of accumulators.
        given: for each accumulator its function and its column.
        grouping: what is grouped.
        counts: the column that says how many rows a row stands for.

    """
    sums = {name for how, name in [*given, ("sum", counts)] if how == "sum" and name is not None}
    if any(_farthest(rows[name]) * rows.num_rows >= _OVERFLOW for name in sums):
        return None
    arrays = _Arrays(cells.count)
    nulls = {name for how, name in given if how != "sum" and rows[name].null_count}
    wanted = dict.fromkeys([*given, *([("sum", counts)] if counts else []), *(("count", name) for name in nulls)])
    if grouping.panes is None:
        wanted[("max", "_at")] = None
    for codes, batch in cells.added(rows):
        arrays.add(codes, batch, [(how, name) for how, name in wanted if how != "count" or name in nulls])
    used = np.flatnonzero(arrays.rows)
    columns = cells.columns(used)
    columns[COUNT] = arrays.rows[used] if counts is None else arrays.value("sum", counts, used, rows)
    columns |= {f"p{i}": arrays.value(how, name, used, rows) for i, (how, name) in enumerate(given)}
    if grouping.panes is None:
        columns["_time"] = arrays.value("max", "_at", used, rows)
    return pa.table(columns)


def _farthest(column: pa.ChunkedArray) -> int:
    """Return how far from 0 a number may be."""
    span = pc.min_max(column).as_py()
    return 0 if span["min"] is None else max(-span["min"], span["max"])


class _Arrays:
    """Accumulators of all cells; `rows` is how many rows each has."""

    def __init__(self, count: int) -> None:
        self.rows = np.zeros(count, np.int64)
        self._of: dict[tuple[str, str], Numbers] = {}

    def add(self, codes: Numbers, batch: pa.RecordBatch, wanted: Sequence[tuple[str, str]]) -> None:
        """Add rows of these cells: functions of columns. Where a column has no nulls, `rows` is its count."""
        np.add.at(self.rows, codes, 1)
        for how, name in wanted:
            values, cells = batch.column(name), codes
            if values.null_count:
                cells, values = codes[values.is_valid().to_numpy(zero_copy_only=False)], values.drop_null()
            if how == "count":
                np.add.at(self._array(how, name), cells, 1)
            elif how == "sum":
                np.add.at(self._array(how, name), cells, _numbers(values))
            elif how == "min":
                np.minimum.at(self._array(how, name), cells, _numbers(values))
            else:
                np.maximum.at(self._array(how, name), cells, _numbers(values))

    def _array(self, how: str, name: str) -> Numbers:
        if (how, name) not in self._of:
            bounds = np.iinfo(np.int64)
            first = {"min": bounds.max, "max": bounds.min}.get(how, 0)
            self._of[how, name] = np.full(len(self.rows), first, np.int64) if first else np.zeros_like(self.rows)
        return self._of[how, name]

    def value(self, how: str, name: str, used: Numbers, rows: pa.Table) -> Any:
        """Return a count, sum, min or max of the cells that are used."""
        counts = self._array("count", name)[used] if rows[name].null_count and how != "sum" else None
        if how == "count":
            return self.rows[used] if counts is None else counts
        found = self._array(how, name)[used]
        if how == "sum":
            return found
        kind = rows.schema.field(name).type
        extreme = pa.array(found, mask=None if counts is None else counts == 0)
        return extreme.view(kind) if pa.types.is_timestamp(kind) else extreme.cast(kind)
