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

from headrace.kernels.arrays import one_array, room
from headrace.kernels.groups.chunks import runs_of
from headrace.kernels.groups.panes import PaneSql
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.kernels.duck import Duck
    from headrace.kernels.groups.chunks import Runs
    from headrace.kernels.groups.grouping import Grouping

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

FEW = 4_096
"""So few rows are grouped sooner by SQL: a statement more costs more than it saves."""
MOST = 1 << 24
"""More rows at once are left to SQL, which spills what does not fit into the memory."""
CELLS_A_ROW = 4
"""With more cells than this for each row most would be empty, and SQL is as fast."""
_CELL_BYTES = 16
"""Two arrays of 64 bits are there at a time."""
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


def partial_groups(duck: Duck, grouping: Grouping, rows: str) -> pa.Table | None:
    """Return the partial groups of relation `rows`, as the SQL of `partial` does, or None where that has to do it."""
    time, inside = "_time", "true"
    if grouping.panes is not None:
        sql = PaneSql(grouping.panes)
        time, inside = sql.time, sql.inside(sql.time)
    read = _read(duck, grouping, f"SELECT *, {time} AS _at FROM {rows} WHERE {inside}")
    if read is None:
        return None
    at = _numbers(read["_at"])
    panes = None if grouping.panes is None else (at - grouping.panes.offset) // grouping.panes.pane
    cells = Cells.of([read[f"k{i}"] for i in range(len(grouping.keys))], panes, read.num_rows)
    if cells is None:
        return None
    return _groups(grouping, cells, None, _given(grouping, read), at if panes is None else None)


def chunk_groups(duck: Duck, grouping: Grouping, rows: str) -> pa.Table | None:
    """Return the partial groups of sessions' chunks of relation `rows`, or None where SQL has to find them."""
    assert grouping.session is not None  # noqa: S101 -- asked before
    read = _read(duck, grouping, f"SELECT *, _time AS _at FROM {rows}")
    if read is None:
        return None
    keys = [f"k{i}" for i in range(len(grouping.keys))]
    runs = runs_of(read, keys, first="_at", last="_at", gap=grouping.session.gap)
    if runs is None:
        return None
    return _groups(grouping, RunCells(runs, read.select(keys)), None, _given(grouping, read), _numbers(read["_at"]))


def _read(duck: Duck, grouping: Grouping, rows: str) -> pa.Table | None:
    """Return keys, the arguments of accumulators, and `_at` of rows, or None where these are too few or too many."""
    columns = [f"{sql} AS k{i}" for i, (_, sql, _) in enumerate(grouping.keys)]
    columns += [f"{sql} AS a{i}" for i, sql in enumerate(_arguments(grouping))]
    read = duck.large(f"SELECT {', '.join([*columns, '_at'])} FROM ({rows})")
    return read if FEW <= read.num_rows <= MOST and read.nbytes <= room() else None


def _arguments(grouping: Grouping) -> list[str]:
    return list(dict.fromkeys(each.whole[1] for each in grouping.accumulators if each.whole is not None))


def _given(grouping: Grouping, read: pa.Table) -> list[tuple[str, _Values]]:
    """Return for each accumulator its function and its values."""
    values = {sql: _Values.of(read[f"a{i}"]) for i, sql in enumerate(_arguments(grouping))}
    return [(each.whole[0], values[each.whole[1]]) for each in grouping.accumulators if each.whole is not None]


def folded(grouping: Grouping, parts: Sequence[pa.Table]) -> pa.Table | None:
    """Return the partial groups of several tasks with one row a key, or None where SQL has to put them together."""
    total = sum(part.num_rows for part in parts)
    if not FEW <= total <= MOST:
        return None
    columns = [
        *(f"k{i}" for i in range(len(grouping.keys))),
        *(["_pane"] if grouping.panes else []),
        COUNT,
        *(f"p{i}" for i in range(len(grouping.accumulators))),
        *([] if grouping.panes else ["_time"]),
    ]
    try:
        rows = pa.concat_tables(_narrow(part.select(columns), grouping) for part in parts if part.num_rows)
    except pa.ArrowInvalid:  # a sum is wider than 64 bits
        return None
    panes = None
    if grouping.panes is not None:
        panes = (_numbers(rows["_pane"]) - grouping.panes.offset) // grouping.panes.pane
    cells = Cells.of([rows[f"k{i}"] for i in range(len(grouping.keys))], panes, total)
    if cells is None:
        return None
    counts = _Values.of(rows[COUNT])
    given = []
    for i, each in enumerate(grouping.accumulators):
        values = rows[f"p{i}"]
        given.append((each.fold, counts if values.equals(rows[COUNT]) else _Values.of(values)))
    return _groups(grouping, cells, counts, given, None if grouping.panes else _numbers(rows["_time"]))


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
    cells = RunCells(runs, spans.select([f"k{i}" for i in range(len(grouping.keys))]))
    given = [(each.fold, _Values.of(spans[f"p{i}"])) for i, each in enumerate(grouping.accumulators)]
    groups = _groups(grouping, cells, _Values.of(spans[COUNT]), given, _numbers(spans["_last"]))
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
    """The group of each row, as a number; `count` numbers there are, made of digits of these `sizes`.

    `named`: for each key the function from its numbers to its values. The last digit is the pane, counted from `first`.
    """

    of_rows: Numbers
    count: int
    sizes: tuple[int, ...]
    named: tuple[Callable[[Numbers], pa.Array], ...]
    first: int

    @staticmethod
    def of(keys: Sequence[pa.ChunkedArray], panes: Numbers | None, rows: int) -> Cells | None:
        """Return the cells of rows, or None where there are too many."""
        most = min(CELLS_A_ROW * rows, room() // _CELL_BYTES)
        first, count, codes = 0, 1, np.zeros(rows, np.int64) if panes is None else panes
        if panes is not None:
            first = int(panes.min())
            count = int(panes.max()) - first + 1
            codes = panes - first
        sizes: list[int] = [count]
        named: list[Callable[[Numbers], pa.Array]] = []
        for column in reversed(keys):
            numbered = _numbered(column, most // count) if count <= most else None
            if numbered is None:
                return None
            numbers, size, values = numbered
            codes += numbers * count
            count *= size
            sizes.insert(0, size)
            named.insert(0, values)
        return Cells(codes, count, tuple(sizes), tuple(named), first) if count <= most else None

    def columns(self, used: Numbers, grouping: Grouping) -> dict[str, Any]:
        """Return the keys of some cells, and the starts of their panes."""
        digits: list[Numbers] = []
        for size in self.sizes[:0:-1]:
            used, digit = np.divmod(used, size)
            digits.insert(0, digit)
        *keys, panes = used, *digits
        columns: dict[str, Any] = {f"k{i}": named(keys[i]) for i, named in enumerate(self.named)}
        if grouping.panes is not None:
            columns["_pane"] = (panes + self.first) * grouping.panes.pane + grouping.panes.offset
        return columns


class RunCells:
    """A cell for each run of rows of one key, all of them used."""

    def __init__(self, runs: Runs, keys: pa.Table) -> None:
        self.count = len(runs.begins)
        self.of_rows = runs.of_rows(np.arange(self.count))
        self._firsts = runs.firsts
        self._runs = runs
        self._keys = keys

    def columns(self, used: Numbers, grouping: Grouping) -> dict[str, Any]:
        """Return the keys of the runs, and the times at which these begin."""
        del used, grouping
        keys = self._keys.take(pa.array(self._firsts))
        return {**dict(zip(keys.column_names, keys.columns, strict=True)), "_pane": self._runs.starts[self._firsts]}


def _numbered(column: pa.ChunkedArray, most: int) -> tuple[Numbers, int, Callable[[Numbers], pa.Array]] | None:
    """Return the number of each value, how many there are, and the values of numbers; None where they are too many."""
    kind = column.type
    if pa.types.is_signed_integer(kind) and not column.null_count:
        span = pc.min_max(column).as_py()
        least, size = span["min"], span["max"] - span["min"] + 1
        if size > most:
            return None
        whole = np.subtract(column.to_numpy(), least, dtype=np.int64)
        return whole, size, lambda numbers: pa.array(numbers + least, pa.int64()).cast(kind)
    if pa.types.is_floating(kind) or kind.num_fields or not _repeats(column):  # equal doubles may differ in bits
        return None
    values = one_array(column)
    if isinstance(values, pa.ChunkedArray):
        return None
    encoded = values.dictionary_encode(null_encoding="encode")
    numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    size = len(encoded.dictionary)
    return None if size > most else (numbers, size, lambda numbers: encoded.dictionary.take(pa.array(numbers)))


def _repeats(column: pa.ChunkedArray) -> bool:
    """Return whether the first values are so few that numbering all is sooner done than to group by them."""
    sample = column.slice(0, _SAMPLE)
    try:
        return len(pc.unique(sample)) * _KINDS <= len(sample)
    except pa.ArrowNotImplementedError:
        return False


@dataclass(frozen=True)
class _Values:
    """Values: which rows have one (None: all), and if they are whole numbers or times, those that are not null.

    `kind` is their type; no number is farther from 0 than `most`.
    """

    valid: np.ndarray[Any, np.dtype[np.bool_]] | None
    numbers: Numbers
    kind: pa.DataType
    most: int

    @staticmethod
    def of(column: pa.ChunkedArray) -> _Values:
        valid = None
        if column.null_count:
            valid = column.is_valid().to_numpy()
            column = column.drop_null()
        kind = column.type
        if not len(column) or not (pa.types.is_signed_integer(kind) or pa.types.is_timestamp(kind)):
            return _Values(valid, np.zeros(0, np.int64), kind, 0)
        numbers = _numbers(column)
        return _Values(valid, numbers, kind, max(-int(numbers.min()), int(numbers.max())))

    def of_valid(self, cells: Numbers) -> Numbers:
        """Return the cells of the rows that have a number."""
        return cells if self.valid is None else cells[self.valid]


def _numbers(column: pa.ChunkedArray) -> Numbers:
    """Return whole numbers or times without nulls."""
    if pa.types.is_timestamp(column.type):
        column = pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())
    numbers: Numbers = column.to_numpy().astype(np.int64, copy=False)
    return numbers


def _groups(
    grouping: Grouping,
    cells: Cells | RunCells,
    counts: _Values | None,
    given: Sequence[tuple[str, _Values]],
    times: Numbers | None,
) -> pa.Table | None:
    """Return the groups: keys, pane, count, accumulators, and the greatest of `times`.

    `counts`: of rows that stand for several.
    """
    adds = [values for how, values in [("sum", counts), *given] if how == "sum" and values is not None]
    if any(values.most * len(cells.of_rows) >= _OVERFLOW for values in adds):
        return None
    arrays = _Arrays(cells)
    columns = cells.columns(arrays.used, grouping)
    columns[COUNT] = arrays.rows if counts is None else arrays.sum(counts)
    columns |= {f"p{i}": arrays.accumulated(how, values) for i, (how, values) in enumerate(given)}
    if times is not None:
        columns["_time"] = arrays.extreme("max", _Values(None, times, pa.int64(), 0))
    return pa.table(columns)


class _Arrays:
    """Accumulators of all cells that have rows: `used` are their numbers, `rows` how many each has."""

    def __init__(self, cells: Cells | RunCells) -> None:
        self.cells = cells
        present = np.bincount(cells.of_rows, minlength=cells.count)
        self.used = np.flatnonzero(present)
        self.rows: Numbers = present[self.used]
        self._counts: dict[int, Numbers] = {}
        self._sums: dict[int, Numbers] = {}

    def accumulated(self, how: str, values: _Values) -> Any:
        """Return a count, sum, min or max of values."""
        if how == "count":
            return self.count(values)
        if how == "sum":
            return self.sum(values)
        found = pa.array(self.extreme(how, values), mask=self.count(values) == 0)
        return found.view(values.kind) if pa.types.is_timestamp(values.kind) else found.cast(values.kind)

    def count(self, values: _Values) -> Numbers:
        """Return how many values there are."""
        if values.valid is None:
            return self.rows
        if id(values) not in self._counts:
            counts = np.bincount(values.of_valid(self.cells.of_rows), minlength=self.cells.count)
            self._counts[id(values)] = counts[self.used]
        return self._counts[id(values)]

    def sum(self, values: _Values) -> Numbers:
        """Return sums of values; none overflows."""
        if id(values) not in self._sums:
            total = np.zeros(self.cells.count, np.int64)
            np.add.at(total, values.of_valid(self.cells.of_rows), values.numbers)
            self._sums[id(values)] = total[self.used]
        return self._sums[id(values)]

    def extreme(self, how: str, values: _Values) -> Numbers:
        """Return the least or the greatest values; where there is none, any number."""
        bounds = np.iinfo(np.int64)
        found = np.full(self.cells.count, bounds.max if how == "min" else bounds.min, np.int64)
        (np.minimum if how == "min" else np.maximum).at(found, values.of_valid(self.cells.of_rows), values.numbers)
        return found[self.used]
