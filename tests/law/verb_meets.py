"""What joins of streams make of rows, in plain Python: with streams within a time, and with tables as of now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from verb_past import END, PAST, Change, Past
from verb_values import HIDDEN, Row, hidden

if TYPE_CHECKING:
    from collections.abc import Callable

    from verb_steps import Join, Roots

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
class AsOf:
    """A stream joined with the rows of a table that were valid at a time in its rows; no version is forgotten."""

    join: Join
    test: Test
    roots: Roots
    table: str
    time: str
    grace: int

    def of(self, world: dict) -> list[Row]:
        """Return the rows of the join whose time has come."""
        past, found = world[PAST], []
        for row in self.join.left.rows(world):
            last = self._answered(row, past)
            if last is not None:
                found += paired(self.join, [row], self._valid(row, past, last), self.test)
        return found

    def _answered(self, row: Row, past: Past) -> int | None:
        """Return the epoch that gives a row its answer, if it has come."""
        if row[self.time] is None:
            return row["_epoch"]
        for epoch in range(row["_epoch"], past.epochs):
            watermark = past.watermark(self.roots, epoch + 1)
            if watermark is not None and row[self.time] + timedelta(seconds=self.grace) < watermark:
                return epoch
        return past.epochs if past.ended else None

    def _valid(self, row: Row, past: Past, last: int) -> list[Row]:
        """Return the versions of a moment, the last one of each key."""
        versions: dict[tuple, Change] = {}
        for each in past.changes:
            before = versions.get(each.key)
            known = each.name == self.table and each.epoch <= last and row[self.time] is not None
            if known and each.at <= row[self.time] and (before is None or each.at >= before.at):
                versions[each.key] = each
        return [each.row for each in versions.values() if each.row is not None]


@dataclass(frozen=True)
class Near:
    """Two streams joined within seconds: right time less left time is from `low` to `high`."""

    join: Join
    test: Test
    roots: Roots
    low: int
    high: int
    grace: int

    @property
    def hold(self) -> timedelta:
        """How far behind the watermark a row may be that comes out."""
        left = self.high if self.join.how in ("left", "full", "semi", "anti") else 0
        right = -self.low if self.join.how in ("right", "full") else 0
        return timedelta(seconds=self.grace + max(left, right, 0))

    def of(self, world: dict) -> list[Row]:
        """Return the rows of the join. Below, only those are late that were late here."""
        sides = [self._split(step.rows(world), world) for step in (self.join.left, self.join.right)]
        now = world[PAST].watermark(self.roots)
        inner, how = type(self.join)(*[getattr(self.join, name) for name in ("left", "right", "on")],
                                     "inner", self.join.suffix), self.join.how  # fmt: skip
        found, met = [], set()
        for left in sides[0][0]:
            for right in sides[1][0]:
                apart = (right["_at"] - left["_at"]).total_seconds()
                if self.low <= apart <= self.high and (pair := paired(inner, [left], [right], self.test)):
                    found.append(pair[0] | {"_at": max(left["_at"], right["_at"]), "_epoch": 0})
                    met |= {id(left), id(right)}
        if how in ("semi", "anti"):
            found = [row | {"_epoch": 0} for row in sides[0][0] if id(row) in met] if how == "semi" else []
        for side, (rows, late) in enumerate(sides):
            if how in (("left", "right")[side], "full") or (how == "anti" and side == 0):
                alone = [row for row in rows if id(row) not in met and self._over(row, side, now)]
                found += [self._alone(row, side) | {"_at": row["_at"], "_epoch": 0} for row in alone]
                found += [self._alone(row, side) | {"_at": row["_at"], "_epoch": row["_epoch"]} for row in late]
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
