"""Snapshots of tables beside their changes, in chunks, without a lock and without a gap: DBLog's algorithm.

A chunk of rows is read by key; then a message is written to the database's log (`pg_logical_emit_message`, no table),
and the stream is read up to that message. Rows that the stream has changed meanwhile are dropped from the chunk, the
others are landed with the changes. A transaction that the chunk could not see, though the stream had it before, is a
reason to read the chunk again.

The next chunks are read by a connection and a thread of their own while one is landed. What the stream has changed is
counted from the moment at which a chunk was ordered, which is before it is read.

A snapshot that somebody wants anew ends with a chunk of another kind: the keys that the topic has and the table does
not have any more, which are deleted.
"""

from __future__ import annotations

import uuid
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.base.blame import InternalError
from headrace.base.time import SystemClock
from headrace.connect.capture.columns import captured
from headrace.connect.capture.known import known_keys
from headrace.connect.capture.rows import deleted_rows, without_changed
from headrace.connect.postgres import copying
from headrace.connect.postgres.kernels import XID
from headrace.connect.postgres.rows import copied_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt
    import psycopg
    import pyarrow as pa

    from headrace.connect.capture.progress import Progress
    from headrace.connect.feed import Request, SharedLanding
    from headrace.connect.open_topic import OpenTopic
    from headrace.connect.postgres.address import PostgresAddress
    from headrace.connect.postgres.catalogue import CapturedTable
    from headrace.connect.postgres.changes import Decoded
    from headrace.connect.postgres.position import Position

    Longs = npt.NDArray[np.int64]

CLOCK = SystemClock()
PREFIX = "headrace"
"""The prefix of the messages that mark the end of a chunk's window."""
_CHUNK_BYTES = 64 << 20
"""A chunk has so many bytes at most, by what the catalogue says of the table."""
_REMEMBERED = 64
"""The transactions of so many batches are remembered, to find those that a chunk could not see."""


AHEAD = 3
"""So many chunks are ordered at once: one is landed, one waits for its turn, one is read."""


class _Chunk(NamedTuple):
    """Rows of a topic, and where the snapshot is with them; `vanished`: they are deletes of keys the table has not."""

    rows: pa.Table
    after: Progress
    vanished: bool


@dataclass(slots=True, eq=False)
class _Window:
    """A chunk that was ordered, until the stream has the message after it.

    `changed`: the keys that the stream has changed since.
    """

    topic: str
    table: CapturedTable
    mark: bytes
    chunk: Future[_Chunk | None]
    changed: list[pa.Table] = field(default_factory=list)


@dataclass(kw_only=True)
class Snapshots:
    """The snapshots of captured tables, one at a time. `tables`: by topic; the capture keeps them current."""

    address: PostgresAddress
    tables: Mapping[str, CapturedTable]
    chunk_rows: int
    _recent: deque[Any] = field(default_factory=lambda: deque(maxlen=_REMEMBERED), init=False)
    _windows: deque[_Window] = field(default_factory=deque, init=False)
    _thread: ThreadPoolExecutor | None = field(default=None, init=False)
    _sql: psycopg.Connection | None = field(default=None, init=False)
    """Of the thread."""
    _stopped: bool = field(default=False, init=False)

    @property
    def are_read(self) -> bool:
        """Whether a chunk was ordered and is not landed yet."""
        return bool(self._windows)

    def stop(self) -> None:
        """Forget what was read and what the stream had: it begins at the position again."""
        self._end()
        self._recent.clear()

    def _end(self) -> None:
        """End the thread, after the chunk that it reads, and its connection."""
        self.drop()
        if self._thread is not None:
            self._stopped = True
            self._thread.shutdown(cancel_futures=True)
            self._thread, self._stopped = None, False
        if self._sql is not None:
            self._sql.close()
            self._sql = None

    def begin(self, landing: SharedLanding, position: Position) -> Position:
        """Return the position with snapshots that begin: those that somebody wants, and where a topic has new columns.

        So they do where the table is another one of the same name: it was dropped and created again, or renamed; and
        where the type of a column was changed, which may have changed its values.

        It also answers the requests whose snapshots are landed.
        """
        requests: dict[str, Request] = {each.topic: each for each in landing.requests()}
        for topic, table in self.tables.items():
            at, request = position.progress(table), requests.get(topic)
            if not position.is_of(table):
                at = at.from_start(request=f"table {table.oid}")
            position = position.with_identity(table)
            if request is not None and at.request == request.id and at.done:
                landing.answered(request)
            elif request is not None and at.request != request.id:
                at = at.from_start(request=request.id)
            columns = tuple(captured(landing.schema(topic)))
            if not set(columns) <= set(at.columns):
                at = at.from_start(columns=columns)
            if at != position.progress(table):
                position = position.with_table(table.full_name, at)
                self.drop()
        return position

    def open(self, landing: SharedLanding, position: Position) -> None:
        """Order the next chunks of a snapshot, as far as they may be read ahead.

        Raises:
            psycopg.Error: the server refused one that was ordered before, or does not answer.

        """
        first = self._windows[0] if self._windows else None
        if first is not None and first.chunk.done():
            first.chunk.result()
        while len(self._windows) < AHEAD:
            before = self._windows[-1] if self._windows else None
            topic = before.topic if before else self._next_topic(position)
            if topic is None:
                self._end()
                return
            at = position.progress(self.tables[topic])
            if before is not None and at.compares:
                return
            self._order(landing, topic, at, before)

    def _next_topic(self, position: Position) -> str | None:
        return next((topic for topic, table in self.tables.items() if not position.progress(table).done), None)

    def _order(self, landing: SharedLanding, topic: str, at: Progress, before: _Window | None) -> None:
        """Let the thread read a chunk behind another one that was ordered, or else where the snapshot is."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="headrace-snapshot")
        table, schema, mark = self.tables[topic], landing.schema(topic), uuid.uuid4().bytes
        delivered = np.concatenate([*self._recent, np.empty(0, np.int64)])

        def read() -> _Chunk | None:
            sql = self._sql = self._sql or self.address.open()
            since = at
            if before is not None:
                earlier = before.chunk.result()
                if earlier is None or earlier.after.compares or earlier.after.done:
                    return None
                since = earlier.after
            if since.compares:
                chunk = self._vanished(sql, landing.opened(topic), table, since, delivered)
            else:
                chunk = self._rows(sql, schema, table, since, delivered)
            sql.execute("SELECT pg_logical_emit_message(true, %s, %s)", [PREFIX, mark])
            return chunk

        self._windows.append(_Window(topic, table, mark, self._thread.submit(read)))

    def _rows(
        self, sql: psycopg.Connection, schema: pa.Schema, table: CapturedTable, at: Progress, delivered: Longs
    ) -> _Chunk:
        """Return the next rows of a table."""
        limit = min(self.chunk_rows, max(_CHUNK_BYTES // table.row_bytes, 1))
        chunk = self._seen(delivered, lambda: copying.chunk(sql, table, schema, after=at.after, limit=limit))
        rows = copied_rows(table, chunk.rows, schema)
        if chunk.rows.num_rows == limit:
            return _Chunk(rows, replace(at, after=copying.last_key(table, chunk)), vanished=False)
        anew = at.request is not None
        return _Chunk(rows, replace(at, compares=anew, done=not anew), vanished=False)

    def _vanished(
        self, sql: psycopg.Connection, topic: OpenTopic, table: CapturedTable, at: Progress, delivered: Longs
    ) -> _Chunk:
        """Return deletes of the keys that the topic has and the table does not have."""
        known = known_keys(topic, table.key)
        absent = self._seen(delivered, lambda: copying.absent(sql, table, known))
        rows = deleted_rows(table.key, absent.rows, topic.schema)
        return _Chunk(rows, replace(at, compares=False, done=True), vanished=True)

    def _seen(self, delivered: Longs, read: Callable[[], copying.Chunk]) -> copying.Chunk:
        """Read until everything is seen that the stream had."""
        chunk = read()
        while _has_unseen(chunk, delivered) and not self._stopped:
            CLOCK.sleep(0.01)
            chunk = read()
        return chunk

    def remember(self, decoded: Decoded) -> None:
        """Remember which transactions the stream had."""
        self._recent.append(decoded.transactions[:, XID])

    def drop(self) -> None:
        """Forget the chunks that are not landed: a snapshot begins again."""
        for window in self._windows:
            window.chunk.cancel()
        self._windows.clear()

    def close(self, decoded: Decoded, rows: dict[str, list[pa.Table]], position: Position) -> Position:
        """Note what has changed since chunks were ordered; put those whose message is there before the changes."""
        for window in self._windows:
            window.changed += [each.select(list(window.table.key)) for each in rows.get(window.topic, [])]
        marks = {content for prefix, content in decoded.messages if prefix == PREFIX}
        while self._windows and self._windows[0].mark in marks:
            position = self._landed(self._windows.popleft(), rows, position)
        return position

    def _landed(self, window: _Window, rows: dict[str, list[pa.Table]], position: Position) -> Position:
        chunk = window.chunk.result()
        if chunk is None:
            raise InternalError("a chunk that was not read has a message")
        left = without_changed(chunk.rows, window.table.key, window.changed)
        if left.num_rows:
            rows.setdefault(window.topic, []).insert(0, left)
        if chunk.after.done or chunk.after.compares:
            self.drop()  # what was ordered behind it is nothing
        landed = position.progress(window.table).rows + (0 if chunk.vanished else left.num_rows)
        return position.with_table(window.table.full_name, replace(chunk.after, rows=landed))


def _has_unseen(chunk: copying.Chunk, delivered: Longs) -> bool:
    """Whether the stream had a transaction that the chunk could not see: it was about to become visible."""
    if not len(delivered):
        return False
    behind = (delivered - (chunk.first_missing & 0xFFFFFFFF)) & 0xFFFFFFFF  # numbers of transactions wrap around
    return bool((behind < 1 << 31).any() or np.isin(delivered, list(chunk.missing)).any())
