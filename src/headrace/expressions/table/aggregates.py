"""Aggregate functions: their names, what they take, their result types; the kernel computes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.expressions import kinds as k
from headrace.expressions.coercion import comparable
from headrace.expressions.mismatch import Mismatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.expressions.values import Value


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate: `takes` as in the table of functions, `returns` its result type, `distinct` if that is allowed.

    `becomes` is another aggregate that computes it: `condition` keeps the rows where the argument is true.
    """

    names: tuple[str, ...]
    takes: tuple[str, ...]
    returns: Callable[[list[Value]], pa.DataType]
    distinct: bool = False
    becomes: str = ""
    notes: str = ""

    @property
    def name(self) -> str:
        """The canonical name."""
        return self.becomes or self.names[0]


def _sum(values: list[Value]) -> pa.DataType:
    kind = values[0].type
    if k.is_decimal(kind):
        return k.decimal(kind.precision + 10, kind.scale)
    return k.BIGINT if k.is_integral(kind) else k.DOUBLE


def _average(values: list[Value]) -> pa.DataType:
    kind = values[0].type
    return k.decimal(kind.precision + 4, kind.scale + 4) if k.is_decimal(kind) else k.DOUBLE


def _ordered(values: list[Value]) -> pa.DataType:
    comparable(values[-1], "this aggregate")
    if values[-1].type == k.NULL:
        raise Mismatch("null has no order")
    return values[0].type


def _listed(values: list[Value]) -> pa.DataType:
    return pa.list_(values[0].type)


def _set(values: list[Value]) -> pa.DataType:
    comparable(values[0], "collect_set")
    return pa.list_(values[0].type)


def _mode(values: list[Value]) -> pa.DataType:
    comparable(values[0], "mode")
    return values[0].type


def _count(_: list[Value]) -> pa.DataType:
    return k.BIGINT


def _double(_: list[Value]) -> pa.DataType:
    return k.DOUBLE


def _whole(values: list[Value]) -> pa.DataType:
    return values[0].type


def _text(_: list[Value]) -> pa.DataType:
    return k.STRING


def _boolean(_: list[Value]) -> pa.DataType:
    return k.BOOLEAN


ALL: tuple[Aggregate, ...] = (
    Aggregate(
        ("count",),
        ("any...",),
        _count,
        distinct=True,
        notes="count(*) counts rows; count(a, b) those where no one is null",
    ),
    Aggregate(("count_if",), ("boolean",), _count, becomes="count"),
    Aggregate(("sum",), ("number",), _sum, distinct=True, notes="raises when a bigint or a decimal overflows"),
    Aggregate(("avg", "mean"), ("number",), _average, distinct=True),
    Aggregate(("min",), ("any",), _ordered, distinct=True),
    Aggregate(("max",), ("any",), _ordered, distinct=True),
    Aggregate(("min_by",), ("any", "any"), _ordered, notes="rows where the second is null do not count"),
    Aggregate(("max_by",), ("any", "any"), _ordered, notes="rows where the second is null do not count"),
    Aggregate(("bool_and", "every"), ("boolean",), _boolean, becomes="min"),
    Aggregate(("bool_or", "any", "some"), ("boolean",), _boolean, becomes="max"),
    Aggregate(("stddev_samp", "stddev", "std"), ("double",), _double),
    Aggregate(("stddev_pop",), ("double",), _double),
    Aggregate(("var_samp", "variance"), ("double",), _double),
    Aggregate(("var_pop",), ("double",), _double),
    Aggregate(("skewness",), ("double",), _double, notes="null where all values are equal"),
    Aggregate(("kurtosis",), ("double",), _double, notes="excess kurtosis; null where all values are equal"),
    Aggregate(("covar_pop",), ("double", "double"), _double, notes="of pairs without a null, as all that follow"),
    Aggregate(("covar_samp",), ("double", "double"), _double),
    Aggregate(("corr",), ("double", "double"), _double, notes="null where all values of one are equal"),
    Aggregate(("regr_count",), ("double", "double"), _count, becomes="count", notes="`regr_…(y, x)`: y stands first"),
    *(Aggregate((f"regr_{name}",), ("double", "double"), _double) for name in ("avgx", "avgy", "sxx", "syy", "sxy")),
    *(Aggregate((f"regr_{name}",), ("double", "double"), _double) for name in ("slope", "intercept", "r2")),
    Aggregate(("bit_and",), ("=integral",), _whole),
    Aggregate(("bit_or",), ("=integral",), _whole),
    Aggregate(("bit_xor",), ("=integral",), _whole),
    Aggregate(
        ("listagg", "string_agg"),
        ("string",),
        _text,
        distinct=True,
        notes="texts put together, nulls left out: `listagg(name, ', ') within group (order by at desc, id)`; without "
        "an order, and of rows that it leaves equal, the lesser text is first",
    ),
    Aggregate(("median",), ("number",), _double, becomes="percentile", notes="`percentile(x, 0.5)`"),
    Aggregate(
        ("percentile",),
        ("number",),
        _double,
        notes="exact, interpolated; the fraction, or an array of them, stands second: `percentile(x, array(0.5, 0.9))`",
    ),
    Aggregate(
        ("percentile_cont",),
        ("number",),
        _double,
        becomes="percentile",
        notes="`percentile_cont(0.5) within group (order by x)`, ascending or descending",
    ),
    Aggregate(
        ("percentile_disc",),
        ("number",),
        _double,
        notes="one of the values: `percentile_disc(0.5) within group (order by x)`",
    ),
    Aggregate(("mode",), ("any",), _mode, notes="of values that are there equally often the least"),
    Aggregate(("collect_list", "array_agg"), ("any",), _listed, notes="nulls are skipped; the order is not defined"),
    Aggregate(("collect_set",), ("any",), _set, notes="nulls are skipped; the order is not defined"),
    Aggregate(
        ("approx_count_distinct",),
        ("any",),
        _count,
        notes="a sketch: standard error at most the second argument (0.05), the same however rows are cut; rows that "
        "only come",
    ),
    Aggregate(
        ("approx_percentile", "percentile_approx"),
        ("number",),
        _double,
        notes="a sketch, `approx_percentile(x, 0.99, accuracy)`, the fraction or an array of them: one of the values, "
        "whose rank is wrong by at most 1 / accuracy (10000) of the rows, 99 of 100 times; rows that only come",
    ),
    Aggregate(
        ("approx_top_k",),
        ("any",),
        _listed,
        notes="a sketch, `approx_top_k(x, k, tracked)`: the k (5) most frequent values with their counts, null among "
        "them, of equal counts the lesser text first; exact while a group has no more than `tracked` (10000) values, "
        "else a count is up to 3.5 / tracked of the rows too high; rows that only come",
    ),
)
AGGREGATES = {name: aggregate for aggregate in ALL for name in aggregate.names}
