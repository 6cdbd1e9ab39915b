"""Which expressions aggregate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from headrace.dsl.sql.context import Context


def has_aggregate(tree: exp.Expression, context: Context) -> bool:
    """Return whether an expression calls an aggregate, its subqueries left out."""
    if isinstance(tree, exp.Query):
        return False
    if is_aggregate(tree, context):
        return True
    return any(has_aggregate(child, context) for child in tree.iter_expressions())


def is_aggregate(tree: exp.Expression, context: Context) -> bool:
    """Return whether an expression is the call of an aggregate, with its filter."""
    inner = tree.this if isinstance(tree, exp.Filter) else tree
    inner = inner.this if isinstance(inner, exp.WithinGroup) else inner
    return isinstance(inner, exp.Anonymous) and inner.name.lower() in context.aggregates
