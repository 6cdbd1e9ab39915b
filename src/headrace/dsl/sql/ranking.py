"""`row_number()`, `rank()` and `dense_rank()` in a subquery whose outer query asks for the first ones of each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from sqlglot import exp

from headrace.base.errors import UnsupportedQuery
from headrace.dsl.sql.parsing import present_parts, sql_text
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
    """Return the column of a query that numbers its rows, if it has one.

    Raises:
        UnsupportedQuery: it is another window function, or there are several.

    """
    while isinstance(query, exp.Subquery) and not present_parts(query) - {"this", "alias"}:
        query = query.this
    if not isinstance(query, exp.Select):
        return None
    found = [item for item in query.expressions if item.find(exp.Window)]
    if not found:
        return None
    item = found[0]
    window = item.this if isinstance(item, exp.Alias) else item
    return Ranking(item.alias, window, _ties(item, window, several=len(found) > 1))


def _ties(item: exp.Expression, window: exp.Expression, *, several: bool) -> Ties:
    text = sql_text(item)
    if several:
        raise UnsupportedQuery(text, "a query can number its rows once")
    function = window.this if isinstance(window, exp.Window) else window
    name = function.name.lower() if isinstance(function, exp.Anonymous) else ""
    ties: Ties | None = next((each for each in get_args(Ties) if each == name), None)
    if ties is None or not isinstance(item, exp.Alias):
        raise UnsupportedQuery(
            text,
            "of window functions, row_number(), rank() and dense_rank() are supported, as a column with a name",
            hint="For sums and counts of a group say group by, and join it back if each row needs it.",
        )
    if present_parts(window) - {"this", "partition_by", "order", "over"}:
        raise UnsupportedQuery(text, f"{name}() takes only partition by and order by")
    if window.args.get("order") is None:
        raise UnsupportedQuery(text, f"{name}() without order by has no order to number rows in")
    return ties


def unlimited_ranking(item: exp.Expression) -> UnsupportedQuery:
    """Return the error for row numbers without an outer query that asks for the first ones."""
    return UnsupportedQuery(
        sql_text(item),
        "each change would renumber all rows of its group",
        hint="Ask for the first ones: select … from (select …, row_number() over (…) as rn from t) where rn <= 10.",
    )


def row_limit(ranking: Ranking, select: exp.Select, alias: str, tests: Sequence[exp.Expression]) -> RowLimit:
    """Return how many rows a query asks for of a relation that numbers its rows.

    Raises:
        UnsupportedQuery: it has no test that limits the numbers.

    """
    limits = {id(test): most for test in tests if (most := _limit(test, ranking.name, alias)) is not None}
    if not limits:
        raise unlimited_ranking(exp.alias_(ranking.window, ranking.name))
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
