"""`row_number()`, `rank()` and `dense_rank()` in a subquery whose outer query asks for the first ones of each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from sqlglot import exp

from headrace.dsl.sql.parsing import present_parts
from headrace.dsl.sql.relation import conjuncts
from headrace.plan.nodes import Ties

if TYPE_CHECKING:
    from collections.abc import Sequence

_ONE_SIDED = ("SEMI", "ANTI")


@dataclass(frozen=True, slots=True)
class Ranking:
    """The column of a query that numbers its rows; `ties` are the numbers of rows that the order leaves equal.

    `before` and `after` are the other columns, as far as they are known: `*` may be any number.
    """

    name: str
    window: exp.Window
    ties: Ties
    before: Sequence[exp.Expression] = ()
    after: Sequence[exp.Expression] = ()

    def name_in(self, columns: Sequence[str]) -> str | None:
        """Return what `t(a, b)` calls the column; None where stars on both sides leave that open."""
        if not columns:
            return self.name
        if not any(item.is_star for item in self.before):
            at = len(self.before)
        elif not any(item.is_star for item in self.after):
            at = len(columns) - 1 - len(self.after)
        else:
            return None
        return columns[at] if 0 <= at < len(columns) else None


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
    if item is None or ties is None or not plain or window.args.get("order") is None:
        return None
    at = query.expressions.index(item)
    return Ranking(str(item.alias), window, ties, query.expressions[:at], query.expressions[at + 1 :])


@dataclass(frozen=True, slots=True)
class Ranked:
    """A relation that numbers its rows, in the `from` of a select: the name of the number there, and its joins."""

    name: str
    alias: str
    select: exp.Select
    tree: exp.Expression

    def limit(self, tests: Sequence[exp.Expression]) -> RowLimit | None:
        """Return how many rows the select asks for, if one of its `tests` of `where`, or of `on`, limits them."""
        in_where = {} if self._is_one_sided() else self._limits(tests)
        limits = [*in_where.values(), *self._limits(self._on_tests()).values()]
        if not limits:
            return None
        n = min(limits)
        implied = {at for test in tests if (at := id(test)) in in_where and _is_implied(test, in_where[at], n)}
        rest = list(tests) if self._is_padded() else [test for test in tests if id(test) not in implied]
        others = [part for name in ("group", "having", "order") if (part := self.select.args.get(name)) is not None]
        readers = [*self.select.expressions, *rest, *self._joins(), *others]
        return RowLimit(n, any(_reads(tree, self.name) for tree in readers), rest)

    def _limits(self, tests: Sequence[exp.Expression]) -> dict[int, int]:
        return {id(test): most for test in tests if (most := _limit(test, self.name, self.alias)) is not None}

    def _joins(self) -> list[exp.Join]:
        return list(self.select.args.get("joins") or ())

    def _own(self) -> int:
        """Return the place of the join that joins it with the relations before it; -1 where there are none."""
        return next((at for at, join in enumerate(self._joins()) if join.this is self.tree), -1)

    def _is_one_sided(self) -> bool:
        own = self._own()
        return own >= 0 and self._joins()[own].kind in _ONE_SIDED

    def _is_padded(self) -> bool:
        """Return whether an outer join may put nulls in place of its rows: no test is met by all rows then."""
        joins, own = self._joins(), self._own()
        return (own >= 0 and joins[own].side in ("LEFT", "FULL")) or any(
            join.side in ("RIGHT", "FULL") for join in joins[own + 1 :]
        )

    def _on_tests(self) -> list[exp.Expression]:
        """Return the tests of `on` that rows of it must pass to be seen by the query."""
        own = self._own()
        return [
            test
            for at, join in enumerate(self._joins())
            if (at == own and join.side in ("", "LEFT")) or (at > own and not join.side and join.kind not in _ONE_SIDED)
            for test in conjuncts(join.args.get("on"))
        ]


def _is_implied(test: exp.Expression, most: int, n: int) -> bool:
    """Return whether all of the first `n` rows pass a test that none after the first `most` passes."""
    return most == n == 1 if isinstance(test, exp.EQ) else not isinstance(test, exp.Between | exp.In)


def _reads(tree: exp.Expression, name: str) -> bool:
    if isinstance(tree, exp.Join):
        using = [each.name.lower() for each in tree.args.get("using") or ()]
        on = tree.args.get("on")
        return bool(tree.method) or name.lower() in using or (on is not None and _reads(on, name))
    star = isinstance(tree, exp.Star) or (isinstance(tree, exp.Column) and isinstance(tree.this, exp.Star))
    return star or any(name.lower() in (part.name.lower() for part in c.parts) for c in tree.find_all(exp.Column))


def _limit(test: exp.Expression, name: str, alias: str) -> int | None:
    """Return the greatest row number that passes a test, if it is a test of row numbers."""
    if isinstance(test, exp.Between):
        return _integer(test.args["high"]) if _is_number(test.this, name, alias) else None
    if isinstance(test, exp.In):
        listed = [_integer(each) for each in test.expressions]
        known = [number for number in listed if number is not None]
        return max(known) if known and known == listed and _is_number(test.this, name, alias) else None
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
