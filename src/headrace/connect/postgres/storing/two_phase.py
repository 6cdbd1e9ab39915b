"""An epoch that becomes visible in several databases at once: PREPARE TRANSACTION in each, then COMMIT PREPARED.

The databases have an order. The first one decides: an epoch whose transaction is committed there is committed in the
others too; until then whoever recovers rolls back, in the first one first. So two processes never decide apart. No
decision is kept elsewhere: the epoch's rows are staged before it is published, and what was rolled back is published
again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from psycopg import sql as words

from headrace.base.blame import HeadraceError
from headrace.base.errors import InvalidPlan
from headrace.base.outside import Unavailable
from headrace.connect.postgres.storing.declared import PostgresTable
from headrace.connect.postgres.storing.writer import PostgresWriter
from headrace.connect.sink import SharedWriter
from headrace.connect.store import StoreDiffers, WriterFenced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.base.time import Clock
    from headrace.connect.sink import Sink

_IN_DOUBT = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, %s)"
_ALLOWED = "SELECT current_setting('max_prepared_transactions')::int"


def two_phase(*sinks: PostgresTable) -> tuple[TwoPhaseTable, ...]:
    """Return sinks for tables of several databases, in which an epoch becomes visible at once.

    `a, b = two_phase(postgres.upsert(first, "orders"), postgres.upsert(second, "totals"))`, then `orders.to(a)` and
    `totals.to(b)`. Each database needs `max_prepared_transactions` above 0. Readers of both may see the first one's
    epoch for the moment between two COMMIT PREPARED.

    Trap: an app that is stopped in between for good leaves a prepared transaction, with its locks, in a database.
    The next start resolves it; else `SELECT gid FROM pg_prepared_xacts` and `ROLLBACK PREPARED`.

    Raises:
        InvalidPlan: there are not two databases, or a sink is none of `postgres.upsert`.

    """
    if not all(isinstance(each, PostgresTable) for each in sinks) or len({str(each.address) for each in sinks}) < 2:  # noqa: PLR2004
        raise InvalidPlan(
            "two_phase takes tables of two databases or more",
            hint="Tables of one database change together without it: postgres.upsert(url, …) for each.",
        )
    group = ", ".join(sorted({str(each.address) for each in sinks}))
    return tuple(
        TwoPhaseTable(group=group, **{field.name: getattr(each, field.name) for field in fields(PostgresTable)})
        for each in sinks
    )


@dataclass(frozen=True, kw_only=True)
class TwoPhaseTable(PostgresTable):
    """A table that changes together with tables of other databases."""

    group: str

    @property
    def writer_group(self) -> str:
        """All its databases."""
        return f"two-phase: {self.group}"

    def prepare(self, *, clock: Clock) -> None:
        """Create the table or check it, and check that the database takes prepared transactions.

        Raises:
            StoreDiffers: it cannot store the rows, or takes no prepared transactions.
            Unavailable: the server does not answer.

        """
        super().prepare(clock=clock)
        with self.address.connected() as sql:
            allowed = sql.execute(_ALLOWED).fetchone()
        if allowed is None or not allowed[0]:
            raise StoreDiffers(
                f"{self.address} takes no prepared transactions",
                detail="max_prepared_transactions is 0.",
                hint="ALTER SYSTEM SET max_prepared_transactions = 20, and restart the server.",
            )

    def open_together(self, sinks: Mapping[str, Sink], *, writer: str, clock: Clock) -> SharedWriter:
        """Return the writer of all tables of the databases; what was in doubt is resolved.

        Raises:
            Unavailable: a server does not answer.

        """
        del clock
        tables = {name: sink for name, sink in sinks.items() if isinstance(sink, TwoPhaseTable)}
        by_address = {str(sink.address): sink.address for sink in tables.values()}
        parts = [
            Part(
                address,
                {name: sink.stored for name, sink in tables.items() if str(sink.address) == place},
                writer,
                fault=self.fault,
            )
            for place, address in sorted(by_address.items())
        ]
        return TwoPhaseWriter(parts, self.fault)


class _Doubt(NamedTuple):
    gid: str
    generation: int
    epoch: int


class Part(PostgresWriter):
    """One of the databases."""

    generation: int = -1

    @property
    def staging(self) -> str | None:
        """The schema of the staging table: a temporary one cannot be used in a prepared transaction."""
        return "headrace"

    @property
    def prefix(self) -> str:
        """The beginning of the names of its transactions: unique on a server, which may have both databases."""
        return f"headrace:{hashlib.sha256(f'{self.writer} {self.address}'.encode()).hexdigest()[:24]}:"

    def mark(self) -> int:
        """Return the epoch that is committed here, -1 for none."""
        with self.connected(-1) as sql:
            return self.mark_of(sql)

    def in_doubt(self) -> list[_Doubt]:
        """Return the transactions that are prepared, by this writer or by older ones."""
        with self.connected(-1) as sql:
            found = sql.execute(_IN_DOUBT, [self.prefix]).fetchall()
        parsed = [_Doubt(gid, *map(int, gid.removeprefix(self.prefix).split(":"))) for (gid,) in found]
        return [each for each in parsed if self.generation < 0 or each.generation <= self.generation]

    def prepare(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        """Write an epoch and prepare its transaction; nothing where it is committed already."""
        with self.connected(epoch) as sql:
            sql.execute("BEGIN")
            if self.take(sql) >= epoch:
                sql.execute("ROLLBACK")
                return
            self.write(sql, epoch, rows)
            self.set_mark(sql, epoch)
            sql.execute(_named("PREPARE TRANSACTION {}", f"{self.prefix}{self.generation}:{epoch}"))

    def end(self, doubt: _Doubt, how: str) -> bool:
        """Commit or roll back a prepared transaction; return whether it was there."""
        with self.connected(doubt.epoch) as sql:
            try:
                sql.execute(_named(f"{how} PREPARED {{}}", doubt.gid))
            except psycopg.errors.UndefinedObject:
                return False
        return True


class TwoPhaseWriter(SharedWriter):
    """Writes epochs to several databases; the first of `parts` decides."""

    def __init__(self, parts: Sequence[Part], fault: Callable[[str], None]) -> None:
        self.parts, self.fault = parts, fault
        self.resolve()
        for part in parts:
            try:
                part.take_over()
            except (Unavailable, psycopg.errors.LockNotAvailable):
                self.resolve()  # an older process has prepared meanwhile
                part.take_over()
        self.resolve()
        for part in parts:
            part.last = part.mark()
        self.unfinished = False

    def last_epoch(self) -> int | None:
        """Return the last epoch that all databases have."""
        return min(part.last for part in self.parts)

    def check_published(self, epochs: Mapping[str, int]) -> None:
        """Check that no table to which rows were written had to be created anew; it raises `OutputLost`."""
        for part in self.parts:
            part.check_published({name: epoch for name, epoch in epochs.items() if name in part.tables})

    def publish(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        """Prepare an epoch in each database, then commit it in each.

        Raises:
            Unavailable: a server does not answer; what is in doubt is resolved by the next call.
            WriterFenced: a newer writer has taken over.
            StoreRefused: a server refuses a row: then it is in no database.

        """
        if self.unfinished:
            self.resolve()
        self.unfinished = True
        self.fault("before_prepare")
        try:
            for part in self.parts:
                part.prepare(epoch, {name: batches for name, batches in rows.items() if name in part.tables})
                self.fault("after_prepare")
        except HeadraceError:
            self.resolve()
            raise
        for part in self.parts:
            self._commit(part, epoch)
            self.fault("after_commit")
        self.unfinished = False

    def _commit(self, part: Part, epoch: int) -> None:
        found = [each for each in part.in_doubt() if each.epoch == epoch and each.generation == part.generation]
        ended = any(part.end(each, "COMMIT") for each in found)
        part.last = part.mark()
        if not ended and part.last < epoch:
            raise WriterFenced(str(part.address))

    def resolve(self) -> None:
        """End what is prepared: as the first database has decided, or by a rollback there first."""
        doubts = [part.in_doubt() for part in self.parts]
        for epoch in sorted({each.epoch for found in doubts for each in found}):
            first = self.parts[0]
            for doubt in doubts[0]:
                if doubt.epoch == epoch:
                    first.end(doubt, "ROLLBACK")
                    self.fault("after_rollback")
            how = "COMMIT" if first.mark() >= epoch else "ROLLBACK"
            for part, found in zip(self.parts[1:], doubts[1:], strict=True):
                for doubt in found:
                    if doubt.epoch == epoch:
                        part.end(doubt, how)
                        self.fault("after_resolving")

    def close(self) -> None:
        """Close the connections."""
        for part in self.parts:
            part.close()


def _named(statement: str, gid: str) -> words.Composed:
    return words.SQL(statement).format(words.Literal(gid))
