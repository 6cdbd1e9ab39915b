"""`group by`, aggregates and `having`; and what a query gives out over its rows, or over its groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidQuery, UngroupedColumn, UnsupportedQuery
from headrace.dsl.sql import subqueries
from headrace.dsl.sql.output import Output, column, free
from headrace.dsl.sql.reading import check_parts, shown
from headrace.dsl.sql.relation import (
    Relation,
    Scope,
    Visible,
    asks,
    columns_in,
    fixed,
    is_outer,
    name_of,
    parts,
    rebuilt,
)
from headrace.dsl.sql.windowing import bound_of, is_window, window_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.dsl.sql.context import Common
    from headrace.dsl.sql.query import Queries
    from headrace.dsl.stream_table import StreamOrTable

Wanted = tuple[str, exp.Expression]
"""A column as it is asked for: its name, and what it is over the rows of `from`."""


@dataclass(slots=True)
class Given:
    """What a select gives out: columns over a step; and how another part of the query is said over that step."""

    handle: StreamOrTable
    out: list[Output]
    scope: Scope
    aliases: Aliases
    groups: Groups | None = None

    def over(self, tree: exp.Expression, *, aliases: bool = True) -> exp.Expression:
        """Return an expression of `order by` over the step; of a window's, names of what is given out mean nothing.

        Raises:
            PlanError: it reads what is not there.

        """
        at = _position(tree, len(self.out)) if aliases else None
        if at is not None:
            return self.out[at][1]
        made = self.scope.resolved(self.aliases.first(tree) if aliases else tree)
        return made if self.groups is None else self.groups.read(made)


def given_by(
    queries: Queries,
    select: exp.Select,
    relation: Relation,
    names: Mapping[str, Common],
    *,
    strict: bool,
    extra: Sequence[exp.Expression] = (),
) -> Given:
    """Return what a select gives out over the rows of `from` and `where`; `extra` is what its order needs besides.

    Raises:
        PlanError: a column is not known, or a part is not kept.

    """
    scope = Scope(relation)
    grouped = _is_grouped(queries, select)
    if not grouped:
        relation, selects = subqueries.in_columns(queries, select.expressions, scope, names)
        scope = Scope(relation)
        wanted = _wanted(selects, scope, strict=strict)
        return Given(relation.handle, wanted, scope, Aliases(queries, wanted, scope))
    selects, tests = _with_bounds(select)
    wanted = _wanted(selects, scope, strict=strict)
    for _, tree in wanted:
        if asks(tree):
            raise UnsupportedQuery(shown(tree), "a subquery beside aggregates is not kept", hint="Join it after them.")
    aliases = Aliases(queries, wanted, scope)
    groups = Groups(queries, scope, wanted, _keys(select, scope, aliases))
    for tree in extra:
        groups.over(scope.resolved(aliases.first(tree)))
    handle, out = groups.given([aliases.first(test) for test in tests], names)
    return Given(handle, out, scope, aliases, groups)


def _having(select: exp.Select) -> exp.Expression | None:
    having = select.args.get("having")
    return None if having is None else having.this


def _is_grouped(queries: Queries, select: exp.Select) -> bool:
    looked = [*select.expressions, *parts(_having(select))]
    return select.args.get("group") is not None or any(aggregates_in(tree, queries) for tree in looked)


def aggregates_in(tree: exp.Expression, queries: Queries) -> bool:
    """Return whether an expression aggregates, its subqueries left out."""
    if isinstance(tree, exp.Query):
        return False
    if is_aggregate(tree, queries):
        return True
    return any(aggregates_in(child, queries) for child in tree.iter_expressions())


def is_aggregate(tree: exp.Expression, queries: Queries) -> bool:
    """Return whether an expression is the call of an aggregate, with its filter."""
    inner = tree.this if isinstance(tree, exp.Filter) else tree
    return isinstance(inner, exp.Anonymous) and inner.name.lower() in queries.context.aggregates


# ---- what is asked for ----


def _wanted(items: Sequence[exp.Expression], scope: Scope, *, strict: bool) -> list[Wanted]:
    made: list[Wanted] = []
    for item in items:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            made += [(visible.name, column(visible.column)) for visible in _star(item, scope)]
            continue
        tree = item.this if isinstance(item, exp.Alias) else item
        resolved = scope.resolved(tree)
        if is_outer(resolved):
            raise UnsupportedQuery(shown(item), "what a subquery gives out cannot read the query around")
        made.append((_name(item, len(made), strict=strict), resolved))
    return made


def _name(item: exp.Expression, place: int, *, strict: bool) -> str:
    if isinstance(item, exp.Alias):
        return str(item.alias)
    if isinstance(item, exp.Column):
        return str(item.parts[-1].name)
    if isinstance(item, exp.Dot):
        return str(item.expression.name)
    if strict:
        raise InvalidQuery(f'"{shown(item)}" has no name', hint=f"Name it: {shown(item)} as x.")
    return f"_c{place + 1}"


def _star(item: exp.Expression, scope: Scope) -> list[Visible]:
    star = item if isinstance(item, exp.Star) else item.this
    if any(star.args.values()):
        raise UnsupportedQuery(shown(item), "* with exceptions is not kept", hint="Name the columns.")
    alias = item.table if isinstance(item, exp.Column) else None
    found = scope.relation.star(alias)
    if not found:
        raise InvalidQuery(f'"{shown(item)}": there is no relation "{alias}"')
    return found


def _position(tree: exp.Expression, count: int) -> int | None:
    """Return the place that a number in `group by` or `order by` means."""
    if not isinstance(tree, exp.Literal) or tree.is_string or not tree.this.isdigit():
        return None
    at = int(tree.this)
    if not 1 <= at <= count:
        raise InvalidQuery(f"position {at} is none of the {count} columns that are given out")
    return at - 1


class Aliases:
    """The names that a query gives what it asks for, where other parts of it may use them."""

    def __init__(self, queries: Queries, wanted: Sequence[Wanted], scope: Scope) -> None:
        self.queries = queries
        self.wanted = wanted
        self.scope = scope

    def first(self, tree: exp.Expression) -> exp.Expression:
        """Return an expression of `having` or `order by`: such a name comes before a column, but not in aggregates."""

        def change(part: exp.Expression) -> exp.Expression | None:
            if isinstance(part, exp.Query):
                return part
            return self.last(part) if is_aggregate(part, self.queries) else self._found(part)

        return rebuilt(tree, change)

    def last(self, tree: exp.Expression) -> exp.Expression:
        """Return an expression of `group by`: a column comes before such a name."""

        def change(part: exp.Expression) -> exp.Expression | None:
            if isinstance(part, exp.Query):
                return part
            known = isinstance(part, exp.Column) and self.scope.knows([part.name])
            return None if known else self._found(part)

        return rebuilt(tree, change)

    def _found(self, part: exp.Expression) -> exp.Expression | None:
        if not isinstance(part, exp.Column) or len(part.parts) > 1:
            return None
        found = next((made for name, made in self.wanted if name.lower() == part.name.lower()), None)
        return None if found is None else fixed(found)


def _keys(select: exp.Select, scope: Scope, aliases: Aliases) -> list[exp.Expression]:
    """Return what rows are grouped by, windows as they were written."""
    group = select.args.get("group")
    if group is None:
        return []
    check_parts(group)
    if group.args.get("all"):
        raise UnsupportedQuery("group by all", "name what rows are grouped by")
    made = []
    for tree in group.expressions:
        if isinstance(tree, exp.Rollup | exp.Cube | exp.GroupingSets):
            raise UnsupportedQuery(
                shown(tree), "several groupings at once are not kept", hint="Say one query for each."
            )
        at = _position(tree, len(aliases.wanted))
        made.append(aliases.wanted[at][1] if at is not None else scope.resolved(aliases.last(tree)))
    return list(dict.fromkeys(made))


def _with_bounds(select: exp.Select) -> tuple[list[exp.Expression], list[exp.Expression]]:
    """Return what is asked for and the tests of `having`, with the columns of the window in the place of its parts."""
    group = select.args.get("group")
    windows = [tree for tree in (group.expressions if group is not None else ()) if is_window(tree)]
    items, tests = list(select.expressions), parts(_having(select))
    if not windows:
        return items, tests
    named = [
        item if isinstance(item, exp.Alias) or bound_of(item) is None else exp.alias_(item.copy(), item.name)
        for item in items
    ]
    return [rebuilt(item, bound_of) for item in named], [rebuilt(test, bound_of) for test in tests]


# ---- groups ----


class Groups:
    """The groups of a query: their keys, their window, and the aggregates that the query asks for."""

    def __init__(
        self, queries: Queries, scope: Scope, wanted: Sequence[Wanted], keys: Sequence[exp.Expression]
    ) -> None:
        self.queries = queries
        self.scope = scope
        self.wanted = wanted
        self.window = window_of(queries.context, scope, [tree for tree in keys if is_window(tree)])
        self.hidden: dict[str, exp.Expression] = {}
        self.put: list[tuple[exp.Expression, exp.Expression]] = []
        self.plain: list[str] = []
        self.computed: dict[str, exp.Expression] = {}
        for tree in keys:
            if not is_window(tree):
                self._key(tree)
        bounds = ["window_start", "window_end"] if self.window is not None else []
        self.columns = [*self.plain, *self.computed, *bounds]
        self.aggregates: dict[str, exp.Expression] = {}
        for name, tree in wanted:
            if aggregates_in(tree, queries):
                self._aggregate(name, tree)

    def _key(self, tree: exp.Expression) -> None:
        if asks(tree):
            raise UnsupportedQuery(shown(tree), "a subquery in group by is not kept")
        if is_outer(tree):
            raise UnsupportedQuery(shown(tree), "a group cannot read the query around")
        name = name_of(tree)
        if name is not None:
            self.plain.append(name)
            return
        asked = next((each for each, made in self.wanted if made == tree), "_group")
        taken = [*self.scope.relation.handle.columns, *self.computed]
        name = asked if asked.lower() not in map(str.lower, taken) else free("_group", taken)
        self.computed[name] = tree
        self.put.append((tree, column(name)))

    def _aggregate(self, name: str, tree: exp.Expression) -> None:
        made = free(name, [*self.columns, *self.aggregates])
        self.aggregates[made] = self._inside(tree)
        self.put.append((tree, column(made)))

    def _inside(self, tree: exp.Expression) -> exp.Expression:
        """Return an expression with keys in it, but not in its aggregates: they read the rows."""

        def change(part: exp.Expression) -> exp.Expression | None:
            if is_aggregate(part, self.queries):
                return part
            return next((new for old, new in self.put if part == old), None)

        return rebuilt(tree, change)

    def over(self, tree: exp.Expression) -> exp.Expression:
        """Return a resolved expression over the groups; aggregates that are not there yet become hidden columns."""

        def change(part: exp.Expression) -> exp.Expression | None:
            if isinstance(part, exp.Query):
                return part
            found = next((new for old, new in self.put if part == old), None)
            if found is not None or not is_aggregate(part, self.queries):
                return found
            name = free("_having", [*self.columns, *self.aggregates, *self.hidden])
            self.hidden[name] = part
            self.put.append((part, column(name)))
            return column(name)

        return rebuilt(tree, change)

    def read(self, tree: exp.Expression) -> exp.Expression:
        """Return a resolved expression over the groups as they are kept."""
        return self._only(self.over(tree), [*self.columns, *self.aggregates, *self.hidden])

    def given(self, tests: Sequence[exp.Expression], names: Mapping[str, Common]) -> tuple[StreamOrTable, list[Output]]:
        """Return what is given out of the groups that meet the tests."""
        resolved = [self.over(self.scope.resolved(test)) for test in tests]
        table = self._table()
        relation = self._relation(table)
        plain = [test for test in resolved if not asks(test)]
        relation = relation.where([self._only(test, table.columns) for test in plain])
        asking = [test for test in resolved if asks(test)]
        relation = subqueries.met(self.queries, relation, [fixed(test) for test in asking], names)
        out = [(name, self._only(self.over(tree), table.columns)) for name, tree in self.wanted]
        return relation.handle, out

    def _table(self) -> StreamOrTable:
        context = self.queries.context
        computed = {name: shown(tree) for name, tree in self.computed.items()}
        grouped = self.scope.relation.handle.group_by(*self.plain, **computed)
        if self.window is not None:
            grouped = grouped.window(self.window, emit=context.emit)
        every = {**self.aggregates, **self.hidden}
        if not every and not self.columns:
            raise InvalidQuery("the query groups by nothing and asks for no aggregate")
        return context.settled(grouped.agg(**{name: shown(tree) for name, tree in every.items()}))

    def _relation(self, table: StreamOrTable) -> Relation:
        kept = [visible for visible in self.scope.relation.columns if visible.column in self.plain]
        low = {visible.name.lower() for visible in kept}
        others = [name for name in table.columns if name not in self.plain and name.lower() not in low]
        return Relation(table, (*kept, *(Visible(name, (), name) for name in others)))

    def _only(self, tree: exp.Expression, names: Sequence[str]) -> exp.Expression:
        """Return an expression over the groups, if it reads what they have.

        Raises:
            UngroupedColumn: it reads a column of their rows.

        """
        for each in columns_in(tree):
            if each.name not in names:
                raise UngroupedColumn(
                    f'the query groups its rows, and "{each.name}" stands outside an aggregate and is no key',
                    detail=f"The keys are: {', '.join(self.columns) or 'none'}. A group has many {each.name}.",
                    hint=f"Say which one: max({each.name}), min({each.name}); or add it to group by.",
                )
        return tree
