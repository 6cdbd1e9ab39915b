"""The order of arrival: sources that a lookup brings together are read as if their records came in one sequence.

An epoch ends at one point of that sequence for all sources of a group (`plan/arrival.py`): a record of the stream is
never read before a record of the table that was stored earlier, nor after one that was stored later. So where an epoch
ends changes no result.

Of records that were stored at the same instant those of a table come first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.connect.source import OffsetRange
    from headrace.plan.arrival import ReadInOrder

    Stored = Callable[[OffsetRange], "int | None"]
    """When the first record of a range was stored, in microseconds; None: there is none."""
    Align = Callable[[list[OffsetRange], "Sequence[int]"], list[OffsetRange]]
    """Move the ends of ranges to where epochs may end, at most to these offsets."""


class Instant(NamedTuple):
    """A place in the sequence: a time, and 0 for what a table is made of, 1 for what looks it up."""

    time: int
    rank: int

    def bound(self, rank: int) -> int:
        """Return the time from which on records of a rank come after this place; of the same rank they need not."""
        return self.time if rank > self.rank else self.time + 1


@dataclass(frozen=True, slots=True)
class ArrivalOrder:
    """The order of arrival of some sources, by their steps. `stored` looks a record up."""

    sources: Mapping[str, ReadInOrder]
    stored: Stored

    def applies(self, ranges: Sequence[OffsetRange]) -> bool:
        """Whether any of the ranges is read in order."""
        return any(each.source in self.sources for each in ranges)

    def ordered(self, chosen: list[OffsetRange], ends: Sequence[int], align: Align) -> list[OffsetRange]:
        """Return ranges that end at one point of the sequence, and where epochs of other apps end.

        Args:
            chosen: the ranges that an epoch would like to read.
            ends: the ends of their partitions.
            align: how ends are moved to where epochs of other apps end.

        """
        if not self.applies(chosen):
            return align(chosen, ends)
        cut = self.cut(self.begun(chosen, ends), ends)
        ranges = align(cut, ends)
        if ranges == cut:
            return ranges
        while (wanted := self.grown(ranges, ends)) != ranges:
            reached = align(wanted, ends)
            if any(got.end < want.end for got, want in zip(reached, wanted, strict=True)):
                return self._shrunk(reached, ends, align)
            ranges = reached
        return ranges

    def _shrunk(self, ranges: list[OffsetRange], ends: Sequence[int], align: Align) -> list[OffsetRange]:
        """Return less of the ranges: records that may not be read yet hold back what was stored after them."""
        while (wanted := self.cut(ranges, ends)) != ranges:
            ranges = align(wanted, [each.end for each in wanted])
        return ranges

    def begun(self, chosen: list[OffsetRange], ends: Sequence[int]) -> list[OffsetRange]:
        """Return the ranges with at least one record of each partition, so that some can always be read."""
        return [
            replace(each, end=each.start + 1) if not each.rows and each.source in self.sources and end > each.start
            else each
            for each, end in zip(chosen, ends, strict=True)
        ]  # fmt: skip

    def cut(self, ranges: list[OffsetRange], ends: Sequence[int]) -> list[OffsetRange]:
        """Return the ranges without the records that come after one that none of them has."""
        rests = [replace(each, start=each.end, end=end) for each, end in zip(ranges, ends, strict=True)]
        nexts: dict[int, Instant] = {}
        for rest in rests:
            at = self._first(rest)
            if at is not None:
                group = self.sources[rest.source].group
                nexts[group] = min(at, nexts.get(group, at))
        return [self._before(each, nexts) for each in ranges]

    def _before(self, part: OffsetRange, nexts: Mapping[int, Instant]) -> OffsetRange:
        source = self.sources.get(part.source)
        if source is None or source.group not in nexts or not part.rows:
            return part
        return replace(part, end=self._offset_at(part, nexts[source.group].bound(_rank(source))))

    def grown(self, ranges: list[OffsetRange], ends: Sequence[int]) -> list[OffsetRange]:
        """Return the ranges with the records that come before one that another of them has."""
        lasts: dict[int, Instant] = {}
        for each in ranges:
            at = self._last(each)
            if at is not None:
                group = self.sources[each.source].group
                lasts[group] = max(at, lasts.get(group, at))
        grown = []
        for each, end in zip(ranges, ends, strict=True):
            source, rest = self.sources.get(each.source), replace(each, start=each.end, end=end)
            if source is not None and source.group in lasts and rest.rows:
                rank, last = _rank(source), lasts[source.group]
                bound = last.time if rank >= last.rank else last.time + 1
                grown.append(replace(each, end=self._offset_at(rest, bound)))
            else:
                grown.append(each)
        return grown

    def _first(self, part: OffsetRange) -> Instant | None:
        """Return the place of the first record of a range; None if it is empty, or not read in order."""
        source = self.sources.get(part.source)
        stored = self.stored(part) if source is not None and part.rows else None
        return None if source is None or stored is None else Instant(stored, _rank(source))

    def _last(self, part: OffsetRange) -> Instant | None:
        """Return the place of the last record of a range; offsets without records (compacted ones) are passed over."""
        low, high = part.start, part.end
        found = self._first(part)
        while found is not None and high - low > 1:
            middle = (low + high) // 2
            later = self._first(replace(part, start=middle))
            low, high, found = (low, middle, found) if later is None else (middle, high, later)
        return found

    def _offset_at(self, part: OffsetRange, time: int) -> int:
        """Return the first offset of a range from which on records were stored at `time` or later, else its end."""
        low, high = part.start, part.end
        while low < high:
            middle = (low + high) // 2
            stored = self.stored(replace(part, start=middle))
            low, high = (low, middle) if stored is None or stored >= time else (middle + 1, high)
        return low


def _rank(source: ReadInOrder) -> int:
    return 0 if source.first else 1
