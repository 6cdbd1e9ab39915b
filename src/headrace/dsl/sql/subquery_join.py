"""What all joins with subqueries share: how a subquery is correlated with the outer query, and its rows as a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import UnknownColumn, UnsupportedQuery
from headrace.dsl.sql.aggregates import has_aggregate
from headrace.dsl.sql.context import common_queries
from headrace.dsl.sql.exploding import makes_rows
from headrace.dsl.sql.output import column, free_name, suffix_and_names
from headrace.dsl.sql.parsing import present_parts, sql_text
from headrace.dsl.sql.relation import OUTER, Relation, Scope, column_name, columns_in, has_subquery, rewritten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.dsl.sql.compiler import Compiler
    from headrace.dsl.sql.context import CommonQuery, Context
    from headrace.dsl.stream_table import StreamOrTable


_PLAIN_PARTS = {"expressions", "from_", "joins", "laterals", "where", "with_"}


@dataclass(slots=True)
class Correlation:
    """How a subquery is correlated with the outer query: pairs of equal columns, and other tests."""

    pairs: list[tuple[exp.Expression, exp.Expression]]  # outer, inner
    tests: list[exp.Expression]


@dataclass(slots=True)
class Found:
    """The rows of the subquery of `in` or `exists`: its values beside those that are looked for, in pairs."""

    tree: exp.Expression
    handle: StreamOrTable
    values: list[tuple[exp.Expression, exp.Expression]]  # outer, inner
    correlation: Correlation


@dataclass(slots=True)
class SubqueryJoin:
    """A relation that is to be joined with subqueries; `outer` is the query around it."""

    compiler: Compiler
    relation: Relation
    names: Mapping[str, CommonQuery]
    outer: Scope | None

    def common_names(self, query: exp.Query) -> Mapping[str, CommonQuery]:
        """Return the common queries that a subquery may use."""
        return common_queries(query, self.names)

    def exists_rows(self, tree: exp.Exists) -> Found:
        """Return the rows of the subquery of `exists`.

        Raises:
            UnsupportedQuery: it reads a query further out.

        """
        query = tree.this.unnest() if isinstance(tree.this, exp.Subquery) else tree.this
        unlimited = _unlimited(query)
        query = unlimited if is_plain(unlimited, self.compiler.context) else query
        if not is_plain(query, self.compiler.context):
            return Found(tree, self._rows(query), [], Correlation([], []))
        body = self.compiler.body(query, self.common_names(query), Scope(self.relation, self.outer))
        return Found(tree, body.relation.handle, [], correlation_of(body.correlated))

    def in_rows(self, tree: exp.In) -> Found:
        """Return the rows of the subquery of `in`, and the values that are looked for in them.

        Raises:
            UnsupportedQuery: it has another number of columns, or these values are those of a subquery, too.

        """
        if has_subquery(tree.this):
            raise UnsupportedQuery(sql_text(tree), "a subquery on both sides of in is not supported")
        query = tree.args["query"].unnest()
        values = [*tree.this.expressions] if isinstance(tree.this, exp.Tuple) else [tree.this]
        scope = Scope(self.relation, self.outer)
        outer = [scope.resolved(value) for value in values]
        correlation = Correlation([], [])
        if is_plain(query, self.compiler.context) and not any(item.is_star for item in query.expressions):
            body = self.compiler.body(query, self.common_names(query), scope)
            correlation, handle = correlation_of(body.correlated), body.relation.handle
            inner_scope = Scope(body.relation)
            inner = [
                inner_scope.resolved(item.this if isinstance(item, exp.Alias) else item) for item in query.expressions
            ]
        else:
            handle = self._rows(query)
            inner = [column(name) for name in handle.columns]
        if len(inner) != len(outer):
            raise UnsupportedQuery(sql_text(tree), f"{len(outer)} values are looked for among {len(inner)} columns")
        return Found(tree, handle, [*zip(outer, inner, strict=True)], correlation)

    def _rows(self, query: exp.Query) -> StreamOrTable:
        """Return the rows of a subquery that does not read the outer query.

        Raises:
            UnsupportedQuery: it does.

        """
        try:
            return self.compiler.rows(query, self.names, strict=False)
        except UnknownColumn:
            inner = {each.alias_or_name.lower() for each in query.find_all(exp.Table, exp.Subquery)}
            outer = self.relation.aliases - inner
            read = next((each for each in query.find_all(exp.Column) if each.table.lower() in outer), None)
            if read is None:
                raise
            raise UnsupportedQuery(
                sql_text(read),
                "a subquery that groups, limits or combines rows cannot read the outer query",
                hint="Select its rows alone, where inner.k = outer.k; or compare what a query of all groups returns.",
            ) from None

    def may_be_null(self, found: Found) -> bool:
        """Return whether a null may be on either side: one makes `not in` unknown."""
        left, right = self.relation.handle.node.not_null, found.handle.node.not_null
        return not all(column_name(outer) in left and column_name(inner) in right for outer, inner in found.values)


def right_names(
    left: StreamOrTable, right: StreamOrTable, on: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the suffix of the join, and what the right side's columns are called in it."""
    suffix, after = suffix_and_names(left.columns, right.columns, [a for a, b in on.items() if a == b], "in")
    return ({} if suffix is None else {"suffix": suffix}), after


def without_alike(right: StreamOrTable, left: StreamOrTable) -> tuple[StreamOrTable, dict[str, str]]:
    """Return a right side none of whose columns differs from a left one in case alone, and their names by the old ones.

    A step has no such two columns.
    """
    low, names = {name.lower() for name in left.columns}, {name: name for name in right.columns}
    for name in right.columns:
        if name.lower() in low and name not in left.columns:
            names[name] = free_name(f"{name}_in", [*left.columns, *names.values()])
    changed = {new: old for old, new in names.items() if new != old}
    return (right.rename(**changed) if changed else right), names


def correlation_of(tests: Sequence[exp.Expression]) -> Correlation:
    """Return how a subquery is correlated, by the tests that read the outer query.

    Raises:
        UnsupportedQuery: one reads a query further out.

    """
    correlation = Correlation([], [])
    for test in tests:
        if any(int(each.args.get(OUTER) or 0) > 1 for each in columns_in(test)):
            raise UnsupportedQuery(sql_text(test), "a subquery reads the outer query, not one further out")
        pair = _pair(test)
        if pair is None:
            correlation.tests.append(test)
        else:
            correlation.pairs.append(pair)
    return correlation


def key_columns(handle: StreamOrTable, trees: Sequence[exp.Expression]) -> tuple[list[str], dict[str, str], list[str]]:
    """Return expressions as keys of `group_by`: plain columns, computed ones, and the name of each expression."""
    plain: list[str] = []
    computed: dict[str, str] = {}
    names: list[str] = []
    for tree in trees:
        own = column_name(tree)
        if own is None:
            own = free_name("_key", [*handle.columns, *computed])
            computed[own] = sql_text(tree)
        elif own not in plain:
            plain.append(own)
        names.append(own)
    return plain, computed, names


def over_both(test: exp.Expression, outer: Mapping[str, str], inner: Mapping[str, str]) -> exp.Expression:
    """Return a test over the columns of a join: outer ones and those of the subquery by their names in it."""

    def change(part: exp.Expression) -> exp.Expression | None:
        if not isinstance(part, exp.Column):
            return None
        names = outer if part.args.get(OUTER) else inner
        return column(names.get(part.name, part.name))

    return rewritten(test, change)


def _unlimited(query: exp.Expression) -> exp.Expression:
    """Return the query of `exists` without its order and limit, which say nothing unless they leave no row."""
    limit = query.args.get("limit")
    if not isinstance(query, exp.Select) or (limit is not None and limit.expression.name.strip("0") == ""):
        return query
    plain = query.copy()
    plain.set("limit", None)
    plain.set("order", None)
    return plain


def _pair(test: exp.Expression) -> tuple[exp.Expression, exp.Expression] | None:
    """Return both sides of an equality between the outer query and the subquery, the former's first."""
    if not isinstance(test, exp.EQ):
        return None
    sides = [{bool(each.args.get(OUTER)) for each in columns_in(side)} for side in (test.this, test.expression)]
    if sides == [{True}, {False}]:
        return _plain(test.this), test.expression
    if sides == [{False}, {True}]:
        return _plain(test.expression), test.this
    return None


def _plain(tree: exp.Expression) -> exp.Expression:
    return rewritten(tree, lambda part: exp.Column(this=part.this) if isinstance(part, exp.Column) else None)


def is_plain(query: exp.Expression, context: Context) -> bool:
    """Return whether a subquery only selects rows of `from` and `where`: then it may read the outer query."""
    if not isinstance(query, exp.Select) or present_parts(query) - _PLAIN_PARTS - {"distinct"}:
        return False
    items = query.expressions
    return not any(has_aggregate(item, context) or item.find(exp.Window) or makes_rows(item) for item in items)


def is_one_row(query: exp.Expression, context: Context) -> bool:
    """Return whether a query always returns one row: aggregates of all that it finds."""
    if not isinstance(query, exp.Select) or present_parts(query) - _PLAIN_PARTS:
        return False
    return any(has_aggregate(item, context) for item in query.expressions) and query.find(exp.Window) is None
