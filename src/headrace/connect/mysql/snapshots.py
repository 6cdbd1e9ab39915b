"""Snapshots of tables beside their changes, in chunks, without a lock and without a gap.

A chunk of rows is read by key at one moment, for which the server names the place in its log. It is landed where the
stream reaches that place: before it, the rows are newer than the changes; after it, the changes are newer. Rows that
the stream has changed since the chunk was read are dropped from it. A chunk of a moment before the stream's place
(which the stream may have reached before its last transaction became visible) is read again.

A snapshot that is taken anew ends with a chunk of another kind: the keys that the topic has and the table does not have
any more, which are deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.base.time import SystemClock
from headrace.connect.capture.columns import captured
from headrace.connect.capture.known import known_keys
from headrace.connect.capture.rows import deleted_rows, without_changed
from headrace.connect.mysql import reading
from headrace.connect.mysql.rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    import pymysql

    from headrace.connect.capture.progress import Progress
    from headrace.connect.feed import Request, SharedLanding
    from headrace.connect.mysql.catalogue import CapturedTable
    from headrace.connect.mysql.position import LogPlace, Position

CLOCK = SystemClock()


@dataclass(slots=True)
class _Window:
    """A chunk, as rows of its topic, that waits for the stream to reach its place; `after`: the snapshot with it."""

    topic: str
    table: CapturedTable
    rows: pa.Table
    place: LogPlace
    after: Progress
    vanished: bool


@dataclass(kw_only=True)
class Snapshots:
    """The snapshots of captured tables, one chunk at a time. `tables`: by topic; the capture keeps them current."""

    tables: Mapping[str, CapturedTable]
    chunk_rows: int
    _window: _Window | None = field(default=None, init=False)

    def restart(self) -> None:
        """Forget what a connection that has ended had read: the stream begins at the position again."""
        self._window = None

    def begin(self, landing: SharedLanding, position: Position) -> Position:
        """Return the position with snapshots that begin: those that somebody wants, and where a topic has new columns.

        It also answers the requests whose snapshots are landed.
        """
        requests: dict[str, Request] = {each.topic: each for each in landing.requests()}
        for topic, table in self.tables.items():
            before = at = position.progress(table)
            request = requests.get(topic)
            if request is not None and at.request == request.id and at.done:
                landing.answered(request)
            elif request is not None and at.request != request.id:
                at = at.from_start(request=request.id)
            columns = tuple(captured(landing.schema(topic)))
            if not set(columns) <= set(at.columns):
                at = at.from_start(columns=columns)
            if at != before:
                position = position.with_table(table.full_name, at)
                self.drop(topic)
        return position

    def open(
        self, sql: pymysql.Connection[Any], landing: SharedLanding, position: Position, reached: LogPlace | None
    ) -> None:
        """Read the next chunk of a snapshot, if none is open, and it is known what the stream has `reached`."""
        if self._window is not None or reached is None:
            return
        for topic, table in self.tables.items():
            at = position.progress(table)
            if at.done:
                continue
            schema = landing.schema(topic)
            if at.compares:
                known = known_keys(landing.opened(topic), table.key)
                chunk = _since(reached, lambda: reading.absent(sql, table, known))  # noqa: B023 - called at once
                rows, after = deleted_rows(table.key, chunk.rows, schema), replace(at, compares=False, done=True)
            else:
                wanted = {*captured(schema), *table.key}
                columns = [name for name in table.names if name in wanted]
                chunk = _since(
                    reached,
                    lambda: reading.chunk(sql, table, columns, after=at.after, limit=self.chunk_rows),  # noqa: B023
                )
                rows, anew = read_rows(table, chunk.rows, schema), at.request is not None
                after = replace(at, after=chunk.last) if chunk.last else replace(at, compares=anew, done=not anew)
            self._window = _Window(topic, table, rows, chunk.place, after, vanished=at.compares)
            return

    def drop(self, topic: str) -> None:
        """Forget the open chunk of a topic, whose snapshot begins again."""
        if self._window is not None and self._window.topic == topic:
            self._window = None

    def is_due(self, reached: LogPlace | None) -> bool:
        """Whether the open chunk can be landed now."""
        return self._window is not None and reached is not None and reached >= self._window.place

    def close(self, reached: LogPlace | None, rows: dict[str, list[pa.Table]], position: Position) -> Position:
        """Drop what has changed from the open chunk; if the stream has reached its place, put it before the changes."""
        window = self._window
        if window is None:
            return position
        window.rows = without_changed(window.rows, window.table.key, rows.get(window.topic, []))
        if not self.is_due(reached):
            return position
        count = window.rows.num_rows
        if count:
            rows.setdefault(window.topic, []).insert(0, window.rows)
        self._window = None
        landed = window.after.rows + (0 if window.vanished else count)
        return position.with_table(window.table.full_name, replace(window.after, rows=landed))


def _since(reached: LogPlace, read: Callable[[], reading.Chunk]) -> reading.Chunk:
    """Read until everything is seen that the stream had."""
    chunk = read()
    while chunk.place < reached:
        CLOCK.sleep(0.01)
        chunk = read()
    return chunk
