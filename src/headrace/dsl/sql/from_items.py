"""`from`: each name, subquery and common query becomes a relation; joining is the next step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidQuery, UnsupportedQuery
from headrace.dsl.sql.context import CommonQuery
from headrace.dsl.sql.inline_values import values_table
from headrace.dsl.sql.matching import matched
from headrace.dsl.sql.output import select_outputs
from headrace.dsl.sql.parsing import check_parts, identifier, sql_text
from headrace.dsl.sql.pivoting import pivoted, take_pivot
from headrace.dsl.sql.ranking import Ranked, ranking_of
from headrace.dsl.sql.relation import Relation, VisibleColumn, conjuncts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.dsl.sql.compiler import Compiler
    from headrace.dsl.stream_table import StreamOrTable

_HOWS = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("", "CROSS"): "inner",
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right",
    ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "semi",
    ("LEFT", "ANTI"): "anti",
    ("", "SEMI"): "semi",
    ("", "ANTI"): "anti",
}


@dataclass(slots=True)
class FromItem:
    """One relation of `from`: how and by which columns it is joined with those before it; `at` is its `as of`."""

    alias: str
    relation: Relation
    tree: exp.Expression
    how: str = "inner"
    on: exp.Expression | None = None
    using: tuple[str, ...] = ()
    natural: bool = False
    at: exp.Expression | None = None


def from_items(
    compiler: Compiler, select: exp.Select, names: Mapping[str, CommonQuery]
) -> tuple[list[FromItem], list[exp.Expression]]:
    """Return the relations of `from`, and the tests of `where` that are still to be applied.

    Raises:
        PlanError: a name is not known, or a part is not supported.

    """
    first = select.args.get("from_")
    if first is None:
        raise UnsupportedQuery(sql_text(select), "a query without from reads no rows")
    where = select.args.get("where")
    found = _FromItems(compiler, select, names, conjuncts(None if where is None else where.this))
    items: list[FromItem] = []
    for join in [None, *(select.args.get("joins") or ())]:
        item = found.item(first.this if join is None else join.this)
        if twice := item.relation.aliases & {name for known in items for name in known.relation.aliases}:
            raise InvalidQuery(f'two relations are called "{min(twice)}"', hint="Give one an alias: from t as other.")
        if join is not None:
            _set_join(join, item, items)
        elif select.args.get("match") is not None:
            item = found.matched(item)
        items.append(item)
    return items, found.tests


def _set_join(join: exp.Join, item: FromItem, before: Sequence[FromItem]) -> None:
    check_parts(join)
    method = str(join.args.get("method") or "")
    how = _HOWS.get((str(join.args.get("side") or ""), str(join.args.get("kind") or "")))
    if how is None or method not in ("", "NATURAL"):
        raise UnsupportedQuery(sql_text(join), "this join is not known")
    item.how, item.on = how, join.args.get("on")
    item.using = tuple(name.name for name in join.args.get("using") or ())
    item.natural = method == "NATURAL"
    if item.natural:
        seen = {visible.name.lower() for each in before for visible in each.relation.columns}
        item.using = tuple(v.name for v in item.relation.columns if v.name.lower() in seen)


@dataclass(slots=True)
class _FromItems:
    """The relations of a select, one by one; `tests` are those of `where` that are still to be applied."""

    compiler: Compiler
    select: exp.Select
    names: Mapping[str, CommonQuery]
    tests: list[exp.Expression]

    def item(self, tree: exp.Expression) -> FromItem:
        """Return one relation of `from`."""
        tree, pivot = take_pivot(tree)
        if pivot is not None:
            return self._pivoted(tree, pivot)
        check_parts(tree)
        called, columns = _alias(tree)
        if isinstance(tree, exp.Table):
            return self._named(tree, called, columns)
        if isinstance(tree, exp.Values):
            table, called = values_table(self.compiler.context, tree)
            return FromItem(called, Relation.of_step(table, called or None), tree)
        if not isinstance(tree, exp.Subquery):
            raise UnsupportedQuery(sql_text(tree) or "()", "this is not what rows can be read from")
        if (select := _joined_in_parentheses(tree)) is not None:
            return FromItem(called, self._joined(select, tree, called, columns), tree)
        handle = self._subquery(tree, CommonQuery(tree.this, (), self.names), called, columns)
        return FromItem(called, Relation.of_step(handle, called or None), tree)

    def _pivoted(self, tree: exp.Expression, pivot: exp.Pivot) -> FromItem:
        query = pivoted(self.compiler.context, pivot, tree, self.item(tree).relation)
        called, columns = _alias(pivot)
        handle = renamed(self.compiler.rows(query, self.names), columns, pivot)
        return FromItem(called, Relation.of_step(handle, called or None), pivot)

    def _joined(self, select: exp.Select, tree: exp.Expression, called: str, columns: Sequence[str]) -> Relation:
        """Return relations that are joined in parentheses, under their own names, or under that of the parentheses."""
        relation = self.compiler.body(select, self.names, None).relation
        if not called:
            return relation
        names = [visible.name for visible in relation.columns]
        if columns:
            _check_count(columns, names, tree)
        pairs = zip(relation.columns, columns or names, strict=True)
        return Relation(relation.handle, tuple(VisibleColumn(name, (called,), seen.column) for seen, name in pairs))

    def matched(self, item: FromItem) -> FromItem:
        """Return the matches of a pattern in the rows of the one relation of `from`."""
        match = self.select.args["match"]
        if self.select.args.get("joins"):
            raise UnsupportedQuery(
                "match_recognize",
                "it is over one relation",
                hint="Write the one inside of the other: select … from (select … from t match_recognize (…)) m join …",
            )
        relation, called = matched(self.compiler.context, match, item.relation, item.alias)
        return replace(item, relation=relation, alias=called)

    def _named(self, tree: exp.Table, called: str, columns: Sequence[str]) -> FromItem:
        name = ".".join(part.name for part in tree.parts)
        called = called or name
        common = self.names.get(name.lower())
        if common is None:
            handle = renamed(self.compiler.context.source(name), columns, tree)
        else:
            handle = self._subquery(tree, common, called, columns)
        version = tree.args.get("version")
        at = None if version is None else version.expression
        return FromItem(called, Relation.of_step(handle, called), tree, at=at)

    def _subquery(self, tree: exp.Expression, common: CommonQuery, alias: str, columns: Sequence[str]) -> StreamOrTable:
        """Return a query's rows; of one that ranks only the first ones that the outer query asks for."""
        query, names = common.query, common.names
        columns = columns or common.columns
        ranking = ranking_of(query)
        name = None if ranking is None else ranking.name_in(columns)
        limit = None if name is None else Ranked(name, alias, self.select, tree).limit(self.tests)
        if ranking is None or limit is None:
            return renamed(self.compiler.rows(query, names, strict=not columns), columns, query)
        self.tests = limit.other_tests
        if columns:
            limit = replace(limit, rank_is_read=True)  # the list names it
        return renamed(self.compiler.first_rows(query, names, ranking, limit), columns, query)


def _alias(tree: exp.Expression) -> tuple[str, tuple[str, ...]]:
    """Return the name of a relation and those of its columns, as far as the query gives any."""
    alias = tree.args.get("alias")
    if alias is None:
        return "", ()
    called = alias.name if alias.this is not None else ""
    return called, tuple(name.name for name in alias.args.get("columns") or ())


def _joined_in_parentheses(tree: exp.Subquery) -> exp.Select | None:
    """Return what `(a join b on …)` is as a select; None where the parentheses hold a query."""
    inner = tree.this
    if isinstance(inner, exp.Subquery):
        if not (inner.args.get("joins") or inner.args.get("alias") or _joined_in_parentheses(inner)):
            return None
    elif not isinstance(inner, exp.Table | exp.Values):
        return None
    first = inner.copy()
    joins = first.args.pop("joins", None)
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=first), joins=joins)


def renamed(handle: StreamOrTable, columns: Sequence[str], tree: exp.Expression) -> StreamOrTable:
    """Return the rows under the names of `t(a, b)`."""
    if not columns:
        return handle
    _check_count(columns, handle.columns, tree)
    pairs = dict(zip(columns, handle.columns, strict=True))
    return select_outputs(handle, [(new, exp.Column(this=identifier(old))) for new, old in pairs.items()])


def _check_count(names: Sequence[str], columns: Sequence[str], tree: exp.Expression) -> None:
    if len(names) != len(columns):
        raise InvalidQuery(
            f'"{sql_text(tree)}" names {len(names)} columns of {len(columns)}',
            hint=f"Its columns are: {', '.join(columns)}.",
        )
