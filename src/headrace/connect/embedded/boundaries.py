"""Whole epochs across topics: what an app published together is read together.

An app that appends to topics writes, once an epoch is published, a *mark*: which offsets of which partitions the epoch
is made of. Whoever reads some of these topics ends its own epochs between those of the app, never inside one: balances
that are consistent in one app stay so in the next, with any number of topics in between. Records that a crash kept
from being published to the end are not read before the app is back and has finished them.

Marks live in the topic `__epochs` of the log, which is not listed. Records of other producers are read as they come.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import TopicExists
from headrace.base.schema import as_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from headrace.log import Log, Topic

TOPIC = "__epochs"
SCHEMA = as_schema("app string, epoch bigint, topic string, partition int, first bigint, last bigint")
KEPT = "7 days"
"""How long marks stay: older records are read without them, so only catching up from before then may cut an epoch."""

_DECLARED = -1
_ROWS = 1_000_000


def producer(app: str, topic: str) -> str:
    """Return the name under which an app (its name and storage's identity) appends to a topic."""
    return f"{app}/topic:{topic}"


# ---- the app that publishes ----


@dataclass
class Marker:
    """Marks the epochs of an app in its log."""

    log: Log
    app: str
    _topic: Topic | None = field(default=None, init=False)

    def declare(self, topics: Iterable[Topic]) -> None:
        """Say once, before anything is published to a topic, that this app marks its epochs there, from where on.

        An earlier life of the app, before its storage was reset or lost, will never finish what it left unfinished:
        that is over, and may be read.
        """
        topics = list(topics)
        if not topics:
            return
        said = self._said()
        rows = [
            self._row(_DECLARED, topic.name, partition, range(end, end))
            for topic in topics
            if (self.app, topic.name) not in said
            for partition, end in topic.end_offsets().items()
        ]
        by_name = {topic.name: topic for topic in topics}
        for (app, name), marked in said.items():
            if app != self.app and app.partition("/")[0] == self.app.partition("/")[0] and name in by_name:
                rows += self._over(app, by_name[name], marked)
        if rows:
            self._marks().append(rows)

    def _said(self) -> dict[tuple[str, str], dict[int, int]]:
        """Return by app and topic up to where each partition is marked."""
        marks = self._marks()
        start, end = marks.start_offsets()[0], marks.end_offsets()[0]
        rows = marks.read(0, start, max(end - start, 1))
        made: dict[tuple[str, str], dict[int, int]] = {}
        for row in rows.group_by(["app", "topic", "partition"]).aggregate([("last", "max")]).to_pylist():
            made.setdefault((row["app"], row["topic"]), {})[row["partition"]] = row["last_max"]
        return made

    def _over(self, app: str, topic: Topic, marked: Mapping[int, int]) -> list[dict[str, object]]:
        name = producer(app, topic.name)
        return [
            self._row(_DECLARED, topic.name, partition, range(end, end)) | {"app": app}
            for partition, end in topic.end_offsets().items()
            if topic.first_of([name], partition, marked.get(partition, 0), end) is not None
        ]

    def mark(self, epoch: int, given: Mapping[str, Mapping[int, range]]) -> None:
        """Say which offsets an epoch was given in each partition of each topic; again does nothing."""
        rows = [
            self._row(epoch, topic, partition, offsets)
            for topic, by in given.items()
            for partition, offsets in by.items()
            if len(offsets)
        ]
        if rows:
            self._marks().append(rows, producer=f"{self.app}/epochs", sequence=epoch)

    def _row(self, epoch: int, topic: str, partition: int, offsets: range) -> dict[str, object]:
        where = {"topic": topic, "partition": partition, "first": offsets.start, "last": offsets.stop}
        return {"app": self.app, "epoch": epoch, **where}

    def _marks(self) -> Topic:
        if self._topic is None:
            if not self.log.has_topic(TOPIC):
                with suppress(TopicExists):  # another app may be starting
                    self.log.create_topic(TOPIC, SCHEMA, partitions=1, retention=KEPT)
            self._topic = self.log.topic(TOPIC)
        return self._topic


# ---- the app that reads ----


Place = tuple[str, int]
"""A topic, and a partition of it."""


@dataclass
class EpochBoundaries:
    """Where an epoch's input may end: between the epochs of the apps that it comes from."""

    log: Log
    _read: int = field(default=0, init=False)
    _pending: pa.Table = field(default_factory=SCHEMA.empty_table, init=False)
    _marked: dict[Place, int] = field(default_factory=dict, init=False)
    _apps: dict[str, set[str]] = field(default_factory=dict, init=False)

    def ends(
        self, places: Sequence[Place], floors: Sequence[int], wanted: Sequence[int], limits: Sequence[int]
    ) -> list[int]:
        """Return where to end in each place: about where `wanted`, after `floors`, not after `limits`.

        The least ends that take whole epochs: more than was wanted where an epoch has more. Floors must not go back.
        """
        if not places or not self.log.has_topic(TOPIC):
            return list(wanted)
        self._catch_up({topic for topic, _ in places})
        spans = self._spans(places, floors)
        caps = np.array(limits, dtype=np.int64)
        for at, first in self._unfinished(places, floors, limits):
            caps[at] = min(caps[at], first)
        spans.lower(caps)
        made = np.minimum(np.array(wanted, dtype=np.int64), caps)
        spans.lift(made)
        return [int(end) for end in np.maximum(made, np.array(floors, dtype=np.int64))]

    def _catch_up(self, topics: set[str]) -> None:
        """Take in the marks of some topics that were written since."""
        topic = self.log.topic(TOPIC)
        while topic.end_offsets()[0] > max(self._read, topic.start_offsets()[0]):
            fresh = topic.read(0, max(self._read, topic.start_offsets()[0]), _ROWS)
            self._read = fresh.column("_offset")[-1].as_py() + 1
            known = fresh.select(SCHEMA.names).filter(pc.is_in(fresh.column("topic"), pa.array(sorted(topics))))
            for row in known.group_by(["topic", "partition", "app"]).aggregate([("last", "max")]).to_pylist():
                place = row["topic"], row["partition"]
                self._marked[place] = max(self._marked.get(place, 0), row["last_max"])
                self._apps.setdefault(row["topic"], set()).add(row["app"])
            marks = known.filter(pc.greater(known.column("epoch"), _DECLARED))
            self._pending = pa.concat_tables([self._pending, marks]).combine_chunks()

    def _spans(self, places: Sequence[Place], floors: Sequence[int]) -> _Spans:
        """Return the marks of what is not read yet, each at its place; forget the others."""
        rows, slots, marks = [], [], self._pending
        for at, ((topic, partition), floor) in enumerate(zip(places, floors, strict=True)):
            here = pc.and_(pc.equal(marks.column("topic"), topic), pc.equal(marks.column("partition"), partition))
            found = np.flatnonzero(pc.and_(here, pc.greater(marks.column("last"), floor)).to_numpy())
            rows.append(found)
            slots.append(np.full(found.size, at, dtype=np.int64))
        row = np.concatenate(rows)
        apps = pc.index_in(marks.column("app"), pc.unique(marks.column("app"))).to_numpy()[row].astype(np.int64)
        epochs, first, last = (marks.column(name).to_numpy()[row] for name in ("epoch", "first", "last"))
        _, group = np.unique(apps * (1 << 40) + epochs, return_inverse=True)
        self._pending = marks.take(pa.array(np.unique(row)))
        return _Spans(np.concatenate(slots), group, first, last)

    def _unfinished(
        self, places: Sequence[Place], floors: Sequence[int], limits: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Return the places with records that an app has appended and not marked, and where they begin."""
        found = []
        for at, (place, floor, limit) in enumerate(zip(places, floors, limits, strict=True)):
            topic, partition = place
            since = max(floor, self._marked.get(place, 0))
            if topic in self._apps and since < limit:
                producers = [producer(app, topic) for app in self._apps[topic]]
                first = self.log.topic(topic).first_of(producers, partition, since, limit)
                if first is not None:
                    found.append((at, first))
        return found


@dataclass(frozen=True, slots=True)
class _Spans:
    """Stretches of offsets, each in a slot and of a group: of a group all are taken or none."""

    slot: NDArray[np.int64]
    group: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]

    def lower(self, caps: NDArray[np.int64]) -> None:
        """Lower the slots' ends until no group is cut by them from above."""
        while (beyond := self._in(self.last > caps[self.slot]) & (self.first < caps[self.slot])).any():
            np.minimum.at(caps, self.slot[beyond], self.first[beyond])

    def lift(self, ends: NDArray[np.int64]) -> None:
        """Raise the slots' ends until every group that they touch is taken whole."""
        while (short := self._in(self.first < ends[self.slot]) & (self.last > ends[self.slot])).any():
            np.maximum.at(ends, self.slot[short], self.last[short])

    def _in(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which stretches are of a group that one of the chosen is of."""
        groups = np.zeros(int(self.group.max(initial=-1)) + 1, dtype=np.bool_)
        groups[self.group[chosen]] = True
        return groups[self.group]
