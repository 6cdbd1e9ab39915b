"""What a program says of a table: `source=postgres.table("postgresql://ada@localhost/shop", "public.customers")`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from psycopg import sql as words

from headrace.base.errors import InvalidPlan
from headrace.connect.feed import Declared, Feed, SharedFeed
from headrace.connect.postgres import slots
from headrace.connect.postgres.address import PostgresAddress, split_table
from headrace.connect.postgres.capture import CHUNK_ROWS, Capture
from headrace.connect.postgres.catalogue import described

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence

    from headrace.connect.feed import SharedLanding

LONGEST_NAME = 63


def table(url: str, name: str, *, slot: str = "headrace", publication: str | None = None) -> Table:
    """Return a feed that follows a table of PostgreSQL: its rows first, then each change, exactly once.

    Tables of one database with the same slot share one reader, and what a transaction changed in them is read together.
    The position in the database's log is stored with each append: nothing is lost or twice, whatever crashes. The slot
    holds the log back while nobody reads it, so drop it (`drop`) when you stop capturing for good.

    Args:
        url: `postgresql://user@host:port/database`. The password may be `env:NAME`; libpq's own ways work, too.
        name: `schema.table`; without a schema: of `public`. It needs a primary key.
        slot: the replication slot. One app reads a slot: another one needs a slot of its own.
        publication: the publication; like the slot if it is not given. It is created, and tables are added to it.

    Raises:
        InvalidPlan: the address or a name is none.

    """
    address, (schema, table_name) = PostgresAddress.parse(url), split_table(name)
    if not re.fullmatch(rf"[a-z0-9_]{{1,{LONGEST_NAME}}}", slot):
        raise InvalidPlan(
            f"{slot!r} is no name of a slot", hint=f"Small letters, digits and _, {LONGEST_NAME} of them at most."
        )
    return Table(address=address, schema=schema, name=table_name, slot=slot, publication=publication or slot)


def drop(feed: Table) -> None:
    """Drop slot and publication of tables that are not captured any more; topics stay. It may be repeated.

    Raises:
        SlotBusy: an app reads the slot.

    """
    with feed.address.connected() as sql:
        slots.drop(sql, slot=feed.slot, publication=feed.publication)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(SharedFeed):
    """A table of PostgreSQL; `table` creates it."""

    address: PostgresAddress
    schema: str
    name: str
    slot: str
    publication: str
    chunk_rows: int = field(default=CHUNK_ROWS, compare=False)

    @property
    def identity(self) -> str:
        """The database, the slot and the table; not the user, who may change."""
        return f"{self.reader_group}/{self.schema}.{self.name}"

    @property
    def reader_group(self) -> str:  # type: ignore[override]
        """The database and the slot: one process reads it."""
        return f"{self.address.place}#{self.slot}"

    def declares(self) -> Declared:
        """Return the columns and the key that the catalogue has.

        Raises:
            Unavailable: the server does not answer.
            NotCapturable: there is no such table, or it cannot be captured.

        """
        with self.address.connected() as sql:
            found = described(sql, self.schema, self.name)
        return Declared(found.arrow, found.key)

    def apart(self, reader: str) -> Table:
        """Return the same table by a slot and a publication of its own."""
        return replace(self, slot=f"{self.slot}_{reader}", publication=f"{self.publication}_{reader}")

    def delete(self, column: str, values: Sequence[int]) -> None:
        """Delete the rows that have one of some values.

        Raises:
            Unavailable: the server does not answer.
            NotCapturable: the role may not.

        """
        if values:
            statement = words.SQL("DELETE FROM {} WHERE {} = ANY(%s)").format(
                words.Identifier(self.schema, self.name), words.Identifier(column)
            )
            with self.address.connected() as sql:
                sql.execute(statement, [list(values)])

    def remove(self) -> str:
        """Drop the slot and the publication: changes after this are not captured."""
        drop(self)
        return f"slot {self.slot} and publication {self.publication}"

    def run_together(self, feeds: Mapping[str, Feed], landing: SharedLanding, stop: threading.Event) -> None:
        """Land rows and changes of all tables of the slot until `stop` is set.

        Raises:
            Unavailable: the server does not answer, or another process reads the slot; it is called again.
            NotCapturable: server, role or a table are not set up; the hint has the statement.
            SlotLost: changes are gone.

        """
        with self.address.connected() as sql:
            tables = {
                topic: described(sql, feed.schema, feed.name)
                for topic, feed in feeds.items()
                if isinstance(feed, Table)
            }
        capture = Capture(
            address=self.address,
            slot=self.slot,
            publication=self.publication,
            tables=tables,
            chunk_rows=self.chunk_rows,
        )
        capture.run(landing, stop)
