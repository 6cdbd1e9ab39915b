"""Subqueries as values: one value of an aggregate, and what `in` and `exists` say, each joined as a column.

`x in (…)` is true where x is found; else it is unknown where x is null or a null is among the values, unless there are
no values at all; else it is false.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import UnsupportedQuery
from headrace.dsl.sql.aggregates import is_aggregate, is_null_over_nothing, over_nothing
from headrace.dsl.sql.output import column, free_name, join_steps, on_argument, with_computed
from headrace.dsl.sql.parsing import sql_text
from headrace.dsl.sql.relation import (
    OUTER,
    Relation,
    Scope,
    as_part,
    as_resolved,
    column_name,
    columns_in,
    conjunction,
    rewritten,
)
from headrace.dsl.sql.subquery_join import (
    Correlation,
    Found,
    SubqueryJoin,
    correlation_of,
    is_one_row,
    key_columns,
    over_both,
    right_names,
    without_alike,
)
from headrace.dsl.sql.widening import comparable
from headrace.dsl.stream_table import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.dsl.stream_table import StreamOrTable

_MONOTONE = (exp.And, exp.Or, exp.Paren)
"""Above a test in `where`: whether the test is unknown or false is the same."""


@dataclass(frozen=True, slots=True)
class _Value:
    """The value of a subquery: aggregates by name, and what is computed of these columns after the join."""

    calls: Mapping[str, str]
    tree: exp.Expression
    is_null_over_nothing: bool


@dataclass(slots=True)
class SubqueryValues(SubqueryJoin):
    """Joins a relation with the subqueries of a test or a column, so that each becomes a column."""

    def values(self, tree: exp.Expression, *, needed: bool, is_test: bool) -> tuple[Relation, exp.Expression]:
        """Return the rows with a column for each subquery in an expression, and the expression with these columns.

        `needed`: a row for which a subquery finds nothing may be dropped. `is_test`: only rows for which the expression
        is true are asked for.

        Raises:
            UnsupportedQuery: a subquery is where none is supported.

        """
        over_values = tree.copy()
        for part in list(_subqueries(over_values)):
            if isinstance(part, exp.In):
                value = as_resolved(self.membership(self.in_rows(part), known=is_test and _is_monotone(part)))
            elif isinstance(part, exp.Exists):
                value = as_resolved(self.membership(self.exists_rows(part), known=True))
            elif isinstance(part, exp.Subquery) and not isinstance(part.parent, exp.Any | exp.All):
                value = self._value(part, needed=needed)
            else:
                raise UnsupportedQuery(sql_text(tree), "a subquery is not supported here")
            if part is over_values:
                over_values = value
            else:
                part.replace(as_part(value))
        return self.relation, over_values

    # ---- in and exists ----

    def membership(self, found: Found, *, known: bool) -> exp.Expression:
        """Return whether a row's values are found, over the columns of the step; `known`: false stands for unknown.

        Raises:
            UnsupportedQuery: the subquery is correlated by more than equalities, or several values may be null.

        """
        if found.correlation.tests:
            raise UnsupportedQuery(
                sql_text(found.correlation.tests[0]),
                "inside a larger test, a subquery may be correlated with the outer query by equalities only",
                hint="Write it as a test of its own, joined by and.",
            )
        known = known or not self.may_be_null(found)
        if not known and len(found.values) > 1:
            raise UnsupportedQuery(
                sql_text(found.tree),
                "one null among several values makes not in unknown for some rows, and these values may be null",
                hint="Say not exists (select 1 from … where y = x and …); or make sure of it with is not null.",
            )
        plain, computed, names = key_columns(
            found.handle, [inner for _, inner in (*found.values, *found.correlation.pairs)]
        )
        keys = (
            found.handle.group_by(*plain, **computed) if names else found.handle.with_columns(_one="1").group_by("_one")
        )
        mark = free_name("_found", [*self.relation.handle.columns, *found.handle.columns])
        right = self.compiler.context.uniquely_named(keys.agg()).with_columns(**{mark: "true"})
        outer = [each for each, _ in (*found.values, *found.correlation.pairs)]
        is_found = _not_null(column(self._join(right, [*zip(outer, names, strict=True)], "left")[mark]))
        return is_found if known else self._three_valued(found, is_found)

    def _three_valued(self, found: Found, is_found: exp.Expression) -> exp.Expression:
        """Return whether a value is found, unknown where nulls make it so."""
        (looked_for, inner) = found.values[0]
        plain, computed, names = key_columns(found.handle, [each for _, each in found.correlation.pairs])
        taken = [*self.relation.handle.columns, *found.handle.columns]
        every, known = free_name("_values", taken), free_name("_known", taken)
        counted = found.handle.group_by(*plain, **computed).agg(
            **{every: "count(*)", known: f"count({sql_text(inner)})"}
        )
        right = self.compiler.context.uniquely_named(counted)
        after = self._join(right, [*zip([each for each, _ in found.correlation.pairs], names, strict=True)], "left")
        count, present = column(after[every]), column(after[known])
        unknown = exp.Or(
            this=exp.Is(this=looked_for.copy(), expression=exp.Null()),
            expression=exp.GT(this=count, expression=present),
        )
        some = exp.And(this=_not_null(count), expression=exp.Paren(this=unknown))  # no row of counts: no values
        nothing = exp.Cast(this=exp.Null(), to=exp.DataType.build("boolean"))
        branches = [exp.If(this=is_found, true=exp.true()), exp.If(this=some, true=nothing)]
        return exp.Case(ifs=branches, default=exp.false())

    # ---- one value ----

    def _value(self, query: exp.Subquery, *, needed: bool) -> exp.Expression:
        """Join the one value of a subquery, and return it over the columns of the step.

        An expression that is not null where there are no rows is computed after the join, over its aggregates.
        """
        select = query.unnest()
        self._check_value(query, select)
        body = self.compiler.body(select, self.common_names(select), Scope(self.relation, self.outer))
        correlation = correlation_of(body.correlated)
        item = select.expressions[0]
        item = Scope(body.relation).resolved(item.this if isinstance(item, exp.Alias) else item)
        value = self._computed(query, item)
        if correlation.tests:
            right, pairs = self._by_outer_columns(body.relation.handle, correlation, value.calls)
        else:
            plain, computed, names = key_columns(body.relation.handle, [inner for _, inner in correlation.pairs])
            right = body.relation.handle.group_by(*plain, **computed).agg(**value.calls)
            right = self.compiler.context.uniquely_named(right)
            pairs = [(outer, own) for (outer, _), own in zip(correlation.pairs, names, strict=True)]
        after = self._join(right, pairs, "inner" if needed and value.is_null_over_nothing else "left")
        return as_resolved(_renamed(value.tree, {name: after[name] for name in value.calls}))

    def _computed(self, query: exp.Subquery, item: exp.Expression) -> _Value:
        """Return what of a subquery's item is aggregated, and what is computed of it after the join."""
        context, taken = self.compiler.context, [*self.relation.handle.columns]
        if is_null_over_nothing(item, context):
            name = free_name("_value", taken)
            return _Value({name: sql_text(item)}, column(name), is_null_over_nothing=True)
        calls: dict[str, str] = {}

        def aggregated(part: exp.Expression) -> exp.Expression | None:
            if not is_aggregate(part, context):
                return None
            text = sql_text(part)
            name = next((name for name, call in calls.items() if call == text), free_name("_value", [*taken, *calls]))
            calls[name] = text
            return over_nothing(part, column(name))

        tree = rewritten(item, aggregated)
        if any(each.name not in calls for each in columns_in(tree)):
            raise _not_one_row(query)
        return _Value(calls, tree, is_null_over_nothing=False)

    def _by_outer_columns(
        self, inner: StreamOrTable, correlation: Correlation, calls: Mapping[str, str]
    ) -> tuple[StreamOrTable, list[tuple[exp.Expression, str]]]:
        """Return a subquery's aggregates for each combination of the outer columns that it reads.

        Each combination is joined with the rows of the subquery once, however many rows of the outer query have it.
        """
        if not correlation.pairs:
            raise UnsupportedQuery(
                sql_text(correlation.tests[0]),
                "no equality connects the subquery with the outer query, so each row would be compared with all",
                hint="Add an equality: where inner.k = outer.k and …",
            )
        left, context = self.relation.handle, self.compiler.context
        inner = inner.as_table() if isinstance(inner, Stream) else inner
        read = {each.name for outer, _ in correlation.pairs for each in columns_in(outer)}
        read |= {each.name for test in correlation.tests for each in columns_in(test) if each.args.get(OUTER)}
        own: dict[str, str] = {}
        for each in sorted(read):
            own[each] = free_name("_outer", [*inner.columns, *own.values(), *calls])
        probes = left.select(**{new: sql_text(column(old)) for old, new in own.items()})
        probes = context.uniquely_named(probes.group_by(*own.values()).agg())
        on: dict[str, str] = {}
        for outer, of_inner in correlation.pairs:
            probe, tree = comparable(_renamed(outer, own), probes, of_inner, inner)
            probe_name, match = column_name(probe), column_name(tree)
            if probe_name is None or probe_name in on:
                probes, probe_name = with_computed(probes, probe, "_left", inner)
            if match is None or match in on.values():
                inner, match = with_computed(inner, tree, "_right", probes)
            on[probe_name] = match
        where = sql_text(conjunction([over_both(test, own, {}) for test in correlation.tests]))
        matches = join_steps(context, probes, inner, {"on": on_argument([*on.items()]), "how": "inner", "where": where})
        found = context.uniquely_named(matches.group_by(*own.values()).agg(**calls))
        return self._null_safe(found, own)

    def _null_safe(
        self, found: StreamOrTable, own: dict[str, str]
    ) -> tuple[StreamOrTable, list[tuple[exp.Expression, str]]]:
        """Return pairs of columns that are equal where both are null, too: those that may be null as lists of one."""
        pairs: list[tuple[exp.Expression, str]] = []
        for outer, name in own.items():
            if outer in self.relation.handle.node.not_null:
                pairs.append((column(outer), name))
                continue
            found, computed = with_computed(
                found, exp.Array(expressions=[column(name)]), "_right", self.relation.handle
            )
            pairs.append((exp.Array(expressions=[column(outer)]), computed))
        return found, pairs

    def _check_value(self, query: exp.Subquery, select: exp.Expression) -> None:
        """Refuse a subquery that may return several rows, or several columns."""
        if not is_one_row(select, self.compiler.context) or len(select.expressions) != 1:
            raise _not_one_row(query)

    def _join(self, right: StreamOrTable, pairs: Sequence[tuple[exp.Expression, str]], how: str) -> dict[str, str]:
        """Join the rows with those of `right`, of which there is one at most for each; return its columns' names."""
        left, on = self.relation.handle, dict[str, str]()
        if not pairs:
            left, on = left.with_columns(_one="1"), {"_one": "_one"}
            right = right if "_one" in right.columns else right.with_columns(_one="1")
        right, unlike = without_alike(right, left)
        for outer, match in pairs:
            looked_for, found = comparable(outer, left, column(unlike[match]), right)
            plain, own = column_name(looked_for), column_name(found)
            if plain is None or plain in on:
                left, plain = with_computed(left, looked_for, "_left", right)
            if own is None or own in on.values():
                right, own = with_computed(right, found, "_right", left)
            on[plain] = own
        options, after = right_names(left, right, on)
        step = join_steps(self.compiler.context, left, right, {"on": on_argument([*on.items()]), "how": how, **options})
        self.relation = self.relation.with_step(step)
        return {old: after[new] for old, new in unlike.items()}


def _not_one_row(query: exp.Expression) -> UnsupportedQuery:
    return UnsupportedQuery(
        sql_text(query),
        "a subquery that is used as a value must return one row: an aggregate of all that it finds",
        hint="For example (select max(x) from t where t.k = s.k); or use a join.",
    )


def _subqueries(tree: exp.Expression) -> Iterator[exp.Expression]:
    """Yield the outermost subqueries of an expression, with the `in` or `exists` that they are part of."""
    if isinstance(tree, exp.Query | exp.Exists) or (isinstance(tree, exp.In) and tree.args.get("query") is not None):
        yield tree
    else:
        for child in tree.iter_expressions():
            yield from _subqueries(child)


def _is_monotone(part: exp.Expression) -> bool:
    above = part.parent
    while above is not None:
        if not isinstance(above, _MONOTONE):
            return False
        above = above.parent
    return True


def _not_null(tree: exp.Expression) -> exp.Expression:
    return exp.Not(this=exp.Is(this=tree, expression=exp.Null()))


def _renamed(tree: exp.Expression, names: dict[str, str]) -> exp.Expression:
    return rewritten(tree, lambda part: column(names[part.name]) if isinstance(part, exp.Column) else None)
