"""The capture of some tables of a database: one slot, one reader; a snapshot of each table in between.

A snapshot needs no lock and has no gap (the algorithm is DBLog's): the slot exists before it. A chunk of rows is read
by key; then a message is written to the database's log (`pg_logical_emit_message`, no table), and the stream is read
up to that message. Rows that the stream has changed meanwhile are dropped from the chunk, the others are landed with
the changes. A transaction that the chunk could not see, though the stream had it before, is a reason to read the
chunk again.
"""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.base.time import SystemClock
from headrace.connect.capture.errors import SourceReplaced
from headrace.connect.postgres import copying, slots
from headrace.connect.postgres.changes import Decoded, Decoder
from headrace.connect.postgres.errors import SlotAdvanced, SlotLost, SourceTruncated
from headrace.connect.postgres.kernels import XID
from headrace.connect.postgres.position import Position, Progress, lsn_text
from headrace.connect.postgres.rows import changed_rows, copied_rows, without_changed
from headrace.connect.postgres.stream import SlotStream

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    import psycopg

    from headrace.connect.feed import Progress as Reported
    from headrace.connect.feed import SharedLanding
    from headrace.connect.postgres.address import PostgresAddress
    from headrace.connect.postgres.catalogue import CapturedTable

CLOCK = SystemClock()
PREFIX = "headrace"
"""The prefix of the messages that mark the end of a chunk's window."""
LOOK_SECONDS = 0.5
MOST_BYTES = 32 << 20
"""So many bytes of changes are landed at once, and more where one transaction has more."""
CHUNK_ROWS = 50_000
STORE_SECONDS = 10.0
"""An idle database's position is stored, and then confirmed, so often."""
ASK_SECONDS = 1.0
_REMEMBERED = 64
"""The transactions of so many batches are remembered, to find those that a chunk could not see."""


@dataclass(slots=True)
class _Window:
    """A chunk that waits for the message after it."""

    topic: str
    table: CapturedTable
    chunk: copying.Chunk
    mark: bytes
    last: tuple[str, ...] | None


@dataclass(kw_only=True)
class Capture:
    """Captures tables into topics.

    `tables`: by topic. `warn_bytes`: the status warns when the slot holds back more of the server's log.
    """

    address: PostgresAddress
    slot: str
    publication: str
    tables: Mapping[str, CapturedTable]
    chunk_rows: int = CHUNK_ROWS
    warn_bytes: int = 1 << 30
    _recent: deque[Any] = field(default_factory=lambda: deque(maxlen=_REMEMBERED), init=False)
    _window: _Window | None = field(default=None, init=False)
    _asked: float = field(default=0.0, init=False)

    def run(self, landing: SharedLanding, stop: threading.Event) -> None:
        """Land changes until `stop` is set.

        Raises:
            Unavailable: the server does not answer, or another process reads the slot: call it again later.
            SlotLost: changes are gone.
            SlotAdvanced: somebody else has used the slot.
            SourceReplaced: this is another database.

        """
        with self.address.connected() as sql:
            position = self._prepared(sql, landing)
            stream = SlotStream(self.address, slot=self.slot, publication=self.publication, start=position.lsn)
            try:
                self._follow(sql, stream, landing, position, stop)
            finally:
                stream.close()

    def _prepared(self, sql: psycopg.Connection, landing: SharedLanding) -> Position:
        """Check everything, create what is missing, and return the position, which is stored."""
        stored = landing.position()
        position = None if stored is None else Position.of(stored)
        system = slots.check_server(sql)
        if position is not None and position.system != system:
            raise SourceReplaced(
                f"{self.address} is another database cluster than the one that was captured",
                detail="It was initialized anew, or the address leads elsewhere.",
                hint="Correct the address; or capture into new topics, which begin with a snapshot.",
            )
        slots.ensure_publication(sql, self.publication, [(each.schema, each.name) for each in self.tables.values()])
        slot = slots.find_slot(sql, self.slot, position=None if position is None else position.lsn)
        if position is None:
            slot = slot or slots.create_slot(sql, self.slot)
            position = Position(system, slot.confirmed)
            landing.append({}, position=position.to_bytes())
        elif slot is None:
            raise SlotLost(self.slot, position=lsn_text(position.lsn), why="does not exist any more")
        elif slot.confirmed > position.lsn:
            raise SlotAdvanced(self.slot, position=lsn_text(position.lsn), confirmed=lsn_text(slot.confirmed))
        return position

    def _follow(
        self,
        sql: psycopg.Connection,
        stream: SlotStream,
        landing: SharedLanding,
        position: Position,
        stop: threading.Event,
    ) -> None:
        decoder, stored, waited = Decoder(), CLOCK.monotonic(), 0.0
        self._window = None
        self._recent.clear()
        while not stop.is_set():
            if not landing.has_room():
                stream.keep_alive()
                stop.wait(LOOK_SECONDS)
                continue
            if self._window is None:
                self._open_window(sql, landing, position)
            received = stream.read(LOOK_SECONDS, most_bytes=MOST_BYTES)
            decoded = decoder.decode(received.messages)
            self._recent.append(decoded.transactions[:, XID])
            rows, after = self._landed(sql, landing, decoded, position)
            idle = stream.between and not decoded.end
            after = after.at(received.end if idle else decoded.end)
            waited = CLOCK.monotonic() - stored
            if (
                rows
                or after.tables != position.tables
                or (after.lsn > position.lsn and (decoded.end or waited > STORE_SECONDS))
            ):
                landing.append(rows, position=after.to_bytes())
                stream.confirm(after.lsn)
                position, stored = after, CLOCK.monotonic()
                self._report(sql, landing, position, decoded)

    def _landed(
        self, sql: psycopg.Connection, landing: SharedLanding, decoded: Decoded, position: Position
    ) -> tuple[dict[str, pa.Table], Position]:
        """Return the rows to land, and the position with the progress of snapshots."""
        by_oid = {table.oid: (topic, table) for topic, table in self.tables.items()}
        self._refuse_truncated(decoded, by_oid)
        rows: dict[str, list[pa.Table]] = {}
        for changes in decoded.changes:
            if changes.relation.oid in by_oid:
                topic, table = by_oid[changes.relation.oid]
                result = changed_rows(sql, table, changes, decoded, landing.schema(topic))
                rows.setdefault(topic, []).append(result)
        window = self._window
        if window is not None:
            changed = rows.get(window.topic, [])
            remaining = without_changed(window.chunk.rows, window.table, landing.schema(window.topic), changed)
            self._window = window = _Window(
                window.topic, window.table, window.chunk._replace(rows=remaining), window.mark, window.last
            )
            if any(prefix == PREFIX and content == window.mark for prefix, content in decoded.messages):
                position = self._close_window(landing, window, rows, position)
        return {topic: pa.concat_tables(parts) for topic, parts in rows.items()}, position

    def _close_window(
        self, landing: SharedLanding, window: _Window, rows: dict[str, list[pa.Table]], position: Position
    ) -> Position:
        before = position.tables.get(window.table.full_name, Progress())
        whole = landing.schema(window.topic)
        if window.chunk.rows.num_rows:
            rows.setdefault(window.topic, []).insert(0, copied_rows(window.table, window.chunk.rows, whole))
        progress = Progress(
            window.last or before.after, before.rows + window.chunk.rows.num_rows, done=window.last is None
        )
        self._window = None
        return position.with_table(window.table.full_name, progress)

    def _open_window(self, sql: psycopg.Connection, landing: SharedLanding, position: Position) -> None:
        """Read the next chunk of a table whose snapshot is not done, and write the message after it."""
        for topic, table in self.tables.items():
            progress = position.tables.get(table.full_name, Progress())
            if progress.done:
                continue
            wanted = {each.name for each in landing.schema(topic)} | set(table.key)
            columns = [each.name for each in table.columns if each.name in wanted]
            chunk = copying.chunk(sql, table, columns, after=progress.after, limit=self.chunk_rows)
            while self._delivered_unseen(chunk):
                CLOCK.sleep(0.01)
                chunk = copying.chunk(sql, table, columns, after=progress.after, limit=self.chunk_rows)
            full = chunk.rows.num_rows == self.chunk_rows
            last = tuple(chunk.rows.column(name)[-1].as_py() for name in table.key) if full else None
            mark = uuid.uuid4().bytes
            sql.execute("SELECT pg_logical_emit_message(true, %s, %s)", [PREFIX, mark])
            self._window = _Window(topic, table, chunk, mark, last)
            return

    def _delivered_unseen(self, chunk: copying.Chunk) -> bool:
        """Whether the stream had a transaction that the chunk could not see: it was about to become visible."""
        recent = np.concatenate([*self._recent, np.empty(0, np.int64)])
        if not len(recent):
            return False
        behind = (recent - (chunk.first_missing & 0xFFFFFFFF)) & 0xFFFFFFFF  # numbers of transactions wrap around
        return bool((behind < 1 << 31).any() or np.isin(recent, list(chunk.missing)).any())

    def _refuse_truncated(self, decoded: Decoded, by_oid: Mapping[int, tuple[str, CapturedTable]]) -> None:
        for oid in decoded.truncated:
            if oid in by_oid:
                topic, table = by_oid[oid]
                raise SourceTruncated(
                    f"{table.full_name} was truncated",
                    detail=f'The log does not say which rows it had, so the topic "{topic}" still has them.',
                    hint="Capture it into a new topic, which begins with a snapshot; empty captured tables by DELETE.",
                )

    def _report(self, sql: psycopg.Connection, landing: SharedLanding, position: Position, decoded: Decoded) -> None:
        held = slots.held_bytes(sql, self.slot) if not self._asked_lately() else None
        facts: Reported = {"phase": "streaming"}
        for table in self.tables.values():
            progress = position.tables.get(table.full_name, Progress())
            if not progress.done:
                facts = {"phase": "snapshot", "table": table.full_name, "done": progress.rows, "of": table.about_rows}
                break
        if decoded.committed is not None:
            facts["lag_seconds"] = max(0.0, (CLOCK.now() - decoded.committed) / 1e6)
        if held is not None:
            facts["lag_bytes"] = held
            if held > self.warn_bytes:
                facts["warning"] = f'the slot "{self.slot}" holds back {held:,} bytes of the database\'s log'
        landing.report(**facts)

    def _asked_lately(self) -> bool:
        """Whether the server was asked within a second how much the slot holds back; if not, it is asked now."""
        now = CLOCK.monotonic()
        if now - self._asked < ASK_SECONDS:
            return True
        self._asked = now
        return False
