"""Snapshots of tables beside their changes, in chunks, without a lock and without a gap: DBLog's algorithm.

A chunk of rows is read by key; then a message is written to the database's log (`pg_logical_emit_message`, no table),
and the stream is read up to that message. Rows that the stream has changed meanwhile are dropped from the chunk, the
others are landed with the changes. A transaction that the chunk could not see, though the stream had it before, is a
reason to read the chunk again.

A snapshot that somebody wants anew ends with a chunk of another kind: the keys that the topic has and the table does
not have any more, which are deleted.
"""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.base.time import SystemClock
from headrace.connect.capture.columns import captured
from headrace.connect.capture.known import known_keys
from headrace.connect.capture.rows import deleted_rows, without_changed
from headrace.connect.postgres import copying
from headrace.connect.postgres.kernels import XID
from headrace.connect.postgres.rows import copied_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import psycopg
    import pyarrow as pa

    from headrace.connect.capture.progress import Progress
    from headrace.connect.feed import Request, SharedLanding
    from headrace.connect.postgres.catalogue import CapturedTable
    from headrace.connect.postgres.changes import Decoded
    from headrace.connect.postgres.position import Position

CLOCK = SystemClock()
PREFIX = "headrace"
"""The prefix of the messages that mark the end of a chunk's window."""
_CHUNK_BYTES = 64 << 20
"""A chunk has so many bytes at most, by what the catalogue says of the table."""
_REMEMBERED = 64
"""The transactions of so many batches are remembered, to find those that a chunk could not see."""


@dataclass(slots=True)
class _Window:
    """A chunk, as rows of its topic, that waits for the message after it; `after`: where the snapshot is with it.

    `vanished`: its rows are deletes of keys that the table does not have.
    """

    topic: str
    table: CapturedTable
    rows: pa.Table
    mark: bytes
    after: Progress
    vanished: bool


@dataclass(kw_only=True)
class Snapshots:
    """The snapshots of captured tables, one chunk at a time. `tables`: by topic; the capture keeps them current."""

    tables: Mapping[str, CapturedTable]
    chunk_rows: int
    _recent: deque[Any] = field(default_factory=lambda: deque(maxlen=_REMEMBERED), init=False)
    _window: _Window | None = field(default=None, init=False)

    def restart(self) -> None:
        """Forget what a connection that has ended had read: the stream begins at the position again."""
        self._window = None
        self._recent.clear()

    def begin(self, landing: SharedLanding, position: Position) -> Position:
        """Return the position with snapshots that begin: those that somebody wants, and where a topic has new columns.

        It also answers the requests whose snapshots are landed.
        """
        requests: dict[str, Request] = {each.topic: each for each in landing.requests()}
        for topic, table in self.tables.items():
            at, request = position.progress(table), requests.get(topic)
            if request is not None and at.request == request.id and at.done:
                landing.answered(request)
            elif request is not None and at.request != request.id:
                at = at.from_start(request=request.id)
            columns = tuple(captured(landing.schema(topic)))
            if not set(columns) <= set(at.columns):
                at = at.from_start(columns=columns)
            if at != position.progress(table):
                position = position.with_table(table.full_name, at)
                self.drop(topic)
        return position

    def open(self, sql: psycopg.Connection, landing: SharedLanding, position: Position) -> None:
        """Read the next chunk of a snapshot, if none is open, and write the message after it."""
        if self._window is not None:
            return
        for topic, table in self.tables.items():
            at = position.progress(table)
            if at.done:
                continue
            read = self._vanished if at.compares else self._chunk
            rows, after = read(sql, landing, topic, table, at)
            mark = uuid.uuid4().bytes
            sql.execute("SELECT pg_logical_emit_message(true, %s, %s)", [PREFIX, mark])
            self._window = _Window(topic, table, rows, mark, after, vanished=at.compares)
            return

    def _chunk(
        self, sql: psycopg.Connection, landing: SharedLanding, topic: str, table: CapturedTable, at: Progress
    ) -> tuple[pa.Table, Progress]:
        """Return the next rows of a table."""
        schema = landing.schema(topic)
        limit = min(self.chunk_rows, max(_CHUNK_BYTES // table.row_bytes, 1))
        chunk = self._seen(lambda: copying.chunk(sql, table, schema, after=at.after, limit=limit))
        rows = copied_rows(table, chunk.rows, schema)
        if chunk.rows.num_rows == limit:
            return rows, replace(at, after=copying.last_key(table, chunk))
        anew = at.request is not None
        return rows, replace(at, compares=anew, done=not anew)

    def _vanished(
        self, sql: psycopg.Connection, landing: SharedLanding, topic: str, table: CapturedTable, at: Progress
    ) -> tuple[pa.Table, Progress]:
        """Return deletes of the keys that the topic has and the table does not have."""
        known = known_keys(landing.opened(topic), table.key)
        absent = self._seen(lambda: copying.absent(sql, table, known))
        return deleted_rows(table.key, absent.rows, landing.schema(topic)), replace(at, compares=False, done=True)

    def _seen(self, read: Callable[[], copying.Chunk]) -> copying.Chunk:
        """Read until everything is seen that the stream had."""
        chunk = read()
        while self._delivered_unseen(chunk):
            CLOCK.sleep(0.01)
            chunk = read()
        return chunk

    def _delivered_unseen(self, chunk: copying.Chunk) -> bool:
        """Whether the stream had a transaction that the chunk could not see: it was about to become visible."""
        recent = np.concatenate([*self._recent, np.empty(0, np.int64)])
        if not len(recent):
            return False
        behind = (recent - (chunk.first_missing & 0xFFFFFFFF)) & 0xFFFFFFFF  # numbers of transactions wrap around
        return bool((behind < 1 << 31).any() or np.isin(recent, list(chunk.missing)).any())

    def remember(self, decoded: Decoded) -> None:
        """Remember which transactions the stream had."""
        self._recent.append(decoded.transactions[:, XID])

    def drop(self, topic: str) -> None:
        """Forget the open chunk of a topic, whose snapshot begins again."""
        if self._window is not None and self._window.topic == topic:
            self._window = None

    def close(self, decoded: Decoded, rows: dict[str, list[pa.Table]], position: Position) -> Position:
        """Drop what has changed from the open chunk; if its message is there, put it before the changes."""
        window = self._window
        if window is None:
            return position
        window.rows = without_changed(window.rows, window.table.key, rows.get(window.topic, []))
        if not any(prefix == PREFIX and content == window.mark for prefix, content in decoded.messages):
            return position
        count = window.rows.num_rows
        if count:
            rows.setdefault(window.topic, []).insert(0, window.rows)
        self._window = None
        landed = window.after.rows + (0 if window.vanished else count)
        return position.with_table(window.table.full_name, replace(window.after, rows=landed))
