"""Columns of several relations, told apart by marks: `number.column`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.dsl.sql.output import column
from headrace.dsl.sql.relation import OUTER, columns_in, rebuilt

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def mark(number: int, name: str) -> str:
    """Return the mark of a column."""
    return f"{number}.{name}"


def number_of(marked: str) -> int:
    """Return the number of the relation that a mark is of."""
    return int(marked.partition(".")[0])


def numbers(test: exp.Expression) -> set[int]:
    """Return the numbers of the relations that a test over marks is about."""
    return {number_of(each.name) for each in columns_in(test) if not each.args.get(OUTER)}


def placed(tree: exp.Expression, names: Mapping[str, str]) -> exp.Expression:
    """Return an expression over marks as one over the columns that they are; what reads the query around stays."""

    def change(part: exp.Expression) -> exp.Expression | None:
        if isinstance(part, exp.Query):
            return part
        if not isinstance(part, exp.Column):
            return None
        return part if part.args.get(OUTER) else column(names[part.name])

    return rebuilt(tree, change)


def sides(test: exp.Expression, joined: Collection[int], number: int) -> tuple[exp.Expression, exp.Expression] | None:
    """Return both sides of an equality between relations that are joined and one that is not, that one's last."""
    if not isinstance(test, exp.EQ):
        return None
    left, right = numbers(test.this), numbers(test.expression)
    if left and left <= set(joined) and right == {number}:
        return test.this, test.expression
    if right and right <= set(joined) and left == {number}:
        return test.expression, test.this
    return None
