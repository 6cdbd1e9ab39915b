"""Variance and its kin, in two ways.

Where rows only come: count, mean and sum of squared distances, which partial groups are merged by (Chan, Golub, LeVeque
1979). Where rows are withdrawn: the exact sums of x, of x * x, and of what rounding took from that product, so that a
row that goes leaves nothing behind. A variance is then right to nine digits as long as the mean is less than 10**10
standard deviations away from 0; one that is less than 2**-97 of the mean square is given as 0. Squares beyond what a
double holds (magnitudes above 1e150) make it NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.kernels.aggregates.aggregate_spec import Accumulator
from headrace.kernels.aggregates.superaccumulator import ERRORS_UP, SPLIT

if TYPE_CHECKING:
    from headrace.kernels.aggregates.exact import Parts

_MOMENTS = "STRUCT(n BIGINT, mean DOUBLE, m2 DOUBLE)"


def accumulator(argument: str) -> Accumulator:
    """Return the accumulator of doubles that are never withdrawn."""
    rows = f"FILTER (WHERE ({argument}) IS NOT NULL)"
    count = f"(count(*) {rows})"
    return Accumulator(
        type=_MOMENTS,
        partial=(
            f"struct_pack(n := {count}::BIGINT, mean := coalesce(avg({argument}) {rows}, 0)::DOUBLE, "
            f"m2 := coalesce(var_pop({argument}) {rows} * {count}, 0)::DOUBLE)"
        ),
        fold="list",
        finish=f"list_reduce({{f}}, lambda x, y: {_joined('x', 'y')})",
        merge=f"CASE WHEN {{o}} IS NULL THEN {{d}} ELSE {_joined('{o}', '{d}')} END",
    )


def _joined(x: str, y: str) -> str:
    count = f"({x}.n + {y}.n)"
    apart = f"({y}.mean - {x}.mean)"
    mean = f"{x}.mean + {apart} * {y}.n / {count}"
    m2 = f"{x}.m2 + {y}.m2 + {apart} * {apart} * {x}.n * {y}.n / {count}"
    return (
        f"struct_pack(n := {count}, mean := CASE WHEN {count} = 0 THEN 0 ELSE {mean} END, "
        f"m2 := CASE WHEN {count} = 0 THEN 0 ELSE {m2} END)"
    )


def product_error(x: str, y: str) -> str:
    """Return SQL for what rounding takes from a product of two columns, moved up to where `hi` and `lo` hold it.

    It is 0 where the product is not finite.
    """
    high = {factor: f"({SPLIT!r}::DOUBLE * {factor} - ({SPLIT!r}::DOUBLE * {factor} - {factor}))" for factor in (x, y)}
    low = {factor: f"({factor} - {high[factor]})" for factor in (x, y)}
    crossed = f"({high[x]} * {high[y]} - {x} * {y}) + {high[x]} * {low[y]} + {low[x]} * {high[y]}"
    error = f"({crossed} + {low[x]} * {low[y]}) * {2.0**ERRORS_UP!r}::DOUBLE"
    return f"CASE WHEN isfinite({x} * {y}) THEN {error} WHEN {x} * {y} IS NOT NULL THEN 0 END"


def distances(count: str, x: Parts, y: Parts, product: Parts, error: Parts) -> str:
    """Return SQL for the sum of the products of distances from the means; NaN where a value is not finite."""
    sums = {"n": count, "x": x.sql, "y": y.sql, "p": product.sql, "e": error.sql}
    return f"exact_distances(struct_pack({', '.join(f'{name} := {sql}' for name, sql in sums.items())}))"
