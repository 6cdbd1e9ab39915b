"""What `Producer.send` gives back: a future of the record's offset.

Most futures are finished before anybody waits for them, and then need no lock: the parts that waiting takes are made
when somebody first waits. Finishing sets the state before it looks for waiters, waiting makes itself known before it
looks at the state, so one of both sees the other.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PENDING, _FINISHED = "PENDING", "FINISHED"  # states of `concurrent.futures`


class Sent(Future[int | None]):
    """The offset of a record that was sent, once it is safe on disk; None where an earlier attempt appended it.

    A `concurrent.futures.Future`, so `wait`, `as_completed` and `asyncio.wrap_future` take it. It cannot be
    cancelled: what was sent is on its way.
    """

    _state = _PENDING
    _result: int | None = None
    _exception: BaseException | None = None
    looked_at = False  # somebody asked for the outcome

    def __init__(self) -> None:
        """Do nothing: the constructor of `Future` makes a lock, which would be most of what a record costs."""

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """The lock of whoever waits, made at the first look."""
        attributes = self.__dict__
        if "awaited" not in attributes:
            attributes.setdefault("_waiters", [])
            attributes.setdefault("_done_callbacks", [])
            attributes.setdefault("awaited", threading.Condition())
        return attributes["awaited"]  # type: ignore[no-any-return]

    def cancel(self) -> bool:
        """Return False: what was sent cannot be called back."""
        return False

    def done(self) -> bool:
        """Tell whether the outcome is known."""
        return self._state == _FINISHED

    def result(self, timeout: float | None = None) -> int | None:
        """Return the offset, waiting for it; raise what made the append fail."""
        self.looked_at = True
        if self._state == _FINISHED and self._exception is None:
            return self._result
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what made the append fail, None when it did not; waits for it."""
        self.looked_at = True
        return super().exception(timeout)

    def _tell(self) -> None:
        """Wake whoever waits for this future, which is finished."""
        with self._condition:
            for waiter in self._waiters:
                (waiter.add_result if self._exception is None else waiter.add_exception)(self)
            self._condition.notify_all()
        self._invoke_callbacks()  # type: ignore[attr-defined]


def finish(futures: Iterable[Sent], offsets: Iterable[int | None]) -> None:
    """Give each future its offset."""
    for future, offset in zip(futures, offsets, strict=True):
        future._result = offset  # noqa: SLF001 - a call for each would cost more than the rest
        future._state = _FINISHED  # noqa: SLF001
        if "awaited" in future.__dict__:
            future._tell()  # noqa: SLF001


def fail(futures: Iterable[Sent], error: BaseException) -> None:
    """Give each future that is not finished yet an error."""
    for future in futures:
        if not future.done():
            future._exception = error  # noqa: SLF001 - as above
            future._state = _FINISHED  # noqa: SLF001
            future._tell()  # noqa: SLF001
