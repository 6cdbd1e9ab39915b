"""The capture of some tables of a database: one slot, one reader; a snapshot of each table in between (`snapshots`)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.base.outside import Unavailable
from headrace.base.time import SystemClock
from headrace.connect.capture.columns import captured, check_columns, evolved
from headrace.connect.capture.errors import SNAPSHOT, SourceReplaced, SourceSchemaChanged
from headrace.connect.capture.known import known_keys
from headrace.connect.capture.rows import deleted_rows
from headrace.connect.postgres import slots
from headrace.connect.postgres.catalogue import described
from headrace.connect.postgres.changes import Decoder
from headrace.connect.postgres.errors import SlotAdvanced, SlotLost
from headrace.connect.postgres.position import Position, lsn_text
from headrace.connect.postgres.rows import changed_rows
from headrace.connect.postgres.snapshots import Snapshots
from headrace.connect.postgres.stream import SlotStream

if TYPE_CHECKING:
    import threading

    import psycopg

    from headrace.connect.feed import Progress as Reported
    from headrace.connect.feed import SharedLanding
    from headrace.connect.postgres.address import PostgresAddress
    from headrace.connect.postgres.catalogue import CapturedTable
    from headrace.connect.postgres.changes import Changes, Decoded, Longs

CLOCK = SystemClock()
LOOK_SECONDS = 0.5
MOST_BYTES = 32 << 20
"""So many bytes of changes are landed at once, and more where one transaction has more."""
LONGEST_GATHER_SECONDS = 0.05
"""Transactions are gathered for as long as it took to land the last ones, and for no longer than this."""
CHUNK_ROWS = 100_000
_CHUNK_SECONDS = 0.2
"""For so long they are gathered while a chunk is read: what ends it comes, and landing less would take its time."""
STORE_SECONDS = 10.0
"""An idle database's position is stored, and then confirmed, so often."""
ASK_SECONDS = 1.0
_TABLES = """
    SELECT w.schema, w.name, c.oid, (SELECT jsonb_object_agg(a.attname, format_type(a.atttypid, a.atttypmod))
        FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
    FROM unnest(%s::text[], %s::text[]) AS w(schema, name)
    JOIN pg_namespace n ON n.nspname = w.schema JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
"""


@dataclass(kw_only=True)
class Capture:
    """Captures tables into topics.

    `tables`: by topic. `warn_bytes`: the status warns when the slot holds back more of the server's log.
    """

    address: PostgresAddress
    slot: str
    publication: str
    tables: dict[str, CapturedTable]
    chunk_rows: int = CHUNK_ROWS
    warn_bytes: int = 1 << 30
    _snapshots: Snapshots = field(init=False)
    _before: dict[str, tuple[str, ...]] = field(init=False)
    """The columns of each table when the capture began."""
    _measured: float = field(default=0.0, init=False)
    _missing: list[str] = field(default_factory=list, init=False)
    """The tables that were not there when they were last looked for."""

    def __post_init__(self) -> None:
        self._snapshots = Snapshots(address=self.address, tables=self.tables, chunk_rows=self.chunk_rows)
        self._before = {topic: table.columns_sent for topic, table in self.tables.items()}

    def run(self, landing: SharedLanding, stop: threading.Event) -> None:
        """Land changes until `stop` is set.

        Raises:
            Unavailable: the server does not answer, or another process reads the slot: call it again later.
            SlotLost: changes are gone.
            SlotAdvanced: somebody else has used the slot.
            SourceReplaced: this is another database.

        """
        for topic, table in self.tables.items():
            check_columns(table.full_name, table.columns_sent, landing.schema(topic))
        with self.address.connected() as sql:
            position = self._prepared(sql, landing)
            stream = SlotStream(self.address, slot=self.slot, publication=self.publication, start=position.lsn)
            try:
                self._follow(sql, stream, landing, position, stop)
            finally:
                stream.close()
                self._snapshots.stop()

    def _prepared(self, sql: psycopg.Connection, landing: SharedLanding) -> Position:
        """Check everything, create what is missing, and return the position, which is stored.

        Where changes are lost, and all tables are to be read anew, it begins with a new slot.
        """
        stored, system = landing.position(), slots.check_server(sql)
        position = None if stored is None else Position.of(stored)
        names = [(each.schema, each.name) for each in self.tables.values()]
        added = slots.ensure_publication(sql, self.publication, names)
        try:
            found = self._slot(sql, position, system)
        except (SlotLost, SlotAdvanced, SourceReplaced):
            if {each.topic for each in landing.requests()} < set(self.tables):
                raise
            slots.drop_slot(sql, self.slot)
            position, found = None, None
        if position is None:
            found = found or slots.create_slot(sql, self.slot)
            position = Position(system, found.confirmed)
            landing.append({}, position=position.to_bytes())
        there = {table.full_name for table in self.tables.values()}
        position = position.read_anew({*position.tables} - there, why="not captured for a time")
        return position.read_anew({f"{schema}.{name}" for schema, name in added}, why="not published for a time")

    def _slot(self, sql: psycopg.Connection, position: Position | None, system: str) -> slots.Slot | None:
        """Return the slot, which has everything since the position; None if both are missing."""
        if position is not None and position.system != system:
            raise SourceReplaced(
                f"{self.address} is another database cluster than the one that was captured",
                detail="It was initialized anew, or the address leads elsewhere.",
                hint=f"Correct the address; or {SNAPSHOT}, with all topics of the slot, reads its rows anew.",
            )
        slot = slots.find_slot(sql, self.slot, position=None if position is None else position.lsn)
        if position is not None and slot is None:
            raise SlotLost(self.slot, position=lsn_text(position.lsn), why="does not exist any more")
        if position is not None and slot is not None and slot.confirmed > position.lsn:
            raise SlotAdvanced(self.slot, position=lsn_text(position.lsn), confirmed=lsn_text(slot.confirmed))
        if position is not None and (end := slots.log_end(sql)) < position.lsn:
            # it would pass over all that it writes up to the position
            why = f"is of an older copy of the server, whose log ends at {lsn_text(end)}"
            raise SlotLost(self.slot, position=lsn_text(end), why=why)
        return slot

    def _follow(
        self,
        sql: psycopg.Connection,
        stream: SlotStream,
        landing: SharedLanding,
        position: Position,
        stop: threading.Event,
    ) -> None:
        decoder, stored, landing_seconds = Decoder(), CLOCK.monotonic(), 0.0
        looked = stored
        while not stop.is_set():
            if CLOCK.monotonic() - looked > ASK_SECONDS:
                if self._find_tables(sql):
                    self._report(sql, landing, position, None)
                looked = CLOCK.monotonic()
            if not landing.has_room():
                stream.keep_alive()
                stop.wait(LOOK_SECONDS)
                continue
            after = self._snapshots.begin(landing, position)
            self._snapshots.open(landing, after)
            gather = _CHUNK_SECONDS if self._snapshots.are_read else min(landing_seconds, LONGEST_GATHER_SECONDS)
            received = stream.read(LOOK_SECONDS, most_bytes=MOST_BYTES, gather=gather)
            began = CLOCK.monotonic()
            decoded = decoder.decode(received.messages, {each.oid: each.key for each in self.tables.values()})
            self._snapshots.remember(decoded)
            rows, after = self._landed(sql, landing, decoded, after)
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
                landing_seconds = CLOCK.monotonic() - began
                self._report(sql, landing, position, decoded.committed)

    def _landed(
        self, sql: psycopg.Connection, landing: SharedLanding, decoded: Decoded, position: Position
    ) -> tuple[dict[str, pa.Table], Position]:
        """Return the rows to land, and the position with the progress of snapshots."""
        by_oid = {table.oid: topic for topic, table in self.tables.items()}
        mine = [(by_oid[each.relation.oid], each) for each in decoded.changes if each.relation.oid in by_oid]
        for topic, changes in mine:
            self._follow_columns(sql, landing, topic, changes)
        rows: dict[str, list[pa.Table]] = {}
        for topic, changes in mine:
            schema = landing.schema(topic)
            rows.setdefault(topic, []).append(changed_rows(sql, self.tables[topic], changes, decoded, schema))
            if not set(captured(schema)) <= set(changes.relation.columns):
                position = self._from_start(topic, position)
        for number, oid in decoded.truncated:
            if oid in by_oid:
                topic = by_oid[oid]
                numbers = [changes.message for each, changes in mine if each == topic]
                rows[topic] = self._truncated(landing, topic, rows.get(topic, []), numbers, number)
                self._snapshots.drop()  # a chunk that was read before has rows that are gone
        position = self._snapshots.close(decoded, rows, position)
        return {topic: pa.concat_tables(parts) for topic, parts in rows.items()}, position

    def _follow_columns(self, sql: psycopg.Connection, landing: SharedLanding, topic: str, changes: Changes) -> None:
        """Give the topic a column that the table has got since the capture began.

        Raises:
            SourceSchemaChanged: the table has lost a column of the topic, or has another key.

        """
        table, key = self.tables[topic], changes.relation.key_names
        if changes.relation.columns == table.columns_sent and (table.whole_before or not key or key == {*table.key}):
            return
        now = described(sql, table.schema, table.name)
        _check_same(table, now.oid)
        if now.key != table.key:
            raise SourceSchemaChanged(
                f"{table.full_name} has another key: {', '.join(now.key)}",
                detail="Nothing after this change was captured; the database keeps it.",
                hint="Capture it into a new topic, which has the new key.",
            )
        table = self.tables[topic] = now
        check_columns(table.full_name, {*table.columns_sent, *changes.relation.columns}, landing.schema(topic))
        more = evolved(landing.schema(topic), self._before[topic], table.arrow)
        if more is not None:
            landing.evolve(topic, more)
            self._snapshots.drop()

    def _find_tables(self, sql: psycopg.Connection) -> bool:
        """Return whether other tables are missing than before.

        Where a table was replaced by another one of its name, it begins again, with another snapshot. Types of columns
        that were changed are those of the table from here on: it is read anew.
        """
        by_name = {(table.schema, table.name): topic for topic, table in self.tables.items()}
        schemas, names = zip(*by_name, strict=True)
        found = set()
        for schema, name, oid, types in sql.execute(_TABLES, [list(schemas), list(names)]).fetchall():
            found.add((schema, name))
            topic = by_name[schema, name]
            table = self.tables[topic]
            _check_same(table, oid)
            if any(types.get(column, kind) != kind for column, kind in table.types.items()):
                now = described(sql, schema, name)
                columns = tuple(now.column(each.name) or each for each in table.columns)
                self.tables[topic] = replace(table, columns=columns)
        missing = [self.tables[topic].full_name for name, topic in by_name.items() if name not in found]
        before, self._missing = self._missing, missing
        return missing != before

    def _from_start(self, topic: str, position: Position) -> Position:
        """Let the snapshot of a table begin again."""
        table = self.tables[topic]
        self._snapshots.drop()
        return position.with_table(table.full_name, position.progress(table).from_start())

    def _truncated(
        self, landing: SharedLanding, topic: str, rows: list[pa.Table], numbers: list[Longs], truncated: int
    ) -> list[pa.Table]:
        """Return the changes of a table with deletes of all rows that it had where it was truncated."""
        table, schema = self.tables[topic], landing.schema(topic)
        changed = pa.concat_tables([deleted_rows(table.key, schema.empty_table(), schema), *rows])
        number = np.concatenate([*numbers, np.empty(0, np.int64)])
        # what an earlier TRUNCATE has put in front of the changes came before this one
        number = np.concatenate([np.full(changed.num_rows - len(number), -1), number])
        before, later = (changed.filter(pa.array(which)) for which in (number < truncated, number > truncated))
        names = list(table.key)
        kept = before.select(names)
        known = pa.concat_tables([known_keys(landing.opened(topic), names).cast(kept.schema), kept])
        gone = known.group_by(names).aggregate([]).select(names)
        return [before, deleted_rows(table.key, gone, schema), later]

    def _report(
        self, sql: psycopg.Connection, landing: SharedLanding, position: Position, committed: int | None
    ) -> None:
        held = slots.held_bytes(sql, self.slot) if not self._measured_lately() else None
        facts: Reported = {"phase": "streaming"}
        for table in self.tables.values():
            progress = position.progress(table)
            if not progress.done:
                facts = {"phase": "snapshot", "table": table.full_name, "done": progress.rows, "of": table.about_rows}
                break
        if committed is not None:
            facts["lag_seconds"] = max(0.0, (CLOCK.now() - committed) / 1e6)
        warnings = [f"{name} was dropped: its topic keeps the rows that it had" for name in self._missing]
        if held is not None:
            facts["lag_bytes"] = held
            if held > self.warn_bytes:
                warnings.append(f'the slot "{self.slot}" holds back {held:,} bytes of the database\'s log')
        if warnings:
            facts["warning"] = "; ".join(warnings)
        landing.report(**facts)

    def _measured_lately(self) -> bool:
        """Whether it was measured within a second how much the slot holds back; if not, it is measured now."""
        now = CLOCK.monotonic()
        if now - self._measured < ASK_SECONDS:
            return True
        self._measured = now
        return False


def _check_same(table: CapturedTable, oid: int) -> None:
    """Begin again where the table of a name is another one: then it is read anew.

    Raises:
        Unavailable: it is.

    """
    if oid != table.oid:
        raise Unavailable(f"{table.full_name} was dropped and created again, or renamed: it is read anew")
