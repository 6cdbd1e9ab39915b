"""What `over`, `dedupe` and tables that forget make of the rows of a stream, in plain Python."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cmp_to_key
from typing import TYPE_CHECKING

from verb_past import END, PAST, Past
from verb_values import Row, compared, hashed

if TYPE_CHECKING:
    from collections.abc import Callable

    from verb_steps import Roots, Step

    Walk = Callable[[list[Row], int, list[Row]], object]
    """What a column is: of the rows of the group, the place of the row, and the rows that count."""


def by_time(columns: list[str]) -> Callable[[Row], object]:
    """Return the order of rows in time; of one time that of the whole row."""

    def order(one: Row, other: Row) -> int:
        return compared(one["_at"], other["_at"]) or next(
            (found for name in columns if (found := compared(one[name], other[name], -1))), 0
        )

    return cmp_to_key(order)


@dataclass(frozen=True)
class Over:
    """Rows with columns over the rows before them; `rows`: from how many before to how many, `back`: seconds."""

    step: Step
    roots: Roots
    keys: tuple[str, ...]
    rows: tuple[int, int] | None
    back: int | None
    final: bool
    drawn: dict[str, Walk]

    def of(self, world: dict) -> list[Row]:
        """Return the rows with their columns. Rows that waited for the watermark are never late below: epoch 0."""
        past, groups, found = world[PAST], defaultdict(list), []
        now = past.watermark(self.roots)
        for row in self.step.rows(world):
            if "_at" not in row:  # of a table, whose rows are never late
                groups[hashed(row, self.keys)].append(row | {"_at": row["at"]})
            elif not self._behind(row, past.watermark(self.roots, row["_epoch"])):
                groups[hashed(row, self.keys)].append(row)
        for own in groups.values():
            own.sort(key=by_time(list(self.step.columns)))
            for place, row in enumerate(own):
                if self.final and not self._behind(row, now):
                    continue
                counted = self._counted(own, place)
                columns = {name: walk(own, place, counted) for name, walk in self.drawn.items()}
                given = {name: row[name] for name in self.step.columns}
                found.append(given | columns | {"_at": row["_at"], "_epoch": 0})
        return found

    def late(self, world: dict) -> list[Row]:
        """Return the rows that were behind the watermark."""
        past = world[PAST]
        return [row for row in self.step.rows(world) if self._behind(row, past.watermark(self.roots, row["_epoch"]))]

    def _behind(self, row: Row, watermark: object) -> bool:
        return watermark is not None and row["_at"] < watermark

    def _counted(self, own: list[Row], place: int) -> list[Row]:
        if self.back is not None:
            time = own[place]["_at"]
            return [row for row in own if time - timedelta(seconds=self.back) <= row["_at"] <= time]
        first, last = self.rows or (len(own), 0)
        return own[max(0, place - first) : max(0, place - last + 1)]


@dataclass(frozen=True)
class Dedupe:
    """The first row of each key within some seconds."""

    step: Step
    roots: Roots
    keys: tuple[str, ...]
    within: int

    def of(self, world: dict) -> list[Row]:
        """Return the rows that pass."""
        return self._played(world)[0]

    def late(self, world: dict) -> list[Row]:
        """Return the rows whose key may be forgotten."""
        return self._played(world)[1]

    def _played(self, world: dict) -> tuple[list[Row], list[Row]]:
        past: Past = world[PAST]
        remembered: dict[tuple, Row] = {}
        passed, late, within = [], [], timedelta(seconds=self.within)
        rows = self.step.rows(world)
        for epoch in range(past.epochs):
            watermark = past.watermark(self.roots, epoch)
            if watermark is not None:
                remembered = {key: row for key, row in remembered.items() if row["_at"] + within >= watermark}
            new = sorted((row for row in rows if row["_epoch"] == epoch), key=by_time(list(self.step.columns)))
            for row in new:
                if watermark is not None and row["_at"] + within < watermark:
                    late.append(row)
                elif hashed(row, self.keys) not in remembered:
                    remembered[hashed(row, self.keys)] = row
                    passed.append(row)
        return passed, late


@dataclass(frozen=True)
class Keep:
    """A table whose rows leave after some seconds."""

    step: Step
    roots: Roots
    keep: int

    def of(self, world: dict) -> list[Row]:
        """Return the rows that are there."""
        now = world[PAST].watermark(self.roots) if not world[PAST].ended else world[PAST].watermark(
            self.roots, world[PAST].epochs
        )  # fmt: skip
        return [row for row in self._taken(world, late=False) if now is None or not self._left(row, now)]

    def late(self, world: dict) -> list[Row]:
        """Return the rows that never were in it."""
        return self._taken(world, late=True)

    def _taken(self, world: dict, *, late: bool) -> list[Row]:
        past, found = world[PAST], []
        for row in self.step.rows(world):
            watermark = past.watermark(self.roots, row["_epoch"])
            if (watermark is not None and self._left(row, watermark)) == late:
                found.append(row)
        return found

    def _left(self, row: Row, watermark: object) -> bool:
        return watermark != END and row["_at"] + timedelta(seconds=self.keep) < watermark


@dataclass(frozen=True)
class Suppressed:
    """A table whose changes wait until the watermark enters another period of so many seconds."""

    step: Step
    roots: Roots
    every: int

    def of(self, world: dict) -> list[Row]:
        """Return the rows that have come out."""
        past = world[PAST]
        if past.ended:
            return self.step.rows(world)
        for epoch in reversed(range(past.epochs)):
            before, after = (self._period(past.watermark(self.roots, each)) for each in (epoch, epoch + 1))
            if before is not None and before != after:
                return self.step.rows(past.after(epoch))
        return []

    def _period(self, watermark: datetime | None) -> int | None:
        return None if watermark is None else int(watermark.timestamp()) // self.every
