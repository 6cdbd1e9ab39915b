"""Sketches of Apache DataSketches as aggregates: distinct counts (HLL), quantiles (KLL), frequent items.

The state of a group is a list of sketches. A fold of states (the panes of a window, the parts of an epoch) only puts
the lists together; they are merged where the state is kept, once. So a result that is computed again, to be withdrawn,
is the same again, although merging is neither commutative to the last bit nor, for quantiles, free of chance.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from decimal import Decimal
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_PARTS = pa.list_(pa.binary())
_HLL_ERROR = 1.04  # times 1 / sqrt(k): the standard error of an estimate that does not depend on the order
_LEAST_LG, _MOST_LG = 7, 21
_LEAST_K, _MOST_K = 8, 65_535
_LOAD = 0.75  # how full the map of frequent items gets
_NULL, _VALUE = "", "="  # how an item that is null, and one that is not, are called in it: as in Spark, null is counted


def sketch_aggregate(
    kind: str, parameters: Sequence[float], *, many: bool, takes: pa.DataType, returns: pa.DataType
) -> Sketches:
    """Return the aggregate of a kind, `distinct`, `percentile` or `top`."""
    if kind == "distinct":
        return Distinct(parameters[0])
    if kind == "percentile":
        return Percentile(parameters[0], parameters[1:], many=many, returns=returns)
    return Frequent(int(parameters[0]), int(parameters[1]), takes=takes, returns=returns)


class Sketches(ABC):
    """What all of them share: the methods of an aggregate over Arrow."""

    folds_by = "gather"
    """The method by which states are folded, other than that by which they are kept."""

    def init(self, count: int) -> dict[str, pa.Array]:
        """Return the states of groups without a row."""
        return _states([[]] * count)

    def add(self, groups: pa.Array, values: pa.Array) -> dict[str, pa.Array]:
        """Return the states of the rows: a sketch for each group that has something to sketch."""
        count = groups[-1].as_py() + 1
        return _states([[part] if part is not None else [] for part in self._sketched(groups, values, count)])

    def merge(self, left: pa.Table, right: pa.Table) -> dict[str, pa.Array]:
        """Return one sketch for each group that has any."""
        return _states([[self._one(parts)] if parts else [] for parts in _joined(left, right)])

    def gather(self, left: pa.Table, right: pa.Table) -> dict[str, pa.Array]:
        """Return the sketches of both sides as they are."""
        return _states(_joined(left, right))

    def result(self, states: pa.Table) -> pa.Array:
        """Return what the sketches of each group say."""
        return self._results([sorted(parts) for parts in states.column("parts").to_pylist()])

    def _one(self, parts: list[bytes]) -> bytes:
        return parts[0] if len(parts) == 1 else self._merged(sorted(parts))

    @abstractmethod
    def _sketched(self, groups: pa.Array, values: pa.Array, count: int) -> Iterator[bytes | None]:
        """Yield the sketch of each of `count` groups."""

    @abstractmethod
    def _merged(self, parts: list[bytes]) -> bytes:
        """Return one sketch of several."""

    @abstractmethod
    def _results(self, states: list[list[bytes]]) -> pa.Array:
        """Return the result for the sketches of each group."""


class Distinct(Sketches):
    """How many different values, by HLL; the estimate depends on the values alone, not on order or cut."""

    def __init__(self, rsd: float) -> None:
        lg_k = int(np.ceil(2 * np.log2(_HLL_ERROR / rsd)))
        self.lg_k = min(max(lg_k, _LEAST_LG), _MOST_LG)

    def _sketched(self, groups: pa.Array, values: pa.Array, count: int) -> Iterator[bytes | None]:
        from datasketches import hll_sketch, tgt_hll_type

        found, different, _ = _counted(groups, _countable(values))
        for items in _sliced(found, _listed(different), count):
            if not items:
                yield None
                continue
            sketch = hll_sketch(self.lg_k, tgt_hll_type.HLL_8)
            deque(map(sketch.update, items), 0)
            yield sketch.serialize_compact()

    def _merged(self, parts: list[bytes]) -> bytes:
        merged: bytes = self._union(parts).serialize_compact()
        return merged

    def _union(self, parts: Iterable[bytes]) -> Any:
        from datasketches import hll_sketch, hll_union, tgt_hll_type

        union = hll_union(self.lg_k)
        for part in parts:
            union.update(hll_sketch.deserialize(part))
        return union.get_result(tgt_hll_type.HLL_8)

    def _results(self, states: list[list[bytes]]) -> pa.Array:
        return pa.array([self._estimate(parts) for parts in states], pa.int64())

    def _estimate(self, parts: list[bytes]) -> int:
        """Use the estimator that depends on what is kept, not the one that depends on the order of the values.

        A union with itself changes nothing that is kept, and leaves the latter without its memory.
        """
        if not parts:
            return 0
        from datasketches import hll_union

        kept, twice = self._union(parts), hll_union(self.lg_k)
        twice.update(kept)
        twice.update(kept)
        estimate: float = twice.get_result().get_estimate()
        return round(estimate)


class Percentile(Sketches):
    """Values at fractions, by KLL: the rank is wrong by at most 1 / accuracy, 99 of 100 times; exact for few."""

    def __init__(self, accuracy: float, at: Sequence[float], *, many: bool, returns: pa.DataType) -> None:
        self.k = _k_of(accuracy)
        self.at = tuple(at)
        self.many = many
        self.returns = returns

    def _sketched(self, groups: pa.Array, values: pa.Array, count: int) -> Iterator[bytes | None]:
        from datasketches import kll_doubles_sketch

        kept = np.asarray(pc.is_valid(values))
        found, numbers = np.asarray(groups)[kept], np.asarray(values.fill_null(0))[kept]
        for items in _sliced(found, _ranked(numbers), count):
            if not len(items):
                yield None
                continue
            sketch = kll_doubles_sketch(self.k)
            sketch.update(items)
            yield sketch.serialize()

    def _merged(self, parts: list[bytes]) -> bytes:
        from datasketches import kll_doubles_sketch

        merged = kll_doubles_sketch(self.k)
        for part in parts:
            merged.merge(kll_doubles_sketch.deserialize(part))
        serialized: bytes = merged.serialize()
        return serialized

    def _results(self, states: list[list[bytes]]) -> pa.Array:
        found = [None if not parts else self._quantiles(parts) for parts in states]
        ranked = _unranked([number for row in found if row is not None for number in row])
        kind = self.returns.value_type if self.many else self.returns
        numbers = iter(_of_type(ranked, kind).to_pylist())
        if self.many:
            rows: list[Any] = [None if row is None else [next(numbers) for _ in row] for row in found]
        else:
            rows = [None if row is None else next(numbers) for row in found]
        return pa.array(rows, self.returns)

    def _quantiles(self, parts: list[bytes]) -> list[float]:
        from datasketches import kll_doubles_sketch

        sketches = [kll_doubles_sketch.deserialize(part) for part in parts]
        if len(sketches) == 1:
            return list(sketches[0].get_quantiles(list(self.at), True))  # noqa: FBT003 -- inclusive; by position alone
        pairs = np.array([pair for sketch in sketches for pair in sketch], dtype=np.float64)
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
        reached = np.cumsum(pairs[:, 1])
        positions = np.searchsorted(reached, np.array(self.at) * reached[-1])
        ends = {0.0: min(s.get_min_value() for s in sketches), 1.0: max(s.get_max_value() for s in sketches)}
        return [ends.get(at, float(pairs[position, 0])) for at, position in zip(self.at, positions, strict=True)]


class Frequent(Sketches):
    """The most frequent values, null among them, with counts: exact while no more values come than are tracked."""

    def __init__(self, count: int, tracked: int, *, takes: pa.DataType, returns: pa.DataType) -> None:
        self.count = count
        self.lg_size = max(int(np.ceil(np.log2(tracked / _LOAD))), 3)
        self.takes = takes
        self.returns = returns

    def _sketched(self, groups: pa.Array, values: pa.Array, count: int) -> Iterator[bytes | None]:
        from datasketches import frequent_strings_sketch

        named = pc.binary_join_element_wise(_VALUE, pc.cast(values, pa.string()), "").fill_null(_NULL)
        found, different, counts = _counted(groups, named)
        numbers = _sliced(found, counts.to_pylist(), count)
        for items, times in zip(_sliced(found, different.to_pylist(), count), numbers, strict=True):
            if not items:
                yield None
                continue
            sketch = frequent_strings_sketch(self.lg_size)
            deque(map(sketch.update, items, times), 0)
            yield sketch.serialize()

    def _merged(self, parts: list[bytes]) -> bytes:
        serialized: bytes = self._together(parts).serialize()
        return serialized

    def _together(self, parts: list[bytes]) -> Any:
        from datasketches import frequent_strings_sketch

        merged = frequent_strings_sketch(self.lg_size)
        for part in parts:
            merged.merge(frequent_strings_sketch.deserialize(part))
        return merged

    def _results(self, states: list[list[bytes]]) -> pa.Array:
        best = [self._best(parts) for parts in states]
        texts = [None if item == _NULL else item.removeprefix(_VALUE) for row in best for item, _ in row]
        items = pc.cast(pa.array(texts, pa.string()), self.takes)
        counts = pa.array([count for row in best for _, count in row], pa.int64())
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in best])]).astype(np.int32)
        pairs = pa.StructArray.from_arrays([items, counts], fields=list(self.returns.value_type))
        return pa.ListArray.from_arrays(pa.array(offsets), pairs).cast(self.returns)

    def _best(self, parts: list[bytes]) -> list[tuple[str, int]]:
        """Return the first by count, of equal ones the lesser text."""
        from datasketches import frequent_items_error_type

        if not parts:
            return []
        found = self._together(parts).get_frequent_items(frequent_items_error_type.NO_FALSE_NEGATIVES)
        return sorted(((item, int(count)) for item, count, _, _ in found), key=lambda each: (-each[1], each[0]))[
            : self.count
        ]


def _states(parts: list[list[bytes]]) -> dict[str, pa.Array]:
    return {"parts": pa.array(parts, _PARTS)}


def _joined(left: pa.Table, right: pa.Table) -> list[list[bytes]]:
    sides = (side.column("parts").to_pylist() for side in (left, right))
    return [ours + theirs for ours, theirs in zip(*sides, strict=True)]


def _countable(values: pa.Array) -> pa.Array:
    """Return values as the library takes them: numbers but decimals as they are, all else as text.

    The text is never empty: the library passes that over.
    """
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return values
    return pc.binary_join_element_wise(_VALUE, pc.cast(values, pa.string()), "")


def _listed(values: pa.ChunkedArray) -> list[Any]:
    """Return values without a null as Python's own."""
    numbers = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    return list(values.to_numpy().tolist() if numbers else values.to_pylist())


def _counted(groups: pa.Array, values: pa.Array) -> tuple[Any, Any, Any]:
    """Return each different value of a group once, without null, by ascending group, and how often it is there."""
    rows = pa.table({"g": groups, "x": values}).filter(pc.is_valid(values))
    counted = rows.group_by(["g", "x"], use_threads=False).aggregate([([], "count_all")]).sort_by("g")
    return counted.column("g").to_numpy(), counted.column("x"), counted.column("count_all")


def _sliced(groups: Any, items: Any, count: int) -> Iterator[Any]:
    """Yield the items of each group; they are sorted by group."""
    bounds = np.searchsorted(groups, np.arange(count + 1))
    for first, last in pairwise(bounds):
        yield items[first:last]


def _ranked(numbers: Any) -> Any:
    """Return numbers with NaN, which Spark ranks above infinity, as infinity, and infinity as the greatest number."""
    return np.where(np.isnan(numbers), np.inf, np.minimum(numbers, np.finfo(np.float64).max))


def _unranked(numbers: list[float]) -> Any:
    """Undo `_ranked`."""
    ranked = np.array(numbers, dtype=np.float64)
    return np.where(ranked == np.inf, np.nan, np.where(ranked == np.finfo(np.float64).max, np.inf, ranked))


def _of_type(numbers: Any, kind: pa.DataType) -> pa.Array:
    """Return doubles in a type; to those beyond it its greatest values were rounded, so they are these again."""
    if pa.types.is_integer(kind):
        beyond, greatest = 2.0 ** (kind.bit_width - 1), 2 ** (kind.bit_width - 1) - 1
        least: Any = -greatest - 1
    elif pa.types.is_decimal(kind):
        beyond, greatest = float(10 ** (kind.precision - kind.scale)), Decimal((0, (9,) * kind.precision, -kind.scale))
        least = greatest.copy_negate()
    else:
        return pc.cast(pa.array(numbers), kind, safe=False)
    within = pc.cast(pa.array(np.where(np.abs(numbers) < beyond, numbers, 0.0)), kind, safe=False)
    above, below = pa.array(numbers >= beyond), pa.array(numbers <= -beyond)
    return pc.if_else(above, pa.scalar(greatest, kind), pc.if_else(below, pa.scalar(least, kind), within))


@cache
def _k_of(accuracy: float) -> int:
    """Return the least k whose error is no more than 1 / accuracy, by the library's own account."""
    from datasketches import kll_doubles_sketch

    low, high = _LEAST_K, _MOST_K
    while low < high:
        middle = (low + high) // 2
        if kll_doubles_sketch(middle).normalized_rank_error(False) <= 1 / accuracy:  # noqa: FBT003 -- as above
            high = middle
        else:
            low = middle + 1
    return low
