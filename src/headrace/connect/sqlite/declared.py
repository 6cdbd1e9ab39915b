"""What a program says of a table: `source=sqlite.table("shop.db", "customers")`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.base.arguments import a_path, a_text
from headrace.connect.capture.errors import NotCapturable
from headrace.connect.feed import Declared, Feed, SharedFeed
from headrace.connect.sqlite import triggers
from headrace.connect.sqlite.capture import CHUNK_ROWS, Capture, connected
from headrace.connect.sqlite.catalogue import described, quoted

if TYPE_CHECKING:
    import os
    import threading
    from collections.abc import Mapping, Sequence

    from headrace.connect.feed import SharedLanding


def table(path: str | os.PathLike[str], name: str, *, reader: str = "headrace") -> Table:
    """Return a feed that follows a table of a SQLite database: its rows first, then each change, exactly once.

    Triggers note the keys of changed rows; `headrace connect install FILE` makes them, `headrace connect remove FILE`
    removes them. Tables of one database share one reader, and are read at one moment: what a transaction changed is
    never seen half. Of a row that changes several times between two looks (0.2 s) only the last state is seen.

    A row that `INSERT OR REPLACE` removes because of another unique column than its key is not noted, as SQLite calls
    no trigger for it unless the writer says `PRAGMA recursive_triggers = ON`.

    Args:
        path: the file of the database.
        name: the table; it needs a primary key.
        reader: under this name the database keeps what the app has not read yet: each app has its own.

    Raises:
        InvalidArgument: an argument is of the wrong type.

    """
    return Table(path=str(a_path(path, "path").absolute()), name=a_text(name, "name"), reader=a_text(reader, "reader"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(SharedFeed):
    """A table of a SQLite database; `table` creates it."""

    path: str
    name: str
    reader: str
    chunk_rows: int = field(default=CHUNK_ROWS, compare=False)

    @property
    def identity(self) -> str:
        """The file, the reader and the table."""
        return f"{self.reader_group}/{self.name}"

    @property
    def reader_group(self) -> str:  # type: ignore[override]
        """The file and the reader: one process reads as it."""
        return f"sqlite:{self.path}#{self.reader}"

    def declares(self) -> Declared:
        """Return the columns and the key that the catalogue has.

        Raises:
            NotCapturable: there is no such database or table, or it cannot be captured.

        """
        if not Path(self.path).exists():
            raise NotCapturable(f"there is no database {self.path}", hint="Correct its path.")
        with connected(self.path) as db:
            found = described(db, self.name)
        return Declared(found.arrow, found.key)

    def check(self) -> None:
        """Ask for the table and its triggers.

        Raises:
            NotCapturable: as `declares`; or there are no triggers.

        """
        self.declares()
        with connected(self.path) as db:
            triggers.require(db, described(db, self.name))

    def install(self) -> str | None:
        """Make the triggers."""
        with connected(self.path) as db:
            return f"triggers of {self.name}" if triggers.install(db, described(db, self.name)) else None

    def remove(self) -> str | None:
        """Remove the triggers and their notes."""
        with connected(self.path) as db:
            return f"triggers of {self.name}" if triggers.remove(db, self.name) else None

    def apart(self, reader: str) -> Table:
        """Return the same table by a reader of its own."""
        return replace(self, reader=f"{self.reader}_{reader}")

    def delete(self, column: str, values: Sequence[int]) -> None:
        """Delete the rows that have one of some values.

        Raises:
            Unavailable: the database is locked for long.

        """
        if values:
            with connected(self.path) as db:
                db.execute("BEGIN IMMEDIATE")
                db.executemany(
                    f"DELETE FROM {quoted(self.name)} WHERE {quoted(column)} = ?", [[value] for value in values]
                )
                db.execute("COMMIT")

    def run_together(self, feeds: Mapping[str, Feed], landing: SharedLanding, stop: threading.Event) -> None:
        """Land rows and changes of all tables until `stop` is set.

        Raises:
            Unavailable: the database cannot be opened, or is locked for long; it is called again.
            NotCapturable: a table, or its triggers, are not there.
            ChangesLost: changes are gone; the hint has the command that reads the table anew.

        """
        tables = {topic: feed.name for topic, feed in feeds.items() if isinstance(feed, Table)}
        Capture(path=self.path, reader=self.reader, tables=tables, chunk_rows=self.chunk_rows).run(landing, stop)
