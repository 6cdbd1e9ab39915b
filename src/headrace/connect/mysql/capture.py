"""The capture of some tables of a server: one stream of its log, one reader; a snapshot of each table in between."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.base.time import SystemClock
from headrace.connect.capture.columns import captured, check_columns, evolved
from headrace.connect.capture.errors import ChangesLost, SourceSchemaChanged
from headrace.connect.capture.known import known_keys
from headrace.connect.capture.rows import deleted_rows
from headrace.connect.mysql import server
from headrace.connect.mysql.catalogue import described
from headrace.connect.mysql.changes import Decoded, Decoder
from headrace.connect.mysql.position import Position
from headrace.connect.mysql.reading import log_place
from headrace.connect.mysql.rows import changed_rows
from headrace.connect.mysql.snapshots import Snapshots
from headrace.connect.mysql.stream import LogStream

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection

    import pymysql

    from headrace.connect.capture.cells import Longs
    from headrace.connect.feed import Progress as Reported
    from headrace.connect.feed import SharedLanding
    from headrace.connect.mysql.address import MysqlAddress
    from headrace.connect.mysql.catalogue import CapturedTable
    from headrace.connect.mysql.changes import Changes

CLOCK = SystemClock()
LOOK_SECONDS = 0.5
MOST_BYTES = 8 << 20
"""So many bytes of changes are landed at once, and more where one transaction has more."""
CHUNK_ROWS = 50_000
STORE_SECONDS = 10.0
"""Where only other tables change, the position is stored so often."""
MEASURE_SECONDS = 1.0
_ANEW = "log"
"""The request of a snapshot that the log itself asks for."""
_SERVER_IDS = range(1 << 30, 1 << 31)


@dataclass(kw_only=True)
class Capture:
    """Captures tables into topics. `tables`: by topic."""

    address: MysqlAddress
    tables: dict[str, CapturedTable]
    chunk_rows: int = CHUNK_ROWS
    _before: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False)
    """The columns of each table when the capture began."""
    _measured: float = field(default=-MEASURE_SECONDS, init=False)
    _behind: int | None = field(default=None, init=False)
    _stream: LogStream = field(init=False)

    def __post_init__(self) -> None:
        self._snapshots = Snapshots(tables=self.tables, chunk_rows=self.chunk_rows)
        self._before = {topic: table.names for topic, table in self.tables.items()}

    def run(self, landing: SharedLanding, stop: threading.Event) -> None:
        """Land changes until `stop` is set.

        Raises:
            Unavailable: the server does not answer: call it again later.
            NotCapturable: the server logs less than is needed.
            ChangesLost: the server does not have its log since the position any more.
            SourceSchemaChanged: a table has lost a column of its topic.

        """
        for topic, table in self.tables.items():
            check_columns(table.full_name, table.arrow.names, landing.schema(topic))
        with self.address.connected() as sql:
            server.check_server(sql)
            stored = landing.position()
            position = None if stored is None else Position.of(stored)
            if position is not None:
                there = {table.full_name for table in self.tables.values()}
                position = position.read_anew({*position.tables} - there, why="not captured for a time")
                try:
                    self._run(sql, landing, position, stop)
                except ChangesLost:
                    if {each.topic for each in landing.requests()} < set(self.tables):
                        raise
                else:
                    return
            position = server.current(sql)
            landing.append({}, position=position.to_bytes())
            self._run(sql, landing, position, stop)

    def _run(
        self, sql: pymysql.Connection[Any], landing: SharedLanding, position: Position, stop: threading.Event
    ) -> None:
        server_id = random.choice(_SERVER_IDS)  # noqa: S311 - any that nobody has
        self._stream = LogStream(self.address, gtids=position.gtid_text, server_id=server_id)
        try:
            self._follow(sql, Decoder(self.tables, server.charsets(sql)), landing, position, stop)
        finally:
            self._stream.close()

    def _follow(
        self,
        sql: pymysql.Connection[Any],
        decoder: Decoder,
        landing: SharedLanding,
        position: Position,
        stop: threading.Event,
    ) -> None:
        stored, when = position, CLOCK.monotonic()
        self._snapshots.restart()
        while not stop.is_set():
            if not landing.has_room():
                stop.wait(LOOK_SECONDS)
                continue
            after = self._snapshots.begin(landing, position)
            self._snapshots.open(sql, landing, after, self._stream.place)
            waits = 0.0 if self._snapshots.is_due(self._stream.place) else LOOK_SECONDS
            received = self._stream.read(waits, most_bytes=MOST_BYTES)
            wanted = {
                topic: {*captured(landing.schema(topic)), *table.key, *self._new(topic, table)}
                for topic, table in self.tables.items()
            }
            decoded = decoder.decode(received, wanted)
            rows, after = self._landed(sql, landing, decoded, after)
            after = after.at(decoded.gtids)
            waited = CLOCK.monotonic() - when
            if rows or after.tables != stored.tables or (after.gtids != stored.gtids and waited > STORE_SECONDS):
                landing.append(rows, position=after.to_bytes())
                stored, when = after, CLOCK.monotonic()
            if after != position or CLOCK.monotonic() - self._measured > MEASURE_SECONDS:
                self._report(sql, landing, after, decoded)
            position = after

    def _new(self, topic: str, table: CapturedTable) -> list[str]:
        return [name for name in table.arrow.names if name not in self._before[topic]]

    def _landed(
        self,
        sql: pymysql.Connection[Any],
        landing: SharedLanding,
        decoded: Decoded,
        position: Position,
    ) -> tuple[dict[str, pa.Table], Position]:
        """Return the rows to land, and the position with the progress of snapshots."""
        for changes in decoded.changes:
            self._follow_columns(sql, landing, changes)
        rows: dict[str, list[pa.Table]] = {}
        for changes in decoded.changes:
            schema, table = landing.schema(changes.topic), self.tables[changes.topic]
            rows.setdefault(changes.topic, []).append(changed_rows(table, changes, decoded, schema))
            if not set(captured(schema)) <= set(changes.names):
                position = self._anew(changes.topic, position)
        for topic, parts in rows.items():
            rows[topic] = [_in_order(parts, [each.event for each in decoded.changes if each.topic == topic])]
        events = {
            topic: np.sort(np.concatenate([each.event for each in decoded.changes if each.topic == topic]))
            for topic in rows
        }
        for number, topic in decoded.truncated:
            event = events.get(topic, np.empty(0, np.int64))
            rows[topic] = self._truncated(landing, topic, rows.get(topic, []), event, number)
            self._snapshots.drop(topic)  # a chunk that was read before has rows that are gone
        for _, topic in decoded.untold:
            self._describe_anew(sql, landing, topic, ())
            position = self._anew(topic, position)
        position = self._snapshots.close(self._stream.place, rows, position)
        return {topic: pa.concat_tables(parts) for topic, parts in rows.items()}, position

    def _follow_columns(self, sql: pymysql.Connection[Any], landing: SharedLanding, changes: Changes) -> None:
        """Give the topic a column that the table has got since the capture began.

        Raises:
            SourceSchemaChanged: the table has lost a column of the topic, or has another key.

        """
        topic, table = changes.topic, self.tables[changes.topic]
        if changes.names != table.names:
            self._describe_anew(sql, landing, topic, changes.names)

    def _describe_anew(
        self, sql: pymysql.Connection[Any], landing: SharedLanding, topic: str, had: Collection[str]
    ) -> None:
        """Look at a table again: its key, its columns, and whether the log still has all of its changes.

        `had`: columns that it had in the log.

        Raises:
            SourceSchemaChanged: the table has lost a column of the topic, or has another key.
            NotCapturable: it has got a foreign key that changes rows, or another engine.

        """
        table = self.tables[topic]
        now = described(sql, table.schema, table.name)
        check_columns(table.full_name, {*now.names, *had}, landing.schema(topic))
        if now.key != table.key:
            raise SourceSchemaChanged(
                f"{table.full_name} has another key: {', '.join(now.key)}",
                detail="Nothing after this change was captured; the database keeps it.",
                hint="Capture it into a new topic, which has the new key.",
            )
        self.tables[topic] = now
        more = evolved(landing.schema(topic), self._before[topic], now.arrow)
        if more is not None:
            landing.evolve(topic, more)
            self._snapshots.drop(topic)

    def _anew(self, topic: str, position: Position) -> Position:
        """Let the snapshot of a table begin again, and compare what the topic has with the table."""
        table = self.tables[topic]
        self._snapshots.drop(topic)
        at = position.progress(table)
        return position.with_table(table.full_name, at.from_start(request=at.request or _ANEW))

    def _truncated(
        self, landing: SharedLanding, topic: str, rows: list[pa.Table], event: Longs, truncated: int
    ) -> list[pa.Table]:
        """Return the changes of a table with deletes of all rows that it had where it was truncated."""
        table, schema = self.tables[topic], landing.schema(topic)
        changed = pa.concat_tables([deleted_rows(table.key, schema.empty_table(), schema), *rows])
        # what an earlier statement has put in front of the changes came before this one
        event = np.concatenate([np.full(changed.num_rows - len(event), -1), event])
        before, later = (changed.filter(pa.array(which)) for which in (event < truncated, event > truncated))
        names = list(table.key)
        kept = before.select(names)
        known = pa.concat_tables([known_keys(landing.opened(topic), names).cast(kept.schema), kept])
        gone = known.group_by(names).aggregate([]).select(names)
        return [before, deleted_rows(table.key, gone, schema), later]

    def _report(
        self,
        sql: pymysql.Connection[Any],
        landing: SharedLanding,
        position: Position,
        decoded: Decoded,
    ) -> None:
        facts: Reported = {"phase": "streaming"}
        for table in self.tables.values():
            progress = position.progress(table)
            if not progress.done:
                facts = {"phase": "snapshot", "table": table.full_name, "done": progress.rows, "of": table.about_rows}
                break
        if decoded.committed is not None:
            facts["lag_seconds"] = max(0.0, (CLOCK.now() - decoded.committed) / 1e6)
        if self._stream.place is not None and self._is_due():
            self._behind = server.bytes_behind(sql, self._stream.place, log_place(sql))
        if self._behind is not None:
            facts["lag_bytes"] = self._behind
        landing.report(**facts)

    def _is_due(self) -> bool:
        """Whether it was measured a second ago or longer how far the stream is behind; if so, it is measured now."""
        now = CLOCK.monotonic()
        if now - self._measured < MEASURE_SECONDS:
            return False
        self._measured = now
        return True


def _in_order(parts: list[pa.Table], events: list[Longs]) -> pa.Table:
    """Return changes of a table that was altered in between in the order of the log."""
    if len(parts) == 1:
        return parts[0]
    return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(events), kind="stable")))
