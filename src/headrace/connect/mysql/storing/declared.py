"""`mysql.upsert`: a table of MariaDB as a sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from headrace.base.errors import InvalidPlan
from headrace.connect.mysql.address import MysqlAddress, split_table
from headrace.connect.mysql.storing.branch import MysqlBranch, check_two_phase
from headrace.connect.mysql.storing.tables import Target
from headrace.connect.mysql.storing.types import declared
from headrace.connect.mysql.storing.writer import CREATED, MARKS, MysqlWriter, Stored, prepare
from headrace.connect.sink import SharedSink, SharedWriter
from headrace.connect.store import StoreSink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from headrace.base.time import Clock
    from headrace.connect.sink import Sink, SinkWriter
    from headrace.connect.two_phase import Branch


def upsert(url: str, table: str) -> MysqlTable:
    """Return a table of MariaDB as a sink; it is created if it is missing, with the columns and key of the step.

    A table of the app (which needs a key) is kept as its current rows; a stream's rows are appended. Exactly once: the
    epoch's number is written in the transaction of its rows. Tables of one address become visible together. A row that
    the server refuses stops the app, which names it. Trap: another UNIQUE index over columns of the step is refused,
    since MariaDB would replace rows by it.

    Args:
        url: `mysql://user:password@host:port/database`; the password may be `env:NAME`. `?ssl_ca=FILE` for TLS.
        table: `table`, or `database.table` on the same server. InnoDB; it may have more columns, which are left alone.

    Raises:
        InvalidPlan: the address or the table's name is none.

    """
    address = MysqlAddress.parse(url)
    schema, name = split_table(table, address.database)
    if name in (MARKS, CREATED):
        raise InvalidPlan(f'the table "{name}" is for marks', hint="Give the table another name.")
    return MysqlTable(address=address, schema=schema, table=name)


@dataclass(frozen=True, kw_only=True)
class MysqlTable(StoreSink, SharedSink):
    """A table of a database."""

    address: MysqlAddress
    schema: str
    table: str

    @property
    def where(self) -> str:
        """Table and database."""
        return f'the table "{self.schema}.{self.table}" of {self.address}'

    @property
    def name(self) -> str:
        """Database and table."""
        return f"{self.address.server}/{self.address.database}:{self.schema}.{self.table}"

    @property
    def writer_group(self) -> str:
        """The address: its tables share a transaction."""
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
            InvalidPlan: the step is a table without a key, or a column has a type that MariaDB lacks.

        """
        for field in schema:
            declared(field.type, in_key_of=len(key or ()) if field.name in (key or ()) else 0)
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
        """Ask whether the server answers and the table, if it is there, stores the rows; raises as `prepare` does."""
        prepare(self.address, self.target, creates=False)

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer of this table alone."""
        return SharedSink.open(self, writer=writer, clock=clock)

    def open_together(self, sinks: Mapping[str, Sink], *, writer: str, clock: Clock) -> SharedWriter:
        """Return the writer of all tables of the address.

        Raises:
            Unavailable: the server does not answer.

        """
        del clock
        tables = {name: sink.stored for name, sink in sinks.items() if isinstance(sink, MysqlTable)}
        opened = MysqlWriter(self.address, tables, writer, fault=self.fault)
        opened.take_over()
        return opened

    def check_two_phase(self) -> None:
        """Check that the database can take part in epochs of several databases; it raises `StoreDiffers`."""
        check_two_phase(self.address)

    def branch(self, sinks: Mapping[str, Sink], *, writer: str, fault: Callable[[str], None]) -> Branch:
        """Return what writes to tables of the database in epochs of several databases."""
        tables = {name: sink.stored for name, sink in sinks.items() if isinstance(sink, MysqlTable)}
        return MysqlBranch(self.address, tables, writer, fault=fault)

    @property
    def stored(self) -> Stored:
        """What the writer needs to know of it."""
        return Stored(self.target, changes=self.is_table)
