"""What joins of streams make of rows, in plain Python: with streams within a time, and with tables as of now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from verb_past import END, PAST
from verb_values import HIDDEN, Row, hidden

if TYPE_CHECKING:
    from collections.abc import Callable

    from verb_steps import Join

    Test = Callable[[Row], Any] | None


def bare(row: Row) -> Row:
    """Return a row without what it carries along."""
    return {name: value for name, value in row.items() if name not in HIDDEN}


def paired(join: Join, left: list[Row], right: list[Row], test: Test, world: dict | None = None) -> list[Row]:
    """Return what a join makes of these rows alone."""
    given = {join.left.name: [bare(row) for row in left], join.right.name: [bare(row) for row in right]}
    return join.rows((world or {}) | given, test)


@dataclass(frozen=True)
class Lookup:
    """A stream joined with a table as it is when a row arrives; `whole`: as its epoch leaves it."""

    join: Join
    test: Test
    whole: bool

    def of(self, world: dict) -> list[Row]:
        """Return the rows of the join."""
        past, found = world[PAST], []
        for row in self.join.left.rows(world):
            then = past.after(row["_epoch"]) if self.whole else past.arrived(row["_nr"])
            carried = hidden(row)
            found += [pair | carried for pair in paired(self.join, [row], self.join.right.rows(then), self.test)]
        return found


@dataclass(frozen=True)
class Near:
    """Two streams joined within seconds: right time less left time is from `low` to `high`."""

    join: Join
    test: Test
    roots: frozenset[str]
    low: int
    high: int
    grace: int

    def of(self, world: dict) -> list[Row]:
        """Return the rows of the join."""
        sides = [self._split(step.rows(world), world) for step in (self.join.left, self.join.right)]
        now = world[PAST].watermark(self.roots)
        inner, how = type(self.join)(*[getattr(self.join, name) for name in ("left", "right", "on")],
                                     "inner", self.join.suffix), self.join.how  # fmt: skip
        found, met = [], set()
        for left in sides[0][0]:
            for right in sides[1][0]:
                apart = (right["_at"] - left["_at"]).total_seconds()
                if self.low <= apart <= self.high and (pair := paired(inner, [left], [right], self.test)):
                    found += pair
                    met |= {id(left), id(right)}
        if how in ("semi", "anti"):
            found = [bare(row) for row in sides[0][0] if id(row) in met] if how == "semi" else []
        for side, (rows, late) in enumerate(sides):
            if how in (("left", "right")[side], "full") or (how == "anti" and side == 0):
                alone = [row for row in rows if id(row) not in met and self._over(row, side, now)] + late
                found += [self._alone(row, side) for row in alone]
        return found

    def _alone(self, row: Row, side: int) -> Row:
        if self.join.how == "anti":
            return bare(row)
        outer = type(self.join)(self.join.left, self.join.right, self.join.on, "full", self.join.suffix)
        return paired(outer, [row] if side == 0 else [], [row] if side == 1 else [], None)[0]

    def _split(self, rows: list[Row], world: dict) -> tuple[list[Row], list[Row]]:
        there: tuple[list[Row], list[Row]] = ([], [])
        for row in rows:
            watermark = world[PAST].watermark(self.roots, row["_epoch"])
            there[watermark is not None and row["_at"] + timedelta(seconds=self.grace) < watermark].append(dict(row))
        return there

    def _over(self, row: Row, side: int, watermark: datetime | None) -> bool:
        if watermark is None or watermark == END:
            return watermark is not None
        return row["_at"] + timedelta(seconds=(self.high, -self.low)[side] + self.grace) < watermark
