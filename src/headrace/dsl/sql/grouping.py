"""`group by`, aggregates and `having`; and the columns of a select over its rows, or over its groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidQuery, UngroupedColumn, UnknownColumn, UnsupportedQuery
from headrace.dsl.sql.aggregates import has_aggregate, is_aggregate
from headrace.dsl.sql.grouping_sets import GroupingSets, grouping_sets_of, is_indicator
from headrace.dsl.sql.output import Output, column, free_name
from headrace.dsl.sql.parsing import check_parts, sql_text
from headrace.dsl.sql.relation import (
    RESOLVED,
    Relation,
    Scope,
    VisibleColumn,
    as_part,
    as_resolved,
    column_name,
    columns_in,
    conjuncts,
    has_subquery,
    reads_outer,
    rewritten,
)
from headrace.dsl.sql.subqueries import filter_by_subqueries, with_subquery_columns
from headrace.dsl.sql.widening import check_functions
from headrace.dsl.sql.windowing import bound_of, is_window, window_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.dsl.sql.compiler import Compiler
    from headrace.dsl.sql.context import CommonQuery, Context
    from headrace.dsl.stream_table import StreamOrTable

SelectItem = tuple[str, exp.Expression]
"""A column of a select: its name, and the expression over the rows of `from`."""


@dataclass(slots=True)
class Selection:
    """The columns of a select over a step; and how `order by` is read over that step."""

    handle: StreamOrTable
    outputs: list[Output]
    scope: Scope
    aliases: Aliases
    groups: Groups | None = None

    def over(self, tree: exp.Expression, *, aliases: bool = True) -> exp.Expression:
        """Return an expression of `order by` over the step; in a window's order, aliases and positions mean nothing.

        Raises:
            PlanError: it reads a column that is not there.

        """
        at = _position(tree, len(self.outputs)) if aliases else None
        if at is not None:
            return self.outputs[at][1]
        tree = tree if self.groups is None else self.groups.bounded(tree)
        resolved = self.scope.resolved(self.aliases.before_columns(tree) if aliases else tree)
        return resolved if self.groups is None else self.groups.read(resolved)


def selection_of(
    compiler: Compiler,
    select: exp.Select,
    relation: Relation,
    names: Mapping[str, CommonQuery],
    *,
    strict: bool,
    extra: Sequence[exp.Expression] = (),
) -> Selection:
    """Return the columns of a select over the rows of `from` and `where`; `extra` is what only its order reads.

    Raises:
        PlanError: a column is not known, or a part is not supported.

    """
    context = compiler.context
    scope = Scope(relation)
    if not is_grouped(context, select):
        relation, trees = with_subquery_columns(compiler, select.expressions, scope, names)
        scope = Scope(relation)
        items = _select_items(trees, scope, strict=strict)
        return Selection(relation.handle, items, scope, Aliases(context, items, scope))
    trees, tests = _with_bounds(select)
    items = _select_items(trees, scope, strict=strict)
    for _, tree in items:
        if has_subquery(tree):
            raise UnsupportedQuery(
                sql_text(tree), "a subquery together with aggregates is not supported", hint="Join it after them."
            )
    aliases = Aliases(context, items, scope)
    groups = Groups(context, scope, items, *_keys(select, scope, aliases))
    for tree in extra:
        groups.over(scope.resolved(aliases.before_columns(groups.bounded(tree))))
    handle, outputs = groups.outputs(compiler, [aliases.before_columns(test) for test in tests], names)
    return Selection(handle, outputs, scope, aliases, groups)


def _having(select: exp.Select) -> exp.Expression | None:
    having = select.args.get("having")
    return None if having is None else having.this


def is_grouped(context: Context, select: exp.Select) -> bool:
    """Return whether a select has groups: it names keys, tests groups, or aggregates."""
    if select.args.get("group") is not None or select.args.get("having") is not None:
        return True
    return any(has_aggregate(tree, context) for tree in select.expressions)


# ---- select items ----


def _select_items(items: Sequence[exp.Expression], scope: Scope, *, strict: bool) -> list[SelectItem]:
    columns: list[SelectItem] = []
    for item in items:
        if item.is_star:
            columns += [(visible.name, column(visible.column)) for visible in _star(item, scope)]
            continue
        tree = item.this if isinstance(item, exp.Alias) else item
        resolved = scope.resolved(tree)
        if reads_outer(resolved):
            raise UnsupportedQuery(sql_text(item), "the columns of a subquery cannot read the outer query")
        columns.append((_name(item, len(columns), strict=strict), resolved))
    return columns


def width(item: exp.Expression, scope: Scope) -> int:
    """Return how many columns a select item is."""
    return len(_star(item, scope)) if item.is_star else 1


def _name(item: exp.Expression, place: int, *, strict: bool) -> str:
    if isinstance(item, exp.Alias):
        return str(item.alias)
    if isinstance(item, exp.Column):
        return str(item.parts[-1].name)
    if isinstance(item, exp.Dot):
        return str(item.expression.name)
    if strict:
        raise InvalidQuery(f'"{sql_text(item)}" has no name', hint=f"Name it: {sql_text(item)} as x.")
    return f"_c{place + 1}"


def _star(item: exp.Expression, scope: Scope) -> list[VisibleColumn]:
    star = item if isinstance(item, exp.Star) else item.this
    if any(part for name, part in star.args.items() if name != "except_"):
        raise UnsupportedQuery(sql_text(item), "only columns can be left out of *", hint="Name the columns.")
    alias = item.table if isinstance(item, exp.Column) else None
    found = scope.relation.star(alias)
    if not found:
        raise InvalidQuery(f'"{sql_text(item)}": there is no relation "{alias}"')
    left_out = {_left_out(name, found, scope) for name in star.args.get("except_") or ()}
    stays = [visible for visible in found if visible.column not in left_out]
    if not stays:
        raise InvalidQuery(f'"{sql_text(item)}" leaves no column')
    return stays


def _left_out(name: exp.Column, found: Sequence[VisibleColumn], scope: Scope) -> str:
    """Return the column of a step that `* except (name)` leaves out."""
    names, text = [part.name for part in name.parts], sql_text(name)
    own = [(visible, taken) for visible, taken in scope.relation.find(names) if visible in found]
    if not own:
        raise UnknownColumn(text, step="query", columns=[visible.name for visible in found])
    if len({visible.column for visible, _ in own}) > 1:
        raise InvalidQuery(f'"{text}" may be any of several columns', hint="Put the relation's name before it.")
    if own[0][1] < len(names):
        raise UnsupportedQuery(text, "a field of a column cannot be left out", hint="Name the columns.")
    return own[0][0].column


def _position(tree: exp.Expression, count: int) -> int | None:
    """Return the place that a number in `group by` or `order by` means."""
    if not isinstance(tree, exp.Literal) or tree.is_string or not tree.this.isdigit():
        return None
    at = int(tree.this)
    if not 1 <= at <= count:
        raise InvalidQuery(f"position {at} is none of the {count} columns of the query")
    return at - 1


class Aliases:
    """The names of the select items, where other parts of the query may use them."""

    def __init__(self, context: Context, items: Sequence[SelectItem], scope: Scope) -> None:
        self.context = context
        self.items = items
        self.scope = scope

    def before_columns(self, tree: exp.Expression) -> exp.Expression:
        """Return an expression of `having` or `order by`: an alias wins over a column, except in aggregates."""

        def change(part: exp.Expression) -> exp.Expression | None:
            if isinstance(part, exp.Query):
                return part
            return self.after_columns(part) if is_aggregate(part, self.context) else self._found(part, tree)

        return rewritten(tree, change)

    def after_columns(self, tree: exp.Expression) -> exp.Expression:
        """Return an expression of `group by`: a column wins over an alias."""

        def change(part: exp.Expression) -> exp.Expression | None:
            if isinstance(part, exp.Query):
                return part
            is_column = isinstance(part, exp.Column) and self.scope.knows([part.name])
            return None if is_column else self._found(part, tree)

        return rewritten(tree, change)

    def _found(self, part: exp.Expression, whole: exp.Expression) -> exp.Expression | None:
        """Return what an alias means in an expression, if a part of it is one."""
        if not isinstance(part, exp.Column) or len(part.parts) > 1:
            return None
        found = next((item for name, item in self.items if name.lower() == part.name.lower()), None)
        if found is None:
            return None
        return as_resolved(found if part is whole else as_part(found))


def _keys(select: exp.Select, scope: Scope, aliases: Aliases) -> tuple[Sequence[exp.Expression], GroupingSets | None]:
    """Return what rows are grouped by, windows as they are written, and the sets of several groupings."""
    group = select.args.get("group")
    if group is None:
        return [], None
    check_parts(group)
    if group.args.get("all"):
        plain = (tree for _, tree in aliases.items if not has_aggregate(tree, aliases.context))
        return list(dict.fromkeys(tree.unnest() if isinstance(tree, exp.Paren) else tree for tree in plain)), None

    def key(tree: exp.Expression) -> exp.Expression:
        at = _position(tree, len(aliases.items))
        found = aliases.items[at][1] if at is not None else scope.resolved(aliases.after_columns(tree))
        return found.unnest() if isinstance(found, exp.Paren) else found

    sets = grouping_sets_of(group, key)
    return (list(dict.fromkeys(map(key, group.expressions))) if sets is None else sets.keys), sets


def _with_bounds(select: exp.Select) -> tuple[list[exp.Expression], list[exp.Expression]]:
    """Return the select items and the tests of `having`, with columns instead of `window.start` and `window.end`."""
    group = select.args.get("group")
    windows = [tree for tree in (group.expressions if group is not None else ()) if is_window(tree)]
    items, tests = list(select.expressions), conjuncts(_having(select))
    if not windows:
        return items, tests
    named = [
        item if isinstance(item, exp.Alias) or bound_of(item) is None else exp.alias_(item.copy(), item.name)
        for item in items
    ]
    return [rewritten(item, bound_of) for item in named], [rewritten(test, bound_of) for test in tests]


def _without_window(sets: GroupingSets) -> GroupingSets:
    """Return the sets without the window, which has to be in all of them."""
    windows = [at for at, tree in enumerate(sets.keys) if is_window(tree)]
    for at in windows:
        if not all(at in kept for kept in sets.sets):
            raise UnsupportedQuery(
                sql_text(sets.keys[at]),
                "a window has to be in every grouping, since all of them close with it",
                hint="Write it outside: group by window(at, '1 hour'), rollup(a, b).",
            )
    keys = tuple(tree for tree in sets.keys if not is_window(tree))
    return GroupingSets(
        keys, tuple(frozenset(keys.index(sets.keys[at]) for at in kept if at not in windows) for kept in sets.sets)
    )


# ---- groups ----


class Groups:
    """The groups of a query: their keys, their window and their aggregates.

    `replacements` are pairs: an expression over the rows, and the column of the groups that holds it; those of
    `of_keys` hold before any aggregate is computed.
    """

    def __init__(
        self,
        context: Context,
        scope: Scope,
        items: Sequence[SelectItem],
        keys: Sequence[exp.Expression],
        sets: GroupingSets | None,
    ) -> None:
        self.context = context
        self.scope = scope
        self.items = items
        self.sets = None if sets is None else _without_window(sets)
        self.window = window_of(context, scope, [tree for tree in keys if is_window(tree)])
        self.hidden: dict[str, exp.Expression] = {}
        self.replacements: list[tuple[exp.Expression, exp.Expression]] = []
        self.plain: list[str] = []
        self.computed: dict[str, exp.Expression] = {}
        for tree in keys:
            if not is_window(tree):
                self._key(tree)
        bounds = ["window_start", "window_end"] if self.window is not None else []
        self.of_keys = list(self.replacements)
        self.columns = [*self.plain, *self.computed, *bounds]
        self.number = free_name("_grouping", [*scope.relation.handle.columns, *self.columns])
        self.own = {*self.plain, *bounds, self.number}
        if self.sets is not None:
            self.columns.append(self.number)
        self.aggregates: dict[str, exp.Expression] = {}
        for name, tree in items:
            if has_aggregate(tree, context):
                self._aggregate(name, tree)

    def _key(self, tree: exp.Expression) -> None:
        if has_subquery(tree):
            raise UnsupportedQuery(sql_text(tree), "a subquery in group by is not supported")
        if reads_outer(tree):
            raise UnsupportedQuery(sql_text(tree), "group by cannot read the outer query")
        if has_aggregate(tree, self.context):
            raise InvalidQuery(f'"{sql_text(tree)}" is an aggregate of groups, so rows cannot be grouped by it')
        name = column_name(tree)
        if name is not None and self.sets is None:
            self.plain.append(name)
            return
        name = name or next((alias for alias, item in self.items if item.unnest() == tree), "_group")
        taken = [*self.scope.relation.handle.columns, *self.computed]
        if name.lower() in map(str.lower, taken):
            name = free_name(name if self.sets is not None else "_group", taken)
        self.computed[name] = tree
        self.replacements.append((tree, as_resolved(column(name))))

    def _aggregate(self, name: str, tree: exp.Expression) -> None:
        own_name = free_name(name, [*self.columns, *self.aggregates])
        self.aggregates[own_name] = self._with_keys(tree)
        self.replacements.append((tree, as_resolved(column(own_name))))

    def _with_keys(self, tree: exp.Expression) -> exp.Expression:
        """Return an expression with the keys replaced, but not in its aggregates: they read the rows."""

        def change(part: exp.Expression) -> exp.Expression | None:
            if is_aggregate(part, self.context):
                return part
            return self._indicator(part) or next((new for old, new in self.of_keys if part == old), None)

        return rewritten(tree, change)

    def over(self, tree: exp.Expression) -> exp.Expression:
        """Return a resolved expression over the groups; new aggregates become hidden columns."""

        def change(part: exp.Expression) -> exp.Expression | None:
            if isinstance(part, exp.Query):
                return part
            found = self._indicator(part) or next((new for old, new in self.replacements if part == old), None)
            if found is not None or not is_aggregate(part, self.context):
                return found
            name = free_name("_having", [*self.columns, *self.aggregates, *self.hidden])
            self.hidden[name] = part
            self.replacements.append((part, as_resolved(column(name))))
            return self.replacements[-1][1]

        return rewritten(tree, change)

    def bounded(self, tree: exp.Expression) -> exp.Expression:
        """Return an expression with columns instead of `window.start` and `window.end`, if there is a window."""
        return tree if self.window is None else rewritten(tree, bound_of)

    def _indicator(self, part: exp.Expression) -> exp.Expression | None:
        """Return what `grouping(key)` says of a row, if that is what a part is."""
        if self.sets is None or not isinstance(part, exp.Anonymous) or not is_indicator(part):
            return None
        return self.sets.indicator(part, self.number)

    def read(self, tree: exp.Expression) -> exp.Expression:
        """Return a resolved expression over the groups, which have all columns by now."""
        return self._checked(self.over(tree), [*self.columns, *self.aggregates, *self.hidden])

    def outputs(
        self, compiler: Compiler, tests: Sequence[exp.Expression], names: Mapping[str, CommonQuery]
    ) -> tuple[StreamOrTable, list[Output]]:
        """Return the groups that pass the tests of `having`, and the columns of the select over them."""
        resolved = [self.over(self.scope.resolved(test)) for test in tests]
        table = self._table()
        relation = self._relation(table)
        plain = [test for test in resolved if not has_subquery(test)]
        relation = relation.where([self._checked(test, table.columns) for test in plain])
        subquery_tests = [as_resolved(test) for test in resolved if has_subquery(test)]
        relation = filter_by_subqueries(compiler, relation, subquery_tests, names)
        outputs = [(name, self._checked(self.over(tree), table.columns)) for name, tree in self.items]
        return relation.handle, outputs

    def _table(self) -> StreamOrTable:
        if self.sets is not None:
            expanded = self.sets.expanded(self.scope.relation.handle, self.computed, self.number)
            grouped = expanded.group_by(*self.computed, self.number)
        else:
            computed = {name: sql_text(tree) for name, tree in self.computed.items()}
            grouped = self.scope.relation.handle.group_by(*self.plain, **computed)
        if self.window is not None:
            grouped = grouped.window(self.window, emit=self.context.window_emit())
        every = {**self.aggregates, **self.hidden}
        if not every and not self.columns:
            raise InvalidQuery(
                "the query has neither keys nor aggregates",
                hint="having tests groups; a test of rows is said in where.",
            )
        return self.context.uniquely_named(grouped.agg(**{name: sql_text(tree) for name, tree in every.items()}))

    def _relation(self, table: StreamOrTable) -> Relation:
        keys = [visible for visible in self.scope.relation.columns if visible.column in self.plain]
        low = {visible.name.lower() for visible in keys}
        others = [name for name in table.columns if name not in self.plain and name.lower() not in low]
        return Relation(table, (*keys, *(VisibleColumn(name, (), name) for name in others)))

    def _checked(self, tree: exp.Expression, names: Sequence[str]) -> exp.Expression:
        """Return an expression over the groups, if it reads their columns only: its own keys, and what replaced others.

        Raises:
            UngroupedColumn: it reads a column of the rows.
            PlanError: a function that reads one is not known: it may have been meant as an aggregate.

        """
        for each in columns_in(tree):
            if each.name not in names or not (each.args.get(RESOLVED) or each.name in self.own):
                check_functions(tree, self.scope.relation.handle)
                raise UngroupedColumn(
                    f'the query groups its rows, and "{each.name}" is read outside an aggregate and is no key',
                    detail=f"The keys are: {', '.join(self.columns) or 'none'}. A group has many {each.name}.",
                    hint=f"Say which one: max({each.name}), min({each.name}); or add it to group by.",
                )
        return rewritten(tree, lambda part: column(part.name) if isinstance(part, exp.Column) else None)
