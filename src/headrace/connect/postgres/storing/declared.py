"""`postgres.upsert`: a table of PostgreSQL as a sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.connect.postgres.address import PostgresAddress, split_table
from headrace.connect.postgres.storing.branch import PostgresBranch, check_two_phase
from headrace.connect.postgres.storing.comparing import compare
from headrace.connect.postgres.storing.tables import Target, check_name
from headrace.connect.postgres.storing.types import declared
from headrace.connect.postgres.storing.writer import SCHEMA, PostgresWriter, Stored, check, prepare
from headrace.connect.sink import SharedSink, SharedWriter
from headrace.connect.store import StoreSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from headrace.base.time import Clock
    from headrace.connect.sink import Difference, Sink, SinkWriter
    from headrace.connect.two_phase import Branch

OnError = Literal["fail", "dead_letter"]


def upsert(url: str, table: str, *, on_error: OnError = "fail") -> PostgresTable:
    """Return a table of PostgreSQL as a sink; it is created if it is missing, with the columns and key of the step.

    A table of the app (which needs a key) is kept as its current rows; a stream's rows are appended. Exactly once: the
    epoch's number is written in the transaction of its rows. Several tables of a database become visible together.

    Args:
        url: `postgresql://user@host:port/database`. The password may be `env:NAME`, or come from PGPASSWORD or
            ~/.pgpass.
        table: `schema.table`, or `table` of the schema public. It may have more columns, which are left alone.
        on_error: what happens with a row that the server refuses. `"fail"`: the app stops, with the row's key.
            `"dead_letter"`: it is written to the table headrace.dead_letters, at most 1 000 in an epoch; the table
            then has an older row of this key, or none.

    Raises:
        InvalidPlan: the address or the table's name is none.
        InvalidArgument: another value of `on_error`.

    """
    if on_error not in ("fail", "dead_letter"):
        raise InvalidArgument(f"on_error={on_error!r} is not known", hint='It is "fail" or "dead_letter".')
    schema, name = split_table(table)
    for what, part in (("schema", schema), ("table", name)):
        check_name(what, part)
    if schema == SCHEMA:
        raise InvalidPlan('the schema "headrace" is for marks', hint="Give the table another schema.")
    return PostgresTable(address=PostgresAddress.parse(url), schema=schema, table=name, on_error=on_error)


@dataclass(frozen=True, kw_only=True)
class PostgresTable(StoreSink, SharedSink):
    """A table of a database."""

    address: PostgresAddress
    schema: str
    table: str
    on_error: OnError = "fail"

    @property
    def where(self) -> str:
        """Table and database."""
        return f'the table "{self.schema}.{self.table}" of {self.address}'

    @property
    def name(self) -> str:
        """Database and table."""
        return f"{self.address.place}:{self.schema}.{self.table}"

    @property
    def writer_group(self) -> str:
        """The database: its tables share a transaction."""
        return str(self.address)

    @property
    def target(self) -> Target:
        """The table with its columns and key."""
        return Target(self.schema, self.table, self.columns, self.key)

    def for_step(
        self, *, schema: pa.Schema, key: tuple[str, ...] | None, is_table: bool, sealed: frozenset[str]
    ) -> Self:
        """Return the sink for the rows of a step.

        Raises:
            InvalidPlan: the step is a table without a key, or a column has a type or a name that PostgreSQL lacks.

        """
        for field in schema:
            check_name("column", field.name)
            declared(field.type)
        return super().for_step(schema=schema, key=key, is_table=is_table, sealed=sealed)

    def prepare(self, *, clock: Clock) -> None:
        """Create the table, or check its columns and key.

        Raises:
            StoreDiffers: it cannot store the rows.
            Unavailable: the server does not answer.

        """
        del clock
        prepare(self.address, self.target)

    def check(self) -> None:
        """Ask whether it could be prepared: the same is done, and taken back; raises as `prepare` does."""
        check(self.address, self.target)

    def compare(self, rows: Iterator[pa.RecordBatch], *, repair: bool) -> Difference | None:
        """Return how the table differs; it is compared in the database, and brought level in one transaction.

        Raises:
            Unavailable: the server does not answer.
            StoreRefused: it refuses a row.

        """
        return compare(self.address, self.target, rows, repair=repair)

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer of this table alone."""
        return SharedSink.open(self, writer=writer, clock=clock)

    def open_together(self, sinks: Mapping[str, Sink], *, writer: str, clock: Clock) -> SharedWriter:
        """Return the writer of all tables of the database.

        Raises:
            Unavailable: the server does not answer.

        """
        del clock
        tables = {name: sink.stored for name, sink in sinks.items() if isinstance(sink, PostgresTable)}
        opened = PostgresWriter(self.address, tables, writer, fault=self.fault)
        opened.take_over()
        return opened

    def check_two_phase(self) -> None:
        """Check that the database can take part in epochs of several databases; it raises `StoreDiffers`."""
        check_two_phase(self.address)

    def branch(self, sinks: Mapping[str, Sink], *, writer: str, fault: Callable[[str], None]) -> Branch:
        """Return what writes to tables of the database in epochs of several databases."""
        tables = {name: sink.stored for name, sink in sinks.items() if isinstance(sink, PostgresTable)}
        return PostgresBranch(self.address, tables, writer, fault=fault)

    @property
    def stored(self) -> Stored:
        """What the writer needs to know of it."""
        return Stored(self.target, changes=self.is_table, keeps_refused=self.on_error == "dead_letter")
