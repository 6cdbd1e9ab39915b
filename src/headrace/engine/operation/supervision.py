"""Keeps an app running: a failure that may pass is followed by another start, after a pause, within a budget."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from headrace.base.outside import SparkNotStarted
from headrace.base.time import MICROS, SystemClock, show_duration
from headrace.engine.operation.failures import as_ours
from headrace.engine.operation.restart import Budget
from headrace.engine.operation.status import status

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from headrace.base.errors import HeadraceError
    from headrace.dsl.app import App
    from headrace.engine.operation.restart import Restart
    from headrace.engine.operation.run_state import RunState

CLOCK = SystemClock()


class Started(Protocol):
    """An app that was started once: `engine.operation.running.Running`."""

    @property
    def epoch(self) -> int:
        """The last committed epoch, -1 before the first."""
        ...

    def wait(self, stop: threading.Event) -> None:
        """Wait until `stop` is set or the app fails."""
        ...

    def await_caught_up(self, timeout: float | None = None) -> None:
        """Wait until everything is processed or the app fails."""
        ...

    def status(self) -> dict[str, Any]:
        """Return the status."""
        ...

    def stop(self) -> None:
        """Stop at the end of an epoch."""
        ...

    def abandon(self) -> None:
        """Close what a failure has left."""
        ...


@dataclass(frozen=True, kw_only=True)
class Retry:
    """An app failed and is started again after `seconds`; `number` restarts of `tries` are spent with this one."""

    app: str
    error: HeadraceError
    number: int
    tries: int
    seconds: float

    def __str__(self) -> str:
        pause = show_duration(round(self.seconds * 10) * MICROS // 10)
        why = f"[{self.error.condition}] {self.error.what}"
        return f"app {self.app}: {why}; restart {self.number} of {self.tries} in {pause}"


class Supervised:
    """A running app that is started again after failures that may pass; as `Running` from outside.

    Failures are noticed, and the app is started again, inside `wait` and `await_caught_up`.

    Args:
        app: the app.
        start: starts it on the storage that `state` holds.
        state: the state of the run, on a storage that is locked.
        restart: the budget.
        stop: a request to stop, which also ends a pause.
        on_start: called after each start.
        on_retry: called before each pause.

    """

    def __init__(
        self,
        app: App,
        start: Callable[[], Started],
        state: RunState,
        *,
        restart: Restart,
        stop: threading.Event,
        on_start: Callable[[], None] = lambda: None,
        on_retry: Callable[[Retry], None] = lambda retry: None,  # noqa: ARG005 -- nothing is said
    ) -> None:
        self._app = app
        self._start = start
        self._state = state
        self._restart = restart
        self._budget = Budget(restart)
        self._stop = stop
        self._on_start = on_start
        self._on_retry = on_retry
        self._restarts = 0
        self._running: Started | None = None
        self._epoch = -1
        self._last: dict[str, Any] | None = None
        self._changing = threading.Lock()
        self._begun = False
        """Whether the app has been started once: a failure to start again after that is one of the machine's."""

    def __enter__(self) -> Self:
        try:
            self._ensure_started()
        except BaseException:
            self._state.storage.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait(self, stop: threading.Event) -> None:
        """Wait until `stop` is set, or the app fails for good.

        Raises:
            HeadraceError: the app failed, and trying again does not help or the budget is spent.

        """
        self._during(lambda running: running.wait(stop))

    def await_caught_up(self, timeout: float | None = None) -> None:
        """Wait until all records in the topics are processed; see `Running.await_caught_up`.

        Raises:
            HeadraceError: the app failed, and trying again does not help or the budget is spent.
            TimeoutError: it took longer than `timeout` seconds.

        """
        self._during(lambda running: running.await_caught_up(timeout))

    def status(self) -> dict[str, Any]:
        """Return the status: see `Running.status`. Another thread may ask."""
        running, now = self._running, self._last
        if running is not None:
            now = running.status()
            with self._changing:
                if self._running is running:  # else there is a later one, of its end
                    self._last = now
        elif now is None:
            now = self._last = status(self._app)
        return {**now, **self._state.shown()}

    def stop(self) -> None:
        """Stop at the end of an epoch and release the storage."""
        try:
            if self._running is not None:
                self._running.stop()
                last = self._running.status()
                with self._changing:
                    self._last, self._running = last, None
            if not self._state.failed:
                self._state.set("stopped")
        except Exception as error:
            self._state.set("failed", error=str(as_ours(error)))
            raise
        finally:
            self._state.storage.release()

    # ---- failures ----

    def _during(self, act: Callable[[Started], None]) -> None:
        while True:
            self._ensure_started()
            if self._running is None:
                return  # stopped in a pause
            try:
                act(self._running)
            except TimeoutError:
                raise
            except Exception as error:  # noqa: BLE001 -- `_failed` raises it, or the app is started again
                self._failed(error)
            else:
                return

    def _ensure_started(self) -> None:
        """Start the app if it is not running, again and again; afterwards it runs, or a stop was requested."""
        while self._running is None and not self._stop.is_set():
            self._state.set("starting", restarts=self._restarts)
            try:
                self._running = self._start()
                self._begun = True
                self._epoch = self._running.epoch
                self._state.set("running")
            except KeyboardInterrupt:  # Spark handles SIGINT itself while it starts
                self._stop.set()
            except Exception as error:  # noqa: BLE001 -- `_failed` raises it, or the app is started again
                self._failed(error)
            finally:
                self._on_start()

    def _failed(self, error: Exception) -> None:
        """Close what failed and pause.

        Raises:
            HeadraceError: it does not pass, or the budget is spent.

        """
        lease = self._state.storage.lease
        ours = lease.fenced() if lease.lost else as_ours(error)
        progressed = self._running is not None and self._running.epoch != self._epoch
        self._abandon()
        passes = ours.may_pass or (self._begun and isinstance(ours, SparkNotStarted))
        pause = self._budget.spend(CLOCK.monotonic(), progressed=progressed) if passes else None
        if pause is None:
            self._state.set("failed", error=str(ours))
            if passes and self._restart.tries:
                ours.detail = f"{ours.detail} The restarts are used up: {self._restart}.".strip()
            raise ours
        self._restarts += 1
        self._on_retry(
            Retry(
                app=self._app.name,
                error=ours,
                number=self._budget.used,
                tries=self._restart.tries,
                seconds=pause,
            )
        )
        next_try = CLOCK.now() + round(pause * MICROS)
        self._state.set("retrying", restarts=self._restarts, error=str(ours), next_try=next_try)
        self._stop.wait(pause)

    def _abandon(self) -> None:
        if self._running is not None:
            running = self._running
            with self._changing:
                self._running = None
            running.abandon()
