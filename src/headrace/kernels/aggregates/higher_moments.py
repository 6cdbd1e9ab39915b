"""Skewness and kurtosis: count, mean, and the sums of the second to fourth powers of the distances from it.

Where rows only come, these five numbers are kept, and those of parts of a group are put together (Pébay 2008). Where
rows are withdrawn, the values are kept as a multiset, in whose order they are computed anew: so the result does not
depend on what was there before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.aggregates.aggregate_spec import Accumulator

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kernels.duck import Duck

_MOMENTS = "STRUCT(n DOUBLE, mean DOUBLE, m2 DOUBLE, m3 DOUBLE, m4 DOUBLE)"
_NAMES = ("n", "mean", "m2", "m3", "m4")


def define(duck: Duck) -> None:
    """Make the function callable in SQL that puts the moments of parts together."""
    duck.define("moments_together", together, [f"{_MOMENTS}[]"], _MOMENTS)


def of_value(value: str, count: str) -> str:
    """Return SQL for the moments of one value that is there so many times."""
    zeros = ", ".join(f"{name} := 0::DOUBLE" for name in _NAMES[2:])
    return f"struct_pack(n := ({count})::DOUBLE, mean := ({value})::DOUBLE, {zeros})"


def accumulator(argument: str) -> Accumulator:
    """Return the accumulator of doubles that are never withdrawn."""
    rows = f"list({of_value(argument, '1')}) FILTER (WHERE ({argument}) IS NOT NULL)"
    return Accumulator(
        type=_MOMENTS,
        partial=_together(rows),
        fold="list",
        finish=_together("{f}"),
        merge=f"CASE WHEN {{o}} IS NULL THEN {{d}} ELSE {_together('[{o}, {d}]')} END",
    )


def of_multiset() -> str:
    """Return SQL for the moments of the values of a multiset, an aggregate over `v0` and `_n`."""
    return _together(f"list({of_value('v0', '_n')} ORDER BY v0)")


def _together(moments: str) -> str:
    return f"moments_together({moments})"


def skewness(m: str) -> str:
    """Return SQL for the skewness; null where all values are equal, as in Spark."""
    return f"CASE WHEN {m}.m2 <> 0 THEN sqrt({m}.n) * {m}.m3 / sqrt({m}.m2 * {m}.m2 * {m}.m2) END"


def kurtosis(m: str) -> str:
    """Return SQL for the excess kurtosis; null where all values are equal, as in Spark."""
    return f"CASE WHEN {m}.m2 <> 0 THEN {m}.n * {m}.m4 / ({m}.m2 * {m}.m2) - 3 END"


RESULTS: dict[str, Callable[[str], str]] = {"skewness": skewness, "kurtosis": kurtosis}


def together(parts: Any) -> pa.Array:
    """Return the moments of each list of moments; of an empty one all are 0."""
    lists = parts.combine_chunks() if isinstance(parts, pa.ChunkedArray) else parts
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    row = np.repeat(np.arange(len(lists)), lengths)
    n, mean, m2, m3, m4 = (_doubles(field) for field in lists.flatten().flatten())

    def added(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
        sums: np.ndarray[Any, np.dtype[np.float64]] = np.bincount(row, values, minlength=len(lists)).astype(np.float64)
        return sums

    with np.errstate(all="ignore"):
        count = added(n)
        first = np.zeros(len(lists))
        first[row[::-1]] = mean[::-1]
        from_first = np.where(n > 0, mean - first[row], 0.0)  # 0 where all are equal, whatever a mean would round
        middle = np.where(count > 0, added(n * from_first) / np.where(count > 0, count, 1.0), 0.0)
        d = from_first - middle[row]
        d = np.where(n > 0, d, 0.0)
        moments = (
            count,
            first + middle,
            added(m2 + n * d**2),
            added(m3 + 3 * d * m2 + n * d**3),
            added(m4 + 4 * d * m3 + 6 * d**2 * m2 + n * d**4),
        )
    return pa.StructArray.from_arrays([pa.array(each) for each in moments], names=_NAMES)


def _doubles(column: pa.Array) -> np.ndarray[Any, np.dtype[np.float64]]:
    doubles: np.ndarray[Any, np.dtype[np.float64]] = column.to_numpy(zero_copy_only=False)
    return doubles
