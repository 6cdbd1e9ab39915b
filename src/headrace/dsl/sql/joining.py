"""`from` and `where`: relations are joined by equal columns, and tests are applied as early as they can be.

Columns of all relations have qualified names, `number.column`, until they are joined; then those of the step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.errors import UnsupportedQuery
from headrace.dsl.sql.exploding import exploded, take_laterals
from headrace.dsl.sql.from_items import from_items
from headrace.dsl.sql.join_builder import JoinBuilder
from headrace.dsl.sql.join_state import JoinState
from headrace.dsl.sql.output import column, select_outputs
from headrace.dsl.sql.parsing import check_parts, sql_text
from headrace.dsl.sql.qualified import QualifiedColumns, qualified, relations_in, unqualified
from headrace.dsl.sql.relation import Body, Relation, Scope, columns_in, conjuncts, has_subquery, reads_outer
from headrace.dsl.sql.subqueries import filter_by_subqueries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import exp

    from headrace.dsl.sql.compiler import Compiler
    from headrace.dsl.sql.context import CommonQuery


def body_of(compiler: Compiler, select: exp.Select, names: Mapping[str, CommonQuery], outer: Scope | None) -> Body:
    """Return the rows of `from` and `where` of a select.

    Raises:
        PlanError: a name is not known, or a part is not supported.

    """
    check_parts(select)
    plain, laterals, tests = take_laterals(select)
    body = _joined(compiler, plain, names, outer)
    if not laterals:
        return body
    relation = exploded(body.relation, laterals)
    scope = Scope(relation, outer)
    subquery_tests = [test for test in tests if has_subquery(test)]
    resolved = [scope.resolved(test) for test in tests if not has_subquery(test)]
    relation = relation.where([test for test in resolved if not reads_outer(test)])
    relation = filter_by_subqueries(compiler, relation, subquery_tests, names, outer)
    return Body(relation, [*body.correlated, *(test for test in resolved if reads_outer(test))])


def _joined(compiler: Compiler, select: exp.Select, names: Mapping[str, CommonQuery], outer: Scope | None) -> Body:
    """Return the rows of the relations of `from`, joined, that pass the tests of `where`."""
    items, tests = from_items(compiler, select, names)
    columns = QualifiedColumns(items)
    scope = Scope(columns.relation(len(items)), outer)
    subquery_tests = [test for test in tests if has_subquery(test)]
    resolved = [scope.resolved(test) for test in tests if not has_subquery(test)]
    correlated = [test for test in resolved if reads_outer(test)]
    own = [test for test in resolved if not reads_outer(test)]
    as_of = [item.at for item in items if item.at is not None]
    read_later = columns.read_after_joins(select, [*subquery_tests, *as_of])
    read_later |= {each.name for test in correlated for each in columns_in(test)}
    prune = len(items) > 1 or bool(subquery_tests)
    state = JoinState(compiler.context, items, columns, own, read_later, prune=prune)
    correlated += _take_on_tests(state, outer)
    _join_all(state)
    relation = state.relation(columns.relation(len(items)))
    relation = relation.where([state.over_step(test) for test in state.tests])
    relation = filter_by_subqueries(compiler, relation, subquery_tests, names, outer)
    return Body(relation, [state.over_step(test) for test in correlated])


def _join_all(state: JoinState) -> None:
    """Join all relations, in the order of the text where that connects each with those before it."""
    state.begin(_pruned(state, 0, _filtered(state, 0)))
    waiting = list(range(1, len(state.items)))
    while waiting:
        number = _next(state, waiting)
        waiting.remove(number)
        _join(state, number)
        _filter_joined(state)


def _take_on_tests(state: JoinState, outer: Scope | None) -> list[exp.Expression]:
    """Give each join the tests of its `on`; return those that read the outer query: an inner join may test them later.

    Raises:
        UnsupportedQuery: an outer join has such a test.

    """
    correlated: list[exp.Expression] = []
    for number, item in enumerate(state.items):
        if item.on is None:
            continue
        tests = _on_tests(state, number, item.on, outer)
        later = [test for test in tests if reads_outer(test)]
        if later and (item.how != "inner" or any(each.how in ("right", "full") for each in state.items[number + 1 :])):
            raise UnsupportedQuery(sql_text(item.on), "this join of a subquery cannot read the outer query")
        state.on_tests[number] = [test for test in tests if test not in later]
        correlated += later
    state.read_later |= {each.name for test in correlated for each in columns_in(test)}
    return correlated


def _on_tests(state: JoinState, number: int, on: exp.Expression, outer: Scope | None) -> list[exp.Expression]:
    scope = Scope(state.columns.relation(number + 1, one_sided=number), outer)
    tests = conjuncts(on)
    if any(has_subquery(test) for test in tests):
        raise UnsupportedQuery(sql_text(on), "a subquery in on is not supported", hint="Say it in where.")
    return [scope.resolved(test) for test in tests]


def _filtered(state: JoinState, number: int) -> Relation:
    """Return the rows of a relation that pass the tests that read it alone; these tests wait no longer."""
    item = state.items[number]
    if not state.is_preserved(number) or item.how == "right":
        return item.relation
    own = [test for test in state.tests if relations_in(test) == {number}]
    state.tests = [test for test in state.tests if test not in own]
    if item.how == "inner":
        on_tests = state.on_tests.get(number, [])
        own_on = [test for test in on_tests if relations_in(test) == {number}]
        state.on_tests[number] = [test for test in on_tests if test not in own_on]
        own += own_on
    names = {qualified(number, name): name for name in item.relation.handle.columns}
    return item.relation.where([unqualified(test, names) for test in own])


def _pruned(state: JoinState, number: int, relation: Relation) -> Relation:
    """Leave out the columns that nobody reads, except keys: a join keeps what it is given in its state."""
    if not state.prune:
        return relation
    handle, read = relation.handle, state.read()
    needed = {name for name in handle.columns if qualified(number, name) in read} | set(handle.node.key or ())
    names = [name for name in handle.columns if name in needed] or handle.columns[:1]
    return relation.with_step(select_outputs(handle, [(name, column(name)) for name in names]))


def _filter_joined(state: JoinState) -> None:
    """Apply the tests whose relations are all joined, while others are not; those that read none come last."""
    ready = [
        test
        for test in state.tests
        if (read := relations_in(test)) and read <= state.joined and all(map(state.is_preserved, read))
    ]
    if ready and len(state.joined) < len(state.items):
        state.tests = [test for test in state.tests if test not in ready]
        state.items[0].relation = state.items[0].relation.where([state.over_step(test) for test in ready])


def _next(state: JoinState, waiting: Sequence[int]) -> int:
    """Return the first relation that can be joined now."""
    for number in waiting:
        if state.is_connected(number):
            return number
        if state.items[number].how in ("right", "full"):
            break
    raise UnsupportedQuery(
        sql_text(state.items[waiting[0]].tree),
        "no equality connects its rows with the others, so each row would match all of them",
        hint="Join by an equality: on a.x = b.y, using (x), or where a.x = b.y.",
    )


def _join(state: JoinState, number: int) -> None:
    item = state.items[number]
    item.relation = _pruned(state, number, _filtered(state, number))
    builder = JoinBuilder(state, number)
    state.items[0].relation = state.items[0].relation.with_step(builder.build())
    state.joined.add(number)
    state.tests = [test for test in state.tests if not state.is_met(test, number, builder.used)]
    later = [test for test in state.on_tests.pop(number, []) if test not in builder.used]
    if later and any(each.how in ("right", "full") for each in state.items):
        raise UnsupportedQuery(
            sql_text(item.tree), "these joins cannot be put in order", hint="Nest them: from (…) as t."
        )
    state.tests += later
