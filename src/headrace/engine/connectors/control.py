"""What is wanted of an app's connectors, and what their workers say of them, in a file of the app's storage.

Whoever runs a feed, a worker of `headrace connect run` or the app itself, looks there now and then. A connector has the
name of the topic that it fills; an app whose sinks are run by workers has its own name.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.base.errors import DiskFailed
from headrace.base.time import SystemClock
from headrace.log.shared_state import Life, SharedState, is_gone, read_only

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FOLDER, FILE, ALIVE = "connect", "connectors.db", "alive"
LOOK_SECONDS = 0.5
CLOCK = SystemClock()
logger = logging.getLogger("headrace.engine")
_TABLES = (
    "CREATE TABLE IF NOT EXISTS wishes (name TEXT PRIMARY KEY, paused INTEGER NOT NULL, restarts INTEGER NOT NULL)",
    (
        "CREATE TABLE IF NOT EXISTS reports (name TEXT PRIMARY KEY, worker TEXT NOT NULL, pid INTEGER NOT NULL, "
        "state TEXT NOT NULL)"
    ),
)
_FRESH = ("DELETE FROM reports",)


class Wish(NamedTuple):
    """What is wanted of a connector; `restarts`: how often somebody has asked for a restart."""

    paused: bool = False
    restarts: int = 0


class Wishes:
    """What is wanted of the connectors of a storage, read again every half second; nothing is created.

    Threads may share it. While the file cannot be read, what was known before holds.
    """

    def __init__(self, storage: Path) -> None:
        self._path = storage / FOLDER / FILE
        self._known: dict[str, Wish] | None = None
        self._looked = -LOOK_SECONDS
        self._warned = ""

    def of(self, names: Iterable[str]) -> tuple[Wish, ...]:
        """Return what is wanted of some connectors.

        Raises:
            DiskFailed: the file cannot be read, and never could: it may say that they are paused.

        """
        now = CLOCK.monotonic()
        if self._known is None or now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._look()
        known = self._known or {}
        return tuple(known.get(name, Wish()) for name in names)

    def _look(self) -> None:
        try:
            self._known, self._warned = self._read(), ""
        except DiskFailed as error:
            if self._known is None:
                raise
            if self._warned != error.what:
                self._warned = error.what
                logger.warning("what is wanted of connectors cannot be read: %s", error.what)

    def paused(self, name: str) -> bool:
        """Whether a connector is to land nothing; raises as `of` does."""
        return self.of([name])[0].paused

    def _read(self) -> dict[str, Wish]:
        rows = _read(self._path, "SELECT name, paused, restarts FROM wishes")
        return {name: Wish(bool(paused), restarts) for name, paused, restarts in rows}


class Control:
    """The file, to change it. Close it when done."""

    def __init__(self, storage: Path) -> None:
        folder = storage / FOLDER
        self._alive = folder / ALIVE
        self._state = SharedState(folder / FILE, _TABLES, fresh=_FRESH, alive=self._alive)

    def close(self) -> None:
        """Close the file."""
        self._state.close()

    def pause(self, names: Iterable[str], *, paused: bool) -> None:
        """Want connectors to land nothing, or to go on; it is remembered."""
        with self._state.change() as sql:
            sql.executemany(
                "INSERT INTO wishes VALUES (?, ?, 0) ON CONFLICT (name) DO UPDATE SET paused = excluded.paused",
                [(name, paused) for name in names],
            )

    def restart(self, names: Iterable[str]) -> None:
        """Want connectors to be ended and begun again, also those that have failed."""
        with self._state.change() as sql:
            sql.executemany(
                "INSERT INTO wishes VALUES (?, 0, 1) ON CONFLICT (name) DO UPDATE SET restarts = restarts + 1",
                [(name,) for name in names],
            )

    def report(self, worker: Life, states: Mapping[str, dict[str, Any]]) -> None:
        """Say how the connectors are that a worker runs."""
        rows = [(name, worker.id, os.getpid(), json.dumps(state)) for name, state in states.items()]
        with self._state.change() as sql:
            sql.executemany("INSERT OR REPLACE INTO reports VALUES (?, ?, ?, ?)", rows)

    def withdraw(self, worker: Life, names: Iterable[str]) -> None:
        """Say that a worker runs connectors no more."""
        with self._state.change() as sql:
            sql.executemany("DELETE FROM reports WHERE name = ? AND worker = ?", [(name, worker.id) for name in names])

    def worker(self) -> Life:
        """Return a sign of life of this process, as a worker."""
        return Life(self._alive)


def _read(path: Path, query: str) -> list[Any]:
    """Return the rows of a query; none where nobody has made the file, or somebody is making it.

    Raises:
        DiskFailed: it cannot be read.

    """
    try:
        return read_only(path, query) if path.exists() else []
    except (sqlite3.Error, OSError) as error:
        if "no such table" in str(error):
            return []
        raise DiskFailed(str(path), OSError(str(error))) from error


def reported(storage: Path) -> dict[str, dict[str, Any]]:
    """Return what workers that live say of the connectors of a storage, with the `worker`, a process id."""
    folder = storage / FOLDER
    rows = _read(folder / FILE, "SELECT name, worker, pid, state FROM reports")
    return {
        name: json.loads(state) | {"worker": pid}
        for name, worker, pid, state in rows
        if not is_gone(folder / ALIVE, worker)
    }
