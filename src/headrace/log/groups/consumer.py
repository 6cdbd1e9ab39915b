"""A member of a consumer group: it reads the partitions that are its share, and commits how far it came."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from headrace.base.arguments import a_text, a_whole_number, one_of
from headrace.base.errors import HeadraceError, InvalidArgument, MemberFenced, OffsetOutOfRange
from headrace.base.time import MICROS, duration
from headrace.log import bell
from headrace.log.groups.membership import TopicSize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta
    from pathlib import Path
    from types import TracebackType

    import pyarrow as pa

    from headrace.base.time import Clock
    from headrace.log.groups.membership import Membership
    from headrace.log.topic import Topic

    Place = tuple[str, int]

_LOGGER = logging.getLogger("headrace.log")
_LOOK_SECONDS = 0.1
"""So often a member looks for others that are gone, and for new partitions."""
RESETS = ("earliest", "latest")


class Records(NamedTuple):
    """Records of one partition, in order.

    Attributes:
        topic, partition: where they are.
        rows: the topic's columns, then `_offset`, `_time` and `_deleted`.

    """

    topic: str
    partition: int
    rows: pa.Table


class ConsumerOptions(NamedTuple):
    """How a member reads; seconds."""

    reset: str
    max_poll: float
    on_revoked: Callable[[list[Place]], None] | None


class LogOf(Protocol):
    """What a consumer needs of the log."""

    @property
    def path(self) -> Path:
        """Its folder."""

    @property
    def clock(self) -> Clock:
        """Its clock."""

    def topic(self, name: str) -> Topic:
        """Return a topic."""


class Consumer:
    """Reads topics as a member of a group; get one from `Log.consumer`.

    Each partition is read by one member at a time; groups do not touch each other. `poll` joins the group, gives signs
    of life and returns records; `commit` stores how far the member came. What was polled and not committed is read
    again after a crash, and by the member that gets the partition: work is done *at least* once.

    When members come and go, only the partitions that have to move do. Before `poll` gives some up it calls
    `on_revoked` with them, where the work on them can be committed. A member that gives no sign of life for a session,
    or does not poll for too long, loses all it has: its next `commit` raises `MemberFenced`, and its next `poll` joins
    anew.

    One thread uses a consumer. Another process opens its own.
    """

    def __init__(self, log: LogOf, membership: Membership, options: ConsumerOptions) -> None:
        self._log, self._members, self._options = log, membership, options
        self._positions: dict[Place, int] = {}
        self._paused: set[Place] = set()
        self._turn = 0
        self._bells: list[bell.Bell] = []  # from the first wait on
        self._looked = self._polled = log.clock.monotonic()
        self.lost = 0
        """Records that retention deleted before they were read."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="headrace-consumer", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group: the others get its partitions at once. Nothing is committed."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        try:
            self._members.leave(self._now())
        finally:
            self._members.close()
            self._ring()
            for each in self._bells:
                each.close()
            self._positions = {}

    # ---- reading ---------------------------------------------------------------------------------------

    def poll(self, max_rows: int = 10_000, *, wait: str | timedelta | None = None) -> list[Records]:
        """Return records of the member's partitions, of each partition in order.

        Args:
            max_rows: so many records at most, in all.
            wait: how long to wait for the first one ("1 second"); None: not at all. Then the list may be empty.

        Raises:
            InvalidArgument: an argument is not possible, or the consumer is closed.
            UnknownTopic: a topic was deleted.
            OffsetOutOfRange: a commit is behind the end of its partition: the log is an older copy.

        """
        a_whole_number(max_rows, "max_rows", least=1)
        until = self._now() + (duration(wait, what="wait") / MICROS if wait is not None else 0)
        while True:
            self._sync()
            found = self._read(max_rows)
            now = self._now()
            if found or now >= until:
                return found
            if self._bells:
                bell.wait(self._bells, until - now, self._log.clock)
            else:  # and look once more: a record may have come before
                names = self._members.topics
                self._bells = [bell.Bell(self._log.path, name, self._members.name, own=True) for name in names]

    def _read(self, most: int) -> list[Records]:
        places = sorted(place for place in self._positions if place not in self._paused)
        found: list[Records] = []
        self._turn += 1
        for number in range(len(places)):
            place = places[(number + self._turn) % len(places)]
            rows = self._rows(place, most)
            if rows.num_rows:
                found.append(Records(*place, rows))
                most -= rows.num_rows
            if not most:
                break
        return found

    def _rows(self, place: Place, most: int) -> pa.Table:
        topic, (_, partition) = self._log.topic(place[0]), place
        end = topic.end_offsets()[partition]
        while True:
            position = self._positions[place] = self._kept(place, topic.start_offsets()[partition])
            try:
                rows = topic.read(partition, position, most)
            except OffsetOutOfRange:
                if topic.start_offsets()[partition] <= position:
                    raise
            else:  # otherwise retention was faster
                break
        self._positions[place] = rows.column("_offset")[-1].as_py() + 1 if rows.num_rows else max(position, end)
        return rows

    def _kept(self, place: Place, start: int) -> int:
        """Return the position in a partition; before its first record it moves there, and what is lost is counted."""
        position = self._positions[place]
        if position < start:
            self.lost += start - position
            _LOGGER.warning(
                "group %s: %d records of %s/%d were deleted before they were read",
                *(self._members.name, start - position, *place),
            )
        return max(position, start)

    # ---- how far -----------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[Place, int] | None = None) -> None:
        """Store for the group up to where records are done: all that was polled, or the given next offsets.

        Args:
            offsets: by (topic, partition) the offset of the first record that is *not* done.

        Raises:
            MemberFenced: others have a partition now; nothing was committed.

        """
        chosen = self._positions if offsets is None else dict(offsets)
        if not self._members.id:
            raise MemberFenced(self._members.name, sorted(chosen))
        for (topic, partition), offset in chosen.items():
            end = self._log.topic(topic).end_offsets().get(partition, 0)
            if not isinstance(offset, int) or not 0 <= offset <= end:
                raise InvalidArgument(f"{offset!r} is no offset of {topic}/{partition}, which ends at {end}")
        if chosen:
            self._members.commit(chosen, self._now())

    def assignment(self) -> list[Place]:
        """Return the (topic, partition)s that the member reads."""
        return sorted(self._positions)

    def position(self, topic: str, partition: int) -> int:
        """Return the offset of the next record that `poll` returns of a partition."""
        return self._positions[self._mine(topic, partition)]

    def committed(self, topic: str, partition: int) -> int | None:
        """Return what the group has committed for a partition; None: nothing yet."""
        return self._members.committed().get((topic, partition))

    def lag(self) -> dict[Place, int]:
        """Return how many records each of the member's partitions has that were not polled."""
        return {
            (topic, partition): self._log.topic(topic).end_offsets()[partition] - position
            for (topic, partition), position in sorted(self._positions.items())
        }

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Read on from an offset of one of the member's partitions. It is not committed.

        Raises:
            InvalidArgument: the partition is another member's, or has no such offset.

        """
        place = self._mine(topic, partition)
        end = self._log.topic(topic).end_offsets()[partition]
        if a_whole_number(offset, "offset") > end:
            raise InvalidArgument(f"offset={offset} is behind the end of {topic}/{partition}, {end}")
        self._positions[place] = offset

    def seek_to_time(self, time: object) -> None:
        """Read on, in all of the member's partitions, from the first record whose event time is `time` or later.

        Args:
            time: ISO text, a datetime or milliseconds since 1970.

        """
        for topic in {topic for topic, _ in self._positions}:
            for partition, offset in self._log.topic(topic).offsets_at(time).items():
                if (topic, partition) in self._positions:
                    self._positions[topic, partition] = offset

    def pause(self, places: Sequence[Place] | None = None) -> None:
        """Return no records of some of the member's partitions (of all) until `resume`; it stays a member."""
        self._paused |= set(self._positions) if places is None else _checked(places)

    def resume(self, places: Sequence[Place] | None = None) -> None:
        """Return records of some of the paused partitions (of all) again."""
        self._paused -= set(self._paused) if places is None else _checked(places)

    # ---- the group ---------------------------------------------------------------------------------------

    def _sync(self) -> None:
        """Be a member, and have the partitions that are its share."""
        if self._stop.is_set():
            raise InvalidArgument("the consumer is closed", hint="Open another one: log.consumer(…).")
        now = self._polled = self._now()
        if not self._members.id:
            self._join(now)
        elif now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            if self._members.beat(now):
                self._members.look(self._sizes(), now)
            else:
                self._members.forget()
                self._join(now)
        owned = self._members.owned()
        self._positions = {place: at for place, at in self._positions.items() if place in owned}
        revoked = self._members.to_give_up()
        if revoked:
            if self._options.on_revoked is not None:
                self._options.on_revoked(revoked)
            self._members.give_up(revoked)
            self._ring()
            for place in revoked:
                self._positions.pop(place, None)
        for place, committed in (owned | self._members.take()).items():
            if place not in self._positions and place not in revoked:  # also what an earlier poll failed to begin
                self._positions[place] = self._first(place, committed)

    def _join(self, now: float) -> None:
        self._positions, self._paused = {}, set()
        self._members.join(self._sizes(), now)
        self._ring()

    def _ring(self) -> None:
        """Let the other members look: partitions are to move."""
        for name in self._members.topics:
            bell.ring_all(bell.bells_folder(self._log.path, name))

    def _first(self, place: Place, committed: int | None) -> int:
        """Return where to begin; where nothing is committed, that is committed, so that a crash skips nothing."""
        if committed is not None:
            return committed
        topic, partition = self._log.topic(place[0]), place[1]
        offsets = topic.start_offsets() if self._options.reset == "earliest" else topic.end_offsets()
        self._members.commit({place: offsets[partition]}, self._now())
        return offsets[partition]

    def _mine(self, topic: str, partition: int) -> Place:
        if (a_text(topic, "topic"), a_whole_number(partition, "partition")) in self._positions:
            return topic, partition
        raise InvalidArgument(
            f"{topic}/{partition} is none of this member's partitions",
            detail=f"It reads {', '.join(f'{name}/{number}' for name, number in self.assignment()) or 'none yet'}.",
            hint="A member has partitions after its first poll.",
        )

    def _sizes(self) -> dict[str, TopicSize]:
        topics = [self._log.topic(name) for name in self._members.topics]
        return {topic.name: TopicSize(topic.id, topic.partitions) for topic in topics}

    def _now(self) -> float:
        return self._log.clock.monotonic()

    def _beat(self) -> None:
        """Give signs of life while `poll` is called often enough."""
        while not self._stop.wait(self._members.session / 3):
            try:
                now = self._now()
                if self._members.id and now - self._polled < self._options.max_poll:
                    self._members.beat(now)
            except HeadraceError as error:  # the next poll says it
                _LOGGER.warning("group %s: no sign of life could be given: %s", self._members.name, error.what)


def checked_reset(value: str) -> str:
    """Return where a group begins that has committed nothing."""
    return one_of(value, "offset_reset", RESETS)


def _checked(places: Iterable[Place]) -> set[Place]:
    """Return places, each a topic and a partition.

    Raises:
        InvalidArgument: they are none.

    """
    listed = list(places) if isinstance(places, Iterable) else [places]
    if all(isinstance(place, tuple) and [*map(type, place)] == [str, int] for place in listed):
        return set(listed)
    raise InvalidArgument(f"places={places!r} are no partitions", hint='For example [("clicks", 0)], or None for all.')
