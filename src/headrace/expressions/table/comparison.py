"""Comparisons: both sides are cast to a common type; NaN equals itself and is above every number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.expressions import kinds as k
from headrace.expressions.coercion import comparable, unify
from headrace.expressions.functions import Function, built
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable


def _compared(sign: str, template: str = "") -> Callable[[list[Value]], Value]:
    def build(values: list[Value]) -> Value:
        left, right = unify(values, what=sign)
        comparable(left, sign)
        if k.contains(left.type, k.is_struct):
            raise Mismatch(f"{sign} of structs is not supported", hint="Compare their fields.")
        first, second = left if right.columns else left.apart(), right if left.columns else right.apart()
        sql = (template or f"($1 {sign} $2)").replace("$1", first.sql).replace("$2", second.sql)
        return Value("", sql, k.BOOLEAN, raises=left.raises or right.raises)

    return build


def _extreme(name: str) -> Callable[[list[Value]], Value]:
    def build(values: list[Value]) -> Value:
        unified = unify(values, strings=False, what=name)
        if len(unified) == 1 or k.is_nested(unified[0].type):
            raise Mismatch(f"{name} takes two or more simple values")
        sql = f"{name}({', '.join(value.sql for value in unified)})"
        return Value("", sql, unified[0].type, raises=any(value.raises for value in unified))

    return build


ENTRIES: tuple[Function, ...] = (
    built(
        "=",
        "any, any",
        _compared("="),
        "i = j",
        "d = e",
        "d = f",
        "s = t",
        "m = n",
        "i = m",
        "s = i",
        "day = at",
        "p = q",
        "ints = ints",
        "at = at2",
        notes="also written ==",
    ),
    built("!=", "any, any", _compared("<>"), "i != j", "d <> e", "s != t", notes="also written <>"),
    built("<", "any, any", _compared("<"), "i < j", "d < e", "s < t", "day < at", "p < q", "l < d", "bin < bin2"),
    built("<=", "any, any", _compared("<="), "i <= j", "d <= e"),
    built(">", "any, any", _compared(">"), "i > j", "d > e", "m > i", "s > 5", "i > l", "i > 2.5"),
    built(">=", "any, any", _compared(">="), "d >= f", "at >= '2020-02-29'"),
    built(
        "<=> equal_null",
        "any, any",
        _compared("<=>", "($1 IS NOT DISTINCT FROM $2)"),
        "i <=> j",
        "d <=> e",
        "equal_null(s, t)",
        "s <=> null",
        order="all",
    ),
    built(
        "greatest",
        "any...",
        _extreme("greatest"),
        "greatest(i, j)",
        "greatest(d, e, 1)",
        "greatest(s, t)",
        "greatest(m, i)",
        notes="nulls are skipped; texts are not cast",
        order="all",
    ),
    built(
        "least",
        "any...",
        _extreme("least"),
        "least(i, j)",
        "least(d, f)",
        "least(at, day)",
        notes="nulls are skipped",
        order="all",
    ),
)
