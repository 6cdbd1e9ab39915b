"""What groups of a log have read: of all kinds, without joining them. And a new beginning for one that nobody uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from headrace.base.errors import GroupInUse, UnknownGroup, UnknownTopic, did_you_mean
from headrace.log.groups import membership
from headrace.log.groups.membership import Membership
from headrace.log.groups.naming import groups_folder, queues_folder
from headrace.log.queues import leases
from headrace.log.queues.leases import COUNTS, Counts, counted
from headrace.log.shared_state import is_gone, read_only

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from headrace.log.log import Log

    _Place = tuple[str, int]  # a topic's id, and the number of a partition
    _Known = tuple[int | None, int | None]  # the commit, and the process that reads

CONSUMERS, QUEUE = "consumers", "queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRead:
    """How far a group came in a partition.

    Attributes:
        next: the offset of the first record that it has not done; of a queue, that nobody has taken. None: no commit
            for this topic; one of a former topic of the same name does not count.
        end: where the partition ends.
        process: the process that reads it, None if nobody does.

    """

    topic: str
    partition: int
    next: int | None
    start: int
    end: int
    process: int | None = None

    @property
    def lag(self) -> int:
        """How many records it has not done."""
        return self.end - max(self.next if self.next is not None else self.start, self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """A group: of consumers, or of the workers of a queue.

    Attributes:
        members: processes that are in it now.
        work: of a queue, what is in work.

    """

    name: str
    kind: str
    members: int
    partitions: list[PartitionRead] = field(default_factory=list)
    work: Counts | None = None

    @property
    def lag(self) -> int:
        """How many records it has not done; of a queue, with those that are in work."""
        inside = self.work.ready + self.work.delayed + self.work.leased if self.work is not None else 0
        return sum(each.lag for each in self.partitions) + inside


class _Bounds(NamedTuple):
    """Where a partition begins and ends, of the topic that has its name now."""

    topic: str
    start: int
    end: int


def groups_of(log: Log, *, now: int) -> list[GroupState]:
    """Return the groups of consumers and the queues of a log; `now` in microseconds since 1970."""
    consumers = [_consumers(log, path) for path in sorted(groups_folder(log.path).glob("*/group.db"))]
    return consumers + [_queue(log, path, now) for path in sorted(queues_folder(log.path).glob("*/*/queue.db"))]


def group_named(log: Log, name: str, *, now: int) -> list[GroupState]:
    """Return what has this name: a group of consumers, and the queues of a group.

    Raises:
        UnknownGroup: nothing has.

    """
    known = groups_of(log, now=now)
    found = [each for each in known if each.name == name]
    if not found:
        raise UnknownGroup(name, did_you_mean(name, [each.name for each in known]))
    return found


def reset_group(log: Log, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Let a group of consumers, which nobody is a member of, begin at offsets; where none is given it stays as it is.

    Raises:
        GroupInUse: it has members.
        UnknownTopic: an offset is of no topic of the log.

    """
    folder = groups_folder(log.path) / name
    alive = _alive(folder)
    if alive:
        raise GroupInUse(name, alive)
    members = Membership(folder, name, topics=(), assignor="sticky", session=1.0)
    try:
        members.reset(offsets, {topic: log.topic(topic).id for topic, _ in offsets})
    finally:
        members.close()


def _consumers(log: Log, path: Path) -> GroupState:
    rows = read_only(
        path,
        "SELECT p.topic, p.topic_id, p.partition, p.committed, m.pid, p.owner FROM partitions p "
        "LEFT JOIN members m ON m.id = p.owner",
        tables=membership.TABLES,
    )
    members = {member for (member,) in read_only(path, "SELECT id FROM members", tables=membership.TABLES)}
    live = {member for member in members if not is_gone(path.parent / "alive", member)}
    known: dict[str, dict[_Place, _Known]] = {}
    for topic, topic_id, number, committed, process, owner in rows:
        known.setdefault(topic, {})[topic_id, number] = committed, process if owner in live else None
    partitions = [each for topic in sorted(known) for each in _partitions(log, topic, known[topic])]
    return GroupState(name=path.parent.name, kind=CONSUMERS, members=len(live), partitions=partitions)


def _partitions(log: Log, name: str, known: Mapping[_Place, _Known]) -> list[PartitionRead]:
    """Return all partitions of a topic, those that no member has seen too; none where the topic is gone.

    What is known of a topic of this name that was deleted says nothing of the one that is there.
    """
    try:
        topic = log.topic(name)
    except UnknownTopic:
        return []
    starts, ends = topic.start_offsets(), topic.end_offsets()
    found = []
    for number, start in sorted(starts.items()):
        committed, process = known.get((topic.id, number), (None, None))
        read = PartitionRead(
            topic=name, partition=number, next=committed, start=start, end=ends[number], process=process
        )
        found.append(read)
    return found


def _queue(log: Log, path: Path, now: int) -> GroupState:
    topic = path.parent.name
    progress = read_only(path, "SELECT partition, next FROM progress ORDER BY partition", tables=leases.TABLES)
    of = next((known for (known,) in read_only(path, leases.TOPIC, tables=leases.TABLES)), None)
    found = [
        (number, following, bounds)
        for number, following in progress
        if (bounds := _bounds(log, topic, number)) is not None
    ]
    former = any(of not in {None, bounds.topic} for _, _, bounds in found)
    partitions = [
        PartitionRead(
            topic=topic, partition=number, next=None if former else following, start=bounds.start, end=bounds.end
        )
        for number, following, bounds in found
    ]
    work = Counts(0, 0, 0, 0) if former else counted(read_only(path, COUNTS, (now, now), tables=leases.TABLES)[0])
    return GroupState(
        name=path.parent.parent.name, kind=QUEUE, members=len(_alive(path.parent)), partitions=partitions, work=work
    )


def _alive(folder: Path) -> list[str]:
    names = sorted(path.name for path in (folder / "alive").glob("*"))
    return [name for name in names if not is_gone(folder / "alive", name)]


def _bounds(log: Log, topic: str, partition: int) -> _Bounds | None:
    try:
        found = log.topic(topic)
    except UnknownTopic:
        return None
    ends = found.end_offsets()
    return _Bounds(found.id, found.start_offsets()[partition], ends[partition]) if partition in ends else None
