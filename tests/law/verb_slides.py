"""What sliding windows and windows of a calendar make of rows, in plain Python."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from verb_past import END
from verb_values import Row, hashed
from verb_windows import Group, Windows

if TYPE_CHECKING:
    from collections.abc import Iterator

INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True)
class Sliding(Windows):
    """Windows around the rows, of the one size in `sizes`: both bounds are inside."""

    def time(self, end: datetime) -> datetime:
        """Return the event time of a result: its end, which is inside."""
        return end

    @property
    def _size(self) -> timedelta:
        return timedelta(seconds=self.sizes[0])

    def _closed(self, end: datetime, watermark: datetime | None) -> bool:
        if watermark is None:
            return False
        return watermark == END or end + timedelta(seconds=self.grace) < watermark

    def _played(self, world: dict) -> tuple[list[Group], list[Row]]:
        past = world["#past"]
        rows = None if self.over_table else self.step.rows(world)
        accepted: list[Row] = []
        late: list[Row] = []
        waiting: list[Row] = []
        found: dict[tuple, Group] = {}
        for epoch in range(past.epochs):
            watermark = past.watermark(self.roots, epoch)
            new = [] if rows is None else [row for row in rows if row["_epoch"] == epoch]
            if rows is None:
                accepted = [{"_at": row["at"]} | row for row in self.step.rows(past.after(epoch))]
            gone = [row for row in (*waiting, *new) if self._closed(row["_at"] + self._size, watermark)]
            late += gone
            taken = [row for row in new if not any(row is each for each in gone)]
            accepted = accepted + taken
            now = {key: group for key, group in self._sets(accepted).items() if not self._closed(key[1][1], watermark)}
            found = {key: group for key, group in found.items() if self._closed(key[1][1], watermark)} | now
            there = {id(row) for group in now.values() for row in group[0]}
            some = [row for row in (*waiting, *taken) if self._closed(row["_at"], watermark)]
            waiting = [row for row in some if id(row) not in there and not any(row is each for each in gone)]
        now = past.watermark(self.roots)
        late += [row for row in waiting if self._closed(row["_at"] + self._size, now)]
        return list(found.values()), late

    def _sets(self, rows: list[Row]) -> dict[tuple, Group]:
        groups, found = defaultdict(list), {}
        for row in rows:
            groups[hashed(row, self.keys)].append(row)
        for key, own in groups.items():
            for time in {row["_at"] for row in own}:
                for start in (time - self._size, time + INSTANT):
                    end = start + self._size
                    inside = [row for row in own if start <= row["_at"] <= end]
                    if inside:
                        found[key, (start, end)] = inside, start, end
        return found


@dataclass(frozen=True)
class Calendar(Windows):
    """Windows of `periods` ("hour", "day" or "month") of a zone: `sizes` and `every` count them, `offset` is seconds.

    Each clock here shows every time once.
    """

    period: str = "hour"
    zone: str = "UTC"

    def _bounds(self, time: datetime) -> Iterator[tuple[datetime, datetime]]:
        at = self._number(time)
        first = at // self.every * self.every
        for start in range(first, first - max(self.sizes), -self.every):
            for size in self.sizes:
                if start <= at < start + size:
                    yield self._instant(start), self._instant(start + size)

    def _number(self, time: datetime) -> int:
        """Return the number of the period that holds a time."""
        local = time.astimezone(ZoneInfo(self.zone)).replace(tzinfo=None) - timedelta(seconds=self.offset)
        if self.period == "month":
            return local.year * 12 + local.month - 1
        return (local - datetime(1970, 1, 1)) // timedelta(**{f"{self.period}s": 1})  # noqa: DTZ001 -- of a clock

    def _instant(self, number: int) -> datetime:
        local: Any = datetime(1970, 1, 1)  # noqa: DTZ001 -- of a clock
        if self.period == "month":
            local = local.replace(year=number // 12, month=number % 12 + 1)
        else:
            local += timedelta(**{f"{self.period}s": number})
        return (local + timedelta(seconds=self.offset)).replace(tzinfo=ZoneInfo(self.zone)).astimezone(UTC)
