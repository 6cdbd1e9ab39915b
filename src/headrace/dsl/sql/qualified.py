"""Columns of several relations under qualified names: `number.column`, the number being the place in `from`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidQuery
from headrace.dsl.sql.output import column
from headrace.dsl.sql.relation import OUTER, Relation, VisibleColumn, columns_in, rewritten

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from headrace.dsl.sql.from_items import FromItem

_ONE_SIDED = ("semi", "anti")


def qualified(number: int, name: str) -> str:
    """Return the qualified name of a column."""
    return f"{number}.{name}"


def relation_of(name: str) -> int:
    """Return the number of the relation that a qualified name belongs to."""
    return int(name.partition(".")[0])


def relations_in(test: exp.Expression) -> set[int]:
    """Return the numbers of the relations that a test over qualified names reads."""
    return {relation_of(each.name) for each in columns_in(test) if not each.args.get(OUTER)}


def unqualified(tree: exp.Expression, names: Mapping[str, str]) -> exp.Expression:
    """Return an expression over qualified names as one over columns; columns of the outer query stay as they are."""

    def change(part: exp.Expression) -> exp.Expression | None:
        if isinstance(part, exp.Query):
            return part
        if not isinstance(part, exp.Column):
            return None
        return part if part.args.get(OUTER) else column(names[part.name])

    return rewritten(tree, change)


def equality_sides(
    test: exp.Expression, joined: Collection[int], number: int
) -> tuple[exp.Expression, exp.Expression] | None:
    """Return both sides of an equality between relations that are joined and one that is not, that one's last.

    Those of a null-safe one are lists of one value: null in a list equals null.
    """
    if not isinstance(test, exp.EQ | exp.NullSafeEQ):
        return None
    left, right = relations_in(test.this), relations_in(test.expression)
    one, other = test.this, test.expression
    if isinstance(test, exp.NullSafeEQ):
        one, other = (exp.Array(expressions=[side.copy()]) for side in (one, other))
    if left and left <= set(joined) and right == {number}:
        return one, other
    if right and right <= set(joined) and left == {number}:
        return other, one
    return None


class QualifiedColumns:
    """The columns of the relations of `from` under qualified names."""

    def __init__(self, items: Sequence[FromItem]) -> None:
        self.items = items
        self.visible: list[list[VisibleColumn]] = []
        self.after: list[list[list[VisibleColumn]]] = []  # what was visible when each was joined: `using` hides columns
        self.shared: list[list[str]] = []  # what each one's `using` shares: these come first
        self.hidden: set[tuple[str, str]] = set()
        for number, item in enumerate(items):
            own = [replace(each, column=qualified(number, each.column)) for each in item.relation.columns]
            self.visible.append(self._without_shared(own, item))
            self.hidden |= item.relation.hidden
            self.after.append([list(columns) for columns in self.visible])

    def relation(self, count: int, *, one_sided: int | None = None) -> Relation:
        """Return what the first `count` relations show.

        Of a semi or anti join only its own `on` sees the right side: that of the relation `one_sided`.
        """
        columns = [
            visible
            for number, own in enumerate(self.after[count - 1])
            if self.items[number].how not in _ONE_SIDED or number == one_sided
            for visible in own
        ]
        for shared in self.shared[:count]:
            columns.sort(key=lambda v, keys=shared: keys.index(v.column) if v.column in keys else len(keys))  # type: ignore[misc]
        return Relation(self.items[0].relation.handle, tuple(columns), frozenset(self.hidden))

    def using_pairs(self, number: int) -> list[tuple[str, str]]:
        """Return the qualified names of the columns that `using` names: the earlier one, and the relation's.

        Raises:
            InvalidQuery: a name is not one column on each side.

        """
        item = self.items[number]
        before = self.relation(number)
        pairs = []
        for name in item.using:
            left, right = before.find([name]), item.relation.find([name])
            if len({visible.column for visible, _ in left}) != 1 or len(right) != 1:
                raise InvalidQuery(
                    f'using ({name}): "{name}" is not one column on each side', hint="Say on, with both columns."
                )
            pairs.append((left[0][0].column, qualified(number, right[0][0].column)))
        return pairs

    def _without_shared(self, own: list[VisibleColumn], item: FromItem) -> list[VisibleColumn]:
        """Leave out the columns that `using` shares with earlier ones; inner joins show them under both relations."""
        if not item.using:
            self.shared.append([])
            return own
        left_of = {right: left for left, right in self.using_pairs(len(self.visible))}
        theirs = {left_of[visible.column]: visible.of for visible in own if visible.column in left_of}
        shared = list(left_of.values())
        if item.natural:
            shared = [
                visible.column for visible in self.relation(len(self.visible)).columns if visible.column in shared
            ]
        self.shared.append(shared)
        for columns in self.visible:
            for at, visible in enumerate(columns):
                if visible.column in shared:
                    right = theirs[visible.column]
                    shown_under = {"inner": (*visible.of, *right), "right": right, "full": ()}
                    columns[at] = replace(visible, of=shown_under.get(item.how, visible.of))
                    lost = {*visible.of, *right} - {*columns[at].of}
                    self.hidden |= {(of.lower(), visible.name.lower()) for of in lost if item.how not in _ONE_SIDED}
        return [visible for visible in own if visible.column not in left_of]

    def read_after_joins(self, select: exp.Select, tests: Sequence[exp.Expression]) -> set[str]:
        """Return the qualified names that a select and `tests` may read after the joins, and those of `using`."""
        every = Relation(self.items[0].relation.handle, tuple(v for columns in self.visible for v in columns))
        read = {each for number in range(len(self.items)) for pair in self.using_pairs(number) for each in pair}
        others = [part for name in ("group", "having", "order") if (part := select.args.get(name)) is not None]
        for tree in [*select.expressions, *tests, *others]:
            for part in tree.find_all(exp.Column, exp.Star):
                read |= _columns_read(part, every, top=part is tree)
        return read


def _columns_read(part: exp.Expression, every: Relation, *, top: bool) -> set[str]:
    if isinstance(part, exp.Star):
        return {visible.column for visible in every.columns} if top else set()
    assert isinstance(part, exp.Column)  # noqa: S101 -- find_all looked
    if isinstance(part.this, exp.Star):
        return {visible.column for visible in every.star(part.table)}
    return {visible.column for visible, _ in every.find([each.name for each in part.parts])}
