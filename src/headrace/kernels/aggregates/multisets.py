"""Aggregates of a multiset of values: SQL aggregates over `v0…` and `_n`, how often a value is there.

Where a function needs it, the values have ranks: `_upto`, how many values of the group are not above this one, and
`_all`, how many there are.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headrace.kernels.aggregates import exact, higher_moments
from headrace.kernels.aggregates.totals import decimal_mean, scale, total_of_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kernels.aggregates.aggregate_spec import AggregateSpec

_DOUBLES = ("FLOAT", "DOUBLE")
COUNT_VALUES, LEAST, GREATEST = "count(*)", "min(v0)", "max(v0)"
"""The results that groups may keep beside their values."""


def plain(argument: str, kind: str) -> str:
    """Return SQL for a value as a multiset keeps it: 0.0 and -0.0 are one value, and it is 0.0."""
    return f"(({argument}) + 0::{kind})" if kind in _DOUBLES else argument


def _sum(call: AggregateSpec) -> str:
    if call.argument_types[0] in _DOUBLES:
        return _double_total()
    return total_of_type("sum(v0)", call.type)


def _double_total() -> str:
    """Return SQL for the exact sum of the values: that of another order could not be withdrawn."""
    return exact.total(exact.listed("v0::DOUBLE"))


def _avg(call: AggregateSpec) -> str:
    if call.type.startswith("DECIMAL"):
        of_type = call.argument_types[0]
        total = f"sum(v0)::DECIMAL(38,{scale(of_type)})"
        return f"CASE WHEN count(*) > 0 THEN {decimal_mean(total, 'count(*)', of_type, call.type)} END"
    total = _double_total() if call.argument_types[0] in _DOUBLES else "sum(v0)::DOUBLE"
    return f"({total}) / count(*)"


def _interpolated(call: AggregateSpec, *, descending: bool) -> str:
    """Interpolate between the two values around a rank, as Spark does."""

    def value_at(at: float) -> str:
        rank = f"((_all - 1) * {at!r}::DOUBLE)"
        low, high = (_least(f"> {rounded}({rank})", descending=descending) for rounded in ("floor", "ceil"))
        part = f"any_value({rank} - floor({rank}))"
        return f"CASE WHEN {low} = {high} THEN {low} ELSE {low} + ({high} - {low}) * {part} END"

    return _each(call, value_at)


def _discrete(call: AggregateSpec, *, descending: bool) -> str:
    """Give the first value that, with those before it, makes up this part of all."""
    return _each(call, lambda at: _least(f">= _all * {at!r}::DOUBLE", descending=descending))


def _least(reaches: str, *, descending: bool) -> str:
    """Return SQL for the first value whose rank is as `reaches` says."""
    rank, first = ("(_all - _upto + _n)", "max") if descending else ("_upto", "min")
    return f"({first}(v0) FILTER (WHERE {rank} {reaches}))::DOUBLE"


def _each(call: AggregateSpec, value_at: Callable[[float], str]) -> str:
    if not call.type.endswith("[]"):
        return value_at(call.at[0])
    return f"[{', '.join(f'({value_at(at)})' for at in call.at)}]::DOUBLE[]"


def _joined_texts(call: AggregateSpec) -> str:
    """Return SQL that puts texts together in their order, each as often as it is there."""
    delimiter, *order = call.options
    times = "[v0]" if call.distinct else "list_resize([v0], _n, v0)"
    texts = f"flatten(list({times} ORDER BY {', '.join(order)}))"
    return f"array_to_string({texts}, {delimiter})"


FROM_MULTISET: dict[str, Callable[[AggregateSpec], str]] = {
    "count": lambda _: COUNT_VALUES,
    "sum": _sum,
    "avg": _avg,
    "min": lambda _: LEAST,
    "max": lambda _: GREATEST,
    "min_by": lambda _: "min(struct_pack(y := v1, x := v0)).x",
    "max_by": lambda _: "max(struct_pack(y := v1, x := v0)).x",
    "collect_set": lambda _: "coalesce(list(v0 ORDER BY v0), [])",
    "collect_list": lambda _: "coalesce(flatten(list(list_resize([v0], _n, v0) ORDER BY v0)), [])",
    "listagg": _joined_texts,
    "bit_and": lambda _: "bit_and(v0)",
    "bit_or": lambda _: "bit_or(v0)",
    "skewness": lambda _: higher_moments.skewness(higher_moments.of_multiset()),
    "kurtosis": lambda _: higher_moments.kurtosis(higher_moments.of_multiset()),
    "mode": lambda _: "min(struct_pack(n := -_n, v := v0)).v",
    "mode_desc": lambda _: "max(struct_pack(n := _n, v := v0)).v",
    "percentile": partial(_interpolated, descending=False),
    "percentile_desc": partial(_interpolated, descending=True),
    "percentile_disc": partial(_discrete, descending=False),
    "percentile_disc_desc": partial(_discrete, descending=True),
}
EXTREMES = frozenset({"min", "max", "min_by", "max_by", "bit_and", "bit_or", *higher_moments.RESULTS})
"""Kept as a multiset where rows are withdrawn; every function without an accumulator always is."""
RANKED = frozenset({"percentile", "percentile_desc", "percentile_disc", "percentile_disc_desc"})
"""The functions that need the ranks of values."""
