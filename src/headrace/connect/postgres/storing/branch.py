"""A database of PostgreSQL in an epoch of several databases: PREPARE TRANSACTION, then COMMIT PREPARED."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import sql as words

from headrace.base.outside import Unavailable
from headrace.connect.postgres.storing.writer import PostgresWriter
from headrace.connect.store import StoreDiffers
from headrace.connect.two_phase import Naming

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import pyarrow as pa

    from headrace.connect.postgres.address import PostgresAddress
    from headrace.connect.two_phase import Doubt

_IN_DOUBT = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
_ALLOWED = "SELECT current_setting('max_prepared_transactions')::int"


def check_two_phase(address: PostgresAddress) -> None:
    """Check that a database takes prepared transactions.

    Raises:
        StoreDiffers: it takes none.
        Unavailable: the server does not answer.

    """
    with address.connected() as sql:
        allowed = sql.execute(_ALLOWED).fetchone()
    if allowed is None or not allowed[0]:
        raise StoreDiffers(
            f"{address} takes no prepared transactions",
            detail="max_prepared_transactions is 0.",
            hint="ALTER SYSTEM SET max_prepared_transactions = 20, and restart the server.",
        )


class PostgresBranch(PostgresWriter):
    """Prepares epochs, and ends what is prepared, on any connection to the database."""

    @property
    def place(self) -> str:
        """The database."""
        return str(self.address)

    @property
    def names(self) -> Collection[str]:
        """The names of its sinks."""
        return self.tables

    @property
    def staging(self) -> str | None:
        """The schema of the staging table: a temporary one cannot be used in a prepared transaction."""
        return "headrace"

    @property
    def naming(self) -> Naming:
        """The names of its transactions."""
        return Naming.of(self.writer, self.place)

    def mark(self) -> int:
        """Return the epoch that is committed here, -1 for none."""
        with self.connected(-1) as sql:
            return self.mark_of(sql)

    def in_doubt(self) -> list[Doubt]:
        """Return the transactions that are prepared, by this writer or by older ones."""
        with self.connected(-1) as sql:
            found = sql.execute(_IN_DOUBT).fetchall()
        return self.naming.doubts((gid for (gid,) in found), upto=self.generation)

    def prepare(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        """Write an epoch and prepare its transaction; nothing where it is committed already."""
        with self.connected(epoch) as sql:
            sql.execute("BEGIN")
            if self.take(sql) >= epoch:
                sql.execute("ROLLBACK")
                return
            self.write(sql, epoch, rows)
            self.set_mark(sql, epoch)
            sql.execute(_named("PREPARE TRANSACTION {}", self.naming.name(self.generation, epoch)))

    def end(self, doubt: Doubt, *, commit: bool) -> bool:
        """Commit or roll back a prepared transaction; return whether it was there."""
        with self.connected(doubt.epoch) as sql:
            try:
                sql.execute(_named(f"{'COMMIT' if commit else 'ROLLBACK'} PREPARED {{}}", doubt.name))
            except psycopg.errors.UndefinedObject:
                return False
            except psycopg.errors.ObjectNotInPrerequisiteState as busy:
                raise Unavailable(
                    f"{self.place}: another process ends {doubt.name}", hint="It is tried again."
                ) from busy
        return True


def _named(statement: str, gid: str) -> words.Composed:
    return words.SQL(statement).format(words.Literal(gid))
