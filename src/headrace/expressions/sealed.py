"""Private columns in expressions: sealed values are passed on, counted and compared with null; nothing else is right.

A token is no value: to compare, cut or join it would give results that are wrong, and computing with the value itself
would leave results that no forgetting reaches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import SealedColumn
from headrace.expressions.grammar import shown

if TYPE_CHECKING:
    from collections.abc import Collection

PASSED = {"max_by", "min_by", "collect_list", "array_agg"}
"""Aggregates that give back their first argument as it is, alone or in a list."""
_ASKED = {"count", "isnull", "isnotnull"}


def refuse_computing(tree: exp.Expression, names: Collection[str], sealed: Collection[str], *, step: str) -> None:
    """Refuse an expression that does more with a sealed column than to pass it on; `names` are all columns.

    Raises:
        SealedColumn: it does.

    """
    for column in tree.find_all(exp.Column) if sealed else ():
        name = _resolved(column, names)
        if name in sealed and not _is_passed(column, tree):
            raise SealedColumn(
                f'step "{step}": "{shown(tree)}" computes with the private column "{name}"',
                detail="An app keeps private values sealed, so that forgetting a subject reaches every copy. It passes "
                f"them on: select, rename, {name} is null, count({name}), max_by({name}, time), collect_list({name}).",
                hint="Compute what is needed before the record is appended, and append it as a column of its own: "
                "what is computed from a private value is not forgotten with it.",
            )


def gives_sealed(tree: exp.Expression, names: Collection[str], sealed: Collection[str]) -> bool:
    """Tell whether the result of an aggregation is a sealed value, or a list of them."""
    call = tree.this if isinstance(tree, exp.Filter) else tree
    if not (isinstance(call, exp.Anonymous) and call.name.lower() in PASSED and call.expressions):
        return False
    first = call.expressions[0]
    return isinstance(first, exp.Column) and _resolved(first, names) in sealed


def _resolved(column: exp.Column, names: Collection[str]) -> str:
    name: str = column.parts[0].name
    if name in names:
        return name
    return next((known for known in names if known.lower() == name.lower()), name)


def _is_passed(column: exp.Column, tree: exp.Expression) -> bool:
    parent = column.parent
    if column is tree:
        return True
    if isinstance(parent, exp.Is):
        return isinstance(parent.expression, exp.Null)
    if not isinstance(parent, exp.Anonymous):
        return False
    if parent.name.lower() in _ASKED:
        return True
    whole = parent is tree or (isinstance(tree, exp.Filter) and parent is tree.this)
    return whole and parent.name.lower() in PASSED and parent.expressions[0] is column
