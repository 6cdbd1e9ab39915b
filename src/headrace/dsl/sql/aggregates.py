"""Which expressions aggregate, and what they are where there are no rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from headrace.dsl.sql.context import Context

_COUNTS = frozenset({"count", "count_if", "regr_count", "approx_count_distinct"})
_LISTS = frozenset({"collect_list", "collect_set", "array_agg", "approx_top_k"})
_STRICT = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Paren, exp.Neg, exp.Cast)
"""What is null where a part of it is."""


def has_aggregate(tree: exp.Expression, context: Context) -> bool:
    """Return whether an expression calls an aggregate, its subqueries left out."""
    if isinstance(tree, exp.Query):
        return False
    if is_aggregate(tree, context):
        return True
    return any(has_aggregate(child, context) for child in tree.iter_expressions())


def is_aggregate(tree: exp.Expression, context: Context) -> bool:
    """Return whether an expression is the call of an aggregate, with its filter."""
    inner = _call(tree)
    return isinstance(inner, exp.Anonymous) and inner.name.lower() in context.aggregates


def is_null_over_nothing(tree: exp.Expression, context: Context) -> bool:
    """Return whether an expression over aggregates is surely null where there are no rows."""
    if is_aggregate(tree, context):
        return _call(tree).name.lower() not in _COUNTS | _LISTS
    return isinstance(tree, _STRICT) and any(is_null_over_nothing(part, context) for part in tree.iter_expressions())


def over_nothing(call: exp.Expression, value: exp.Expression) -> exp.Expression:
    """Return an aggregate's value, or what it is over no rows where a join has found none."""
    name = _call(call).name.lower()
    if name in _COUNTS:
        return exp.Anonymous(this="coalesce", expressions=[value, exp.Literal.number(0)])
    if name in _LISTS:
        return exp.Anonymous(this="coalesce", expressions=[value, exp.Array(expressions=[])])
    return value


def _call(tree: exp.Expression) -> exp.Expression:
    """Return the call of an aggregate, without its filter."""
    inner = tree.this if isinstance(tree, exp.Filter) else tree
    return inner.this if isinstance(inner, exp.WithinGroup) else inner
