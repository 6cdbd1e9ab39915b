"""`row_number() over (…)` where the query around asks for the first ones: the first n rows of each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import UnsupportedQuery
from headrace.dsl.sql.reading import said, shown

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Ranking:
    """The column of a query that numbers its rows."""

    name: str
    window: exp.Window


@dataclass(frozen=True, slots=True)
class Bound:
    """How many rows of each group the query around asks for, whether it reads their numbers, and its other tests."""

    n: int
    read: bool
    rest: list[exp.Expression]


def ranking_of(query: exp.Query) -> Ranking | None:
    """Return the column of a query that numbers its rows, if it has one.

    Raises:
        UnsupportedQuery: it is not `row_number()`, or there are several.

    """
    while isinstance(query, exp.Subquery) and not said(query) - {"this", "alias"}:
        query = query.this
    if not isinstance(query, exp.Select):
        return None
    found = [item for item in query.expressions if item.find(exp.Window)]
    if not found:
        return None
    item = found[0]
    window = item.this if isinstance(item, exp.Alias) else item
    _check(item, window, several=len(found) > 1)
    return Ranking(item.alias, window)


def _check(item: exp.Expression, window: exp.Expression, *, several: bool) -> None:
    text = shown(item)
    if several:
        raise UnsupportedQuery(text, "a query can number its rows once")
    function = window.this if isinstance(window, exp.Window) else window
    name = function.name.lower() if isinstance(function, exp.Anonymous) else ""
    if name in ("rank", "dense_rank"):
        raise UnsupportedQuery(
            text,
            f"{name}() gives equal rows one rank, so a group has no certain number of first rows",
            hint="Say row_number(), with an order that leaves no rows equal.",
        )
    if name != "row_number" or not isinstance(item, exp.Alias):
        raise UnsupportedQuery(
            text,
            "of window functions, row_number() alone is kept, as a column with a name",
            hint="For sums and counts of a group say group by, and join it back if each row needs it.",
        )
    if said(window) - {"this", "partition_by", "order", "over"}:
        raise UnsupportedQuery(text, "row_number() takes partition by and order by alone")
    if window.args.get("order") is None:
        raise UnsupportedQuery(text, "row_number() without order by numbers rows in no order")


def unasked(item: exp.Expression) -> UnsupportedQuery:
    """Return the error for numbers that no query around cuts."""
    return UnsupportedQuery(
        shown(item),
        "each change would number all rows of its group anew",
        hint="Ask for the first ones: select … from (select …, row_number() over (…) as rn from t) where rn <= 10.",
    )


def bounded(ranking: Ranking, select: exp.Select, alias: str, tests: Sequence[exp.Expression]) -> Bound:
    """Return what a query asks of the numbers of one of its relations.

    Raises:
        UnsupportedQuery: it asks for no first ones.

    """
    limits = {id(test): most for test in tests if (most := _limit(test, ranking.name, alias)) is not None}
    if not limits:
        raise unasked(exp.alias_(ranking.window, ranking.name))
    n = min(limits.values())
    met = {at for test in tests if (at := id(test)) in limits and _is_met(test, limits[at])}
    rest = [test for test in tests if id(test) not in met]
    joins = [join.args["on"] for join in select.args.get("joins") or () if join.args.get("on") is not None]
    others = [part for name in ("group", "having", "order") if (part := select.args.get(name)) is not None]
    readers = [*select.expressions, *rest, *joins, *others]
    return Bound(n, any(_reads(tree, ranking.name) for tree in readers), rest)


def _is_met(test: exp.Expression, most: int) -> bool:
    """Return whether the first rows all pass a test that let the last of them through."""
    return most == 1 if isinstance(test, exp.EQ) else not isinstance(test, exp.Between)


def _reads(tree: exp.Expression, name: str) -> bool:
    star = isinstance(tree, exp.Star) or (isinstance(tree, exp.Column) and isinstance(tree.this, exp.Star))
    return star or any(name.lower() in (part.name.lower() for part in c.parts) for c in tree.find_all(exp.Column))


def _limit(test: exp.Expression, name: str, alias: str) -> int | None:
    """Return the greatest number that a test lets through, if it is a test of numbers."""
    if isinstance(test, exp.Between):
        return _whole(test.args["high"]) if _is_number(test.this, name, alias) else None
    sides = {exp.LTE: 0, exp.LT: -1, exp.EQ: 0}
    turned = {exp.GTE: 0, exp.GT: -1, exp.EQ: 0}
    if type(test) in sides and _is_number(test.this, name, alias):
        most = _whole(test.expression)
        return None if most is None else most + sides[type(test)]
    if type(test) in turned and _is_number(test.expression, name, alias):
        most = _whole(test.this)
        return None if most is None else most + turned[type(test)]
    return None


def _is_number(tree: exp.Expression, name: str, alias: str) -> bool:
    return (
        isinstance(tree, exp.Column) and tree.name.lower() == name.lower() and tree.table.lower() in ("", alias.lower())
    )


def _whole(tree: exp.Expression) -> int | None:
    literal = isinstance(tree, exp.Literal) and not tree.is_string and tree.this.isdigit()
    return int(tree.this) if literal else None
