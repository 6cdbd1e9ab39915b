"""The store of events: streams of events in one topic, appended with a version check, and read back."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from headrace.base.arguments import a_path, a_text, a_whole_number
from headrace.base.errors import InvalidArgument, TopicExists
from headrace.base.hashing import hash_column
from headrace.base.time import instant
from headrace.events.appending import Appender, Command
from headrace.events.event import SCHEMA, STREAM, Event, Recorded
from headrace.events.reading import read_events
from headrace.events.snapshots import Snapshots
from headrace.events.upcasting import Upcasts
from headrace.log import Log

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime
    from types import TracebackType

    from headrace.events.event import Appended, Conflict

_FOLDER = ".events"


def _no_fault(point: str) -> None:
    del point


class EventStore:
    """Streams of events in one topic of an embedded log; any number of processes and threads may use it at once.

    An append is atomic, durable on return, and decided by the version of its stream: of two that expect the same
    version one is recorded, the other gets a `Conflict`. Streams cost no files: a million of them live in the
    partitions of the topic, so an app reads them as any topic (`stream_in`).

    Args:
        log: the log, or its folder, which is created with the first store in it.
        topic: the topic; created if it is missing.
        partitions: of a topic that is created. Streams of different partitions are appended independently.
        fault: called at each point where a test may crash.

    Raises:
        InvalidArgument: an argument is of the wrong type.
        TopicDiffers: the topic is there, and is none of a store of events.

    """

    def __init__(
        self,
        log: Log | str | os.PathLike[str],
        *,
        topic: str = "events",
        partitions: int = 1,
        fault: Callable[[str], None] = _no_fault,
    ) -> None:
        self._own = None if isinstance(log, Log) else Log(a_path(log, "log"))
        self.log = log if isinstance(log, Log) else self._own or Log(a_path(log, "log"))
        a_whole_number(partitions, "partitions", least=1)
        if not self.log.has_topic(topic):
            with suppress(TopicExists):  # another process was faster
                self.log.create_topic(topic, SCHEMA, key=STREAM, event_time="at", partitions=partitions)
        self.topic = self.log.topic(topic)
        if not set(SCHEMA.names) <= set(self.topic.schema.names):
            raise InvalidArgument(
                f'the topic "{topic}" is there, and is none of a store of events',
                hint="Name another one: EventStore(…, topic=…).",
            )
        folder = self.log.path / _FOLDER / topic
        folder.mkdir(parents=True, exist_ok=True)
        self._appenders = [
            Appender(self.topic, number, lock=folder / f"{number}.lock", clock=self.log.clock, fault=fault)
            for number in range(self.topic.partitions)
        ]
        self._partitions: dict[str, int] = {}
        self.snapshots = Snapshots(folder / "snapshots.db", self._appender)
        self.upcasts = Upcasts()
        """Functions that bring old events to their newest schema."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Answer what was sent, and close what is open; a log that was given stays open."""
        for each in self._appenders:
            each.close()
        self.snapshots.close()
        if self._own is not None:
            self._own.close()

    def append(
        self,
        stream: str,
        events: Iterable[Event],
        *,
        expected_version: int | None = None,
        command: str | None = None,
    ) -> Appended | Conflict:
        """Record events at the end of a stream: all or none, durable on return.

        Args:
            stream: the stream's name, such as the id of an aggregate.
            events: at least one.
            expected_version: how many events the stream must have: 0 for a new one. None: whatever it has.
            command: an id of what is done. If the stream has events of this command, they are not recorded again, and
                the answer is the one that they got: say it where an answer may be lost. It reads the stream's events.

        Returns:
            `Appended(version)`, or `Conflict(version)` with the version that the stream has.

        Raises:
            InvalidArgument: something is of the wrong type, or no JSON.
            AppendFailed: the disk refused; nothing was recorded.

        """
        given = self._command(stream, events, expected_version, command)
        return self._appender(stream).append(given)

    def send(
        self,
        stream: str,
        events: Iterable[Event],
        *,
        expected_version: int | None = None,
        command: str | None = None,
    ) -> Future[Appended | Conflict]:
        """Do as `append`, without waiting: many that are sent before the first answer share the disk's work.

        What is sent to one stream is decided in the order in which it was sent. Until that begins the answer can be
        cancelled; then nothing is recorded.

        Raises:
            LogClosed: the store is closed.

        """
        given = self._command(stream, events, expected_version, command)
        self._appender(stream).send(given)
        return given.answer

    def version(self, stream: str) -> int:
        """Return how many events a stream has; 0: there is no such stream."""
        with self._appender(stream).current() as index:
            return index.version(stream)

    def load(
        self, stream: str, *, after: int = 0, until: int | None = None, at: str | datetime | None = None
    ) -> list[Recorded]:
        """Return the events of a stream in order, those of old schemas upcast.

        Args:
            stream: the stream's name.
            after: leave out the events up to this version.
            until: leave out the events after this version: the stream as it was then.
            at: leave out what was recorded after this time: ISO text, or a datetime.

        Raises:
            InvalidArgument: something is of the wrong type, or below 0.

        """
        a_whole_number(after, "after")
        if until is not None:
            a_whole_number(until, "until")
        appender = self._appender(a_text(stream, "stream"))
        last = None if at is None else instant(at)
        with appender.current() as index:
            offsets = index.offsets(stream)
            skipped = after if index.whole else 0  # at least so many events come before; those of other names, too
        found = read_events(self.topic, appender.partition, offsets[skipped:], stream)
        return [
            self.upcasts.upcast(event)
            for event in found
            if event.version > after
            and (until is None or event.version <= until)
            and (last is None or instant(event.at) <= last)
        ]

    def stream_in(self, app: Any, **options: Any) -> Any:
        """Return all events as a stream of an app whose topics are in this log, for projections.

        It has the columns of `events.event.SCHEMA`; `data` and `meta` are JSON: get_json_object(data, '$.by'). If
        upcasts are registered, `data` is upcast, and `schema` is that of `data`.

        Args:
            app: an `hr.App` with `topics="log:PATH"` of this log.
            options: of `app.stream`, such as `out_of_order`.

        """
        found = app.stream(self.topic.name, SCHEMA, key=STREAM, event_time="at", **options)
        if not self.upcasts:
            return found
        app.function("upcast_event", self.upcasts.columns, returns="string")
        app.function("upcast_schema", self.upcasts.schemas, returns="int")
        return found.with_columns(data="upcast_event(type, schema, data)", schema="upcast_schema(type, schema)")

    def _command(self, stream: str, events: Iterable[Event], expected: int | None, command: str | None) -> Command:
        if not a_text(stream, "stream"):
            raise InvalidArgument("stream='' is no name of a stream", hint="Give an id: store.append('seat-12A', …).")
        listed: Sequence[Event] = list(events) if not isinstance(events, Event) else [events]
        if not listed or not all(isinstance(each, Event) for each in listed):
            raise InvalidArgument(
                f"events={events!r} are no events", hint='Give at least one: [Event("SeatTaken", {"by": "ann"})].'
            )
        if expected is not None:
            a_whole_number(expected, "expected_version")
        if command is not None:
            a_text(command, "command")
        texts = [(each.data_text(), each.meta_text()) for each in listed]
        return Command(stream, listed, texts, expected, command, Future())

    def _appender(self, stream: str) -> Appender:
        if len(self._appenders) == 1:
            return self._appenders[0]
        number = self._partitions.get(stream)
        if number is None:
            hashed = hash_column(pa.array([a_text(stream, "stream")], pa.string()))[0]
            number = self._partitions[stream] = int(hashed % np.uint64(len(self._appenders)))
        return self._appenders[number]
