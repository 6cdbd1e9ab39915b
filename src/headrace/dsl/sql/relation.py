"""What a query sees: relations and names of columns; and how expressions over them become ones over a step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidQuery, UnknownColumn, UnsupportedQuery
from headrace.dsl.sql.parsing import identifier, sql_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.dsl.stream_table import StreamOrTable

OUTER = "headrace_outer"
"""What a column of an outer query carries: how many queries further out it is."""
RESOLVED = "headrace_resolved"
"""What a column carries that is a column of the step already."""

ITEM = "headrace_item"
"""The relation of the elements that a column of `select` makes of each row: only that column reads it."""

_MOMENTS = ("current_timestamp", "current_date")
"""Functions that may be called without brackets, where no column has their name."""


@dataclass(frozen=True, slots=True)
class VisibleColumn:
    """A column as a query names it, alone or after one of the relations `of`; `column` is its name in the step."""

    name: str
    of: tuple[str, ...]
    column: str


@dataclass(frozen=True, slots=True)
class Relation:
    """The rows of a step under the names that a query has for its columns.

    `hidden` are relations and columns of them that `using` leaves out, in lower case.
    """

    handle: StreamOrTable
    columns: tuple[VisibleColumn, ...]
    hidden: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of_step(cls, handle: StreamOrTable, alias: str | None = None) -> Relation:
        """Return a step's rows under its own names."""
        of = () if alias is None else (alias,)
        return cls(handle, tuple(VisibleColumn(name, of, name) for name in handle.columns))

    def with_step(self, handle: StreamOrTable) -> Relation:
        """Return the same names over a step that has the same columns, and perhaps more."""
        return replace(self, handle=handle)

    def where(self, tests: Sequence[exp.Expression]) -> Relation:
        """Return the rows that pass all tests, which are resolved."""
        return self.with_step(self.handle.where(sql_text(conjunction(tests)))) if tests else self

    @property
    def aliases(self) -> set[str]:
        """The names that may prefix a column."""
        return {name.lower() for visible in self.columns for name in visible.of}

    def find(self, names: Sequence[str]) -> list[tuple[VisibleColumn, int]]:
        """Return the columns that `a`, `t.a`, `a.field` or `t.a.field` may be, with how many names each takes."""
        low = [name.lower() for name in names]
        if len(low) > 1:
            after = [(c, 2) for c in self.columns if low[0] in map(str.lower, c.of) and c.name.lower() == low[1]]
            if after:
                return after
        return [(c, 1) for c in self.columns if c.name.lower() == low[0] and ITEM not in c.of]

    def star(self, alias: str | None = None) -> list[VisibleColumn]:
        """Return the columns of `*`, or of `alias.*`.

        Raises:
            UnsupportedQuery: `using` leaves one of the latter out.

        """
        if alias is not None:
            self.check_hidden(alias, *(name for of, name in self.hidden if of == alias.lower()))
        return [
            c for c in self.columns if (ITEM not in c.of if alias is None else alias.lower() in map(str.lower, c.of))
        ]

    def check_hidden(self, alias: str, *names: str) -> None:
        """Refuse columns that `using` leaves out: an outer join has one column for both sides.

        Raises:
            UnsupportedQuery: there is one.

        """
        hidden = next((name for name in names if (alias.lower(), name.lower()) in self.hidden), None)
        if hidden is not None:
            raise UnsupportedQuery(
                f"{alias}.{hidden}",
                f'of an outer join with using ({hidden}) there is one column "{hidden}" for both sides',
                hint="Say on, with both columns, where you need the one of a side.",
            )


@dataclass(frozen=True, slots=True)
class Body:
    """The rows of `from` and `where`; `correlated` are the tests that read the outer query, resolved."""

    relation: Relation
    correlated: list[exp.Expression]


@dataclass(frozen=True, slots=True)
class Scope:
    """How names are resolved: in the relations of a query, else in those of the outer query."""

    relation: Relation
    outer: Scope | None = None

    def resolved(self, tree: exp.Expression) -> exp.Expression:
        """Return an expression over the step's own columns; subqueries in it are left as they are.

        A column of the outer query is marked.

        Raises:
            UnknownColumn: no relation has the column.
            InvalidQuery: several have.

        """
        return rewritten(tree, self._column)

    def _column(self, tree: exp.Expression) -> exp.Expression | None:
        if isinstance(tree, exp.Query):
            return tree
        if not isinstance(tree, exp.Column) or isinstance(tree.this, exp.Star):
            return None
        if tree.args.get(RESOLVED):
            return exp.Column(this=tree.this)
        names = [part.name for part in tree.parts]
        found = self.relation.find(names)
        if not found and self.outer is not None and self.outer.knows(names):
            outer = self.outer.resolved(tree)
            for column in outer.find_all(exp.Column):
                column.set(OUTER, 1 + (column.args.get(OUTER) or 0))
            return outer
        if not found and len(names) == 1 and names[0].lower() in _MOMENTS and not tree.this.args.get("quoted"):
            return exp.Anonymous(this=names[0])
        visible, taken = self._one(found, names, sql_text(tree))
        value: exp.Expression = exp.Column(this=identifier(visible.column))
        for part in tree.parts[taken:]:
            value = exp.Dot(this=value, expression=identifier(part.name))
        return value

    def knows(self, names: Sequence[str]) -> bool:
        """Return whether the column is here, or further out."""
        return bool(self.relation.find(names)) or (self.outer is not None and self.outer.knows(names))

    def _one(
        self, found: list[tuple[VisibleColumn, int]], names: Sequence[str], text: str
    ) -> tuple[VisibleColumn, int]:
        if len({visible.column for visible, _ in found}) == 1:
            return found[0]
        if found:
            among = ", ".join(f"{(*visible.of, '?')[0]}.{visible.name}" for visible, _ in found)
            raise InvalidQuery(f'"{text}" may be any of {among}', hint="Say which: put the relation's name before it.")
        if len(names) > 1:
            self.relation.check_hidden(names[0], names[1])
        if len(names) > 1 and names[0].lower() in self.relation.aliases:
            columns = [f"{names[0]}.{visible.name}" for visible in self.relation.star(names[0])]
            raise UnknownColumn(text, step="query", columns=columns)
        raise UnknownColumn(text, step="query", columns=list(dict.fromkeys(c.name for c in self.relation.columns)))


def rewritten(tree: exp.Expression, change: Callable[[exp.Expression], exp.Expression | None]) -> exp.Expression:
    """Return a copy with each part replaced for which `change` returns something; replacements are not looked into."""
    replacement = change(tree)
    if replacement is not None:
        return replacement.copy()
    return type(tree)(**{name: _rewritten(part, change) for name, part in tree.args.items()})


def _rewritten(part: object, change: Callable[[exp.Expression], exp.Expression | None]) -> object:
    if isinstance(part, exp.Expression):
        return rewritten(part, change)
    if isinstance(part, list):
        return [_rewritten(each, change) for each in part]
    return part


def as_part(tree: exp.Expression) -> exp.Expression:
    """Return an expression to be put into another one: in parentheses, where it is an operator with its operands."""
    operators, closed = exp.Binary | exp.Unary | exp.Predicate, exp.Paren | exp.Dot
    return exp.Paren(this=tree) if isinstance(tree, operators) and not isinstance(tree, closed) else tree


def as_resolved(tree: exp.Expression) -> exp.Expression:
    """Return a resolved expression marked as such, its subqueries left as they are."""

    def change(part: exp.Expression) -> exp.Expression | None:
        if isinstance(part, exp.Query):
            return part
        if not isinstance(part, exp.Column):
            return None
        marked = part.copy()
        marked.set(RESOLVED, 1)
        return marked

    return rewritten(tree, change)


def conjuncts(tree: exp.Expression | None) -> list[exp.Expression]:
    """Return what `and` joins."""
    if tree is None:
        return []
    if isinstance(tree, exp.And):
        return [*conjuncts(tree.this), *conjuncts(tree.expression)]
    if isinstance(tree, exp.Paren) and isinstance(tree.this, exp.And | exp.Paren):
        return conjuncts(tree.this)
    if isinstance(tree, exp.Paren) and not isinstance(tree.this, exp.Or):
        return [tree.this]
    return factored(tree)


def factored(tree: exp.Expression) -> list[exp.Expression]:
    """Return `(a and b) or (a and c)` as `a` and `b or c`: what is in every branch is tested once."""
    alternatives = disjuncts(tree)
    if len(alternatives) == 1:
        return [tree]
    branches = [conjuncts(branch) for branch in alternatives]
    every = [part for part in branches[0] if all(part in branch for branch in branches[1:])]
    if not every:
        return [tree]
    rest = [[part for part in branch if part not in every] for branch in branches]
    if not all(rest):
        return every
    either = conjunction(rest[0])
    for branch in rest[1:]:
        either = exp.Or(this=either, expression=conjunction(branch))
    return [*every, exp.Paren(this=either)]


def disjuncts(tree: exp.Expression) -> list[exp.Expression]:
    """Return what `or` joins."""
    if isinstance(tree, exp.Paren):
        return disjuncts(tree.this)
    if isinstance(tree, exp.Or):
        return [*disjuncts(tree.this), *disjuncts(tree.expression)]
    return [tree]


def conjunction(tests: Sequence[exp.Expression]) -> exp.Expression:
    """Return tests joined by `and`."""
    both = tests[0].copy()
    for test in tests[1:]:
        both = exp.And(this=_in_parentheses(both), expression=_in_parentheses(test.copy()))
    return both


def _in_parentheses(tree: exp.Expression) -> exp.Expression:
    return exp.Paren(this=tree) if isinstance(tree, exp.Or) else tree


def columns_in(tree: exp.Expression) -> Iterator[exp.Column]:
    """Yield the columns of an expression, those in subqueries left out."""
    if isinstance(tree, exp.Query):
        return
    if isinstance(tree, exp.Column):
        yield tree
        return
    for child in tree.iter_expressions():
        yield from columns_in(child)


def queries_in(tree: exp.Expression) -> Iterator[exp.Query]:
    """Yield the outermost subqueries of an expression."""
    if isinstance(tree, exp.Query):
        yield tree
        return
    for child in tree.iter_expressions():
        yield from queries_in(child)


def has_subquery(tree: exp.Expression) -> bool:
    """Return whether an expression has a subquery."""
    return any(True for _ in queries_in(tree))


def reads_outer(tree: exp.Expression) -> bool:
    """Return whether a resolved expression reads the outer query."""
    return any(column.args.get(OUTER) for column in columns_in(tree))


def column_name(tree: exp.Expression) -> str | None:
    """Return the column that a resolved expression is, if it is one of this query."""
    while isinstance(tree, exp.Paren):
        tree = tree.this
    return tree.name if isinstance(tree, exp.Column) and not tree.args.get(OUTER) else None
