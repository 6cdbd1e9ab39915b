"""States of aggregates at some version, so that not every event is folded each time: a cache.

It is a file of SQLite beside the topic. A snapshot that is missing, of another version of the fold, or of another
history is not used; nothing is lost with the file. The topic has another history after it was restored from an older
copy, or was deleted and created again: so a snapshot keeps the mark of its last event.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.events.appending import Mark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.events.appending import Appender

_BUSY_SECONDS = 5.0
_TABLE = (
    "CREATE TABLE IF NOT EXISTS marked_snapshots (aggregate TEXT, fold INTEGER, stream TEXT, version INTEGER, "
    "state TEXT, topic_id TEXT, offset INTEGER, batch TEXT, PRIMARY KEY (aggregate, fold, stream)) WITHOUT ROWID"
)


class Snapshot(NamedTuple):
    """The state of a stream's aggregate after so many events."""

    version: int
    state: Any


class Snapshots:
    """The snapshots of a store.

    Args:
        path: the file.
        appender: gives the appender of a stream, which knows marks of events.

    """

    def __init__(self, path: Path, appender: Callable[[str], Appender]) -> None:
        self._path, self._appender = path, appender
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []

    def newest(self, aggregate: str, fold: int, stream: str) -> Snapshot | None:
        """Return the snapshot of a stream, None if there is none of this fold and of the topic's history."""
        query = (
            "SELECT topic_id, offset, batch, version, state FROM marked_snapshots "
            "WHERE aggregate = ? AND fold = ? AND stream = ?"
        )
        try:
            row = self._db().execute(query, [aggregate, fold, stream]).fetchone()
            if row is None:
                return None
            snapshot = Snapshot(row[3], json.loads(row[4]))
        except (sqlite3.Error, ValueError):  # a cache that cannot be read is as good as none
            return None
        return snapshot if self._appender(stream).has(Mark(*row[:3])) else None

    def put(self, aggregate: str, fold: int, stream: str, snapshot: Snapshot) -> None:
        """Keep a snapshot, unless there is a newer one of this history; a cache that cannot be written stays as it is.

        Raises:
            TypeError: the state is no JSON.

        """
        text = json.dumps(snapshot.state, allow_nan=False)
        kept, mark = self.newest(aggregate, fold, stream), self._appender(stream).mark(stream, snapshot.version)
        if mark is None or (kept is not None and kept.version >= snapshot.version):
            return
        try:
            self._db().execute(
                "INSERT OR REPLACE INTO marked_snapshots VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [aggregate, fold, stream, snapshot.version, text, *mark],
            )
        except sqlite3.Error:
            return

    def close(self) -> None:
        """Close the file."""
        for each in self._opened:
            each.close()

    def _db(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = sqlite3.connect(self._path, isolation_level=None, timeout=_BUSY_SECONDS, check_same_thread=False)
            self._opened.append(db)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = OFF")
            db.execute(_TABLE)
            db.execute("DROP TABLE IF EXISTS snapshots")  # of an older release: without marks
            self._local.db = db
        return db
