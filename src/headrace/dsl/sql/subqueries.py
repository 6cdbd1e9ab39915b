"""Subqueries in tests and columns: `in` and `exists` keep or drop rows, one value is joined as a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import UnsupportedQuery
from headrace.dsl.sql.aggregates import has_aggregate, is_aggregate
from headrace.dsl.sql.context import common_queries
from headrace.dsl.sql.output import (
    Output,
    column,
    free_name,
    join_steps,
    on_argument,
    select_outputs,
    suffix_and_names,
    with_computed,
)
from headrace.dsl.sql.parsing import present_parts, sql_text
from headrace.dsl.sql.relation import (
    OUTER,
    Relation,
    Scope,
    as_resolved,
    column_name,
    columns_in,
    conjunction,
    has_subquery,
    queries_in,
    rewritten,
)
from headrace.dsl.stream_table import Stream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.dsl.sql.compiler import Compiler
    from headrace.dsl.sql.context import CommonQuery, Context
    from headrace.dsl.stream_table import StreamOrTable

_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Paren, exp.Neg, exp.Cast)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


def filter_by_subqueries(
    compiler: Compiler,
    relation: Relation,
    tests: Sequence[exp.Expression],
    names: Mapping[str, CommonQuery],
    outer: Scope | None = None,
) -> Relation:
    """Return the rows that pass tests with subqueries; the tests are not resolved yet.

    Raises:
        UnsupportedQuery: a subquery is where none is supported, or the rows are those of a stream.

    """
    for test in tests:
        negated, inner = _negated(test)
        _refuse_streams(relation, test)
        subquery = SubqueryJoin(compiler, relation, names, outer)
        if isinstance(inner, exp.Exists):
            relation = subquery.exists(inner, "anti" if negated else "semi")
        elif isinstance(inner, exp.In) and inner.args.get("query") is not None:
            relation = subquery.in_query(inner, "anti" if negated else "semi")
        else:
            relation, over_values = subquery.values(test, needed=_rejects_null(test))
            relation = relation.where([Scope(relation, outer).resolved(over_values)])
    return relation


def with_subquery_columns(
    compiler: Compiler, items: Sequence[exp.Expression], scope: Scope, names: Mapping[str, CommonQuery]
) -> tuple[Relation, list[exp.Expression]]:
    """Return the rows with a column for each subquery in the select items, and the items with these columns instead."""
    relation, over_values = scope.relation, []
    for item in items:
        over_value = item
        if has_subquery(item):
            _refuse_streams(relation, item)
            relation, over_value = SubqueryJoin(compiler, relation, names, scope.outer).values(item, needed=False)
        over_values.append(over_value)
    return relation, over_values


def _refuse_streams(relation: Relation, tree: exp.Expression) -> None:
    if isinstance(relation.handle, Stream):
        raise UnsupportedQuery(
            sql_text(tree),
            "rows would be withdrawn when the result of the subquery changes, and a stream withdraws none",
            hint="Use a table: app.table(…), stream.latest(key), or a query that groups.",
        )


def _negated(test: exp.Expression) -> tuple[bool, exp.Expression]:
    negated = False
    while isinstance(test, exp.Not | exp.Paren):
        negated ^= isinstance(test, exp.Not)
        test = test.this
    return negated, test


def _rejects_null(test: exp.Expression) -> bool:
    """Return whether a test is not true where a subquery in it finds nothing."""
    if not isinstance(test, _COMPARISONS):
        return False
    for query in queries_in(test):
        above = query.parent
        while above is not test and isinstance(above, _ARITHMETIC):
            above = above.parent
        if above is not test:
            return False
    return True


@dataclass(slots=True)
class _Correlation:
    """How a subquery is correlated with the outer query: pairs of equal columns, and other tests."""

    pairs: list[tuple[exp.Expression, exp.Expression]]  # outer, inner
    tests: list[exp.Expression]


@dataclass(slots=True)
class SubqueryJoin:
    """Joins a relation with the subqueries of a test or a column."""

    compiler: Compiler
    relation: Relation
    names: Mapping[str, CommonQuery]
    outer: Scope | None

    # ---- in and exists ----

    def exists(self, tree: exp.Exists, how: str) -> Relation:
        """Return the rows for which a subquery finds some, or none."""
        query = tree.this.unnest() if isinstance(tree.this, exp.Subquery) else tree.this
        if _is_plain(query, self.compiler.context):
            body = self.compiler.body(query, self._names(query), Scope(self.relation, self.outer))
            return self._semi_join(body.relation.handle, self._correlation(body.correlated), how)
        return self._semi_join(self.compiler.rows(query, self.names, strict=False), _Correlation([], []), how)

    def in_query(self, tree: exp.In, how: str) -> Relation:
        """Return the rows whose values a subquery returns, or does not return."""
        query = tree.args["query"].unnest()
        values = [*tree.this.expressions] if isinstance(tree.this, exp.Tuple) else [tree.this]
        scope = Scope(self.relation, self.outer)
        outer = [scope.resolved(value) for value in values]
        correlation = _Correlation([], [])
        if _is_plain(query, self.compiler.context) and not any(item.is_star for item in query.expressions):
            body = self.compiler.body(query, self._names(query), scope)
            correlation, handle = self._correlation(body.correlated), body.relation.handle
            inner_scope = Scope(body.relation)
            inner = [
                inner_scope.resolved(item.this if isinstance(item, exp.Alias) else item) for item in query.expressions
            ]
        else:
            handle = self.compiler.rows(query, self.names, strict=False)
            inner = [column(name) for name in handle.columns]
        if len(inner) != len(outer):
            raise UnsupportedQuery(sql_text(tree), f"{len(outer)} values are looked for among {len(inner)} columns")
        if how == "anti":
            self._refuse_nulls(tree, outer, inner, handle)
        correlation.pairs[:0] = zip(outer, inner, strict=True)
        return self._semi_join(handle, correlation, how)

    def _names(self, query: exp.Query) -> Mapping[str, CommonQuery]:
        return common_queries(query, self.names)

    def _refuse_nulls(
        self,
        tree: exp.In,
        outer: Sequence[exp.Expression],
        inner: Sequence[exp.Expression],
        handle: StreamOrTable,
    ) -> None:
        """Refuse `not in` where a null may be on either side: one null makes it unknown for every row."""
        left, right = self.relation.handle.node.not_null, handle.node.not_null
        no_nulls = all(column_name(each) in left for each in outer) and all(
            column_name(each) in right for each in inner
        )
        if not no_nulls:
            raise UnsupportedQuery(
                f"not {sql_text(tree)}",
                "one null among the values makes not in unknown for every row, and these values may be null",
                hint="Say not exists (select 1 from … where y = x); or make sure of it: columns of a table's "
                "key have no nulls, nor have those that the subquery tests with is not null.",
            )

    def _semi_join(self, handle: StreamOrTable, correlation: _Correlation, how: str) -> Relation:
        """Join the rows with those of a subquery (semi or anti); only the left rows are returned."""
        left, right_names = self.relation.handle, {}
        outputs: list[Output] = []
        on: dict[str, str] = {}
        tests = list(correlation.tests)
        for outer, inner in correlation.pairs:
            name = column_name(outer)
            if name is None or name in on:
                left, name = with_computed(left, outer, "_left", handle)
            on[name] = _add_output(outputs, inner, handle)
        for each in [each for test in tests for each in columns_in(test) if not each.args.get(OUTER)]:
            right_names[each.name] = _add_output(outputs, column(each.name), handle)
        if not on:
            left, on = left.with_columns(_one="1"), {"_one": "_one"}
            outputs.append(("_one", exp.Literal.number(1)))
        right = select_outputs(handle, outputs)
        options, after = self._right_names(left, right, on)
        if tests:
            seen = {inner: after[name] for inner, name in right_names.items()}
            options["where"] = sql_text(conjunction([_over_both(test, seen) for test in tests]))
        step = join_steps(self.compiler.context, left, right, {"on": on_argument([*on.items()]), "how": how, **options})
        return self.relation.with_step(step)

    def _right_names(
        self, left: StreamOrTable, right: StreamOrTable, on: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the suffix of the join, and what the right side's columns are called in it."""
        suffix, after = suffix_and_names(left.columns, right.columns, [a for a, b in on.items() if a == b], "in")
        return ({} if suffix is None else {"suffix": suffix}), after

    def _correlation(self, tests: Sequence[exp.Expression]) -> _Correlation:
        correlation = _Correlation([], [])
        for test in tests:
            if any(int(each.args.get(OUTER) or 0) > 1 for each in columns_in(test)):
                raise UnsupportedQuery(sql_text(test), "a subquery reads the outer query, not one further out")
            pair = _pair(test)
            if pair is None:
                correlation.tests.append(test)
            else:
                correlation.pairs.append(pair)
        return correlation

    # ---- one value ----

    def values(self, tree: exp.Expression, *, needed: bool) -> tuple[Relation, exp.Expression]:
        """Return the rows with a column for each subquery in an expression, and the expression with these columns.

        `needed`: a row for which a subquery finds nothing may be dropped.
        """
        over_values = tree.copy()
        for query in list(queries_in(over_values)):
            if not isinstance(query, exp.Subquery) or isinstance(query.parent, exp.In | exp.Any | exp.All):
                raise UnsupportedQuery(
                    sql_text(tree),
                    "a subquery inside a larger test is not supported",
                    hint="Write in and exists as tests of their own, joined by and; write or as a union.",
                )
            value = self._value(query, needed=needed)
            if query is over_values:
                over_values = value
            else:
                query.replace(value)
        return self.relation, over_values

    def _value(self, query: exp.Subquery, *, needed: bool) -> exp.Expression:
        """Join the one value of a subquery, and return the column that it is."""
        select = query.unnest()
        counts = self._check_value(query, select)
        body = self.compiler.body(select, self._names(select), Scope(self.relation, self.outer))
        correlation = self._correlation(body.correlated)
        if correlation.tests:
            raise UnsupportedQuery(
                sql_text(correlation.tests[0]),
                "a subquery that returns one value may be correlated with the outer query by equalities only",
            )
        left = self.relation.handle
        name = free_name("_value", left.columns)
        right, on = self._grouped(select, body.relation, correlation, name)
        if not on:
            left, right, on = left.with_columns(_one="1"), right.with_columns(_one="1"), {"_one": "_one"}
        for outer, inner in [(each, on.pop(sql_text(each))) for each, _ in correlation.pairs]:
            plain = column_name(outer)
            if plain is None or plain in on:
                left, plain = with_computed(left, outer, "_left", right)
            on[plain] = inner
        how = "inner" if needed and not counts else "left"
        options, after = self._right_names(left, right, on)
        step = join_steps(self.compiler.context, left, right, {"on": on_argument([*on.items()]), "how": how, **options})
        self.relation = self.relation.with_step(step)
        value = as_resolved(column(after[name]))
        return exp.Anonymous(this="coalesce", expressions=[value, exp.Literal.number(0)]) if counts else value

    def _check_value(self, query: exp.Subquery, select: exp.Expression) -> bool:
        """Return whether a subquery counts, so that it finds 0 where there is nothing; refuse one with several rows."""
        parts_ = present_parts(select) - {"expressions", "from_", "joins", "where", "with_"}
        single = isinstance(select, exp.Select) and len(select.expressions) == 1 and not parts_
        if not single or not has_aggregate(select.expressions[0], self.compiler.context):
            raise UnsupportedQuery(
                sql_text(query),
                "a subquery that is used as a value must return one row: an aggregate of all that it finds",
                hint="For example (select max(x) from t where t.k = s.k); or use a join.",
            )
        item = select.expressions[0]
        item = item.this if isinstance(item, exp.Alias) else item
        counted = [call for call in item.find_all(exp.Anonymous) if call.name.lower().startswith("count")]
        if counted and not is_aggregate(item, self.compiler.context):
            raise UnsupportedQuery(
                sql_text(query),
                "a count inside a larger expression of a subquery is not supported",
                hint="Count in the subquery, and compute with it outside.",
            )
        return bool(counted)

    def _grouped(
        self, select: exp.Expression, relation: Relation, correlation: _Correlation, name: str
    ) -> tuple[StreamOrTable, dict[str, str]]:
        """Return a subquery's value for each group of rows with equal correlated columns, and these columns."""
        item = select.expressions[0]
        tree = Scope(relation).resolved(item.this if isinstance(item, exp.Alias) else item)
        plain: list[str] = []
        with_computed: dict[str, str] = {}
        on: dict[str, str] = {}
        for outer, inner in correlation.pairs:
            own = column_name(inner)
            if own is None:
                own = free_name("_key", [*relation.handle.columns, *with_computed])
                with_computed[own] = sql_text(inner)
            elif own not in plain:
                plain.append(own)
            on[sql_text(outer)] = own
        grouped = relation.handle.group_by(*plain, **with_computed)
        return self.compiler.context.uniquely_named(grouped.agg(**{name: sql_text(tree)})), on


def _add_output(outputs: list[Output], tree: exp.Expression, handle: StreamOrTable) -> str:
    """Return the name of the output that holds an expression; it is added if it is not there."""
    for name, output in outputs:
        if output == tree:
            return name
    taken = [name for name, _ in outputs]
    plain = column_name(tree)
    name = free_name(plain, taken) if plain is not None else free_name("_key", [*taken, *handle.columns])
    outputs.append((name, tree))
    return name


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


def _over_both(test: exp.Expression, inner: Mapping[str, str]) -> exp.Expression:
    """Return a test over the columns of a join: outer ones as they are, those of the subquery by their new names."""

    def change(part: exp.Expression) -> exp.Expression | None:
        if not isinstance(part, exp.Column):
            return None
        return exp.Column(this=part.this) if part.args.get(OUTER) else column(inner[part.name])

    return rewritten(test, change)


def _is_plain(query: exp.Expression, context: Context) -> bool:
    """Return whether a subquery only selects rows of `from` and `where`: then it may read the outer query."""
    if not isinstance(query, exp.Select) or present_parts(query) - {
        "expressions",
        "from_",
        "joins",
        "where",
        "with_",
        "distinct",
    }:
        return False
    return not any(has_aggregate(item, context) or item.find(exp.Window) for item in query.expressions)
