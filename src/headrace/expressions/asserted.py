"""Which columns have a value in every row that meets a condition."""

from __future__ import annotations

from sqlglot import exp

from headrace.base.errors import InvalidExpression
from headrace.expressions.grammar import parse


def not_null_columns(condition: str) -> frozenset[str]:
    """Return the columns that a condition requires to be not null.

    A text that is no expression (`none of them`, of a branch) requires nothing.
    """
    try:
        tree = parse(condition, step="").unnest()
    except InvalidExpression:
        return frozenset()
    parts = tree.flatten() if isinstance(tree, exp.And) else [tree]
    return frozenset(name for part in parts for name in _not_null(part.unnest()))


def _not_null(part: exp.Expression) -> list[str]:
    inner = part.this.unnest() if isinstance(part, exp.Not) else None
    tests_null = isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null)
    column = inner.this if inner is not None and tests_null else None
    whole = isinstance(column, exp.Column) and not column.table  # `s.a` is the field of a struct
    return [column.name] if column is not None and whole else []
