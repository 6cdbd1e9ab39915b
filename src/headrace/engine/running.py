"""A running app: start it, read its status, stop it at the end of an epoch."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any, Self

from headrace.base.time import SystemClock
from headrace.engine.cleaning import Cleaning
from headrace.engine.engine import Engine, Settings
from headrace.engine.feeds import Feeds
from headrace.engine.outside import names_of_topics
from headrace.engine.private import open_view
from headrace.engine.status import describe
from headrace.views.sqlite import SqliteViews

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    import pyarrow as pa

    from headrace.dsl.app import App
    from headrace.engine.spark.carrier import SparkCarrier

POLL_SECONDS = 0.01


class Running:
    """A started app. Use it as a context manager, or call `stop`."""

    def __init__(self, engine: Engine, carrier: SparkCarrier) -> None:
        self._engine = engine
        self._carrier = carrier
        self._clock = SystemClock()
        self._stopped = False
        self._cleaning = Cleaning(engine.outside.topics, names_of_topics(engine.plan))
        self._feeds = Feeds(engine.outside.feeds(), engine.outside.topics, engine.read_of)
        self._final: dict[str, Any] | None = None

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
            if self._feeds.quiet and self._carrier.idle.is_set() and self._engine.caught_up:
                return
            if timeout is not None and self._clock.monotonic() - began > timeout:
                raise TimeoutError(f"not caught up after {timeout} seconds")
            self._clock.sleep(POLL_SECONDS)

    def status(self) -> dict[str, Any]:
        """Return the app's status: epoch, rows, lag, watermarks, state and late rows by step.

        `{"app", "running", "epoch", "epoch_seconds", "rows_per_second", "limit", "lag", "steps": {name: {"rows_in",
        "rows_out", "watermark", "state_rows", "late", "partly_late", "too_old"}}, "sources": {name: {"lag",
        "watermark", "rows", "dead", "lost"}}, "sinks": {name: {"rows", "guarantee", "failing"}}, "feeds": {step:
        {"identity", "state", "rows", "dead", "error"}}}`. Watermarks are aware datetimes or None. Counts are since the
        first start; those of feeds since this one. `lost` are records that a topic's retention removed before
        they were read; `failing` says why a sink is being tried again.
        """
        if self._final is not None:
            return self._final
        engine = self._engine
        now = describe(engine.plan, engine.last, engine.inputs)
        for group in engine.publisher.groups:
            for name in group.names & set(now["sinks"]):
                why = engine.publisher.failing.get(group.label)
                now["sinks"][name]["failing"] = why
        return {**now, "feeds": self._feeds.status(), "running": not self._stopped}

    def _check(self) -> None:
        self._carrier.check()
        self._feeds.check()

    def stop(self) -> None:
        """Stop at the end of an epoch and release the storage. Nothing is lost: the next start continues from there."""
        if not self._stopped:
            self._stopped = True
            try:
                self._cleaning.stop()
                self._feeds.stop()
                self._engine.publisher.stopping.set()
                self._carrier.stop()
                self._final = self.status()
            finally:
                self._engine.close()

    def wait(self, stop: threading.Event) -> None:
        """Wait until `stop` is set or the app fails.

        Raises:
            HeadraceError: the app failed.

        """
        while not stop.is_set():
            self._check()
            stop.wait(0.1)


def settings(app: App, *, shards: int) -> Settings:
    """Return the settings of an app in production."""
    return Settings(storage=app.storage, topics=app.topics, shards=app.shards or shards, clock=SystemClock())


def start(app: App, spark: Any = None) -> Running:
    """Start an app on Spark; see `App.start`."""
    from headrace.engine.spark.carrier import SparkCarrier
    from headrace.engine.spark.session import session

    plan = app.plan()
    opened = session(spark)
    engine = Engine(plan, settings(app, shards=_stored_shards(app) or opened.sparkContext.defaultParallelism))
    try:
        return Running(engine, SparkCarrier(engine, opened))
    except BaseException:
        engine.close()
        raise


def _stored_shards(app: App) -> int | None:
    from headrace.engine.storage import Storage

    return Storage(app.storage, app.name).about().get("shards")


def run(app: App) -> None:
    """Run an app until SIGINT or SIGTERM; see `App.run`."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 -- the signature that signal needs
        stop.set()

    handlers = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with start(app) as running:
            for number in handlers:
                signal.signal(number, on_signal)  # a new SparkContext has replaced the handler of SIGINT
            running.wait(stop)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def read_view(app: App, name: str) -> pa.Table:
    """Return a view's rows from any process."""
    return open_view(app.storage, name, SqliteViews(app.storage / "views.db").read(name))
