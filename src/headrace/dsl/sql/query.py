"""A query becomes steps: `from`, `where`, groups, what is given out, and the first rows of it, in this order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidQuery, UnsupportedQuery
from headrace.dsl.sql.context import Common
from headrace.dsl.sql.grouping import Aliases, Given, given_by
from headrace.dsl.sql.joining import Body, body_of
from headrace.dsl.sql.output import Output, column, distinct, ranked, selected
from headrace.dsl.sql.ranking import ranking_of, unasked
from headrace.dsl.sql.reading import shown, whole
from headrace.dsl.sql.relation import Relation, Scope, is_outer
from headrace.dsl.stream_table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.dsl.sql.context import Context
    from headrace.dsl.sql.ranking import Bound, Ranking
    from headrace.dsl.stream_table import StreamOrTable


class Queries:
    """The queries of one text, each made once."""

    def __init__(self, context: Context) -> None:
        self.context = context

    # ---- whole queries ----

    def whole(self, query: exp.Query, names: Mapping[str, Common], *, strict: bool = True) -> StreamOrTable:
        """Return the rows of a query; `strict`: each column that it gives out needs a name.

        Raises:
            PlanError: a part of it is not known, or not kept.

        """
        known = self.context.kept(query)
        return known or self.context.once(self._whole(query, names, strict=strict), query)

    def _whole(self, query: exp.Query, names: Mapping[str, Common], *, strict: bool) -> StreamOrTable:
        tree = whole(query)
        inside = self.named(tree, names)
        if isinstance(tree, exp.Select):
            return self._select(tree, inside, strict=strict)
        if isinstance(tree, exp.Union):
            return self._first(tree, self._all(self._union(tree, inside, strict=strict)))
        assert isinstance(tree, exp.Subquery)  # noqa: S101 -- whole() knows no other
        return self._first(tree, self._all(self.whole(tree.this, inside, strict=strict)))

    def first(self, query: exp.Query, names: Mapping[str, Common], ranking: Ranking, bound: Bound) -> StreamOrTable:
        """Return the first rows of each group of a query that numbers its rows."""
        known = self.context.kept(query, bound.n, bound.read)
        return known or self.context.once(self._numbered(query, names, ranking, bound), query, bound.n, bound.read)

    def named(self, tree: exp.Query, names: Mapping[str, Common]) -> Mapping[str, Common]:
        """Return the queries that have names inside a query."""
        clause = tree.args.get("with_")
        if clause is None:
            return names
        if clause.args.get("recursive"):
            raise UnsupportedQuery(shown(clause), "a query that reads itself has no end that is known")
        made = dict(names)
        for each in clause.expressions:
            columns = tuple(name.name for name in each.args["alias"].args.get("columns") or ())
            made[each.alias.lower()] = Common(each.this, columns, dict(made))
        return made

    def body(self, select: exp.Select, names: Mapping[str, Common], outer: Scope | None) -> Body:
        """Return the rows of `from` and `where`; what they have to do with the query around is left open."""
        return body_of(self, select, names, outer)

    # ---- selects ----

    def _select(self, select: exp.Select, names: Mapping[str, Common], *, strict: bool) -> StreamOrTable:
        if ranking_of(select) is not None:
            raise unasked(next(item for item in select.expressions if item.find(exp.Window)))
        order = select.args.get("order")
        extra = [term.this for term in order.expressions] if order is not None else []
        given = self.given(select, names, extra, strict=strict)
        if select.args.get("distinct") is None:
            return self._first(select, given)
        if select.args["distinct"].args.get("on"):
            raise UnsupportedQuery(shown(select), "distinct on is not Spark's")
        made = distinct(selected(given.handle, given.out), self.context)
        return self._first(select, self._all(made))

    def given(
        self, select: exp.Select, names: Mapping[str, Common], extra: Sequence[exp.Expression], *, strict: bool
    ) -> Given:
        """Return what a select gives out, before `distinct` and `order by`."""
        body = self.body(select, names, None)
        return given_by(self, select, body.relation, names, strict=strict, extra=extra)

    def _numbered(self, query: exp.Query, names: Mapping[str, Common], ranking: Ranking, bound: Bound) -> StreamOrTable:
        tree = whole(query)
        assert isinstance(tree, exp.Select)  # noqa: S101 -- ranking_of looked
        if tree.args.get("distinct") is not None or tree.args.get("order") is not None:
            raise UnsupportedQuery(shown(tree), "row_number() beside distinct or order by is not kept")
        at = next(i for i, item in enumerate(tree.expressions) if item.find(exp.Window))
        plain = tree.copy()
        window = plain.expressions.pop(at).this
        by, within = window.args["order"].expressions, window.args.get("partition_by") or []
        given = self.given(plain, self.named(tree, names), [*within, *(term.this for term in by)], strict=True)
        made = ranked(
            given.handle,
            given.out,
            [_over(term, given, aliases=False) for term in by],
            self.context,
            n=bound.n,
            within=[given.over(key, aliases=False) for key in within],
            rank=ranking.name if bound.read else None,
        )
        if not bound.read or any(item.is_star for item in plain.expressions):
            return made
        order = made.columns[:-1]
        order.insert(at, ranking.name)
        return selected(made, [(name, column(name)) for name in order])

    # ---- parts ----

    def _union(self, tree: exp.Union, names: Mapping[str, Common], *, strict: bool) -> StreamOrTable:
        left = self.whole(tree.this, names, strict=strict)
        right = self.whole(tree.expression, names, strict=False)
        if len(left.columns) != len(right.columns):
            raise InvalidQuery(
                f"union of {len(left.columns)} columns with {len(right.columns)}",
                detail=f"{', '.join(left.columns)}  against  {', '.join(right.columns)}",
            )
        pairs = zip(left.columns, right.columns, strict=True)
        right = selected(right, [(name, column(other)) for name, other in pairs])
        made = _united(left, right)
        return distinct(made, self.context) if tree.args.get("distinct") else made

    def _all(self, handle: StreamOrTable) -> Given:
        """Return all columns of a step as what is given out."""
        scope = Scope(Relation.whole(handle))
        out: list[Output] = [(name, column(name)) for name in handle.columns]
        return Given(handle, out, scope, Aliases(self, out, scope))

    def _first(self, tree: exp.Query, given: Given) -> StreamOrTable:
        """Return the first rows where the query has an order and a limit."""
        order, limit = tree.args.get("order"), tree.args.get("limit")
        if limit is None:
            if order is not None:
                raise UnsupportedQuery(
                    shown(order),
                    "rows of a table have no order; it is the reader's",
                    hint="Order where the view is read, or ask for the first ones: order by … limit 10.",
                )
            return selected(given.handle, given.out)
        if order is None:
            raise UnsupportedQuery(
                shown(limit), "without order by, which rows are the first is left open", hint="Say order by … limit n."
            )
        count = limit.expression
        if not isinstance(count, exp.Literal) or count.is_string or not count.this.isdigit():
            raise UnsupportedQuery(shown(limit), "the limit is a whole number")
        by = [_over(term, given) for term in order.expressions]
        return ranked(given.handle, given.out, by, self.context, n=int(count.this))


def _over(term: exp.Ordered, given: Given, *, aliases: bool = True) -> exp.Ordered:
    tree = given.over(term.this, aliases=aliases)
    if is_outer(tree):
        raise UnsupportedQuery(shown(term), "an order cannot read the query around")
    made: exp.Ordered = term.copy()
    made.set("this", tree)
    return made


def _united(left: StreamOrTable, right: StreamOrTable) -> StreamOrTable:
    if isinstance(left, Table):
        return left.union(right)
    if isinstance(right, Table):
        return selected(right.union(left), [(name, column(name)) for name in left.columns])
    return left.union(right)
