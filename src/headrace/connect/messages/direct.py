"""What direct sources share: a thread receives, a bounded buffer holds, and the feed's thread lands.

A source that is told `block` stops receiving when its buffer is full, so what is outside notices, or drops.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict, TypeVar

from headrace.base.arguments import a_whole_number, one_of
from headrace.base.buffer import ON_FULL, SharedBuffer
from headrace.base.time import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.base.buffer import OnFull

Value = TypeVar("Value")
BUFFER_BYTES = 64 << 20
LOOK_SECONDS = 0.1
"""How long a receiver may wait for something before it looks whether it is to end."""
_SAY_SECONDS = 1.0
_APART_SECONDS = 0.02
"""So long after an append the next one: what arrives meanwhile shares its sync."""
_NEAR_MICROS = 10_000
CLOCK = SystemClock()


class FullOptions(TypedDict, total=False):
    """What a direct source does when it receives faster than it lands.

    `on_full`: "block" (the default), "drop_oldest", "drop_newest" or "spill". `buffer_bytes`: how much it holds, 64 MB
    by default.
    """

    on_full: OnFull
    buffer_bytes: int


class WhenFull(NamedTuple):
    """The checked options."""

    on_full: OnFull
    buffer_bytes: int


def when_full(options: Mapping[str, object]) -> WhenFull:
    """Return the checked options.

    Raises:
        InvalidArgument: one is not possible.

    """
    on_full: OnFull = one_of(options.get("on_full", "block"), "on_full", ON_FULL)  # type: ignore[assignment]
    return WhenFull(on_full, a_whole_number(options.get("buffer_bytes", BUFFER_BYTES), "buffer_bytes", least=1))


def without_full(options: Mapping[str, object]) -> Any:
    """Return the options that are not those of direct sources."""
    return {name: value for name, value in options.items() if name not in FullOptions.__annotations__}


class Topic(Protocol):
    """What a direct source needs of its landing."""

    def has_room(self) -> bool:
        """Whether the app keeps up."""
        ...

    def report(self, *, dropped: int = 0, spilled: int = 0, waited: int = 0, lost: int = 0, gaps: int = 0) -> None:
        """Say what was counted."""
        ...


def near_in_time(received: list[tuple[Value, int]]) -> Iterator[tuple[list[Value], int]]:
    """Yield what was received within 10 milliseconds together, with the instant of the first, in microseconds.

    Columns are read fast when they are long; what one call of the system receives may be a few datagrams.
    """
    together, first = list[Value](), 0
    for value, at in received:
        if together and not 0 <= at - first <= _NEAR_MICROS:
            yield together, first
            together = []
        first = at if not together else first
        together.append(value)
    if together:
        yield together, first


def run_direct(
    topic: Topic,
    stop: threading.Event,
    full: WhenFull,
    *,
    receive: Callable[[SharedBuffer[Value], threading.Event], None],
    land: Callable[[list[Value]], None],
    counts: Callable[[], Mapping[str, int]] = dict,
) -> None:
    """Receive and land until `stop` is set; what was received by then is landed, or counted as dropped.

    Args:
        topic: what is landed in.
        stop: the event that ends the feed.
        full: what happens when more is received than landed.
        receive: puts what it receives into the buffer, in a thread of its own, until the event is set.
        land: lands what was received; durable on return.
        counts: what else is counted, for `status`.

    Raises:
        OSError: whatever `receive` or `land` raise.

    """
    waiting: SharedBuffer[Value] = SharedBuffer(full.buffer_bytes, full.on_full)
    receiver = _Receiver(receive, waiting)
    said = _Counts(topic, lambda: {**waiting.counts.shown(), **counts()})
    try:
        while not stop.is_set() and receiver.is_alive():
            if not topic.has_room():
                stop.wait(LOOK_SECONDS)
            elif received := waiting.take(LOOK_SECONDS):
                land(received)
                stop.wait(_APART_SECONDS)
            said.say(every=_SAY_SECONDS)
        receiver.begin_to_end()
        while receiver.is_alive():  # what it has taken from outside nobody has any more
            if received := waiting.take(LOOK_SECONDS):
                land(received)
        while received := waiting.take(0):
            land(received)
    finally:
        receiver.end()
        waiting.drop()  # what could not be landed
        said.say(every=0.0)
    if receiver.failure is not None:
        raise receiver.failure


class _Receiver(threading.Thread):
    """The thread that receives; closes the buffer at its end."""

    def __init__(
        self, receive: Callable[[SharedBuffer[Value], threading.Event], None], waiting: SharedBuffer[Value]
    ) -> None:
        super().__init__(name="headrace-receiver", daemon=True)
        self.failure: BaseException | None = None
        self._receive, self._waiting, self._ending = receive, waiting, threading.Event()
        self.start()

    def run(self) -> None:
        try:
            self._receive(self._waiting, self._ending)
        except BaseException as error:  # noqa: BLE001 -- raised in the feed's thread
            self.failure = error
        finally:
            self._waiting.close()

    def begin_to_end(self) -> None:
        """Let it receive nothing more; what it has received it still puts into the buffer."""
        self._ending.set()

    def end(self) -> None:
        """End it now: what it has received and not put into the buffer is dropped, and counted."""
        self._ending.set()
        self._waiting.close()
        self.join()


class _Counts:
    """Reports counts when they have changed."""

    def __init__(self, topic: Topic, counts: Callable[[], Mapping[str, int]]) -> None:
        self._topic, self._counts = topic, counts
        self._said: Mapping[str, int] = {}
        self._at = CLOCK.monotonic()

    def say(self, *, every: float) -> None:
        if CLOCK.monotonic() - self._at < every:
            return
        self._at, now = CLOCK.monotonic(), {name: count for name, count in self._counts().items() if count}
        if now != self._said:
            self._said = now
            self._topic.report(**now)
