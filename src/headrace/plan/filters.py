"""Conditions are met as early as they can be: a `where` below a join or a grouping moves above it.

What a step keeps in its state, and what goes through an exchange to it, is then only what the `where` would let pass.
A part of a condition moves if what it reads comes from the side of a join that every row of it has, or is among the
keys of a grouping: whole groups disappear, and the others stay as they are. It stays where it is

- if it may fail on a row, or is not the same each time: it would be computed for rows that match nothing;
- if the `where` has a name of its own, or the step another reader: that one needs all rows;
- if it reads a key with doubles, or one of a row that is counted, which is 0.0 below the step where a row above has
  -0.0;
- below steps that know late rows: they would count and pass on fewer.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from headrace.base.errors import HeadraceError
from headrace.base.names import quote
from headrace.base.schema import has_floats
from headrace.expressions import condition
from headrace.expressions.parts import parts_of, with_names
from headrace.plan.nodes import Aggregate, LookupJoin, Node, Select, TableJoin, Top, Where

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.expressions import Scalar
    from headrace.plan.nodes import Join
    from headrace.plan.sinks import Sink


def filtered_early(nodes: Iterable[Node], sinks: Sequence[Sink]) -> tuple[Sink, ...]:
    """Return the sinks over new steps with the same rows; `nodes` are the steps, each before those that read it."""
    moves = _Moves(nodes, sinks)
    return tuple(replace(sink, up=moves.new[id(sink.up)]) for sink in sinks)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the condition of `where`; `names`: what the columns that it reads are called at the step reached.

    `missed`: whether a step was passed that keeps rows, which then lacks those that the part does not let pass.
    """

    where: Where
    scalar: Scalar
    names: Mapping[str, str]
    missed: bool = False

    def through(self, names: Mapping[str, str]) -> _Part | None:
        """Return it a step further up, where its columns have these names; None where one of them is not there."""
        if not set(self.names.values()) <= set(names):
            return None
        return replace(self, names={own: names[name] for own, name in self.names.items()})

    def over(self, up: Node) -> Where | None:
        """Return the step that keeps only the rows it is true for, or None where it would mean another condition."""
        below = self.where.schema
        if any(below.field(own).type != up.schema.field(name).type for own, name in self.names.items()):
            return None
        text = self.scalar.text
        if any(own != name for own, name in self.names.items()):
            text = with_names(text, self.names) or ""
        there = {own: quote(name) for own, name in self.names.items()}
        wanted = _condition(self.scalar.text, self.where.up, there)
        found = _condition(text, up)
        if wanted is None or found is None or wanted.sql != found.sql:
            return None
        return Where(up=up, schema=up.schema, condition=found, missed=self.missed)


class _Moves:
    """The new steps by the ids of the old ones; `shared`: the ids of new ones that several steps or sinks read."""

    def __init__(self, nodes: Iterable[Node], sinks: Sequence[Sink]) -> None:
        old = list(nodes)
        readers: dict[int, int] = {}
        for up in [*(up for node in old for up in node.ups), *(sink.up for sink in sinks)]:
            readers[id(up)] = readers.get(id(up), 0) + 1
        self.new: dict[int, Node] = {}
        self.shared: set[int] = set()
        for node in old:
            new = self._over_new(node)
            if isinstance(new, Where) and new.name is None:
                new = self._moved(new)
            self.new[id(node)] = new
            if readers.get(id(node), 0) > 1:
                self.shared.add(id(new))

    def _over_new(self, node: Node) -> Node:
        """Return a step over the new steps above it; a side input is none of them."""
        changed: dict[str, Any] = {}
        for field in fields(node):
            value = getattr(node, field.name)
            if isinstance(value, Node):
                new: Any = self.new.get(id(value), value)
            elif isinstance(value, tuple) and value and all(isinstance(each, Node) for each in value):
                new = tuple(self.new[id(each)] for each in value)
            else:
                continue
            if new != value:
                changed[field.name] = new
        return replace(node, **changed) if changed else node

    def _moved(self, where: Where) -> Node:
        """Return the rows of `where`, with what can be moved of its condition as far up as it goes."""
        up, stays, parts = where.up, [], _parts(where)
        for part in parts:
            above = None if _must_stay(part.scalar) else self._sunk(up, part)
            if above is None:
                stays.append(part.scalar.text)
            else:
                up = above
        if up is where.up:
            return where
        if not stays:
            return up
        left = _condition(" AND ".join(f"({text})" for text in stays), up)
        return where if left is None else replace(where, up=up, condition=left)

    def _sunk(self, up: Node, part: _Part) -> Node | None:
        """Return the rows of a step that meet a part, tested above a step with state; None where that cannot be."""
        if id(up) in self.shared:
            return None
        if isinstance(up, Where):
            above = self._sunk(up.up, part)
            return None if above is None else replace(up, up=above)
        if isinstance(up, Select):
            named = part.through(_passed(up))
            above = None if named is None else self._sunk(up.up, named)
            return None if above is None else replace(up, up=above)
        if isinstance(up, Aggregate | Top) and not up.detects_late:
            keys = {name: name for name in up.keys if not has_floats(up.schema.field(name).type)}
            by_key = replace(part, missed=True).through(keys)
            above = None if by_key is None else self._met(up.up, by_key)
            return None if above is None else replace(up, up=above)
        if isinstance(up, TableJoin | LookupJoin):
            return self._into_join(up, part)
        return None

    def _into_join(self, join: Join, part: _Part) -> Node | None:
        """Return a join of sides that meet a part, where one that every row has can be tested, or both can."""
        part = replace(part, missed=part.missed or isinstance(join, TableJoin))
        tested = [part.through(names) for names in _testable(join)]
        new = [up if side is None else self._met(up, side) for up, side in zip(join.ups, tested, strict=True)]
        left, right = (None if side is None else up for up, side in zip(new, tested, strict=True))
        enough = {"right": right, "full": left and right, "inner": left or right}.get(join.how, left)
        return replace(join, left=left or join.left, right=right or join.right) if enough else None

    def _met(self, up: Node, part: _Part) -> Node | None:
        """Return the rows of a step that meet a part, tested as far up as it goes."""
        return self._sunk(up, part) or part.over(up)


def _testable(join: Join) -> tuple[dict[str, str], dict[str, str]]:
    """Return for each side what its columns are called that have, by their names below, the value of the row.

    A key that both sides share is that of either. One with doubles is that of neither: it is 0.0 where a row has -0.0.
    So is any column with doubles of a side whose rows are counted.
    """
    counted = [isinstance(join, TableJoin) and join.counts(side) for side in (0, 1)]
    sides: tuple[dict[str, str], dict[str, str]] = {}, {}
    keys = {name for pair in join.on for name in pair}
    for column in join.columns:
        of_key = not keys.isdisjoint((column.left, column.right))
        if has_floats(column.type) and (of_key or counted[0 if column.left is not None else 1]):
            continue
        both = column.left is not None and column.right is not None
        if column.left is not None and (both or join.how in ("inner", "left", "semi", "anti")):
            sides[0][column.name] = column.left
        if column.right is not None and (both or (column.left is None and join.how in ("inner", "right"))):
            sides[1][column.name] = column.right
    return sides if isinstance(join, TableJoin) else (sides[0], {})


def _passed(select: Select) -> dict[str, str]:
    """Return the columns that are passed on, each with its name above."""
    above = {quote(name): name for name in select.up.schema.names}
    return {name: above[column.sql] for name, column in select.columns if column.sql in above}


def _parts(where: Where) -> list[_Part]:
    """Return the parts of a condition, unless its text does not say all of it (of a branch), or needs whole rows."""
    if where.condition.calls or not where.condition.deterministic or not _leads_to_state(where.up):
        return []
    whole = _condition(where.condition.text, where.up)
    scalars = [_condition(text, where.up) for text in parts_of(where.condition.text)]
    found = [_Part(where, scalar, {name: name for name in scalar.columns}) for scalar in scalars if scalar is not None]
    return found if whole is not None and whole.sql == where.condition.sql and len(found) == len(scalars) else []


def _leads_to_state(up: Node) -> bool:
    while isinstance(up, Where | Select):
        up = up.up
    return isinstance(up, Aggregate | Top | TableJoin | LookupJoin)


def _must_stay(part: Scalar) -> bool:
    return part.raises or part.reads_clock or not part.columns


def _condition(text: str, up: Node, column_sql: Mapping[str, str] | None = None) -> Scalar | None:
    """Return the condition over a step's rows, or None where it cannot be read there."""
    try:
        return condition(text, up.schema, step="where", sealed=up.sealed, column_sql=column_sql)
    except HeadraceError:
        return None
