"""The capture of some tables of a SQLite database, by one reader.

A look is one read transaction of the database: of every table the rows whose keys were noted since the last look, as
they are now, and the next chunk of each snapshot. All of it is landed as one append. So what a transaction changed is
read whole, a snapshot has no gap and needs no lock, and a crash repeats at most one look.
"""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.outside import Unavailable
from headrace.connect.capture.columns import captured, check_columns, evolved
from headrace.connect.capture.errors import ChangesLost, NotCapturable
from headrace.connect.capture.known import known_keys
from headrace.connect.sqlite import reading, triggers
from headrace.connect.sqlite.catalogue import described, quoted
from headrace.connect.sqlite.position import Position, TablePosition

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping

    from headrace.connect.feed import Request, SharedLanding
    from headrace.connect.sqlite.catalogue import CapturedTable

LOOK_SECONDS = 0.2
BUSY_SECONDS = 5.0
CHUNK_ROWS = 20_000


@contextmanager
def connected(path: str) -> Iterator[sqlite3.Connection]:
    """Open a database that exists; what it refuses inside is an error of ours.

    Raises:
        Unavailable: it cannot be opened, or is locked for long.
        NotCapturable: it is no database, or damaged.

    """
    try:
        uri = f"{Path(path).as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)) as db:
            yield db
    except sqlite3.Error as error:
        said = str(error)
        if isinstance(error, sqlite3.OperationalError) and "no such" not in said:
            raise Unavailable(f"the database {path} does not answer: {said}") from error
        raise NotCapturable(f"the database {path}: {said}") from error


@dataclass(kw_only=True)
class Capture:
    """Captures tables into topics. `tables`: by topic their names; `reader`: holds the notes of changes."""

    path: str
    reader: str
    tables: Mapping[str, str]
    chunk_rows: int = CHUNK_ROWS
    _before: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False)
    """The columns of each table when the capture began."""
    _counts: dict[str, int] = field(default_factory=dict, init=False)

    def run(self, landing: SharedLanding, stop: threading.Event) -> None:
        """Land changes until `stop` is set.

        Raises:
            Unavailable: the database cannot be opened, or is locked for long: call it again later.
            NotCapturable: there are no triggers.
            ChangesLost: notes are gone.

        """
        seen = None
        with connected(self.path) as db:
            while not stop.is_set():
                now = db.execute("PRAGMA data_version").fetchone()
                position = Position.of(landing.position())
                idle = now == seen and all(
                    name in position.tables and position.tables[name].done for name in self.tables.values()
                )
                if not landing.has_room() or (idle and not landing.requests()):
                    stop.wait(LOOK_SECONDS)
                    continue
                self._look(db, landing, position)
                seen = now

    def _look(self, db: sqlite3.Connection, landing: SharedLanding, position: Position) -> None:
        """Read what is new in all tables at one moment, and land it."""
        requests = {each.topic: each for each in landing.requests()}
        start = after = self._registered(db, position, requests)
        rows: dict[str, pa.Table] = {}
        with _reading(db):
            for topic, name in self.tables.items():
                table, at = described(db, name), start.tables[name]
                lost = _lost(db, table, at, self.reader)
                if lost is not None:
                    raise ChangesLost(name, lost)
                at, rows[topic] = self._read(db, landing, topic, table, at)
                after = after.with_table(name, at)
        if after != position:
            landing.append({topic: each for topic, each in rows.items() if each.num_rows}, position=after.to_bytes())
            triggers.release(db, self.reader, [(name, after.tables[name].seq) for name in self.tables.values()])
        for topic, request in requests.items():
            at = after.tables[self.tables[topic]]
            if at.done and at.request == request.id:
                landing.answered(request)
        self._report(db, landing, after)

    def _registered(self, db: sqlite3.Connection, position: Position, requests: Mapping[str, Request]) -> Position:
        """Return where each table begins: registered, if it is new, or if notes were lost and somebody knows it."""
        for topic, name in self.tables.items():
            table, at, request = described(db, name), position.tables.get(name), requests.get(topic)
            wanted = request is not None and (at is None or at.request != request.id)
            if at is None or (wanted and _lost(db, table, at, self.reader) is not None):
                where, token = triggers.require(db, table), uuid.uuid4().hex
                seq = triggers.register(db, name, self.reader, token)
                at = TablePosition(where, token, seq, columns=())
            if wanted and request is not None:
                at = at.from_start(request=request.id)
            position = position.with_table(name, at)
        return position

    def _read(
        self, db: sqlite3.Connection, landing: SharedLanding, topic: str, table: CapturedTable, at: TablePosition
    ) -> tuple[TablePosition, pa.Table]:
        """Return what is new of a table, and where it ends."""
        schema = self._columns(landing, topic, table)
        columns = tuple(captured(schema))
        if not set(columns) <= set(at.columns):
            at = at.from_start(columns=columns)
        last = triggers.last_number(db, table.name)
        parts = [reading.changed(db, table, schema, after=at.seq, upto=last)]
        at = replace(at, seq=last)
        if not at.done:
            chunk = reading.chunk(db, table, schema, after=at.after, limit=self.chunk_rows)
            parts.append(chunk.rows)
            at = replace(at, after=chunk.after, rows=at.rows + chunk.rows.num_rows, done=chunk.after is None)
            if at.done and at.request is not None:
                known = known_keys(landing.opened(topic), table.key)
                parts.append(reading.vanished(db, table, schema, known))
        return at, pa.concat_tables(parts)

    def _columns(self, landing: SharedLanding, topic: str, table: CapturedTable) -> pa.Schema:
        """Return the topic's columns, with those that the table has got since the capture began."""
        schema = landing.schema(topic)
        before = self._before.setdefault(topic, tuple(table.arrow.names))
        check_columns(table.name, table.arrow.names, schema)
        more = evolved(schema, before, table.arrow)
        if more is None:
            return schema
        landing.evolve(topic, more)
        return landing.schema(topic)

    def _report(self, db: sqlite3.Connection, landing: SharedLanding, position: Position) -> None:
        for name in self.tables.values():
            at = position.tables[name]
            if not at.done:
                if name not in self._counts:
                    self._counts[name] = db.execute(f"SELECT count(*) FROM {quoted(name)}").fetchone()[0]
                landing.report(phase="snapshot", table=name, done=at.rows, of=self._counts[name])
                return
        self._counts.clear()
        landing.report(phase="streaming")


def _lost(db: sqlite3.Connection, table: CapturedTable, at: TablePosition, reader: str) -> str | None:
    """Return why notes that are not landed yet are gone, None if they are there."""
    if triggers.require(db, table) != at.triggers:
        return "its triggers were removed and made again"
    registered = triggers.registration(db, table.name, reader)
    if registered is None or registered.token != at.token:
        return f'another app reads the database as "{reader}" (give each app a reader=… of its own)'
    if triggers.last_number(db, table.name) < at.seq:
        return "the database is an older copy than the one that was captured"
    if registered.seq > at.seq:
        return "the topic is an older copy, and the database has dropped what it lacks"
    return None


@contextmanager
def _reading(db: sqlite3.Connection) -> Iterator[None]:
    """See the database as it is at one moment."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")
