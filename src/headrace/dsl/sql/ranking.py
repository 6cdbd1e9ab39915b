"""`row_number()`, `rank()` and `dense_rank()` in a subquery whose outer query asks for the first ones of each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from sqlglot import exp

from headrace.dsl.sql.parsing import present_parts
from headrace.plan.nodes import Ties

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Ranking:
    """The column of a query that numbers its rows; `ties` are the numbers of rows that the order leaves equal."""

    name: str
    window: exp.Window
    ties: Ties


@dataclass(frozen=True, slots=True)
class RowLimit:
    """How many rows of each group the outer query asks for, whether it reads their numbers, and its other tests."""

    n: int
    rank_is_read: bool
    other_tests: list[exp.Expression]


def ranking_of(query: exp.Query) -> Ranking | None:
    """Return the column of a query that numbers its rows, if it is its only function over a window."""
    while isinstance(query, exp.Subquery) and not present_parts(query) - {"this", "alias"}:
        query = query.this
    if not isinstance(query, exp.Select):
        return None
    found = [item for item in query.expressions if item.find(exp.Window)]
    item = found[0] if len(found) == 1 else None
    window = item.this if isinstance(item, exp.Alias) else None
    if not isinstance(window, exp.Window) or not isinstance(window.this, exp.Anonymous):
        return None
    ties: Ties | None = next((each for each in get_args(Ties) if each == window.this.name.lower()), None)
    plain = not present_parts(window) - {"this", "partition_by", "order", "over"}
    if ties is None or not plain or window.args.get("order") is None:
        return None
    return Ranking(str(found[0].alias), window, ties)


def row_limit(ranking: Ranking, select: exp.Select, alias: str, tests: Sequence[exp.Expression]) -> RowLimit | None:
    """Return how many rows a query asks for of a relation that numbers its rows, if it has a test that limits them."""
    limits = {id(test): most for test in tests if (most := _limit(test, ranking.name, alias)) is not None}
    if not limits:
        return None
    n = min(limits.values())
    implied = {at for test in tests if (at := id(test)) in limits and _is_implied(test, limits[at])}
    rest = [test for test in tests if id(test) not in implied]
    joins = [join.args["on"] for join in select.args.get("joins") or () if join.args.get("on") is not None]
    others = [part for name in ("group", "having", "order") if (part := select.args.get(name)) is not None]
    readers = [*select.expressions, *rest, *joins, *others]
    return RowLimit(n, any(_reads(tree, ranking.name) for tree in readers), rest)


def _is_implied(test: exp.Expression, most: int) -> bool:
    """Return whether all of the first `most` rows pass a test that the last of them passes."""
    return most == 1 if isinstance(test, exp.EQ) else not isinstance(test, exp.Between)


def _reads(tree: exp.Expression, name: str) -> bool:
    star = isinstance(tree, exp.Star) or (isinstance(tree, exp.Column) and isinstance(tree.this, exp.Star))
    return star or any(name.lower() in (part.name.lower() for part in c.parts) for c in tree.find_all(exp.Column))


def _limit(test: exp.Expression, name: str, alias: str) -> int | None:
    """Return the greatest row number that passes a test, if it is a test of row numbers."""
    if isinstance(test, exp.Between):
        return _integer(test.args["high"]) if _is_number(test.this, name, alias) else None
    sides = {exp.LTE: 0, exp.LT: -1, exp.EQ: 0}
    turned = {exp.GTE: 0, exp.GT: -1, exp.EQ: 0}
    if type(test) in sides and _is_number(test.this, name, alias):
        most = _integer(test.expression)
        return None if most is None else most + sides[type(test)]
    if type(test) in turned and _is_number(test.expression, name, alias):
        most = _integer(test.this)
        return None if most is None else most + turned[type(test)]
    return None


def _is_number(tree: exp.Expression, name: str, alias: str) -> bool:
    return (
        isinstance(tree, exp.Column) and tree.name.lower() == name.lower() and tree.table.lower() in ("", alias.lower())
    )


def _integer(tree: exp.Expression) -> int | None:
    literal = isinstance(tree, exp.Literal) and not tree.is_string and tree.this.isdigit()
    return int(tree.this) if literal else None
