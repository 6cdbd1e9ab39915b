"""A query becomes steps: `from`, `where`, groups, its columns, and its first rows, in this order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidQuery, UnsupportedQuery
from headrace.dsl.sql.context import common_queries
from headrace.dsl.sql.exploding import with_lateral_items
from headrace.dsl.sql.grouping import Aliases, Selection, is_grouped, selection_of, width
from headrace.dsl.sql.joining import body_of
from headrace.dsl.sql.output import First, Output, column, distinct, first_rows, select_outputs
from headrace.dsl.sql.over import has_window, with_windows
from headrace.dsl.sql.parsing import present_parts, sql_text, without_parentheses
from headrace.dsl.sql.relation import (
    RESOLVED,
    Relation,
    Scope,
    as_resolved,
    columns_in,
    reads_outer,
    rewritten,
)
from headrace.dsl.sql.set_operations import combined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.dsl.sql.context import CommonQuery, Context
    from headrace.dsl.sql.ranking import Ranking, RowLimit
    from headrace.dsl.sql.relation import Body
    from headrace.dsl.stream_table import StreamOrTable


class QueryCompiler:
    """Compiles the queries of one text, each once."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def rows(self, query: exp.Query, names: Mapping[str, CommonQuery], *, strict: bool = True) -> StreamOrTable:
        """Return the rows of a query; `strict`: each of its columns needs a name.

        Raises:
            PlanError: a part of it is not known, or not supported.

        """
        known = self.context.remembered(query)
        return known or self.context.remember(self._rows(query, names, strict=strict), query)

    def _rows(self, query: exp.Query, names: Mapping[str, CommonQuery], *, strict: bool) -> StreamOrTable:
        tree = without_parentheses(query)
        inner = common_queries(tree, names)
        if isinstance(tree, exp.Select):
            return self._select(tree, inner, strict=strict)
        if isinstance(tree, exp.SetOperation):
            return self._limited(tree, self._all(self._set_operation(tree, inner, strict=strict)))
        if not isinstance(tree, exp.Subquery):
            raise UnsupportedQuery(sql_text(tree) or "()", "this is not what rows can be selected from")
        return self._limited(tree, self._all(self.rows(tree.this, inner, strict=strict)))

    def first_rows(
        self, query: exp.Query, names: Mapping[str, CommonQuery], ranking: Ranking, limit: RowLimit
    ) -> StreamOrTable:
        """Return the first rows of each group of a query that numbers its rows."""
        key = (limit.n, limit.rank_is_read)
        known = self.context.remembered(query, *key)
        return known or self.context.remember(self._first_rows(query, names, ranking, limit), query, *key)

    def body(self, select: exp.Select, names: Mapping[str, CommonQuery], outer: Scope | None) -> Body:
        """Return the rows of `from` and `where`, and the tests that read the outer query, which are not applied."""
        return body_of(self, select, names, outer)

    # ---- selects ----

    def _select(self, tree: exp.Select, names: Mapping[str, CommonQuery], *, strict: bool) -> StreamOrTable:
        order = tree.args.get("order")
        extra = [term.this for term in order.expressions] if order is not None else []
        selection = self._selection(tree, names, extra, strict=strict)
        if tree.args.get("distinct") is None:
            return self._limited(tree, selection)
        if tree.args["distinct"].args.get("on"):
            raise UnsupportedQuery(sql_text(tree), "distinct on is not Spark's")
        rows = distinct(select_outputs(selection.handle, selection.outputs), self.context)
        return self._limited(_ordered_by_outputs(tree, selection), self._all(rows))

    def _selection(
        self, tree: exp.Select, names: Mapping[str, CommonQuery], extra: Sequence[exp.Expression], *, strict: bool
    ) -> Selection:
        """Return the columns of a select, before `distinct` and `order by`."""
        tree = with_lateral_items(tree, grouped=is_grouped(self.context, tree))
        relation = self.body(tree, names, None).relation
        if has_window(tree):
            relation, tree = with_windows(self.context, tree, relation)
        return selection_of(self, tree, relation, names, strict=strict, extra=extra)

    def _first_rows(
        self, query: exp.Query, names: Mapping[str, CommonQuery], ranking: Ranking, limit: RowLimit
    ) -> StreamOrTable:
        tree = without_parentheses(query)
        assert isinstance(tree, exp.Select)  # noqa: S101 -- ranking_of looked
        if present_parts(tree) & {"distinct", "order", "limit"}:
            reason = "row numbers together with distinct, order by or limit are not supported"
            raise UnsupportedQuery(sql_text(tree), reason, hint="Write the one around the other.")
        at = next(i for i, item in enumerate(tree.expressions) if item.find(exp.Window))
        plain = tree.copy()
        window = plain.expressions.pop(at).this
        by, within = window.args["order"].expressions, window.args.get("partition_by") or []
        plain.set("order", exp.Order(expressions=[*within, *by]))  # joins keep what it reads
        extra = [*within, *(term.this for term in by)]
        selection = self._selection(plain, common_queries(tree, names), extra, strict=True)
        rows = first_rows(
            selection.handle,
            selection.outputs,
            [_over(term, selection, aliases=False) for term in by],
            self.context,
            first=First(limit.n, ranking.name if limit.rank_is_read else None, ranking.ties),
            within=[selection.over(key, aliases=False) for key in within],
        )
        if not limit.rank_is_read:
            return rows
        order = rows.columns[:-1]
        order.insert(sum(width(item, selection.scope) for item in plain.expressions[:at]), ranking.name)
        return select_outputs(rows, [(name, column(name)) for name in order])

    # ---- unions, order and limit ----

    def _set_operation(
        self, tree: exp.SetOperation, names: Mapping[str, CommonQuery], *, strict: bool
    ) -> StreamOrTable:
        left = self.rows(tree.this, names, strict=strict)
        return combined(tree, left, self.rows(tree.expression, names, strict=False), self.context)

    def _all(self, handle: StreamOrTable) -> Selection:
        """Return all columns of a step as a selection."""
        scope = Scope(Relation.of_step(handle))
        outputs: list[Output] = [(name, column(name)) for name in handle.columns]
        return Selection(handle, outputs, scope, Aliases(self.context, outputs, scope))

    def _limited(self, tree: exp.Query, selection: Selection) -> StreamOrTable:
        """Return the columns of a selection; only its first rows where the query has an order and a limit."""
        order, limit = tree.args.get("order"), tree.args.get("limit")
        if limit is None:
            if order is not None:
                raise UnsupportedQuery(
                    sql_text(order),
                    "rows of a table have no order; the reader chooses one",
                    hint="Order where the view is read, or ask for the first ones: order by … limit 10.",
                )
            return select_outputs(selection.handle, selection.outputs)
        if order is None:
            raise UnsupportedQuery(
                sql_text(limit), "without order by, any rows may be the first", hint="Say order by … limit n."
            )
        count = limit.expression
        if not isinstance(count, exp.Literal) or count.is_string or not count.this.isdigit():
            raise UnsupportedQuery(sql_text(limit), "the limit must be a whole number")
        by = [_over(term, selection) for term in order.expressions]
        return first_rows(selection.handle, selection.outputs, by, self.context, first=First(int(count.this)))


def _ordered_by_outputs(tree: exp.Select, selection: Selection) -> exp.Select:
    """Return a query with its order over the columns that it returns, as `distinct` leaves no others."""

    def change(part: exp.Expression) -> exp.Expression | None:
        return next((as_resolved(column(name)) for name, output in selection.outputs if output == part), None)

    ordered = tree.copy()
    for term in ordered.args["order"].expressions if ordered.args.get("order") is not None else ():
        over = rewritten(selection.over(term.this), change)
        hidden = next((each.name for each in columns_in(over) if not each.args.get(RESOLVED)), None)
        if hidden is not None:
            raise InvalidQuery(
                f'the order reads "{hidden}", which select distinct does not return',
                hint="Return it too, or order by what is returned.",
            )
        term.set("this", over)
    return ordered


def _over(term: exp.Ordered, selection: Selection, *, aliases: bool = True) -> exp.Ordered:
    tree = selection.over(term.this, aliases=aliases)
    if reads_outer(tree):
        raise UnsupportedQuery(sql_text(term), "an order cannot read the outer query")
    ordered: exp.Ordered = term.copy()
    ordered.set("this", tree)
    return ordered
