"""`from`: each name, subquery and common query becomes a relation; joins are not made yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidQuery, UnsupportedQuery
from headrace.dsl.sql.output import selected
from headrace.dsl.sql.ranking import bounded, ranking_of
from headrace.dsl.sql.reading import check_parts, identifier, shown
from headrace.dsl.sql.relation import Relation, parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.dsl.sql.context import Common
    from headrace.dsl.sql.query import Queries
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
class Item:
    """One relation of `from`: how it is joined with those before it, and by what; `at` is its `as of`."""

    alias: str
    relation: Relation
    tree: exp.Expression
    how: str = "inner"
    on: exp.Expression | None = None
    using: tuple[str, ...] = ()
    at: exp.Expression | None = None


def items_of(
    queries: Queries, select: exp.Select, names: Mapping[str, Common]
) -> tuple[list[Item], list[exp.Expression]]:
    """Return the relations of `from`, and the tests of `where` that they have not met already.

    Raises:
        PlanError: a name is not known, or a part is not kept.

    """
    first = select.args.get("from_")
    if first is None:
        raise UnsupportedQuery(shown(select), "a query without from has no rows that change")
    where = select.args.get("where")
    found = _From(queries, select, names, parts(None if where is None else where.this))
    items: list[Item] = []
    for join in [None, *(select.args.get("joins") or ())]:
        item = found.item(first.this if join is None else join.this)
        if item.alias and any(known.alias.lower() == item.alias.lower() for known in items):
            raise InvalidQuery(f'two relations are called "{item.alias}"', hint="Give one an alias: from t as other.")
        if join is not None:
            _joined(join, item, items)
        items.append(item)
    return items, found.tests


def _joined(join: exp.Join, item: Item, before: Sequence[Item]) -> None:
    check_parts(join)
    method = str(join.args.get("method") or "")
    how = _HOWS.get((str(join.args.get("side") or ""), str(join.args.get("kind") or "")))
    if how is None or method not in ("", "NATURAL"):
        raise UnsupportedQuery(shown(join), "this join is not known")
    item.how, item.on = how, join.args.get("on")
    item.using = tuple(name.name for name in join.args.get("using") or ())
    if method == "NATURAL":
        seen = {visible.name.lower() for each in before for visible in each.relation.columns}
        item.using = tuple(v.name for v in item.relation.columns if v.name.lower() in seen)


@dataclass(slots=True)
class _From:
    """The relations of a select, one by one; `tests` are those of `where` that none has met yet."""

    queries: Queries
    select: exp.Select
    names: Mapping[str, Common]
    tests: list[exp.Expression]

    def item(self, tree: exp.Expression) -> Item:
        """Return a relation as it stands in `from`."""
        check_parts(tree)
        alias = tree.args.get("alias")
        called = alias.name if alias is not None and alias.this is not None else ""
        columns = tuple(name.name for name in alias.args.get("columns") or ()) if alias is not None else ()
        if isinstance(tree, exp.Table):
            return self._named(tree, called, columns)
        assert isinstance(tree, exp.Subquery)  # noqa: S101 -- check_parts knows no other
        handle = self._inside(tree.this, self.names, alias=called, columns=columns)
        return Item(called, Relation.whole(handle, called or None), tree)

    def _named(self, tree: exp.Table, called: str, columns: Sequence[str]) -> Item:
        name = ".".join(part.name for part in tree.parts)
        called = called or name
        common = self.names.get(name.lower())
        if common is None:
            handle = self.queries.context.source(name)
        else:
            handle = self._inside(common.query, common.inside, alias=called, columns=common.columns)
        version = tree.args.get("version")
        at = None if version is None else version.expression
        return Item(called, Relation.whole(renamed(handle, columns, tree), called), tree, at=at)

    def _inside(
        self, query: exp.Query, names: Mapping[str, Common], *, alias: str, columns: Sequence[str]
    ) -> StreamOrTable:
        """Return a query's rows; one that ranks is cut where the query around asks for the first ranks."""
        ranking = ranking_of(query)
        if ranking is None:
            return renamed(self.queries.whole(query, names, strict=not columns), columns, query)
        bound = bounded(ranking, self.select, alias, self.tests)
        self.tests = bound.rest
        return renamed(self.queries.first(query, names, ranking, bound), columns, query)


def renamed(handle: StreamOrTable, columns: Sequence[str], tree: exp.Expression) -> StreamOrTable:
    """Return the rows under the names of `t(a, b)`."""
    if not columns:
        return handle
    if len(columns) != len(handle.columns):
        raise InvalidQuery(
            f'"{shown(tree)}" names {len(columns)} columns of {len(handle.columns)}',
            hint=f"Its columns are: {', '.join(handle.columns)}.",
        )
    pairs = dict(zip(columns, handle.columns, strict=True))
    return selected(handle, [(new, exp.Column(this=identifier(old))) for new, old in pairs.items()])
