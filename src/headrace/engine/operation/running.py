"""A running app: start it, read its status, stop it at the end of an epoch."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from headrace.base.errors import HeadraceError, InvalidPlan, NotRunning, UnknownView, did_you_mean
from headrace.base.time import SystemClock
from headrace.engine.connectors.control import Wishes
from headrace.engine.epoch import Settings
from headrace.engine.feeds import Feeds
from headrace.engine.operation.cleaning import Cleaning
from headrace.engine.operation.failures import as_ours
from headrace.engine.operation.local import LocalCarrier, cores
from headrace.engine.operation.restart import restart_of
from headrace.engine.operation.run_state import RunState
from headrace.engine.operation.status import describe
from headrace.engine.operation.supervision import Supervised
from headrace.engine.outside import names_of_topics
from headrace.engine.private import open_view
from headrace.engine.recovery.opening import open_engine
from headrace.engine.recovery.view_damage import refuse_gone
from headrace.engine.served import views_at
from headrace.engine.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

    import pyarrow as pa

    from headrace.dsl.app import App
    from headrace.engine.engine import Engine
    from headrace.engine.operation.restart import Restart
    from headrace.engine.operation.supervision import Retry
    from headrace.plan.plan import Plan

logger = logging.getLogger("headrace")
POLL_SECONDS = 0.01
CarrierName = Literal["spark", "in-process"]
SPARK: CarrierName = "spark"
IN_PROCESS: CarrierName = "in-process"


class Carrier(Protocol):
    """What runs the epochs of an engine, from its creation to `stop`. `idle` is set while no epoch runs."""

    idle: threading.Event

    @property
    def in_epoch(self) -> bool:
        """Whether the caller is called by an epoch."""
        ...

    def check(self) -> None:
        """Raise the error that ended the epochs, if there is one."""
        ...

    def stop(self) -> None:
        """Stop at the end of an epoch."""
        ...


class Running:
    """A started app. Use it as a context manager, or call `stop`."""

    def __init__(self, engine: Engine, carrier: Carrier, state: RunState) -> None:
        self._engine = engine
        self._carrier = carrier
        self._clock = SystemClock()
        self._stopped = False
        feeds, wishes = list(engine.outside.feeds()), Wishes(state.storage.path)  # before a thread runs: it may fail
        self._cleaning = Cleaning(engine.outside.topics, names_of_topics(engine.plan))
        self._feeds = Feeds(feeds, engine.outside.topics, engine.read_of, wishes=wishes)
        self._final: dict[str, Any] | None = None
        self._state = state
        self.owns_storage = False
        """Whether `stop` releases the storage."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def await_caught_up(self, timeout: float | None = None) -> None:
        """Wait until all records in the topics are processed and all closed windows are emitted.

        Feeds are waited for until they end, or land nothing for a second.

        Raises:
            HeadraceError: the app failed meanwhile.
            TimeoutError: it took longer than `timeout` seconds.

        """
        began = self._clock.monotonic()
        while True:
            self._check()
            if self._feeds.quiet and self._has_caught_up():
                self._check()  # a feed that has just failed is quiet, too
                return
            if timeout is not None and self._clock.monotonic() - began > timeout:
                raise TimeoutError(f"not caught up after {timeout} seconds")
            self._clock.sleep(POLL_SECONDS)

    def _has_caught_up(self) -> bool:
        """Whether all is processed and published: idle comes last, as an epoch is committed before it is published.

        It comes first, too: while an epoch runs nobody is asked how much there is, which takes as long as some epochs.
        """
        engine, idle = self._engine, self._carrier.idle
        return idle.is_set() and engine.caught_up and engine.has_caught_up(again=True) and idle.is_set()

    def status(self) -> dict[str, Any]:
        """Return the app's status: epoch, rows, lag, watermarks, state and late rows by step.

        `{"app", "running", "epoch", "epoch_seconds", "rows_per_second", "limit", "lag", "steps": {name: {"rows_in",
        "rows_out", "watermark", "state_rows", "late", "partly_late", "too_old"}}, "sources": {name: {"lag",
        "watermark", "rows", "dead", "lost"}}, "sinks": {name: {"rows", "guarantee", "failing"}}, "feeds": {step:
        {"identity", "state", "rows", "dead", "error"}}, "profile": {…}}`. Watermarks are aware datetimes or None.

        Counts are since the first start; those of feeds since this one. `lost` are records that a topic's retention
        removed before they were read; `failing` says why a sink is being tried again. `profile` says where the time of
        this run went (`engine/profile.py`).
        """
        if self._final is not None:
            return self._final
        engine = self._engine
        now = describe(engine.plan, engine.last, engine.inputs)
        for group in engine.publisher.groups:
            for name in group.names & set(now["sinks"]):
                why = engine.publisher.failing.get(group.label)
                now["sinks"][name]["failing"] = why
        return {
            **now,
            **self._state.shown(),
            "feeds": self._feeds.status(),
            "profile": engine.profile.shown(),
            "running": not self._stopped,
        }

    @property
    def epoch(self) -> int:
        """The last committed epoch, -1 before the first."""
        return self._engine.last.epoch

    def _check(self) -> None:
        try:
            self._state.storage.lease.check()
            self._carrier.check()
            self._feeds.check()
        except HeadraceError as error:
            self._state.storage.lease.check()  # what failed, failed because another process has taken over
            if self.owns_storage:
                self._state.set("failed", error=str(error))
            raise

    def stop(self) -> None:
        """Stop at the end of an epoch and release the storage. Nothing is lost: the next start continues from there.

        A signal's handler may call it, and so may `atexit`.

        Raises:
            NotRunning: a function that an epoch calls wants to stop the app.

        """
        if self._stopped:
            return
        if self._carrier.in_epoch:
            raise NotRunning(
                "an epoch that runs cannot stop its app: it would wait for itself",
                hint="Set a threading.Event in the function, and call stop() where the program waits for it.",
            )
        self._stopped = True
        try:
            self._cleaning.stop()
            self._feeds.stop()
            self._engine.publisher.stopping.set()
            self._carrier.stop()
            with suppress(OSError):  # then the next start does it
                self._engine.settle()
            if self.owns_storage and not self._state.failed:
                self._state.set("stopped")
            self._final = self.status()
        finally:
            self._engine.close()
            if self.owns_storage:
                self._state.storage.release()

    def abandon(self) -> None:
        """Close what a failure has left, whatever else fails; the storage stays locked for the next start."""
        for close in (
            self._cleaning.stop,
            self._feeds.stop,
            self._engine.publisher.stopping.set,
            self._carrier.stop,
            self._engine.close,
        ):
            try:
                close()
            except Exception as error:  # noqa: BLE001 -- the failure before it is the one that is reported
                logger.debug("closing after a failure: %s", error)
        self._stopped = True

    def wait(self, stop: threading.Event) -> None:
        """Wait until `stop` is set or the app fails.

        Raises:
            HeadraceError: the app failed.

        """
        while not stop.is_set():
            self._check()
            stop.wait(0.1)


def settings(app: App, *, shards: int) -> Settings:
    """Return the settings of an app in production: a program may change its folder while it runs."""
    return Settings(storage=app.storage.absolute(), topics=app.topics, shards=app.shards or shards, clock=SystemClock())


def start(app: App, spark: Any = None, *, carrier: CarrierName = SPARK, state: RunState | None = None) -> Running:
    """Start an app; see `App.start`. With `state` the caller holds the storage, and keeps it when the app stops."""
    check_carrier(carrier)
    plan = app.plan()
    held = state or hold(app, carrier)
    try:
        running = _on_spark(app, plan, held, spark) if carrier == SPARK else _here(app, plan, held)
    except BaseException as error:
        if state is None:
            held.set("failed", error=str(as_ours(error)))
            held.storage.release()
        raise
    if state is None:
        running.owns_storage = True
        held.set("running")
    return running


def check_carrier(carrier: str) -> None:
    """Refuse a carrier that there is not.

    Raises:
        InvalidPlan: there is no such carrier.

    """
    if carrier not in (SPARK, IN_PROCESS):
        raise InvalidPlan(
            f"carrier={carrier!r} is not possible",
            detail=f'The carriers are "{SPARK}" and "{IN_PROCESS}".',
            hint=did_you_mean(str(carrier), (SPARK, IN_PROCESS)),
        )


def hold(app: App, carrier: str) -> RunState:
    """Lock an app's storage and say that the app is starting.

    Raises:
        StorageBusy: another process runs the app.

    """
    storage = Storage(app.storage.absolute(), app.name)
    try:
        storage.acquire()
    except OSError as error:
        raise as_ours(error) from error
    storage.lease.keep()
    state = RunState(storage, carrier=carrier)
    state.set("starting")
    return state


def _on_spark(app: App, plan: Plan, state: RunState, spark: Any) -> Running:
    from headrace.engine.spark.carrier import SparkCarrier
    from headrace.engine.spark.session import session

    opened = session(spark)
    shards = _stored_shards(state.storage) or opened.sparkContext.defaultParallelism
    return _running(
        open_engine(plan, settings(app, shards=shards), state.storage), partial(SparkCarrier, spark=opened), state
    )


def _here(app: App, plan: Plan, state: RunState) -> Running:
    shards = _stored_shards(state.storage) or cores()
    return _running(open_engine(plan, settings(app, shards=shards), state.storage), LocalCarrier, state)


def _running(engine: Engine, carry: Callable[[Engine], Carrier], state: RunState) -> Running:
    with ExitStack() as failed:
        failed.callback(engine.close)
        carrier = carry(engine)
        failed.callback(carrier.stop)
        failed.callback(engine.publisher.stopping.set)  # before it, or retries of a sink would be waited for
        running = Running(engine, carrier, state)
        failed.pop_all()
    return running


def _stored_shards(storage: Storage) -> int | None:
    return storage.about().get("shards")


def supervised(
    app: App,
    *,
    stop: threading.Event,
    carrier: CarrierName = SPARK,
    restart: Restart | str | None = None,
    open_spark: Callable[[], Any] = lambda: None,
    on_start: Callable[[], None],
    on_retry: Callable[[Retry], None],
) -> Supervised:
    """Return an app that is started by entering it, and again after failures that may pass.

    `open_spark` returns the session of a start on Spark; None is the active one, or a local one.

    Raises:
        PlanError: the plan is not possible, or an argument is not.
        StorageBusy: another process runs the app.

    """
    check_carrier(carrier)
    budget = restart_of(restart)
    app.plan()
    state = hold(app, carrier)
    return Supervised(
        app,
        lambda: start(app, open_spark() if carrier == SPARK else None, carrier=carrier, state=state),
        state,
        restart=budget,
        stop=stop,
        on_start=on_start,
        on_retry=on_retry,
    )


def run(app: App, *, carrier: CarrierName = SPARK, restart: Restart | str | None = None) -> None:
    """Run an app until SIGINT or SIGTERM; see `App.run`."""
    if threading.current_thread() is not threading.main_thread():
        raise InvalidPlan(
            "app.run() waits for signals, which only the main thread of a program gets",
            hint="In a thread, say running = app.start(), and running.stop() at the end.",
        )
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 -- the signature that signal needs
        stop.set()

    def listen() -> None:
        for number in handlers:
            signal.signal(number, on_signal)  # a new SparkContext has replaced the handler of SIGINT

    handlers = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with supervised(
            app,
            stop=stop,
            carrier=carrier,
            restart=restart,
            on_start=listen,
            on_retry=logger.warning,
        ) as running:
            running.wait(stop)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def read_view(app: App, name: str) -> pa.Table:
    """Return a view's rows from any process; none where the app declares the view and has not started yet."""
    try:
        return open_view(app.storage, name, views_at(app.storage).read(name))
    except UnknownView:
        declared = [sink for sink in app.plan().sinks if sink.view == name]
        if not declared:
            raise
        refuse_gone(Storage(app.storage, app.name))
        return declared[0].up.schema.empty_table()
