"""What windows of streams make of rows, in plain Python: which rows are in them, which are open, what is late."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from verb_past import END, PAST, Past
from verb_values import Row, hashed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from verb_steps import Roots, Step

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Group = tuple[list[Row], datetime, datetime]
"""The rows of a window, and its bounds."""


@dataclass(frozen=True)
class Windows:
    """Windows of a size (cumulating: `sizes`) that begin every so often, or sessions of a gap, all in seconds."""

    step: Step
    roots: Roots
    keys: tuple[str, ...]
    sizes: tuple[int, ...]
    every: int
    offset: int
    grace: int
    final: bool
    gap: int | None = None
    over_table: bool = False

    def groups(self, world: dict) -> list[Group]:
        """Return the windows that there are, with their rows."""
        found, _ = self._played(world)
        now = world[PAST].watermark(self.roots)
        return [group for group in found if not self.final or (now is not None and self._closed(group[2], now))]

    def time(self, end: datetime) -> datetime:
        """Return the event time of the result of a window that ends then."""
        return end - timedelta(microseconds=1)

    @property
    def hold(self) -> timedelta:
        """How far behind the watermark a result may be."""
        return timedelta(seconds=self.grace, microseconds=self.gap is not None)

    def late(self, world: dict) -> list[Row]:
        """Return the rows that were too late for all their windows."""
        return self._played(world)[1]

    def _closed(self, end: datetime, watermark: datetime | None) -> bool:
        if watermark is None:
            return False
        if watermark == END:
            return True
        closing = end + timedelta(seconds=self.grace)
        return closing < watermark if self.gap is not None else closing <= watermark

    def _played(self, world: dict) -> tuple[list[Group], list[Row]]:
        past, rows = world[PAST], self.step.rows(world)
        if self.over_table:
            return self._last_of_tables(past), []
        if self.gap is not None:
            return self._sessions(past, rows)
        windows, late = defaultdict(list), []
        for row in rows:
            watermark = past.watermark(self.roots, row["_epoch"])
            taken = [bounds for bounds in self._bounds(row["_at"]) if not self._closed(bounds[1], watermark)]
            for bounds in taken:
                windows[hashed(row, self.keys), bounds].append(row)
            if not taken:
                late.append(row)
        return [(group, *bounds) for (_, bounds), group in windows.items()], late

    def _last_of_tables(self, past: Past) -> list[Group]:
        """Return of each window the rows that a table had in it when it was open for the last time."""
        windows: dict[tuple, Group] = {}
        for epoch in range(past.epochs):
            watermark, now = past.watermark(self.roots, epoch), defaultdict(list)
            for row in self.step.rows(past.after(epoch)):
                for bounds in self._bounds(row["at"]):
                    now[hashed(row, self.keys), bounds].append(row)
            closed = {key: group for key, group in windows.items() if self._closed(key[1][1], watermark)}
            windows = {key: (rows, *key[1]) for key, rows in now.items() if not self._closed(key[1][1], watermark)}
            windows |= closed
        return list(windows.values())

    def _bounds(self, time: datetime) -> Iterator[tuple[datetime, datetime]]:
        seconds = (time - EPOCH) // timedelta(seconds=1)
        first = (seconds - self.offset) // self.every * self.every + self.offset
        for start in range(first, first - max(self.sizes), -self.every):
            for size in self.sizes:
                if start <= seconds < start + size:
                    yield EPOCH + timedelta(seconds=start), EPOCH + timedelta(seconds=start + size)

    def _sessions(self, past: Any, rows: list[Row]) -> tuple[list[Group], list[Row]]:
        groups, closed, late = defaultdict(list), [], []
        for row in rows:
            groups[hashed(row, self.keys)].append(row)
        for mine in groups.values():
            there: list[list[Row]] = []
            for epoch in range(past.epochs):
                watermark = past.watermark(self.roots, epoch)
                closed += [each for each in there if self._closed(self._end(each), watermark)]
                there = [each for each in there if not self._closed(self._end(each), watermark)]
                there = self._merged(there + [[row] for row in mine if row["_epoch"] == epoch])
                late += [row for each in there if self._closed(self._end(each), watermark) for row in each]
                there = [each for each in there if not self._closed(self._end(each), watermark)]
            closed += there
        return [(each, min(row["_at"] for row in each), self._end(each)) for each in closed], late

    def _end(self, rows: list[Row]) -> datetime:
        return max(row["_at"] for row in rows) + timedelta(seconds=self.gap or 0)

    def _merged(self, sessions: list[list[Row]]) -> list[list[Row]]:
        made: list[list[Row]] = []
        for each in sorted(sessions, key=lambda rows: min(row["_at"] for row in rows)):
            if made and min(row["_at"] for row in each) <= self._end(made[-1]):
                made[-1] = made[-1] + each
            else:
                made.append(each)
        return made


def aggregated(windows: Windows, drawn: dict[str, Any]) -> Callable[[dict], list[Row]]:
    """Return what gives a row for each window, with aggregates; none of them is late anywhere."""
    return lambda world: [
        {key: rows[0][key] for key in windows.keys}
        | {"window_start": start, "window_end": end}
        | {name: each.of(rows) for name, each in drawn.items()}
        | {"_at": windows.time(end), "_epoch": 0}
        for rows, start, end in windows.groups(world)
    ]
