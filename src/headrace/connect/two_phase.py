"""An epoch that becomes visible in several databases at once: each prepares its transaction, then each commits it.

A database takes part with a `Branch`: PostgreSQL by PREPARE TRANSACTION, MariaDB by XA PREPARE. The databases have an
order, and the first one decides: an epoch whose transaction is committed there is committed in the others too; until
then whoever recovers rolls back, in the first one first. So two processes never decide apart. No decision is kept
elsewhere: the epoch's rows are staged before it is published, and what was rolled back is published again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, cast, runtime_checkable

from headrace.base.blame import HeadraceError
from headrace.base.errors import InvalidPlan
from headrace.base.outside import Unavailable
from headrace.connect.sink import SharedSink, SharedWriter
from headrace.connect.store import WriterFenced, no_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.base.time import Clock
    from headrace.connect.sink import Difference, Form, Guarantee, Sink


class Doubt(NamedTuple):
    """A transaction that is prepared, and neither committed nor rolled back."""

    name: str
    generation: int
    epoch: int


class Branch(Protocol):
    """One of the databases: it writes an epoch to tables in a transaction that survives what began it.

    `generation`: how often a writer of this name was opened, -1 before `take_over`. `last`: the last epoch that is
    committed here.
    """

    generation: int
    last: int

    @property
    def place(self) -> str:
        """What people call the database."""
        ...

    @property
    def names(self) -> Collection[str]:
        """The names of its sinks."""
        ...

    def take_over(self) -> None:
        """Begin: older writers of the same name are fenced.

        Raises:
            Unavailable: the server does not answer, or an older writer has prepared a transaction meanwhile.

        """
        ...

    def check_published(self, epochs: Mapping[str, int]) -> None:
        """Check that no table to which rows were written had to be created anew; it raises `OutputLost`."""
        ...

    def mark(self) -> int:
        """Return the epoch that is committed here, -1 for none."""
        ...

    def in_doubt(self) -> list[Doubt]:
        """Return the transactions that are prepared: by this writer or by older ones, before `take_over` by any."""
        ...

    def prepare(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        """Write an epoch and prepare its transaction; nothing where it is committed already."""
        ...

    def end(self, doubt: Doubt, *, commit: bool) -> bool:
        """Commit or roll back a prepared transaction; return whether it was there.

        True to one caller alone, also where several processes call it at once.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


@runtime_checkable
class TwoPhaseStore(SharedSink, Protocol):
    """A sink whose database can take part: its `writer_group` is the database."""

    def check_two_phase(self) -> None:
        """Check that the database takes prepared transactions, which survive what began them.

        Raises:
            StoreDiffers: it does not.
            Unavailable: the server does not answer.

        """
        ...

    def check(self) -> None:
        """Ask whether it could be prepared, changing nothing; raises as `prepare` does."""
        ...

    def branch(self, sinks: Mapping[str, Sink], *, writer: str, fault: Callable[[str], None]) -> Branch:
        """Return what writes to some tables of its database; it is not connected yet."""
        ...


def two_phase(*sinks: TwoPhaseStore) -> tuple[TwoPhaseTable, ...]:
    """Return sinks for tables of several databases, in which an epoch becomes visible at once.

    `a, b = two_phase(postgres.upsert(first, "orders"), mysql.upsert(second, "totals"))`, then `orders.to(a)` and
    `totals.to(b)`. A database of PostgreSQL needs `max_prepared_transactions` above 0. Readers of both may see the
    first one's epoch for the moment between the two commits.

    Trap: an app that is stopped in between for good leaves a prepared transaction, with its locks, in a database. The
    next start resolves it; else it is to be rolled back by hand: `pg_prepared_xacts`, `XA RECOVER`.

    Raises:
        InvalidPlan: there are not two databases, or a sink is none of `postgres.upsert` or `mysql.upsert`.

    """
    databases = sorted({each.writer_group for each in sinks if isinstance(each, TwoPhaseStore)})
    if not all(isinstance(each, TwoPhaseStore) for each in sinks) or len(databases) < 2:  # noqa: PLR2004
        raise InvalidPlan(
            "two_phase takes tables of two databases or more",
            detail="They are sinks of postgres.upsert and mysql.upsert.",
            hint="Tables of one database change together without it: postgres.upsert(url, …) for each.",
        )
    return tuple(TwoPhaseTable(store=each, group=", ".join(databases)) for each in sinks)


@dataclass(frozen=True, kw_only=True)
class TwoPhaseTable(SharedSink):
    """A table that changes together with tables of other databases. `fault`: called where a test may crash."""

    store: TwoPhaseStore
    group: str
    fault: Callable[[str], None] = no_fault
    guarantee: Guarantee = "exactly_once"

    @property
    def form(self) -> Form:
        """That of the table."""
        return self.store.form

    @property
    def where(self) -> str:
        """Table and database."""
        return str(getattr(self.store, "where", self.store.writer_group))

    @property
    def name(self) -> str:
        """Database and table."""
        return str(getattr(self.store, "name", self.store.writer_group))

    def overlaps(self, other: object) -> bool:
        """Whether it and another sink write to the same table."""
        check = getattr(self.store, "overlaps", None)
        return check is not None and bool(check(getattr(other, "store", other)))

    @property
    def writer_group(self) -> str:
        """All its databases."""
        return f"two-phase: {self.group}"

    def for_step(
        self, *, schema: pa.Schema, key: tuple[str, ...] | None, is_table: bool, sealed: frozenset[str]
    ) -> Self:
        """Return the sink for the rows of a step; it raises what the table's own sink does."""
        store = self.store.for_step(schema=schema, key=key, is_table=is_table, sealed=sealed)
        return replace(self, store=cast("TwoPhaseStore", store))

    def prepare(self, *, clock: Clock) -> None:
        """Create the table or check it, and check that the database takes prepared transactions.

        Raises:
            StoreDiffers: it cannot store the rows, or takes no prepared transactions.
            Unavailable: the server does not answer.

        """
        self.store.prepare(clock=clock)
        self.store.check_two_phase()

    def check(self) -> None:
        """Ask whether it could be prepared; raises as `prepare` does."""
        self.store.check()
        self.store.check_two_phase()

    def compare(self, rows: Iterator[pa.RecordBatch], *, repair: bool) -> Difference | None:
        """Return how the table differs, as its own sink does."""
        return self.store.compare(rows, repair=repair)

    def open_together(self, sinks: Mapping[str, Sink], *, writer: str, clock: Clock) -> SharedWriter:
        """Return the writer of all tables of the databases; what was in doubt is resolved.

        Raises:
            Unavailable: a server does not answer.

        """
        del clock
        by_database: dict[str, dict[str, TwoPhaseStore]] = {}
        for name, sink in sinks.items():
            if isinstance(sink, TwoPhaseTable):
                by_database.setdefault(sink.store.writer_group, {})[name] = sink.store
        branches = [
            next(iter(stores.values())).branch(stores, writer=writer, fault=self.fault)
            for _, stores in sorted(by_database.items())
        ]
        return TwoPhaseWriter(branches, self.fault)


class TwoPhaseWriter(SharedWriter):
    """Writes epochs to several databases; the first of `branches` decides."""

    def __init__(self, branches: Sequence[Branch], fault: Callable[[str], None]) -> None:
        self.branches, self.fault = branches, fault
        self.resolve()
        for each in branches:
            try:
                each.take_over()
            except Unavailable:
                self.resolve()  # an older process has prepared meanwhile
                each.take_over()
        self.resolve()
        for each in branches:
            each.last = each.mark()
        self.unfinished = False

    def last_epoch(self) -> int | None:
        """Return the last epoch that all databases have."""
        return min(each.last for each in self.branches)

    def check_published(self, epochs: Mapping[str, int]) -> None:
        """Check that no table to which rows were written had to be created anew; it raises `OutputLost`."""
        for each in self.branches:
            each.check_published({name: epoch for name, epoch in epochs.items() if name in each.names})

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
            for each in self.branches:
                each.prepare(epoch, {name: batches for name, batches in rows.items() if name in each.names})
                self.fault("after_prepare")
        except HeadraceError:
            self.resolve()
            raise
        for each in self.branches:
            self._commit(each, epoch)
            self.fault("after_commit")
        self.unfinished = False

    def _commit(self, branch: Branch, epoch: int) -> None:
        found = [each for each in branch.in_doubt() if each.epoch == epoch and each.generation == branch.generation]
        ended = any(branch.end(each, commit=True) for each in found)
        branch.last = branch.mark()
        if not ended and branch.last < epoch:
            raise WriterFenced(branch.place)

    def resolve(self) -> None:
        """End what is prepared: as the first database has decided, or by a rollback there first."""
        doubts = [each.in_doubt() for each in self.branches]
        first = self.branches[0]
        for epoch in sorted({each.epoch for found in doubts for each in found}):
            for doubt in doubts[0]:
                if doubt.epoch == epoch:
                    first.end(doubt, commit=False)
                    self.fault("after_rollback")
            decided = first.mark() >= epoch
            for branch, found in zip(self.branches[1:], doubts[1:], strict=True):
                for doubt in found:
                    if doubt.epoch == epoch:
                        branch.end(doubt, commit=decided)
                        self.fault("after_resolving")

    def close(self) -> None:
        """Close the connections."""
        for each in self.branches:
            each.close()


class Naming(NamedTuple):
    """Names of transactions: `prefix`, then the generation and the epoch; at most 64 bytes."""

    prefix: str

    @staticmethod
    def of(writer: str, place: str) -> Naming:
        """Return the names of a writer in a database: unique on a server, which may have several of them."""
        return Naming(f"headrace:{hashlib.sha256(f'{writer} {place}'.encode()).hexdigest()[:24]}:")

    def name(self, generation: int, epoch: int) -> str:
        """Return the name of a transaction."""
        return f"{self.prefix}{generation}:{epoch}"

    def doubts(self, names: Iterable[str], *, upto: int) -> list[Doubt]:
        """Return those of this writer, up to a generation (-1: of any)."""
        parsed = [
            Doubt(name, *map(int, name.removeprefix(self.prefix).split(":")))
            for name in names
            if name.startswith(self.prefix)
        ]
        return [each for each in parsed if upto < 0 or each.generation <= upto]
