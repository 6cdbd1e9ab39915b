"""Subqueries in tests and columns: `in` and `exists` keep or drop rows, one value is joined as a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import UnsupportedQuery
from headrace.dsl.sql.output import agreeing, apart, column, computed, free, joined, selected
from headrace.dsl.sql.reading import said, shown
from headrace.dsl.sql.relation import (
    OUTER,
    Relation,
    Scope,
    asks,
    columns_in,
    fixed,
    name_of,
    queries_in,
    rebuilt,
    together,
)
from headrace.dsl.stream_table import Stream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.dsl.sql.context import Common
    from headrace.dsl.sql.query import Queries
    from headrace.dsl.stream_table import StreamOrTable

_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Paren, exp.Neg, exp.Cast)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


def met(
    queries: Queries,
    relation: Relation,
    tests: Sequence[exp.Expression],
    names: Mapping[str, Common],
    outer: Scope | None = None,
) -> Relation:
    """Return the rows that meet tests with subqueries, each of which is not resolved yet.

    Raises:
        UnsupportedQuery: a subquery stands where it is not kept.

    """
    for test in tests:
        negated, inner = _negated(test)
        _refuse_streams(relation, test)
        asking = Asking(queries, relation, names, outer)
        if isinstance(inner, exp.Exists):
            relation = asking.exists(inner, "anti" if negated else "semi")
        elif isinstance(inner, exp.In) and inner.args.get("query") is not None:
            relation = asking.among(inner, "anti" if negated else "semi")
        else:
            relation, made = asking.values(test, needed=_rejects_null(test))
            relation = relation.where([Scope(relation, outer).resolved(made)])
    return relation


def in_columns(
    queries: Queries, items: Sequence[exp.Expression], scope: Scope, names: Mapping[str, Common]
) -> tuple[Relation, list[exp.Expression]]:
    """Return the rows with a column for each subquery in what is given out, and that with these columns in it."""
    relation, made = scope.relation, []
    for item in items:
        each = item
        if asks(item):
            _refuse_streams(relation, item)
            relation, each = Asking(queries, relation, names, scope.outer).values(item, needed=False)
        made.append(each)
    return relation, made


def _refuse_streams(relation: Relation, tree: exp.Expression) -> None:
    if isinstance(relation.handle, Stream):
        raise UnsupportedQuery(
            shown(tree),
            "the rows of a stream would come and go with what the subquery finds, and a stream's rows stay",
            hint="Ask it of a table: app.table(…), stream.latest(key), or a query that groups.",
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
class _Links:
    """How the rows of a subquery have to do with those around: equal columns, and other tests."""

    pairs: list[tuple[exp.Expression, exp.Expression]]  # around, inside
    tests: list[exp.Expression]


@dataclass(slots=True)
class Asking:
    """A test or a column that asks a subquery, over the rows of a relation."""

    queries: Queries
    relation: Relation
    names: Mapping[str, Common]
    outer: Scope | None

    # ---- in and exists ----

    def exists(self, tree: exp.Exists, how: str) -> Relation:
        """Return the rows for which a subquery finds some, or none."""
        query = tree.this.unnest() if isinstance(tree.this, exp.Subquery) else tree.this
        if _is_plain(query, self.queries):
            body = self.queries.body(query, self._inside(query), Scope(self.relation, self.outer))
            return self._kept(body.relation.handle, self._links(body.links), how)
        return self._kept(self.queries.whole(query, self.names, strict=False), _Links([], []), how)

    def among(self, tree: exp.In, how: str) -> Relation:
        """Return the rows whose values a subquery gives out, or does not."""
        query = tree.args["query"].unnest()
        asked = [*tree.this.expressions] if isinstance(tree.this, exp.Tuple) else [tree.this]
        scope = Scope(self.relation, self.outer)
        around = [scope.resolved(each) for each in asked]
        links = _Links([], [])
        if _is_plain(query, self.queries) and not any(item.is_star for item in query.expressions):
            body = self.queries.body(query, self._inside(query), scope)
            links, handle = self._links(body.links), body.relation.handle
            inside = Scope(body.relation)
            found = [inside.resolved(item.this if isinstance(item, exp.Alias) else item) for item in query.expressions]
        else:
            handle = self.queries.whole(query, self.names, strict=False)
            found = [column(name) for name in handle.columns]
        if len(found) != len(around):
            raise UnsupportedQuery(shown(tree), f"{len(around)} values are looked for among {len(found)} columns")
        if how == "anti":
            self._refuse_nulls(tree, around, found, handle)
        links.pairs[:0] = zip(around, found, strict=True)
        return self._kept(handle, links, how)

    def _inside(self, query: exp.Query) -> Mapping[str, Common]:
        return self.queries.named(query, self.names)

    def _refuse_nulls(
        self,
        tree: exp.In,
        around: Sequence[exp.Expression],
        found: Sequence[exp.Expression],
        handle: StreamOrTable,
    ) -> None:
        """Refuse `not in` where a null may be on either side: one null makes it unknown for every row."""
        ours, theirs = self.relation.handle.node.not_null, handle.node.not_null
        sure = all(name_of(each) in ours for each in around) and all(name_of(each) in theirs for each in found)
        if not sure:
            raise UnsupportedQuery(
                f"not {shown(tree)}",
                "one null among the values makes not in unknown for every row, and they may be null",
                hint="Say not exists (select 1 from … where y = x); or leave no doubt: columns of a table's key "
                "have no nulls, nor has what the subquery says is not null.",
            )

    def _kept(self, handle: StreamOrTable, links: _Links, how: str) -> Relation:
        """Join the rows with those of a subquery; only the former come out."""
        left, right_names = self.relation.handle, {}
        out: list[tuple[str, exp.Expression]] = []
        on: dict[str, str] = {}
        tests = list(links.tests)
        for around, inside in links.pairs:
            name = name_of(around)
            if name is None or name in on:
                left, name = computed(left, around, "_left", handle)
            on[name] = self._given(out, inside, handle)
        for each in [each for test in tests for each in columns_in(test) if not each.args.get(OUTER)]:
            right_names[each.name] = self._given(out, column(each.name), handle)
        if not on:
            left, on = left.with_columns(_one="1"), {"_one": "_one"}
            out.append(("_one", exp.Literal.number(1)))
        right = selected(handle, out)
        said_, after = self._said(left, right, on)
        if tests:
            seen = {inner: after[name] for inner, name in right_names.items()}
            said_["where"] = shown(together([_over_both(test, seen) for test in tests]))
        made = joined(self.queries.context, left, right, {"on": agreeing([*on.items()]), "how": how, **said_})
        return self.relation.under(made)

    def _given(self, out: list[tuple[str, exp.Expression]], tree: exp.Expression, handle: StreamOrTable) -> str:
        """Return the name under which the subquery gives out an expression; it is added if it is not there."""
        for name, known in out:
            if known == tree:
                return name
        taken = [name for name, _ in out]
        plain = name_of(tree)
        name = free(plain, taken) if plain is not None else free("_key", [*taken, *handle.columns])
        out.append((name, tree))
        return name

    def _said(
        self, left: StreamOrTable, right: StreamOrTable, on: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the suffix of the join, and what the right side's columns are called in it."""
        suffix, after = apart(left.columns, right.columns, [a for a, b in on.items() if a == b], "in")
        return ({} if suffix is None else {"suffix": suffix}), after

    def _links(self, tests: Sequence[exp.Expression]) -> _Links:
        links = _Links([], [])
        for test in tests:
            if any(int(each.args.get(OUTER) or 0) > 1 for each in columns_in(test)):
                raise UnsupportedQuery(shown(test), "a subquery reads the query around it, not one further out")
            pair = _pair(test)
            if pair is None:
                links.tests.append(test)
            else:
                links.pairs.append(pair)
        return links

    # ---- one value ----

    def values(self, tree: exp.Expression, *, needed: bool) -> tuple[Relation, exp.Expression]:
        """Return the rows with a column for each subquery in an expression, and the expression with these columns.

        `needed`: a row for which a subquery finds nothing is of no use.
        """
        made = tree.copy()
        for query in list(queries_in(made)):
            if not isinstance(query, exp.Subquery) or isinstance(query.parent, exp.In | exp.Any | exp.All):
                raise UnsupportedQuery(
                    shown(tree),
                    "a subquery in the midst of a test is not kept",
                    hint="Let in and exists stand alone, joined by and; say or as a union.",
                )
            value = self._value(query, needed=needed)
            if query is made:
                made = value
            else:
                query.replace(value)
        return self.relation, made

    def _value(self, query: exp.Subquery, *, needed: bool) -> exp.Expression:
        """Join the one value of a subquery, and return the column that it is."""
        select = query.unnest()
        counts = self._check_value(query, select)
        body = self.queries.body(select, self._inside(select), Scope(self.relation, self.outer))
        links = self._links(body.links)
        if links.tests:
            raise UnsupportedQuery(
                shown(links.tests[0]),
                "a subquery that gives one value has to do with the query around by equality alone",
            )
        left = self.relation.handle
        name = free("_value", left.columns)
        right, on = self._grouped(select, body.relation, links, name)
        if not on:
            left, right, on = left.with_columns(_one="1"), right.with_columns(_one="1"), {"_one": "_one"}
        for around, inner in [(each, on.pop(shown(each))) for each, _ in links.pairs]:
            plain = name_of(around)
            if plain is None or plain in on:
                left, plain = computed(left, around, "_left", right)
            on[plain] = inner
        how = "inner" if needed and not counts else "left"
        said_, after = self._said(left, right, on)
        made = joined(self.queries.context, left, right, {"on": agreeing([*on.items()]), "how": how, **said_})
        self.relation = self.relation.under(made)
        value = fixed(column(after[name]))
        return exp.Anonymous(this="coalesce", expressions=[value, exp.Literal.number(0)]) if counts else value

    def _check_value(self, query: exp.Subquery, select: exp.Expression) -> bool:
        """Return whether a subquery counts, so that it finds 0 where there is nothing; refuse one with several rows."""
        from headrace.dsl.sql.grouping import aggregates_in, is_aggregate

        parts_ = said(select) - {"expressions", "from_", "joins", "where", "with_"}
        single = isinstance(select, exp.Select) and len(select.expressions) == 1 and not parts_
        if not single or not aggregates_in(select.expressions[0], self.queries):
            raise UnsupportedQuery(
                shown(query),
                "a subquery in the place of a value must be one row: an aggregate of all that it finds",
                hint="For example (select max(x) from t where t.k = s.k); else say a join.",
            )
        item = select.expressions[0]
        item = item.this if isinstance(item, exp.Alias) else item
        counted = [call for call in item.find_all(exp.Anonymous) if call.name.lower().startswith("count")]
        if counted and not is_aggregate(item, self.queries):
            raise UnsupportedQuery(
                shown(query),
                "a count inside a larger value of a subquery is not kept",
                hint="Count alone, and compute outside.",
            )
        return bool(counted)

    def _grouped(
        self, select: exp.Expression, relation: Relation, links: _Links, name: str
    ) -> tuple[StreamOrTable, dict[str, str]]:
        """Return a subquery's value for each group of rows that agree in the links, and the group's columns."""
        item = select.expressions[0]
        tree = Scope(relation).resolved(item.this if isinstance(item, exp.Alias) else item)
        plain: list[str] = []
        computed: dict[str, str] = {}
        on: dict[str, str] = {}
        for around, inside in links.pairs:
            own = name_of(inside)
            if own is None:
                own = free("_key", [*relation.handle.columns, *computed])
                computed[own] = shown(inside)
            elif own not in plain:
                plain.append(own)
            on[shown(around)] = own
        grouped = relation.handle.group_by(*plain, **computed)
        return self.queries.context.settled(grouped.agg(**{name: shown(tree)})), on


def _pair(test: exp.Expression) -> tuple[exp.Expression, exp.Expression] | None:
    """Return both sides of an equality between the query around and the subquery, the former's first."""
    if not isinstance(test, exp.EQ):
        return None
    sides = [{bool(each.args.get(OUTER)) for each in columns_in(side)} for side in (test.this, test.expression)]
    if sides == [{True}, {False}]:
        return _plain(test.this), test.expression
    if sides == [{False}, {True}]:
        return _plain(test.expression), test.this
    return None


def _plain(tree: exp.Expression) -> exp.Expression:
    return rebuilt(tree, lambda part: exp.Column(this=part.this) if isinstance(part, exp.Column) else None)


def _over_both(test: exp.Expression, inner: Mapping[str, str]) -> exp.Expression:
    """Return a test over the columns of a join: those around as they are, those of the subquery by their new names."""

    def change(part: exp.Expression) -> exp.Expression | None:
        if not isinstance(part, exp.Column):
            return None
        return exp.Column(this=part.this) if part.args.get(OUTER) else column(inner[part.name])

    return rebuilt(test, change)


def _is_plain(query: exp.Expression, queries: Queries) -> bool:
    """Return whether a subquery gives out rows of `from` and `where` as they are: it may read the query around."""
    from headrace.dsl.sql.grouping import aggregates_in

    if not isinstance(query, exp.Select) or said(query) - {
        "expressions",
        "from_",
        "joins",
        "where",
        "with_",
        "distinct",
    }:
        return False
    return not any(aggregates_in(item, queries) or item.find(exp.Window) for item in query.expressions)
