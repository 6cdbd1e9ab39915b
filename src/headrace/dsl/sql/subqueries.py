"""Subqueries in tests and columns: `in` and `exists` keep or drop rows; inside larger tests they are values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from headrace.base.errors import UnsupportedQuery
from headrace.dsl.sql.intervals import interval
from headrace.dsl.sql.output import Output, column, free_name, join_steps, on_argument, select_outputs, with_computed
from headrace.dsl.sql.parsing import sql_text
from headrace.dsl.sql.relation import (
    OUTER,
    Relation,
    Scope,
    column_name,
    columns_in,
    conjunction,
    has_subquery,
    queries_in,
    rewritten,
)
from headrace.dsl.sql.subquery_join import Found, SubqueryJoin, is_one_row, over_both, right_names, without_alike
from headrace.dsl.sql.subquery_values import SubqueryValues
from headrace.dsl.sql.times import is_time
from headrace.dsl.sql.widening import comparable
from headrace.dsl.stream_table import Stream

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

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
    for each in tests:
        test = _with_values(each, compiler.context)
        if not has_subquery(test):
            relation = relation.where([Scope(relation, outer).resolved(test)])
            continue
        negated, inner = _negated(test)
        subquery = SubqueryValues(compiler, relation, names, outer)
        found = _found(subquery, inner)
        if found is not None and not (negated and subquery.may_be_null(found)):
            relation = _semi_join(subquery, found, "anti" if negated else "semi")
        elif found is not None:  # one null makes it unknown for every row
            _refuse_streams(relation, test)
            is_found = subquery.membership(found, known=False)
            relation = subquery.relation.where([exp.Not(this=is_found)])
        else:
            _refuse_streams(relation, test)
            relation, over_values = subquery.values(test, needed=_rejects_null(test), is_test=True)
            relation = relation.where([Scope(relation, outer).resolved(over_values)])
    return relation


def with_subquery_columns(
    compiler: Compiler, items: Sequence[exp.Expression], scope: Scope, names: Mapping[str, CommonQuery]
) -> tuple[Relation, list[exp.Expression]]:
    """Return the rows with a column for each subquery in the select items, and the items with these columns instead."""
    relation, over_values = scope.relation, []
    for each in items:
        item = over_value = _with_values(each, compiler.context)
        if has_subquery(item):
            _refuse_streams(relation, item)
            subquery = SubqueryValues(compiler, relation, names, scope.outer)
            relation, over_value = subquery.values(item, needed=False, is_test=False)
        over_values.append(over_value)
    return relation, over_values


def _with_values(tree: exp.Expression, context: Context) -> exp.Expression:
    """Return an expression without `in` and `exists` over a subquery that always has one row: it is compared instead.

    That row is there where the subquery finds nothing, and no step has it then.
    """

    def changed(part: exp.Expression) -> exp.Expression | None:
        if isinstance(part, exp.Exists):
            query = part.this.unnest() if isinstance(part.this, exp.Subquery) else part.this
            return exp.true() if is_one_row(query, context) else part
        query = part.args.get("query") if isinstance(part, exp.In) else None
        if query is None:
            return part if isinstance(part, exp.Query) else None
        if not is_one_row(query.unnest(), context) or isinstance(part.this, exp.Tuple):
            return part
        return exp.Paren(this=exp.EQ(this=part.this, expression=exp.Subquery(this=query.unnest())))

    return rewritten(tree, changed)


def _found(subquery: SubqueryJoin, test: exp.Expression) -> Found | None:
    """Return the rows of a subquery, if a test is `in` or `exists`."""
    if isinstance(test, exp.Exists):
        return subquery.exists_rows(test)
    if isinstance(test, exp.In) and test.args.get("query") is not None:
        return subquery.in_rows(test)
    return None


def _refuse_streams(relation: Relation, tree: exp.Expression) -> None:
    if isinstance(relation.handle, Stream):
        raise UnsupportedQuery(
            sql_text(tree),
            "rows would be withdrawn when the result of the subquery changes, and a stream withdraws none",
            hint="Use a table: stream.as_table(), stream.latest(key), or a query that groups; or exists (…) over a "
            "stream, with a bound of time on both sides.",
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
class _Timing:
    """What says how far apart in time the rows of two streams may be: options of the join, and the tests in them."""

    options: dict[str, Any] = field(default_factory=dict)
    used: list[exp.Expression] = field(default_factory=list)


def _timing(subquery: SubqueryJoin, found: Found) -> _Timing:
    """Return how far apart in time two streams' rows may be; nothing where there is a table to the left.

    Raises:
        UnsupportedQuery: rows of a stream would have to be withdrawn.

    """
    left, context = subquery.relation.handle, subquery.compiler.context
    if not isinstance(left, Stream):
        return _Timing()

    def side(tree: exp.Expression) -> int | None:
        sides = {int(not each.args.get(OUTER)) for each in columns_in(tree)}
        if len(sides) != 1:
            return None
        right = sides.pop()
        return right if is_time(over_both(tree, {}, {}), (found.handle if right else left).node) else None

    bounds = interval(found.correlation.tests, side) if isinstance(found.handle, Stream) else None
    if bounds is None:
        _refuse_streams(subquery.relation, found.tree)
        return _Timing()
    context.timed = True
    grace = {} if context.grace is None else {"grace": context.grace}
    return _Timing({"within": bounds.within, **grace}, bounds.used)


def _semi_join(subquery: SubqueryJoin, found: Found, how: str) -> Relation:
    """Join the rows with those of a subquery (semi or anti); only the left rows are returned."""
    left, seen = subquery.relation.handle, dict[str, str]()
    outputs: list[Output] = []
    on: dict[str, str] = {}
    tests, timing = list(found.correlation.tests), _timing(subquery, found)
    tests = [test for test in tests if test not in timing.used]
    for pair in (*found.values, *found.correlation.pairs):
        outer, inner = comparable(pair[0], left, pair[1], found.handle)
        name = column_name(outer)
        if name is None or name in on:
            left, name = with_computed(left, outer, "_left", found.handle)
        on[name] = _add_output(outputs, inner, found.handle, taken=on.values())
    for each in [each for test in tests for each in columns_in(test) if not each.args.get(OUTER)]:
        seen[each.name] = _add_output(outputs, column(each.name), found.handle)
    if not on:
        left, on = left.with_columns(_one="1"), {"_one": "_one"}
        outputs.append(("_one", exp.Literal.number(1)))
    right = select_outputs(found.handle, outputs)
    if isinstance(right, Stream) and not isinstance(left, Stream):
        right = right.as_table()
    right, unlike = without_alike(right, left)
    on = {outer: unlike[inner] for outer, inner in on.items()}
    options, after = right_names(left, right, on)
    if tests:
        inner_names = {inner: after[unlike[name]] for inner, name in seen.items()}
        options["where"] = sql_text(conjunction([over_both(test, {}, inner_names) for test in tests]))
    on_and_how = {"on": on_argument([*on.items()]), "how": how, **timing.options}
    return subquery.relation.with_step(join_steps(subquery.compiler.context, left, right, {**on_and_how, **options}))


def _add_output(
    outputs: list[Output], tree: exp.Expression, handle: StreamOrTable, *, taken: Collection[str] = ()
) -> str:
    """Return the name of the output that holds an expression and is not taken; it is added if it is not there."""
    for name, output in outputs:
        if output == tree and name not in taken:
            return name
    taken = [name for name, _ in outputs]
    plain = column_name(tree)
    name = free_name(plain, taken) if plain is not None else free_name("_key", [*taken, *handle.columns])
    outputs.append((name, tree))
    return name
