"""Aggregates: commands are checked against the state that events have made, and become events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.base.arguments import a_whole_number
from headrace.base.blame import OutsideError
from headrace.base.errors import InvalidArgument
from headrace.events.event import Appended, Event
from headrace.events.snapshots import Snapshot

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.events.event import Recorded
    from headrace.events.store import EventStore

State = TypeVar("State")
ATTEMPTS = 20


class ConflictsRemain(OutsideError):
    """Others were faster each time."""

    condition = "CONFLICTS_REMAIN"

    def __init__(self, stream: str, attempts: int) -> None:
        super().__init__(
            f'the stream "{stream}" has changed under each of {attempts} attempts',
            detail="Nothing was recorded.",
            hint="Call it again, or with more attempts=; many writers of one stream wait for each other.",
        )


class Aggregate(Generic[State]):
    """What a stream's events mean. Subclass it; an object of it serves any number of streams.

    `apply` and `initial` must be deterministic and must not change the state that they are given: a state is made anew
    from events at any time. The state must be what JSON can hold, as snapshots keep it.
    """

    fold = 1
    """The version of `initial` and `apply`: raise it when they, or an upcast, change, and snapshots are made anew."""
    snapshot_every = 100
    """A snapshot is kept when so many events were folded; 0: never."""

    def initial(self) -> State:
        """Return the state of a stream without events."""
        raise NotImplementedError

    def apply(self, state: State, event: Recorded) -> State:
        """Return the state after an event."""
        raise NotImplementedError

    def handle(self, state: State, command: Any) -> Iterable[Event]:
        """Return the events that a command leads to; none: nothing happens. To refuse it, raise an error of yours."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """What its snapshots are kept under."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    def _kept_as(self, store: EventStore) -> str:
        """Return the name of its snapshots in a store: those that were made without one of its upcasts have another."""
        upcasts = store.upcasts.identity
        return f"{self.name} ({upcasts})" if upcasts else self.name

    def state(
        self, store: EventStore, stream: str, *, until: int | None = None, at: str | datetime | None = None
    ) -> State:
        """Return the state of a stream: now, or as it was after a version or at a time."""
        return self.load(store, stream, until=until, at=at)[0]

    def load(
        self, store: EventStore, stream: str, *, until: int | None = None, at: str | datetime | None = None
    ) -> tuple[State, int]:
        """Return the state of a stream and its version."""
        whole, name = until is None and at is None, self._kept_as(store)
        kept = store.snapshots.newest(name, self.fold, stream) if self.snapshot_every and whole else None
        state, version = (self.initial(), 0) if kept is None else (kept.state, kept.version)
        folded = 0
        for event in store.load(stream, after=version, until=until, at=at):
            state, version, folded = self.apply(state, event), event.version, folded + 1
        if whole and self.snapshot_every and folded >= self.snapshot_every:
            store.snapshots.put(name, self.fold, stream, Snapshot(version, state))
        return state, version

    def execute(
        self,
        store: EventStore,
        stream: str,
        command: Any,
        *,
        command_id: str | None = None,
        attempts: int = ATTEMPTS,
    ) -> Appended:
        """Decide a command by the state of a stream, and record its events; where others were faster, decide again.

        Args:
            store: the store.
            stream: the stream.
            command: what `handle` is given.
            command_id: an id of the command: repeated with the same one, it is recorded once.
            attempts: how often to decide before giving up.

        Returns:
            The version of the stream; with no events, the one that it had.

        Raises:
            ConflictsRemain: others were faster each time; nothing was recorded.

        """
        for _ in range(a_whole_number(attempts, "attempts", least=1)):
            state, version = self.load(store, stream)
            if command_id is not None:
                done = [event.version for event in store.load(stream) if event.command == command_id]
                if done:
                    return Appended(done[-1])
            events = self._decided(state, command)
            if not events:
                return Appended(version)
            answer = store.append(stream, events, expected_version=version, command=command_id)
            if isinstance(answer, Appended):
                return answer
        raise ConflictsRemain(stream, attempts)

    def _decided(self, state: State, command: Any) -> list[Event]:
        """Return what `handle` makes of a command, as a list.

        Raises:
            InvalidArgument: it gave neither events nor an event.

        """
        given: Any = self.handle(state, command)
        if isinstance(given, Event):
            return [given]
        if not isinstance(given, Iterable):
            raise InvalidArgument(
                f"handle of {type(self).__name__} gave {given!r}, and no events",
                hint="Let it return a list: [Event(…)]; one without events, [], records nothing.",
            )
        return list(given)
