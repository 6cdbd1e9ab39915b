"""Steps of random programs of verbs, and what joins and tops make of rows, in plain Python."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any

from verb_values import EVENTS, INT, LONG, Row, compared, hashed

if TYPE_CHECKING:
    from collections.abc import Callable

Roots = dict[str, timedelta]
"""The streams that a watermark comes from, and how far it is behind each of theirs."""
MOST_PAIRS = 20_000
"""A join of more would take too long here."""


class TooManyPairs(Exception):
    """A join would take too long here."""


@dataclass(eq=False)
class Step:
    """A step of a program: its name, its text, the columns by their kinds, and what it makes of the tables' rows."""

    name: str
    code: str
    columns: dict[str, str]
    of: Callable[[dict], list[Row]]
    ups: tuple[Step, ...] = ()
    hold: timedelta = timedelta()
    """How far its own watermark is behind the one that it works with."""

    def rows(self, world: dict) -> list[Row]:
        """Return its rows; `world` remembers those of steps."""
        if self.name not in world:
            world[self.name] = self.of(world)
        return world[self.name]

    def lines(self) -> list[str]:
        """Return the text of the steps that lead here."""
        return list(dict.fromkeys([*(line for up in self.ups for line in up.lines()), f"{self.name} = {self.code}"]))


DIRECT = ("where(", "with_columns(", "select(", "rename(")
"""Steps of tables that change with each record, not once an epoch."""


def roots(step: Step) -> Roots:
    """Return the streams with event time that a step is made of, and how far its watermark is behind theirs."""
    if step.code.startswith(("streams[", "tables[")) and not step.ups:
        name = step.code.split("'")[1]
        return {name: step.hold} if name in EVENTS else {}
    ups = step.ups[:1] if ".join(" in step.code and "within=" not in step.code else step.ups
    return {name: behind + step.hold for name, behind in least(*map(roots, ups)).items()}


def least(*several: Roots) -> Roots:
    """Return what the least of several watermarks is made of."""
    found: Roots = {}
    for each in several:
        for name, behind in each.items():
            found[name] = max(behind, found.get(name, behind))
    return found


def timed(step: Step) -> bool:
    """Return whether a table changes as time passes, or has a time of its own."""
    lines = "".join(step.lines())
    return any(f"{word}['{name}']" in lines for name in EVENTS for word in ("streams", "tables"))


def held(step: Step) -> bool:
    """Return whether rows of a stream come later than the epoch in which they arrived."""
    return met(step) or any(".over(" in line for line in step.lines())


def met(step: Step) -> bool:
    """Return whether rows of a stream waited for others, so that its watermark is behind that of its sources."""
    return any("within=(" in line for line in step.lines())


def direct(step: Step) -> bool:
    """Return whether a table changes with each record."""
    if not step.ups:
        return True
    plain = any(f".{word}" in step.code for word in DIRECT) and ".changes(" not in step.code
    return plain and all(map(direct, step.ups))


@dataclass(frozen=True)
class Join:
    """What a join of two steps makes of their rows."""

    left: Step
    right: Step
    on: tuple[tuple[str, str], ...]
    how: str
    suffix: str

    @property
    def shared(self) -> list[str]:
        """The columns that both sides share."""
        return [one for one, two in self.on if one == two]

    def _right_name(self, name: str) -> str:
        return f"{name}{self.suffix}" if name in self.left.columns else name

    @property
    def both(self) -> dict[str, str]:
        """The columns of both sides, by their names in the result."""
        wide = {name: LONG if {self.left.columns[name], self.right.columns[name]} == {INT, LONG}
                else self.left.columns[name] for name in self.shared}  # fmt: skip
        rest = {self._right_name(name): kind for name, kind in self.right.columns.items() if name not in self.shared}
        return self.left.columns | wide | rest

    def rows(self, world: dict, where: Callable[[Row], Any] | None) -> list[Row]:
        """Return the rows of the join."""
        lefts, rights = self.left.rows(world), self.right.rows(world)
        ones, twos = [one for one, _ in self.on], [two for _, two in self.on]
        there = defaultdict(list)
        for at, row in enumerate(rights):
            if all(row[name] is not None for name in twos):
                there[hashed(row, twos)].append(at)
        pairs, alone, met, room = [], [], set(), MOST_PAIRS
        for row in lefts:
            found = there.get(hashed(row, ones), ()) if all(row[name] is not None for name in ones) else ()
            if len(found) > MOST_PAIRS // 10:
                raise TooManyPairs
            found = [at for at in found if where is None or where(self._pair(row, rights[at])) is True]
            met.update(found)
            room -= len(found)
            if room < 0:
                raise TooManyPairs
            pairs += [self._pair(row, rights[at]) for at in found]
            alone.append((row, bool(found)))
        if self.how in ("semi", "anti"):
            return [row for row, matched in alone if matched == (self.how == "semi")]
        if self.how in ("left", "full"):
            pairs += [self._pair(row, None) for row, matched in alone if not matched]
        if self.how in ("right", "full"):
            pairs += [self._pair(None, row) for at, row in enumerate(rights) if at not in met]
        return pairs

    def _pair(self, left: Row | None, right: Row | None) -> Row:
        row = dict.fromkeys(self.both)
        names = {name: name if name in self.shared else self._right_name(name) for name in self.right.columns}
        row |= {names[name]: value for name, value in (right or {}).items()}
        return row | (left or {})


@dataclass(frozen=True)
class Top:
    """What a top of a step makes of its rows."""

    step: Step
    keys: tuple[str, ...]
    order: list[tuple[str, bool, bool | None]]
    count: int | str
    ties: str
    rank: str | None

    def rows(self, world: dict) -> list[Row]:
        """Return the first rows of each group."""
        groups = defaultdict(list)
        for row in self.step.rows(world):
            groups[hashed(row, self.keys)].append(row)
        found = []
        for rows in groups.values():
            count = rows[0][self.count] if isinstance(self.count, str) else self.count
            rows.sort(key=cmp_to_key(self._whole))
            first = dense = 0
            for at, row in enumerate(rows):
                if at == 0 or self._by(rows[at - 1], row):
                    first, dense = at + 1, dense + 1
                place = {"row_number": at + 1, "rank": first, "dense_rank": dense}[self.ties]
                if count is not None and place <= count:
                    found.append(row | ({self.rank: place} if self.rank else {}))
        return found

    def _by(self, one: Row, other: Row) -> int:
        for name, down, nulls_first in self.order:
            a, b = one[name], other[name]
            if (a is None) != (b is None):
                first = (not down) if nulls_first is None else nulls_first
                return -1 if (a is None) == first else 1
            if found := compared(a, b):
                return -found if down else found
        return 0

    def _whole(self, one: Row, other: Row) -> int:
        return self._by(one, other) or next(
            (found for name in self.step.columns if (found := compared(one[name], other[name], -1))), 0
        )
