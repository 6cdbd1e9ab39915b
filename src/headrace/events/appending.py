"""Appending to a partition with a version check: one append at a time, over all processes; each serves all who wait.

Who comes first while nobody appends takes the commands of all that wait, and the partition's lock. Under the lock it
reads what other processes have appended since, decides each command by the versions, and appends the events of all
that are accepted at once: they are durable and visible together. So waiting threads share one fsync, and a version
is used once.

Who has an answer needs a moment to come back with the next command. So before a leader begins it waits for as many as
were answered last time, for a part of the time that the disk took then: else every second fsync is for one command.
"""

from __future__ import annotations

import fcntl
import threading
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from headrace.base.errors import LogClosed
from headrace.events.event import SCHEMA, Appended, Conflict
from headrace.events.index import StreamIndex
from headrace.events.reading import read_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from headrace.base.time import Clock
    from headrace.events.event import Event
    from headrace.log import Topic

Answer = Appended | Conflict
_PATIENCE = 0.5
"""How long a leader waits for others, as a part of what the last appending took."""


class Mark(NamedTuple):
    """What tells an event from any other: its topic's id, its offset, and the mark of its batch (`Topic.mark`).

    Where the topic has the same mark, it also has the same events before it.
    """

    topic_id: str
    offset: int
    batch: str


@dataclass(slots=True, eq=False)
class Command:
    """An append that waits for its answer; `texts`: data and meta of each event as JSON.

    `ready`: a lock that the thread that waits has taken; None where nobody waits. `leads`: whether that thread is to
    answer those who wait.
    """

    stream: str
    events: Sequence[Event]
    texts: Sequence[tuple[str, str | None]]
    expected: int | None
    id: str | None
    answer: Future[Answer]
    ready: threading.Lock | None = None
    leads: bool = False


class Appender:
    """Appends to one partition.

    Args:
        topic: the topic.
        partition: its number.
        lock: the file whose lock orders the processes.
        clock: the clock of the log.
        fault: called at each point where a test may crash.

    """

    def __init__(self, topic: Topic, partition: int, *, lock: Path, clock: Clock, fault: Callable[[str], None]) -> None:
        self.topic = topic
        self.partition = partition
        self._path = lock
        self._clock = clock
        self._fault = fault
        self._index: StreamIndex | None = None
        self._waiting: deque[Command] = deque()
        self._joining = threading.Lock()
        self._led = False
        self._alone = threading.Lock()
        self._woken = threading.Event()
        self._enough = threading.Event()
        self._together, self._took = 0, 0.0
        self._closed = False
        self._thread: threading.Thread | None = None

    def append(self, command: Command) -> Answer:
        """Append and wait for the answer; this thread may answer others, too."""
        command.ready = threading.Lock()
        command.ready.acquire()
        try:
            if not self._join(command):
                command.ready.acquire()
                if not command.leads:
                    return command.answer.result()
                command.leads = False  # it does so now
            self._lead()
        except BaseException:  # Ctrl-C
            self._leave(command)
            raise
        return command.answer.result()

    def send(self, command: Command) -> None:
        """Append in a thread of this appender, which is started with the first one.

        Raises:
            LogClosed: there is nobody who answers any more.

        """
        with self._joining:
            if self._closed:
                raise LogClosed(f'the store of the events "{self.topic.name}" is closed', hint="Open it again.")
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="headrace-events", daemon=True)
                self._thread.start()
            self._waiting.append(command)
        self._woken.set()

    @contextmanager
    def current(self) -> Iterator[StreamIndex]:
        """Give the index with all that is appended; nothing is appended by this process meanwhile."""
        with self._alone:
            yield self._caught_up()

    def mark(self, stream: str, version: int) -> Mark | None:
        """Return the mark of a stream's event; None if it has none, or is not there."""
        with self.current() as index:
            offset = index.offset(stream, version)
        return None if offset is None else self._mark_at(offset)

    def has(self, mark: Mark) -> bool:
        """Tell whether the event of a mark is where it was, so that the topic has the same history up to it."""
        return self._mark_at(mark.offset) == mark

    def close(self) -> None:
        """Answer what waits, and end the thread."""
        with self._joining:
            self._closed = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join()

    def _serve(self) -> None:
        while not (self._closed and not self._waiting):
            self._woken.wait()
            self._woken.clear()
            if self._waiting and self._join(None):
                self._lead()
            if self._closed:
                self._woken.set()

    def _join(self, command: Command | None) -> bool:
        """Wait with others; return True if nobody answers them: then `_lead`."""
        with self._joining:
            if command is not None:
                self._waiting.append(command)
            if self._led:
                if len(self._waiting) >= self._together:
                    self._enough.set()
                return False
            self._led = True
            return True

    def _leave(self, command: Command) -> None:
        """Wait no longer; who was chosen to lead does it, as all others wait for that."""
        with self._joining:
            chosen = command.leads
            if not chosen:
                with suppress(ValueError):  # somebody answers it
                    self._waiting.remove(command)
        if chosen:
            self._lead()

    def _gather(self) -> None:
        """Wait until as many wait as were answered last time, or it is no longer worth it."""
        with self._joining:
            if len(self._waiting) >= self._together:
                return
            self._enough.clear()
        self._enough.wait(_PATIENCE * self._took)

    def _lead(self) -> None:
        """Answer all who wait, then let one of those who have come since do the same."""
        try:
            self._gather()
            with self._alone:
                self._answer_all()
        finally:
            with self._joining:
                follower = next((each for each in self._waiting if each.ready is not None), None)
                self._led = follower is not None
                if follower is not None and follower.ready is not None:
                    follower.leads = True
                    follower.ready.release()
                elif self._waiting:
                    self._woken.set()

    def _answer_all(self) -> None:
        commands = []
        while self._waiting:
            command = self._waiting.popleft()
            if command.answer.set_running_or_notify_cancel():  # else somebody has cancelled what was sent
                commands.append(command)
        if not commands:
            return
        began = self._clock.monotonic()
        try:
            answers = self._decide(commands)
        except BaseException as error:  # noqa: BLE001 -- each of them is told
            for command in commands:
                command.answer.set_exception(error)
        else:
            for command, answer in zip(commands, answers, strict=True):
                command.answer.set_result(answer)
        self._took = self._clock.monotonic() - began
        self._together = sum(command.ready is not None for command in commands)
        for command in commands:
            if command.ready is not None and command.ready.locked():  # who was interrupted waits no longer
                command.ready.release()

    def _decide(self, commands: Sequence[Command]) -> list[Answer]:
        self._fault("before_lock")
        with self._path.open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._fault("before_check")
            index = self._caught_up()
            rows, answers = _Rows(max(self._clock.now(), index.latest)), []
            versions: dict[str, int] = {}
            for command in commands:
                before = versions.get(command.stream)
                if before is None:
                    before = index.version(command.stream)
                answer = self._check(index, command, before, rows)
                versions[command.stream] = max(before, answer.version)
                answers.append(answer)
            self._fault("before_append")
            if rows.columns["stream"]:
                offsets = self.topic.append(rows.table(), partition=self.partition)[self.partition]
                self._fault("after_append")
                for stream, version, offset in zip(
                    rows.columns["stream"], rows.columns["version"], offsets, strict=True
                ):
                    index.note(stream, version, offset)
                index.upto, index.latest = offsets.stop, rows.now
                index.settle()
        return answers

    def _check(self, index: StreamIndex, command: Command, version: int, rows: _Rows) -> Answer:
        if command.id is not None:
            again = rows.answered(command.stream, command.id) or self._answered(index, command)
            if again is not None:
                return again
        if command.expected is not None and command.expected != version:
            return Conflict(version)
        rows.add(command, version)
        return Appended(version + len(command.events))

    def _answered(self, index: StreamIndex, command: Command) -> Appended | None:
        """Return the answer that a command of this id got, if its events are recorded."""
        found = [
            event.version
            for event in read_events(self.topic, self.partition, index.offsets(command.stream), command.stream)
            if event.command == command.id
        ]
        return Appended(found[-1]) if found else None

    def _mark_at(self, offset: int) -> Mark | None:
        batch = self.topic.mark(self.partition, offset + 1)
        return None if batch is None else Mark(self.topic.id, offset, batch)

    def _caught_up(self) -> StreamIndex:
        if self._index is None:
            self._index = StreamIndex(self.topic, self.partition)
        self._index.catch_up()
        return self._index


class _Rows:
    """The events of accepted commands, as columns."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        self._answers: dict[tuple[str, str], Appended] = {}

    def add(self, command: Command, version: int) -> None:
        columns, count = self.columns, len(command.events)
        columns["stream"] += [command.stream] * count
        columns["version"] += range(version + 1, version + 1 + count)
        columns["type"] += [event.type for event in command.events]
        columns["schema"] += [event.schema for event in command.events]
        columns["data"] += [data for data, _ in command.texts]
        columns["meta"] += [meta for _, meta in command.texts]
        columns["command"] += [command.id] * count
        columns["at"] += [self.now] * count
        if command.id is not None:
            self._answers[command.stream, command.id] = Appended(version + count)

    def answered(self, stream: str, command: str) -> Appended | None:
        return self._answers.get((stream, command))

    def table(self) -> pa.Table:
        return pa.table([pa.array(self.columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)
