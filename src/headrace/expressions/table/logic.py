"""Boolean operators, with three values; the right side is not computed where the left side decides."""

from __future__ import annotations

from headrace.expressions import kinds as k
from headrace.expressions.functions import Function, built, entry
from headrace.expressions.values import Value


def _and(values: list[Value]) -> Value:
    left, right = values
    sql = f"({left.sql} AND {right.sql})"
    if right.raises:  # DuckDB computes both sides for all rows of a batch
        sql = f"(CASE WHEN NOT {left.sql} THEN false ELSE ({left.sql} AND {right.sql}) END)"
    return Value("", sql, k.BOOLEAN, raises=left.raises or right.raises)


def _or(values: list[Value]) -> Value:
    left, right = values
    sql = f"({left.sql} OR {right.sql})"
    if right.raises:
        sql = f"(CASE WHEN {left.sql} THEN true ELSE ({left.sql} OR {right.sql}) END)"
    return Value("", sql, k.BOOLEAN, raises=left.raises or right.raises)


ENTRIES: tuple[Function, ...] = (
    built("and", "boolean, boolean", _and, "p and q", "i > 0 and 1 / i > 0.5", "p and i in (1, 2, null)", order="all"),
    built("or", "boolean, boolean", _or, "p or q", "i = 0 or 1 / i > 0.5", order="all"),
    entry("not", "boolean", "boolean", "(NOT $1)", "not p", "!q"),
)
