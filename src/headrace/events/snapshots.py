"""States of aggregates at some version, so that not every event is folded each time: a cache.

It is a file of SQLite beside the topic. A snapshot that is missing, older, or of another version of the fold is not
used; nothing is lost with the file.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

_BUSY_SECONDS = 5.0


class Snapshot(NamedTuple):
    """The state of a stream's aggregate after so many events."""

    version: int
    state: Any


class Snapshots:
    """The snapshots of a store."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []

    def newest(self, aggregate: str, fold: int, stream: str) -> Snapshot | None:
        """Return the snapshot of a stream, None if there is none of this fold."""
        try:
            found = self._db().execute(
                "SELECT version, state FROM snapshots WHERE aggregate = ? AND fold = ? AND stream = ?",
                [aggregate, fold, stream],
            )
            row = found.fetchone()
            return None if row is None else Snapshot(row[0], json.loads(row[1]))
        except (sqlite3.Error, ValueError):  # a cache that cannot be read is as good as none
            return None

    def put(self, aggregate: str, fold: int, stream: str, snapshot: Snapshot) -> None:
        """Keep a snapshot, unless there is a newer one; a cache that cannot be written is left as it is.

        Raises:
            TypeError: the state is no JSON.

        """
        text = json.dumps(snapshot.state, allow_nan=False)
        try:
            self._db().execute(
                "INSERT INTO snapshots VALUES (?, ?, ?, ?, ?) ON CONFLICT (aggregate, fold, stream) DO UPDATE SET "
                "version = excluded.version, state = excluded.state WHERE excluded.version > version",
                [aggregate, fold, stream, snapshot.version, text],
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
            db.execute(
                "CREATE TABLE IF NOT EXISTS snapshots (aggregate TEXT, fold INTEGER, stream TEXT, version INTEGER, "
                "state TEXT, PRIMARY KEY (aggregate, fold, stream)) WITHOUT ROWID"
            )
            self._local.db = db
        return db
