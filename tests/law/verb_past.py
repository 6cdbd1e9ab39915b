"""What happened to the rows that random programs read: every change in the order of its arrival, and the watermarks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from verb_values import EVENTS, LATEST, TABLES, Row, hashed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PAST = "#past"
"""The name under which a world has its past."""
END = datetime.max.replace(tzinfo=UTC)


class Change(NamedTuple):
    """A row that arrived, its event time and its partition; a `None` row deletes its key."""

    number: int
    epoch: int
    name: str
    key: tuple
    row: Row | None
    at: datetime | None
    partition: int


@dataclass
class Past:
    """All changes up to a moment, after so many epochs; `ended`: no more will come."""

    changes: list[Change] = field(default_factory=list)
    epochs: int = 0
    ended: bool = False
    _worlds: dict[Any, dict] = field(default_factory=dict)
    _greatest: dict[str, list[datetime | None]] = field(default_factory=dict)

    def world(self) -> dict[str, Any]:
        """Return the rows of this moment."""
        return _world(self.changes) | {PAST: self}

    def arrived(self, number: int) -> dict[str, Any]:
        """Return the rows that had arrived when a change did."""
        return self._remembered(("arrived", number), (each for each in self.changes if each.number <= number))

    def after(self, epoch: int) -> dict[str, Any]:
        """Return the rows that there were after an epoch."""
        changes = [each for each in self.changes if each.epoch <= epoch]
        return self._remembered(("after", epoch), changes) | {PAST: Past(changes, epoch + 1)}

    def _remembered(self, moment: tuple, changes: Iterable[Change]) -> dict[str, Any]:
        if moment not in self._worlds:
            self._worlds[moment] = _world(changes)
        return self._worlds[moment]

    def watermark(self, roots: Mapping[str, timedelta], epoch: int | None = None) -> datetime | None:
        """Return the watermark of streams by which an epoch's rows are judged, or the one of this moment."""
        if epoch is None and self.ended:
            return END
        marks = [(self._mark(root, self.epochs if epoch is None else epoch), behind) for root, behind in roots.items()]
        return min((mark - behind for mark, behind in marks if mark is not None), default=None) if all(
            mark is not None for mark, _ in marks
        ) else None  # fmt: skip

    def _mark(self, root: str, epoch: int) -> datetime | None:
        if root not in self._greatest:
            self._greatest[root], own, last = [None], {}, None
            for before in range(self.epochs):
                for each in self.changes:
                    if each.name == root and each.epoch == before:
                        own[each.partition] = max(own.get(each.partition, each.at), each.at)
                least = min(own.values(), default=None)
                last = least if last is None else max(last, least)
                self._greatest[root].append(last)
        greatest = self._greatest[root][epoch]
        return None if greatest is None else greatest - timedelta(seconds=EVENTS[root])


def _world(changes: Iterable[Change]) -> dict[str, Any]:
    keyed: dict[str, dict[tuple, Row]] = defaultdict(dict)
    bags: dict[str, list[Row]] = defaultdict(list)
    for each in changes:
        there, key = keyed[each.name], each.key
        if TABLES[each.name][1] is None:
            bags[each.name].append(_timed(each))
        elif each.name == LATEST:
            if key not in there or each.row["at"] >= there[key]["at"]:
                there[key] = each.row
        else:
            there.pop(key, None)
            if each.row is not None:
                there[key] = each.row
    return {name: bags[name] if key is None else list(keyed[name].values()) for name, (_, key) in TABLES.items()}


def _timed(each: Change) -> Row:
    """Return a row of a stream; of one with event time, with what steps in time ask for."""
    if each.name not in EVENTS or TABLES[each.name][1]:
        return each.row
    return each.row | {"_at": each.row["at"], "_epoch": each.epoch, "_nr": each.number, "_place": each.partition}


def change(number: int, epoch: int, name: str, row: Row, partition: int = 0) -> Change:
    """Return the change that a row makes that is sent."""
    key = TABLES[name][1]
    return Change(number, epoch, name, hashed(row, key) if key else (), None if "_deleted" in row else row,
                  row.get("at"), partition)  # fmt: skip
