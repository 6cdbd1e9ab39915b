"""`from` and `where`: relations are joined by the columns in which they agree, tests stand as early as they can.

Columns of all relations are told apart by marks, `number.column`, until they are joined; then by the names of the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidQuery, UnsupportedQuery
from headrace.dsl.sql import subqueries
from headrace.dsl.sql.join_builder import JoinBuilder
from headrace.dsl.sql.marks import mark, number_of, numbers, placed, sides
from headrace.dsl.sql.output import column, selected
from headrace.dsl.sql.reading import check_parts, shown
from headrace.dsl.sql.relation import (
    Relation,
    Scope,
    Visible,
    asks,
    columns_in,
    is_outer,
    parts,
)
from headrace.dsl.sql.sources import items_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.dsl.sql.context import Common
    from headrace.dsl.sql.query import Queries
    from headrace.dsl.sql.sources import Item
    from headrace.dsl.stream_table import StreamOrTable

_ONE_SIDED = ("semi", "anti")


@dataclass(frozen=True, slots=True)
class Body:
    """The rows of `from` and `where`; `links` are tests that read the query around, resolved."""

    relation: Relation
    links: list[exp.Expression]


def body_of(queries: Queries, select: exp.Select, names: Mapping[str, Common], outer: Scope | None) -> Body:
    """Return the rows of `from` and `where` of a select.

    Raises:
        PlanError: a name is not known, or a part is not kept.

    """
    check_parts(select)
    items, tests = items_of(queries, select, names)
    marked = Marked(items)
    scope = Scope(marked.seen(len(items)), outer)
    asking = [test for test in tests if asks(test)]
    resolved = [scope.resolved(test) for test in tests if not asks(test)]
    links = [test for test in resolved if is_outer(test)]
    plain = [test for test in resolved if not is_outer(test)]
    moments = [item.at for item in items if item.at is not None]
    later = marked.read(select, [*asking, *moments]) | {each.name for link in links for each in columns_in(link)}
    joined = Joins(queries, items, marked, plain, later, prune=len(items) > 1 or bool(asking))
    joined.made()
    relation = joined.relation(marked.seen(len(items)))
    relation = relation.where([joined.placed(test) for test in joined.pool])
    relation = subqueries.met(queries, relation, asking, names, outer)
    return Body(relation, [joined.placed(test) for test in links])


class Marked:
    """The columns of the relations of `from`, told apart by marks."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.visible: list[list[Visible]] = []
        for number, item in enumerate(items):
            own = [replace(each, column=mark(number, each.column)) for each in item.relation.columns]
            self.visible.append(self._merged(own, item) if item.using else own)

    def seen(self, count: int, *, one_sided: int | None = None) -> Relation:
        """Return what the first relations show; of a semi or anti join, the right side is seen by its `on` alone."""
        made = [
            visible
            for number, columns in enumerate(self.visible[:count])
            if self.items[number].how not in _ONE_SIDED or number == one_sided
            for visible in columns
        ]
        return Relation(self.items[0].relation.handle, tuple(made))

    def pairs(self, number: int) -> list[tuple[str, str]]:
        """Return the marks of the columns that `using` names: before, and of the relation."""
        item = self.items[number]
        before = self.seen(number)
        found = []
        for name in item.using:
            left, right = before.find([name]), item.relation.find([name])
            if len({visible.column for visible, _ in left}) != 1 or len(right) != 1:
                raise InvalidQuery(
                    f'using ({name}): "{name}" is not one column on each side', hint="Say on, with both columns."
                )
            found.append((left[0][0].column, mark(number, right[0][0].column)))
        return found

    def _merged(self, own: list[Visible], item: Item) -> list[Visible]:
        """Leave out the columns that are one with those before; of an inner join they go by both names."""
        number = len(self.visible)
        twin = {right: left for left, right in self.pairs(number)}
        for columns in self.visible:
            for at, visible in enumerate(columns):
                if visible.column in twin.values():
                    of = {"inner": (*visible.of, item.alias), "right": (item.alias,), "full": ()}.get(
                        item.how, visible.of
                    )
                    columns[at] = replace(visible, of=of)
        return [visible for visible in own if visible.column not in twin]

    def read(self, select: exp.Select, asking: Sequence[exp.Expression]) -> set[str]:
        """Return the marks of all columns that may be read after the joins, and of those that `using` names."""
        every = Relation(self.items[0].relation.handle, tuple(v for columns in self.visible for v in columns))
        found = {each for number in range(len(self.items)) for pair in self.pairs(number) for each in pair}
        others = [part for name in ("group", "having", "order") if (part := select.args.get(name)) is not None]
        for tree in [*select.expressions, *asking, *others]:
            for part in tree.find_all(exp.Column, exp.Star):
                found |= self._marks(part, every, top=part is tree)
        return found

    def _marks(self, part: exp.Expression, every: Relation, *, top: bool) -> set[str]:
        if isinstance(part, exp.Star):
            return {visible.column for visible in every.columns} if top else set()
        assert isinstance(part, exp.Column)  # noqa: S101 -- find_all looked
        if isinstance(part.this, exp.Star):
            return {visible.column for visible in every.star(part.table)}
        return {visible.column for visible, _ in every.find([each.name for each in part.parts])}


@dataclass(slots=True)
class Joins:
    """The relations of `from` on their way to one step.

    `pool` are tests that wait for their relations, `later` the columns that are read after the joins.
    """

    queries: Queries
    items: Sequence[Item]
    marked: Marked
    pool: list[exp.Expression]
    later: set[str]
    prune: bool = False
    names: dict[str, str] = field(default_factory=dict)
    joined: set[int] = field(default_factory=set)
    ons: dict[int, list[exp.Expression]] = field(default_factory=dict)

    def made(self) -> None:
        """Join all relations, in the order of the text where that gives each a key.

        Raises:
            UnsupportedQuery: a relation has no column in which it agrees with others.

        """
        for number, item in enumerate(self.items):
            if item.on is not None:
                self._resolve(number, item)
        waiting = list(range(1, len(self.items)))
        self._begin()
        while waiting:
            number = self._next(waiting)
            waiting.remove(number)
            self._join(number)
            self._apply()

    def relation(self, seen: Relation) -> Relation:
        """Return the step's rows under the names that the query has for its columns."""
        return Relation(
            self.handle, tuple(replace(v, column=self.names[v.column]) for v in seen.columns if v.column in self.names)
        )

    def placed(self, tree: exp.Expression) -> exp.Expression:
        """Return a test over marks as one over the step."""
        return placed(tree, self.names)

    @property
    def handle(self) -> StreamOrTable:
        """The step so far."""
        return self.items[0].relation.handle

    def _resolve(self, number: int, item: Item) -> None:
        scope = Scope(self.marked.seen(number + 1, one_sided=number))
        tests = parts(item.on)
        if any(asks(test) for test in tests):
            raise UnsupportedQuery(shown(item.on), "a subquery in on is not kept", hint="Say it in where.")
        self.ons[number] = [scope.resolved(test) for test in tests]

    def _preserved(self, number: int) -> bool:
        """Return whether every row of a relation is there before `where`: not one that an outer join made of nulls."""
        if self.items[number].how in ("left", "full"):
            return False
        return not any(item.how in ("right", "full") for item in self.items[number + 1 :])

    def _begin(self) -> None:
        item = self.items[0]
        item.relation = self._pruned(0, self._narrowed(0, item.relation))
        self.joined.add(0)
        self.names = {mark(0, name): name for name in item.relation.handle.columns}

    def _narrowed(self, number: int, relation: Relation) -> Relation:
        """Return the rows of a relation that meet the tests of `where` that are about it alone."""
        if not self._preserved(number) or self.items[number].how == "right":
            return relation
        own = [test for test in self.pool if numbers(test) == {number}]
        if self.items[number].how == "inner":
            mine = [test for test in self.ons.get(number, []) if numbers(test) == {number}]
            self.ons[number] = [test for test in self.ons.get(number, []) if test not in mine]
        else:
            mine = []
        self.pool = [test for test in self.pool if test not in own]
        names = {mark(number, name): name for name in relation.handle.columns}
        return relation.where([placed(test, names) for test in [*own, *mine]])

    def read(self, but: int | None = None) -> set[str]:
        """Return the marks of the columns that are still to be read; `but`: not by the tests of that `on`."""
        waiting = [*self.pool, *(test for number, tests in self.ons.items() if number != but for test in tests)]
        return self.later | {each.name for test in waiting for each in columns_in(test)}

    def _pruned(self, number: int, relation: Relation) -> Relation:
        """Leave out the columns that nobody reads, but for keys: what joins keep is what they are given."""
        if not self.prune:
            return relation
        handle, read = relation.handle, self.read()
        needed = {name for name in handle.columns if mark(number, name) in read} | set(handle.node.key or ())
        kept = [name for name in handle.columns if name in needed] or handle.columns[:1]
        return relation.under(selected(handle, [(name, column(name)) for name in kept]))

    def _apply(self) -> None:
        """Keep the rows that meet the tests whose relations are all there."""
        ready = [
            test
            for test in self.pool
            if numbers(test) <= self.joined and all(self._preserved(number) for number in numbers(test))
        ]
        if ready and len(self.joined) < len(self.items):
            self.pool = [test for test in self.pool if test not in ready]
            self.items[0].relation = self.items[0].relation.where([self.placed(test) for test in ready])

    def _next(self, waiting: Sequence[int]) -> int:
        """Return the first relation that can be joined now."""
        for number in waiting:
            item = self.items[number]
            if self.keyed(number):
                return number
            if item.how in ("right", "full"):
                break
        first = self.items[waiting[0]]
        raise UnsupportedQuery(
            shown(first.tree),
            "nothing says in which columns its rows agree with the others, so all would meet all",
            hint="Join by an equality: on a.x = b.y, using (x), or where a.x = b.y.",
        )

    def keyed(self, number: int) -> bool:
        """Return whether there are columns in which a relation agrees with those that are joined."""
        item = self.items[number]
        reads = {each for test in self.ons.get(number, []) for each in numbers(test)}
        if item.how != "inner" and not reads <= {*self.joined, number}:
            return False
        if item.using:
            return all(number_of(left) in self.joined for left, _ in self.marked.pairs(number))
        return any(sides(test, self.joined, number) for test in self.candidates(number))

    def candidates(self, number: int) -> list[exp.Expression]:
        """Return the tests that may say how a relation is joined."""
        own = list(self.ons.get(number, []))
        if self.items[number].how != "inner":
            return own
        return own + [test for test in self.pool if all(self._preserved(each) for each in numbers(test))]

    def _join(self, number: int) -> None:
        item = self.items[number]
        item.relation = self._pruned(number, self._narrowed(number, item.relation))
        builder = JoinBuilder(self, number)
        self.items[0].relation = self.items[0].relation.under(builder.made())
        self.joined.add(number)
        self.pool = [test for test in self.pool if test not in builder.used]
        later = [test for test in self.ons.pop(number, []) if test not in builder.used]
        if later and any(each.how in ("right", "full") for each in self.items):
            raise UnsupportedQuery(
                shown(item.tree), "these joins cannot be put in order", hint="Nest them: from (…) as t."
            )
        self.pool += later
