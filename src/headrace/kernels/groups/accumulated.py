"""Accumulators of whole numbers as arrays, one number a group: counts, sums, minima and maxima in 64 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.kernels.groups.grouping import Grouping

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

_OVERFLOW = 1 << 63
_BITS = 62
"""Of a number that carries a sum: with the sign, and the bit that a sum below 0 borrows, they are 64."""
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "TIMESTAMP")
_BOUNDS = np.iinfo(np.int64)
_EMPTY = {"min": _BOUNDS.max, "max": _BOUNDS.min}
_FUNCTIONS = {"min": np.minimum, "max": np.maximum}


def folds(grouping: Grouping) -> bool:
    """Return whether accumulators are put together by sums, minima and maxima of whole numbers."""
    return all(each.fold in ("sum", "min", "max") and each.type in _WHOLE for each in grouping.accumulators)


def folds_of(grouping: Grouping, rows: pa.Table) -> list[tuple[str, str]]:
    """Return for each accumulator its fold and its column: one that equals the counts is not added up again."""
    names = [f"p{i}" for i in range(len(grouping.accumulators))]
    return [
        (each.fold, COUNT if rows[name].equals(rows[COUNT]) else name)
        for each, name in zip(grouping.accumulators, names, strict=True)
    ]


def narrow_sums(part: pa.Table, grouping: Grouping) -> pa.Table:
    """Return partial groups with sums as 64 bits.

    Raises:
        pa.ArrowInvalid: one has more.

    """
    for i, accumulator in enumerate(grouping.accumulators):
        at = part.schema.get_field_index(f"p{i}")
        if accumulator.type == "HUGEINT" and not pa.types.is_int64(part.schema.field(at).type):
            part = part.set_column(at, f"p{i}", part.column(at).cast(pa.int64()))
    return part


def numbers(values: pa.Array | pa.ChunkedArray) -> Numbers:
    """Return whole numbers or times without nulls."""
    found: Numbers = (values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values).to_numpy()
    return found.astype(np.int64, copy=False)


def reach_of(rows: pa.Table, given: Sequence[tuple[str, str]], counts: str | None) -> dict[str, int] | None:
    """Return how far from 0 the sum of each column that is summed may be; None where one may need more than 64 bits."""
    sums = {name for how, name in [*given, ("sum", counts)] if how == "sum" and name is not None}
    reach = {name: _farthest(rows[name]) * rows.num_rows for name in sums}
    return None if any(far >= _OVERFLOW for far in reach.values()) else reach


def _farthest(column: pa.ChunkedArray) -> int:
    """Return how far from 0 a number may be."""
    span = pc.min_max(column).as_py()
    return 0 if span["min"] is None else max(-span["min"], span["max"])


def wanted_of(rows: pa.Table, given: Sequence[tuple[str, str]], counts: str | None) -> list[tuple[str, str]]:
    """Return what is accumulated for functions of columns: values without nulls are not counted, since rows are.

    Args:
        rows: what is accumulated.
        given: functions and columns.
        counts: the column that says how many rows a row stands for.

    """
    nulls = {name for how, name in given if how != "sum" and rows[name].null_count}
    each = [*given, *([("sum", counts)] if counts else []), *(("count", name) for name in nulls)]
    return [(how, name) for how, name in dict.fromkeys(each) if how != "count" or name in nulls]


class Carried(NamedTuple):
    """A column whose sum is added up together with the number of rows: as `rows << shift`, plus the sum."""

    column: str
    shift: int

    @staticmethod
    def of(rows: pa.Table, wanted: Sequence[tuple[str, str]], reach: Mapping[str, int]) -> Carried | None:
        """Return a column of which every sum, and every number of rows, has room in 64 bits; None if there is none."""
        shift = _BITS - rows.num_rows.bit_length()
        room = 1 << max(shift - 1, 0)
        fits = (name for how, name in wanted if how == "sum" and reach[name] < room and not rows[name].null_count)
        return next((Carried(name, shift) for name in fits), None)


class Accumulated:
    """Accumulators of groups; `rows` is how many rows each has, `of` has functions of columns.

    `carried`: what is added up with `rows`, which has more than their number until `keep`: never 0 where there are any.
    """

    def __init__(self, count: int, carried: Carried | None = None) -> None:
        self.rows = np.full(count, 0, np.int64)  # in large pages: `np.zeros` clears new memory page by page
        self.of: dict[tuple[str, str], Numbers] = {}
        self.carried = carried
        self._memory = np.empty(0, np.int64)

    def add(self, groups: Numbers, batch: pa.RecordBatch, wanted: Sequence[tuple[str, str]]) -> None:
        """Add rows of these groups."""
        np.add.at(self.rows, groups, self._each(batch))
        for how, name in wanted:
            if self.carried is not None and (how, name) == ("sum", self.carried.column):
                continue
            values, places = batch.column(name), groups
            if values.null_count:
                places, values = groups[values.is_valid().to_numpy(zero_copy_only=False)], values.drop_null()
            _function(how).at(self._array(how, name), places, 1 if how == "count" else numbers(values))

    def _each(self, batch: pa.RecordBatch) -> Numbers | int:
        """Return what a row adds to `rows`."""
        if self.carried is None:
            return 1
        if len(self._memory) < len(batch):
            self._memory = np.empty(len(batch), np.int64)  # not anew for each batch: new pages cost more than the sum
        each = self._memory[: len(batch)]
        return np.add(numbers(batch.column(self.carried.column)), 1 << self.carried.shift, out=each)

    def add_runs(self, order: Numbers, begins: Numbers, rows: pa.Table, wanted: Sequence[tuple[str, str]]) -> None:
        """Take rows of which each run, in this order, is a group."""
        self.rows = np.diff(begins, append=len(order))
        for how, name in wanted:
            column = rows[name]
            if how == "count":
                values = column.is_valid().to_numpy().astype(np.int64)
            elif column.null_count:
                values = numbers(column.cast(pa.int64()).fill_null(_EMPTY.get(how, 0)))
            else:
                values = numbers(column)
            self.of[how, name] = _function(how).reduceat(values[order], begins)

    def _array(self, how: str, name: str) -> Numbers:
        if (how, name) not in self.of:
            self.of[how, name] = np.full(len(self.rows), _EMPTY.get(how, 0), np.int64)
        return self.of[how, name]

    def keep(self, used: Numbers) -> None:
        """Leave these groups alone."""
        self.rows = self.rows[used]
        self.of = {each: values[used] for each, values in self.of.items()}
        if self.carried is not None:
            name, shift = self.carried
            both = self.rows
            self.rows = (both + (1 << shift - 1)) >> shift  # a sum below 0 has borrowed one
            self.of["sum", name] = both - (self.rows << shift)
            self.carried = None

    def join(self, begins: Numbers) -> None:
        """Put groups together: a new one begins at each of these."""
        self.rows = np.add.reduceat(self.rows, begins)
        self.of = {(how, name): _function(how).reduceat(old, begins) for (how, name), old in self.of.items()}

    def value(self, how: str, name: str, rows: pa.Table) -> Any:
        """Return a count, sum, min or max of the groups."""
        counts = self._array("count", name) if rows[name].null_count and how != "sum" else None
        if how == "count":
            return self.rows if counts is None else counts
        found = self._array(how, name)
        if how == "sum":
            return found
        kind = rows.schema.field(name).type
        extreme = pa.array(found, mask=None if counts is None else counts == 0)
        return extreme.view(kind) if pa.types.is_timestamp(kind) else extreme.cast(kind)


def _function(how: str) -> np.ufunc:
    return _FUNCTIONS.get(how, np.add)
