"""Choosing among values, and nulls; only the value that is chosen is computed."""

from __future__ import annotations

from headrace.expressions import kinds as k
from headrace.expressions.binding import bound
from headrace.expressions.casts import cast
from headrace.expressions.coercion import comparable, unify
from headrace.expressions.functions import Function, built, entry
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value


def _if(values: list[Value]) -> Value:
    condition, *rest = values
    if condition.type not in (k.BOOLEAN, k.NULL):
        raise Mismatch(f"if needs a boolean, not {k.shown(condition.type)}")
    yes, no = unify(rest, what="if")
    sql = f"(CASE WHEN {cast(condition, k.BOOLEAN).sql} THEN {yes.sql} ELSE {no.sql} END)"
    return Value("", sql, yes.type, raises=condition.raises or yes.raises or no.raises)


def _nullif(values: list[Value]) -> Value:
    left, right = unify(values, what="nullif")
    comparable(left, "nullif")
    sql = f"(CASE WHEN {left.sql} = {right.sql} THEN NULL ELSE {values[0].sql} END)"
    return Value("", sql, values[0].type, raises=left.raises or right.raises)


def _coalesce(values: list[Value]) -> Value:
    unified = unify(values, what="coalesce")
    sql = f"coalesce({', '.join(value.sql for value in unified)})"
    if any(value.raises for value in unified[1:]):  # DuckDB computes what is in a coalesce twice before it chooses
        sql = unified[-1].sql
        for value in reversed(unified[:-1]):
            sql = bound("__c", value.sql, f"CASE WHEN __c IS NOT NULL THEN __c ELSE {sql} END")
    return Value("", sql, unified[0].type, raises=any(value.raises for value in unified))


def _nanvl(values: list[Value]) -> Value:
    kind = k.FLOAT if all(value.type == k.FLOAT for value in values) else k.DOUBLE
    left, right = (cast(value, kind) for value in values)
    sql = f"(CASE WHEN isnan({left.sql}) THEN {right.sql} ELSE {left.sql} END)"
    return Value("", sql, kind, raises=left.raises or right.raises)


def _number(value: Value, what: str) -> Value:
    if not (k.is_number(value.type) or value.type in (k.STRING, k.NULL)):
        raise Mismatch(f"{what} needs a number, not {k.shown(value.type)}")
    return value


_ZERO = Value("0", "CAST(0 AS INTEGER)", k.INT, constant=0)

ENTRIES: tuple[Function, ...] = (
    built(
        "if",
        "any, any, any",
        _if,
        "if(p, i, l)",
        "if(i > 0, 1 / i, 0)",
        "if(p, s, i)",
        "case when p then i when q then d end",
        "case i when 0 then 'zero' when 1 then s else t end",
        "case when i = 0 then 0 else 1 div i end",
        raises=True,
        notes="case when … then … else … end is the same, with more branches",
        order="all",
    ),
    built(
        "coalesce",
        "any...",
        _coalesce,
        "coalesce(i, j)",
        "coalesce(i, l, 0)",
        "coalesce(s, i)",
        "coalesce(d, 1 / i)",
        "coalesce(m, n)",
        "coalesce(day, at)",
        order="all",
    ),
    built("nvl ifnull", "any, any", _coalesce, "nvl(s, 'none')", "ifnull(i, 0)", order="all"),
    built(
        "nvl2",
        "any, any, any",
        lambda v: _if([Value("", f"({v[0].sql} IS NOT NULL)", k.BOOLEAN, raises=v[0].raises), *v[1:]]),
        "nvl2(i, s, t)",
        "nvl2(s, i, d)",
        order="all",
    ),
    built("nullif", "any, any", _nullif, "nullif(i, 0)", "nullif(s, '')", "nullif(d, e)", "nullif(i, l)"),
    built(
        "nullifzero",
        "any",
        lambda v: _nullif([_number(v[0], "nullifzero"), _ZERO]),
        "nullifzero(i)",
        "nullifzero(d)",
        "nullifzero(m)",
        order="all",
    ),
    built(
        "zeroifnull",
        "any",
        lambda v: _coalesce([_number(v[0], "zeroifnull"), _ZERO]),
        "zeroifnull(i)",
        "zeroifnull(d)",
        "zeroifnull(m)",
        order="all",
    ),
    entry("isnull", "any", "boolean", "($1 IS NULL)", "isnull(s)", "i is null", order="all"),
    entry("isnotnull", "any", "boolean", "($1 IS NOT NULL)", "isnotnull(i)", "s is not null", order="all"),
    entry("isnan", "double", "boolean", "coalesce(isnan($1), false)", "isnan(d)", "isnan(f)", order="all"),
    built("nanvl", "number, number", _nanvl, "nanvl(d, e)", "nanvl(d, 0)", "nanvl(f, f)", order="all"),
)
