"""The parts of a condition, and the same expression over columns of other names, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidExpression
from headrace.expressions.grammar import Grammar, parse

if TYPE_CHECKING:
    from collections.abc import Mapping


def parts_of(condition: str) -> list[str]:
    """Return the texts that `and` joins; none of a text that is no expression (`none of them`, of a branch)."""
    try:
        tree = parse(condition, step="").unnest()
    except InvalidExpression:
        return []
    parts = tree.flatten() if isinstance(tree, exp.And) else [tree]
    return [_text(part.unnest()) for part in parts]


def with_names(expression: str, names: Mapping[str, str]) -> str | None:
    """Return the expression with other names of its columns; None where it has fields of structs, or `x -> …`."""
    tree = parse(expression, step="")
    if tree.find(exp.Lambda, exp.Dot):
        return None
    for column in list(tree.find_all(exp.Column)):
        if column.table or column.name not in names:
            return None
        column.set("this", exp.to_identifier(names[column.name], quoted=True))
    return _text(tree)


def _text(tree: exp.Expression) -> str:
    text: str = tree.sql(dialect=Grammar, normalize_functions=False, comments=False)
    return text
