"""Runs the feeds of an app, each in its own thread, with or without the app's epochs."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack, cast

import pyarrow as pa

from headrace.base.blame import HeadraceError
from headrace.base.errors import DiskFailed
from headrace.base.outside import FeedFailed, FeedRunsElsewhere
from headrace.base.time import SystemClock
from headrace.connect.feed import COUNTED, Progress
from headrace.log import rows_to_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.connect.feed import DeadRecord, Feed, Landing, SharedLanding
    from headrace.connect.topics import TopicSpec, TopicStore
    from headrace.engine.connectors.control import Wishes
    from headrace.log.rows import Rows

CLOCK = SystemClock()
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
QUIET_SECONDS, SILENT_SECONDS = 1.0, 120.0
"""A feed that landed nothing for so long has probably landed all that there is: the first if it has looked for more in
between, the second if it has not; it may be busy with what it read, and compile what decodes it."""
_LOOKS_OF_ONE_TURN = 2
LOOK_SECONDS = 0.5
"""So often a feed that waits looks whether somebody wants it paused or restarted."""
MOST_UNREAD = 4_000_000
"""A feed is told to stop reading while the app has so many unread records of its topic."""


@dataclass
class FeedState:
    """The state of a feed.

    `state`: starting, running, retrying, paused, elsewhere (another process runs it), ended or failed.
    """

    identity: str
    state: str = "starting"
    rows: int = 0
    dead: int = 0
    error: str | None = None
    active: float = 0.0
    """When it last started or landed something, in seconds of the monotonic clock."""
    looks: int = 0
    """How often it has asked since then whether to stop, or whether there is room: once before it reads each time."""
    waits: bool = False
    """Whether it waits for the event that stops it."""
    progress: Progress = field(default_factory=Progress)
    """What the feed says of itself; what it counts, in all its runs."""
    counted: dict[str, int] = field(default_factory=dict, repr=False)
    """What it counted before it was begun again."""
    failure: HeadraceError | None = field(default=None, repr=False)

    def is_quiet(self, now: float) -> bool:
        """Whether it has probably landed all that there is."""
        idle = self.waits or self.looks > _LOOKS_OF_ONE_TURN
        most = QUIET_SECONDS if idle else SILENT_SECONDS
        return self.active > 0 and now - self.active >= most

    def begin(self) -> None:
        """Note that it begins, perhaps again."""
        said: Mapping[str, Any] = self.progress
        self.counted = {name: said[name] for name in COUNTED if name in said}
        self.landed()

    def landed(self) -> None:
        """Note that it runs."""
        self.state, self.error, self.active, self.looks = "running", None, CLOCK.monotonic(), 0

    def report(self, progress: Progress) -> None:
        """Take what it says of itself, and add what it counted in earlier runs."""
        said: Mapping[str, Any] = progress
        total = {name: self.counted.get(name, 0) + said.get(name, 0) for name in {*self.counted, *said} & {*COUNTED}}
        self.progress = cast("Progress", {**said, **total})

    def shown(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "identity": self.identity,
            "state": self.state,
            "rows": self.rows,
            "dead": self.dead,
            "error": self.error,
            **self.progress,
        }


class Feeds:
    """The feeds of an app, running from the creation of this object until `stop`.

    Args:
        feeds: for each feed the step that reads its topic, the feed, and the topic that it fills.
        topics: the store of the topics.
        read: returns how many records of a step's topic the app has read.
        wishes: what somebody wants of them: `headrace connect pause` and `restart`.
        revive: whether a feed that has failed waits until somebody wants it restarted.

    """

    def __init__(
        self,
        feeds: Iterable[tuple[str, Feed, TopicSpec]],
        topics: TopicStore,
        read: Callable[[str], int],
        *,
        wishes: Wishes,
        revive: bool = False,
    ) -> None:
        self.states: dict[str, FeedState] = {}
        self._wishes, self._revive = wishes, revive
        self._topics = topics
        self._read = read
        self._stopping = threading.Event()
        self._threads = []
        groups: dict[str, _Group] = {}
        for step, feed, spec in feeds:
            self.states[step] = FeedState(feed.identity)
            groups.setdefault(feed.reader_group or f"alone:{step}", {})[step] = feed, spec
        for name, group in groups.items():
            thread = threading.Thread(target=self._run, args=(group,), name=f"headrace-feed-{name}"[:60], daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End the feeds; an append that has begun is finished first."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def status(self) -> dict[str, dict[str, Any]]:
        """Return the state of each feed, by the step that reads its topic."""
        return {step: state.shown() for step, state in self.states.items()}

    @property
    def quiet(self) -> bool:
        """Whether nothing is being landed: each feed has ended, waits, or is quiet (`QUIET_SECONDS`)."""
        now = CLOCK.monotonic()
        return all(state.state not in ("starting", "running") or state.is_quiet(now) for state in self.states.values())

    @property
    def ended(self) -> bool:
        """Whether all feeds have ended or failed."""
        return all(state.state in ("ended", "failed") for state in self.states.values())

    def check(self) -> None:
        """Raise the error of a failed feed, if there is one.

        Raises:
            FeedFailed: a feed cannot go on; its error is the cause.

        """
        for step, state in self.states.items():
            if state.failure is not None:
                mend = state.failure.hint if isinstance(state.failure, HeadraceError) else ""
                raise FeedFailed(step, state.identity, why=state.error or "", mend=mend) from state.failure

    def _run(self, group: _Group) -> None:
        states, pause = _States([self.states[step] for step in group]), FIRST_PAUSE
        names = [spec.name for _, spec in group.values()]
        while not self._stopping.is_set():
            changed = self._may_run(names, states)
            if changed is None:
                self._stopping.wait(LOOK_SECONDS)
                continue
            stop = _Stop(self._stopping, states, changed)
            ended = self._ran(group, states, stop)
            if ended and not stop.is_wanted():
                if not self._revive and not self._stopping.is_set():
                    return
                while not stop.wait(LOOK_SECONDS):  # until somebody wants it restarted
                    pass
            elif not ended:
                stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            if stop.is_wanted():
                pause = FIRST_PAUSE

    def _may_run(self, names: Sequence[str], states: _States) -> Callable[[], bool] | None:
        """Return what says that something else is wanted than now; None: feeds are paused, or nobody knows."""
        try:
            now = self._wishes.of(names)
        except DiskFailed as error:
            states.are("retrying", error.what)
            return None
        if any(wish.paused for wish in now):
            states.are("paused")
            return None
        return lambda: self._wishes.of(names) != now

    def _ran(self, group: _Group, states: _States, stop: _Stop) -> bool:
        """Run the feeds; return whether they have ended or failed, and are not to be tried again."""
        try:
            self._land(group, states, stop)
        except FeedRunsElsewhere:
            states.are("elsewhere")
        except (OSError, HeadraceError) as error:
            why = error.what if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
            if isinstance(error, HeadraceError) and not error.may_pass:
                states.are("failed", why, error)
                return True
            states.are("retrying", why)
        except Exception as error:  # noqa: BLE001 -- a connector's bug stops the app, not this thread alone
            failure = HeadraceError(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            states.are("failed", failure.what, failure)
            return True
        else:
            if self._stopping.is_set() or not stop.is_wanted():
                states.are("ended")
            return True
        return False

    def _land(self, group: _Group, states: _States, stop: _Stop) -> None:
        step, (feed, spec) = next(iter(group.items()))
        if feed.reader_group is None:
            landing = self._topics.landing(spec, feed=feed.identity, limit=MOST_UNREAD, read=lambda: self._read(step))
            with closing(landing):
                states.begin()
                feed.run(_Counting(landing, states), stop)
            return
        steps = {spec.name: step for step, (_, spec) in group.items()}
        together = self._topics.shared_landing(
            feed.reader_group,
            {spec.name: spec for _, spec in group.values()},
            feeds={spec.name: each.identity for each, spec in group.values()},
            limit=MOST_UNREAD,
            read=lambda topic: self._read(steps[topic]),
        )
        with closing(together):
            states.begin()
            by_topic = {topic: self.states[step] for topic, step in steps.items()}
            feed.run_together(
                {spec.name: each for each, spec in group.values()}, _CountingAll(together, states, by_topic), stop
            )


_Group = dict[str, "tuple[Feed, TopicSpec]"]
"""Feeds that share a reader, or one alone, by the steps that read their topics."""


class _States:
    """The states of feeds that run as one."""

    def __init__(self, states: Sequence[FeedState]) -> None:
        self.states = states

    def begin(self) -> None:
        for state in self.states:
            state.begin()

    def looked(self) -> None:
        for state in self.states:
            state.looks += 1

    def wait(self, *, begins: bool) -> None:
        for state in self.states:
            state.waits = begins

    def landed(self) -> None:
        for state in self.states:
            state.landed()

    def are(self, name: str, error: str | None = None, failure: HeadraceError | None = None) -> None:
        for state in self.states:
            state.error = error if name != "elsewhere" else state.error
            state.failure = failure  # first: who sees that it has failed finds out why
            state.state = name


class _Stop(threading.Event):
    """The event that stops a feed, which counts how often the feed looks at it; also set when a wish has changed."""

    def __init__(self, stopping: threading.Event, states: _States, changed: Callable[[], bool]) -> None:
        super().__init__()
        self._stopping = stopping
        self._states = states
        self._changed = changed

    def is_wanted(self) -> bool:
        """Whether the feed is to end, now or for good."""
        return self._stopping.is_set() or self._changed()

    def is_set(self) -> bool:
        self._states.looked()
        return self.is_wanted()

    def wait(self, timeout: float | None = None) -> bool:
        self._states.looked()
        self._states.wait(begins=True)
        until = None if timeout is None else CLOCK.monotonic() + timeout
        try:
            while not self.is_wanted():
                left = LOOK_SECONDS if until is None else min(LOOK_SECONDS, until - CLOCK.monotonic())
                if left <= 0:
                    return False
                self._stopping.wait(left)
            return True
        finally:
            self._states.wait(begins=False)

    def set(self) -> None:
        self._stopping.set()


class _Counting:
    """A landing that counts what it lands."""

    def __init__(self, landing: Landing, states: _States) -> None:
        self._landing = landing
        self._states = states

    @property
    def schema(self) -> pa.Schema:
        return self._landing.schema

    def position(self) -> bytes | None:
        return self._landing.position()

    def has_room(self) -> bool:
        self._states.looked()
        return self._landing.has_room()

    def append(self, rows: Rows, *, position: bytes | None = None, dead: Sequence[DeadRecord] = ()) -> None:
        table = rows if isinstance(rows, pa.Table | pa.RecordBatch) else rows_to_table(rows, self.schema)
        self._landing.append(table, position=position, dead=dead)
        self._states.landed()
        (state,) = self._states.states
        state.rows += table.num_rows
        state.dead += len(dead)

    def report(self, **progress: Unpack[Progress]) -> None:
        (state,) = self._states.states
        state.report(progress)

    def close(self) -> None:
        self._landing.close()


class _CountingAll:
    """A landing of several topics that counts what it lands, and keeps what the feed reports."""

    def __init__(self, landing: SharedLanding, states: _States, by_topic: Mapping[str, FeedState]) -> None:
        self._landing = landing
        self._states = states
        self._by_topic = by_topic
        self.schema = landing.schema
        self.position = landing.position
        self.evolve = landing.evolve
        self.opened = landing.opened
        self.requests = landing.requests
        self.answered = landing.answered
        self.close = landing.close

    def has_room(self) -> bool:
        self._states.looked()
        return self._landing.has_room()

    def append(
        self,
        rows: Mapping[str, Rows],
        *,
        position: bytes | None = None,
        dead: Mapping[str, Sequence[DeadRecord]] | None = None,
    ) -> None:
        tables = {
            topic: given if isinstance(given, pa.Table | pa.RecordBatch) else rows_to_table(given, self.schema(topic))
            for topic, given in rows.items()
        }
        self._landing.append(tables, position=position, dead=dead)
        if any(table.num_rows for table in tables.values()):
            self._states.landed()
        for topic, table in tables.items():
            self._by_topic[topic].rows += table.num_rows
        for topic, letters in (dead or {}).items():
            self._by_topic[topic].dead += len(letters)

    def report(self, **progress: Unpack[Progress]) -> None:
        for state in self._by_topic.values():
            state.report(progress)
