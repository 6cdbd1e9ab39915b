"""What a program says of a table: `source=mysql.table("mysql://ada@localhost/shop", "customers")`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.connect.capture.errors import NotCapturable
from headrace.connect.feed import Declared, Feed, SharedFeed
from headrace.connect.mysql.address import MysqlAddress, split_table
from headrace.connect.mysql.capture import CHUNK_ROWS, Capture
from headrace.connect.mysql.catalogue import described
from headrace.connect.mysql.reading import quoted
from headrace.connect.mysql.server import check_server

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence

    from headrace.connect.feed import SharedLanding


def table(url: str, name: str) -> Table:
    """Return a feed that follows a table of MariaDB: its rows first, then each change, exactly once.

    Tables of one server share one reader, and what a transaction changed in them is read together. The transaction's
    GTID is stored with each append: nothing is lost or twice, whatever crashes. The server does not wait for a reader:
    its log must be kept (`binlog_expire_logs_seconds`) for longer than the app may be down.

    Args:
        url: `mysql://user:password@host:port/database`; the password may be `env:NAME`. `?ssl_ca=FILE` for TLS.
        name: the table, or `database.table`. It needs a primary key.

    Raises:
        InvalidPlan: the address or the name is none.

    """
    address = MysqlAddress.parse(url)
    schema, table_name = split_table(name, address.database)
    return Table(address=address, schema=schema, name=table_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(SharedFeed):
    """A table of MariaDB; `table` creates it."""

    address: MysqlAddress
    schema: str
    name: str
    chunk_rows: int = field(default=CHUNK_ROWS, compare=False)

    @property
    def identity(self) -> str:
        """The server and the table; not the user, who may change."""
        return f"{self.reader_group}/{self.schema}.{self.name}"

    @property
    def reader_group(self) -> str:  # type: ignore[override]
        """The server, which has one log: one process reads it."""
        return self.address.server

    def declares(self) -> Declared:
        """Return the columns and the key that the catalogue has.

        Raises:
            Unavailable: the server does not answer.
            NotCapturable: there is no such table, or it cannot be captured.

        """
        with self.address.connected() as sql:
            check_server(sql)
            found = described(sql, self.schema, self.name)
        for column in found.columns:
            if column.type is None:
                raise NotCapturable(
                    f'{found.full_name}, column "{column.name}": there is no type for {column.kind}',
                    hint="Name the table's other columns in the program: app.table(name, schema, …).",
                )
        return Declared(found.arrow, found.key)

    def apart(self, reader: str) -> Table:
        """Return the same table: the server's log may be read by many."""
        del reader
        return self

    def delete(self, column: str, values: Sequence[int]) -> None:
        """Delete the rows that have one of some values.

        Raises:
            Unavailable: the server does not answer.
            NotCapturable: the user may not.

        """
        if values:
            table, name = f"{quoted(self.schema)}.{quoted(self.name)}", quoted(column)
            with self.address.connected() as sql, sql.cursor() as cursor:
                cursor.executemany(f"DELETE FROM {table} WHERE {name} = %s", [[value] for value in values])
                sql.commit()

    def run_together(self, feeds: Mapping[str, Feed], landing: SharedLanding, stop: threading.Event) -> None:
        """Land rows and changes of all tables of the server until `stop` is set.

        Raises:
            Unavailable: the server does not answer; it is called again.
            NotCapturable: server, user or a table are not set up; the hint has the statement.
            ChangesLost: the server does not have its log since the last run any more.

        """
        with self.address.connected() as sql:
            tables = {
                topic: described(sql, feed.schema, feed.name)
                for topic, feed in feeds.items()
                if isinstance(feed, Table)
            }
        Capture(address=self.address, tables=tables, chunk_rows=self.chunk_rows).run(landing, stop)
