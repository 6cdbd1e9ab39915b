"""What `Producer.send` returns: a future of the record's offset.

Most futures are finished before anybody waits for them, and then need no lock: what waiting needs is created when
somebody first waits. Finishing sets the state before it looks for waiters; waiting registers itself before it looks
at the state. So one of the two always sees the other.

What is set is in slots, as two threads may set it at once. A `__dict__` that Python 3.11 makes at the first use, or
where more attributes are set than it has seen before, may have the collector run in the middle, and so any thread.
Where that one makes it as well, both own the same values: Python crashes, or a thread waits for ever.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_PENDING, _FINISHED = "PENDING", "FINISHED"  # states of `concurrent.futures`
_CREATING = threading.RLock()


class Sent(Future[int | None]):
    """The offset of a record that was sent, once it is safe on disk; None where an earlier attempt appended it.

    A `concurrent.futures.Future`, so `wait`, `as_completed` and `asyncio.wrap_future` take it. It cannot be
    cancelled.
    """

    __slots__ = ("_done_callbacks", "_exception", "_result", "_state", "_waiters", "awaited", "looked_at")

    def __init__(self) -> None:
        """Leave out what the constructor of `Future` does: it creates a lock, most of the cost of a record."""
        self._state = _PENDING
        self._result: int | None = None
        self._exception: BaseException | None = None
        self.looked_at = False  # somebody asked for the result
        self.awaited: threading.Condition | None = None  # somebody waits, or has waited

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """The lock for waiting, created at the first use."""
        if self.awaited is None:
            with _CREATING:
                if self.awaited is None:
                    self._waiters: list[Any] = []
                    self._done_callbacks: list[Any] = []
                    self.awaited = threading.Condition()
        return self.awaited

    def cancel(self) -> bool:
        """Return False: a record that was sent cannot be cancelled."""
        return False

    def done(self) -> bool:
        """Tell whether the record was appended or has failed."""
        return self._state == _FINISHED

    def result(self, timeout: float | None = None) -> int | None:
        """Wait for the offset and return it; raises the error of the append."""
        self.looked_at = True
        if self._state == _FINISHED and self._exception is None:
            return self._result
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the append and return its error; None if it succeeded."""
        self.looked_at = True
        return super().exception(timeout)

    def _tell(self) -> None:
        """Wake those that wait for this future, which is finished."""
        with self._condition:
            for waiter in self._waiters:
                (waiter.add_result if self._exception is None else waiter.add_exception)(self)
            self._condition.notify_all()
        self._invoke_callbacks()  # type: ignore[attr-defined]


def finish(futures: Iterable[Sent], offsets: Iterable[int | None]) -> None:
    """Set the offset of each future."""
    for future, offset in zip(futures, offsets, strict=True):
        future._result = offset  # noqa: SLF001 - a call for each would cost more than the rest
        future._state = _FINISHED  # noqa: SLF001
        if future.awaited is not None:
            future._tell()  # noqa: SLF001


def fail(futures: Iterable[Sent], error: BaseException) -> None:
    """Set an error in each future that is not finished yet."""
    for future in futures:
        if not future.done():
            future._exception = error  # noqa: SLF001 - as above
            future._state = _FINISHED  # noqa: SLF001
            future._tell()  # noqa: SLF001
