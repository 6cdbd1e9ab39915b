"""What a worker runs as one: the feeds that share a reader, one feed alone, or an app that only carries."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from headrace.base.errors import DiskFailed, HeadraceError, StorageBusy
from headrace.base.time import SystemClock
from headrace.engine.connectors.control import LOOK_SECONDS, Wishes
from headrace.engine.feeds import FIRST_PAUSE, LONGEST_PAUSE, Feeds
from headrace.engine.operation.running import IN_PROCESS, start
from headrace.engine.outside import Outside
from headrace.engine.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.connect.feed import Feed
    from headrace.connect.topics import TopicSpec
    from headrace.dsl.app import App
    from headrace.engine.operation.running import Running

    Members = Mapping[str, tuple[Feed, TopicSpec]]

ENDS = ("ended", "failed")


class Unit(Protocol):
    """What a worker starts and stops; `names`: of its connectors, the first is its own."""

    app: App
    names: tuple[str, ...]

    def start(self) -> None:
        """Run it in the background."""
        ...

    def stop(self) -> None:
        """End it; what has begun is finished. It can be started again."""
        ...

    def states(self) -> dict[str, dict[str, Any]]:
        """Return the states of its connectors."""
        ...


class FeedUnit:
    """Feeds that share a reader, or one feed alone."""

    def __init__(self, app: App, outside: Outside, members: Members) -> None:
        self.app, self._outside, self._members = app, outside, members
        self.names = tuple(spec.name for _, spec in members.values())
        self._feeds: Feeds | None = None

    def start(self) -> None:
        """Run the feeds."""
        declared = [(step, *member) for step, member in self._members.items()]
        wishes = Wishes(self.app.storage)
        self._feeds = Feeds(declared, self._outside.topics, read_of(self.app), wishes=wishes, revive=True)

    def stop(self) -> None:
        """End the feeds after the append under way."""
        if self._feeds is not None:
            self._feeds.stop()

    def states(self) -> dict[str, dict[str, Any]]:
        """Return the states, by topic."""
        found = self._feeds.status() if self._feeds is not None else {}
        return {self._members[step][1].name: {"kind": "feed", **state} for step, state in found.items()}


class AppUnit:
    """An app without state, run in this process: its feeds, and its sinks.

    Args:
        app: the app.
        until_caught_up: whether it ends when all is taken out.

    """

    def __init__(self, app: App, *, until_caught_up: bool) -> None:
        self.app = app
        self.names: tuple[str, ...] = (app.name,)
        self._until_caught_up = until_caught_up
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._state: dict[str, Any] = {}
        self._running: Running | None = None

    def start(self) -> None:
        """Run the app."""
        self._stopping.clear()
        self._set("starting")
        self._thread = threading.Thread(target=self._run, name=f"headrace-app-{self.app.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the app after the epoch under way."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def states(self) -> dict[str, dict[str, Any]]:
        """Return the state of the app under its name, and those of its feeds under their topics."""
        shown = {"kind": "app", "identity": f"app:{self.app.name}", "rows": 0, "dead": 0, "error": None} | self._state
        running = self._running
        if running is not None and shown["state"] == "running":
            with suppress(HeadraceError):
                now = running.status()
                shown["rows"] = sum(sink["rows"] for sink in now["sinks"].values())
                shown["dead"] = sum(source["dead"] for source in now["sources"].values())
                failing = [sink["failing"] for sink in now["sinks"].values() if sink.get("failing")]
                shown["error"] = failing[0] if failing else None
        return {self.app.name: shown}

    def _run(self) -> None:
        wishes, pause = Wishes(self.app.storage), FIRST_PAUSE
        while not self._stopping.is_set():
            stop = self._may_run(wishes)
            if stop is None:
                self._stopping.wait(LOOK_SECONDS)
            elif self._ended(stop):
                while not stop.wait(LOOK_SECONDS):
                    pass
                pause = FIRST_PAUSE
            elif not stop.is_set():
                self._stopping.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _may_run(self, wishes: Wishes) -> _Until | None:
        """Return what ends the app when something else is wanted than now; None: it is paused, or nobody knows."""
        try:
            stop = _Until(self._stopping, wishes, self.names)
        except DiskFailed as error:
            self._set("retrying", error.what)
            return None
        if stop.paused:
            self._set("paused")
            return None
        return stop

    def _ended(self, stop: _Until) -> bool:
        """Run the app once; return whether it is not to be tried again by itself."""
        try:
            with start(self.app, None, carrier=IN_PROCESS) as self._running:
                self._set("running")
                if not self._has_caught_up(self._running, stop):
                    return False
            self._set("ended")
        except StorageBusy:
            self._set("elsewhere")
            return False
        except HeadraceError as error:
            self._set("retrying" if error.may_pass else "failed", error.what)
            return not error.may_pass
        except Exception as error:  # noqa: BLE001 -- a connector's bug ends this connector, not the others
            self._set("failed", f"{type(error).__name__}: {error}")
        return True

    def _has_caught_up(self, running: Running, stop: _Until) -> bool:
        """Wait until the app is to end; return whether that is since it has caught up."""
        if not self._until_caught_up:
            running.wait(stop)
            return False
        while not stop.is_set():
            with suppress(TimeoutError):
                running.await_caught_up(LOOK_SECONDS)
                return True
        return False

    def _set(self, state: str, error: str | None = None) -> None:
        kept = {key: self._state[key] for key in ("rows", "dead") if key in self._state}
        self._state = kept | {"state": state, "error": error}


class _Until(threading.Event):
    """Set when the worker stops, or when something else is wanted of the connector."""

    def __init__(self, stopping: threading.Event, wishes: Wishes, names: tuple[str, ...]) -> None:
        super().__init__()
        self._stopping, self._wishes, self._names = stopping, wishes, names
        self._now = wishes.of(names)
        self.paused = any(wish.paused for wish in self._now)

    def is_set(self) -> bool:
        return self._stopping.is_set() or self._wishes.of(self._names) != self._now

    def wait(self, timeout: float | None = None) -> bool:
        self._stopping.wait(timeout)
        return self.is_set()


def units_of(app: App, *, sinks: bool, until_ended: bool) -> tuple[list[Unit], Outside | None]:
    """Return what can be run of an app, and what is open for it.

    Args:
        app: the app.
        sinks: whether an app without state is run itself.
        until_ended: whether it ends when all is taken out.

    """
    plan = app.plan()
    if sinks and plan.sinks and not any(plan.stateful()):
        return [AppUnit(app, until_caught_up=until_ended)], None
    outside = Outside(plan, app.storage, app.topics, clock=SystemClock(), partitions=shards_of(app))
    groups: dict[str, dict[str, tuple[Feed, TopicSpec]]] = {}
    for step, feed, spec in outside.feeds():
        groups.setdefault(feed.reader_group or f"alone:{step}", {})[step] = feed, spec
    return [FeedUnit(app, outside, members) for members in groups.values()], outside


def read_of(app: App) -> Callable[[str], int]:
    """Return a function from a step to the number of records that the app had read at its last commit."""
    storage = Storage(app.storage, app.name)

    def read(step: str) -> int:
        last = storage.last_epoch()
        sources = {} if last is None else storage.read_commit(last).sources
        return sum(sources[step].offsets.values()) if step in sources else 0

    return read


def shards_of(app: App) -> int:
    """Return the number of an app's shards, 1 where it has never run and does not say it."""
    stored: int | None = Storage(app.storage, app.name).about().get("shards")
    return app.shards or stored or 1
