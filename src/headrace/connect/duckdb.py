"""Tables of a DuckDB file as sinks: an epoch is one transaction with its mark, for all tables of the file.

The file is open only while an epoch is written, so other processes may read it in between; while one has it open the
epoch waits (`Unavailable`, called again). Tables have no index and no constraint: rows are found by a join with the
keys of the epoch, which reads the key columns of the table.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from headrace.base.disk import says_full
from headrace.base.errors import InvalidArgument
from headrace.base.names import quote
from headrace.base.outside import OutputLost, Unavailable
from headrace.connect.comparing import compare_rows
from headrace.connect.sink import SharedSink, SharedWriter
from headrace.connect.store import (
    StoreDiffers,
    StoreRefused,
    StoreSink,
    WriterFenced,
    check_folder,
    database_options,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

    import pyarrow as pa

    from headrace.base.time import Clock
    from headrace.connect.sink import Difference, Sink, SinkWriter

__all__ = ["DuckdbTable", "table"]

MARKS, CREATED = "_headrace_marks", "_headrace_created"
"""Epochs by writer; and tables that we have created, and nothing was written to: who has written to them before has
lost them."""
_CHANGES, _GIVEN, _WANTED = "_headrace_changes", "_headrace_batch", "_headrace_wanted"
_IS_THERE = "SELECT 1 FROM duckdb_tables() WHERE schema_name = 'main' AND lower(table_name) = lower(?)"
_BATCH = 50_000
_OTHER = "not a valid duckdb database"
_BUSY = ("could not set lock", "conflicting lock", "already open", "same database file with a different configuration")


def table(file: str | PathLike[str], name: str) -> DuckdbTable:
    """Return a table of a DuckDB file as a sink; file and table are created if they are missing.

    A table of the app (which needs a key) is kept as its current rows; a stream's rows are appended. Exactly once: the
    epoch's number is written in the transaction of its rows. Several tables of a file become visible together.

    Args:
        file: path of the file.
        name: name of the table in the schema `main`.

    Raises:
        InvalidArgument: the name is empty or reserved.

    """
    if not name or name.lower().startswith("_headrace_"):
        raise InvalidArgument(f'"{name}" cannot be the name of a table of DuckDB', hint="Names _headrace_… are ours.")
    return DuckdbTable(path=str(Path(file)), table=name)


@dataclass(frozen=True, kw_only=True)
class DuckdbTable(StoreSink, SharedSink):
    """A table of a file."""

    path: str
    table: str

    @property
    def where(self) -> str:
        """File and table."""
        return f'the table "{self.table}" of {self.path}'

    @property
    def name(self) -> str:
        """File and table."""
        return f"duckdb:{self.path}:{self.table}"

    @property
    def location(self) -> str:
        """File and table; DuckDB tells no capital letters from small ones."""
        return f"{self.writer_group}:{self.table.lower()}"

    @property
    def writer_group(self) -> str:
        """The file: its tables share a transaction."""
        return f"duckdb:{Path(self.path).resolve()}"

    def prepare(self, *, clock: Clock) -> None:
        """Create the table, or check its columns.

        Raises:
            StoreDiffers: it has other columns, or the file is none of DuckDB's.
            StoreRefused: a folder is in the file's place, or a file in that of a folder above it.
            Unavailable: another process has the file open.

        """
        del clock
        check_folder(self.where, Path(self.path).parent)
        if Path(self.path).is_dir():
            raise StoreRefused(self.where, f"{self.path} is a folder", epoch=-1)
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        with opened(self.path) as sql:
            sql.register(_WANTED, self.columns.empty_table())
            sql.execute(f"CREATE TABLE IF NOT EXISTS {CREATED} (table_name VARCHAR)").fetchall()
            if not sql.execute(_IS_THERE, [self.table]).fetchall():
                sql.execute(f"INSERT INTO {CREATED} VALUES (lower(?))", [self.table]).fetchall()
            sql.execute(f"CREATE TABLE IF NOT EXISTS {quote(self.table)} AS SELECT * FROM {_WANTED}").fetchall()
            there = sql.execute(f"DESCRIBE {quote(self.table)}").fetchall()
            wanted = sql.execute(f"DESCRIBE SELECT * FROM {_WANTED}").fetchall()
        has, needs = ([(each[0], each[1]) for each in columns] for columns in (there, wanted))
        if has != needs:
            raise StoreDiffers(
                f"{self.where} has other columns than the step",
                detail=f"It has {_listed(has)}; the step has {_listed(needs)}.",
                hint=_alter(self.table, dict(has), dict(needs)),
            )

    def compare(self, rows: Iterator[pa.RecordBatch], *, repair: bool) -> Difference | None:
        """Return how the table differs from what it should have, and with `repair` bring it level.

        Raises:
            Unavailable: another process has the file open.

        """
        return compare_rows(self, rows, self._held(), repair=repair)

    def _held(self) -> Iterator[pa.RecordBatch]:
        with opened(self.path) as sql:
            yield from sql.sql(f"FROM {quote(self.table)}").to_arrow_reader(_BATCH)

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer of this table alone."""
        return SharedSink.open(self, writer=writer, clock=clock)

    def open_together(self, sinks: Mapping[str, Sink], *, writer: str, clock: Clock) -> SharedWriter:
        """Return the writer of all tables of the file.

        Raises:
            Unavailable: another process has the file open.

        """
        del clock
        tables = {name: sink for name, sink in sinks.items() if isinstance(sink, DuckdbTable)}
        return DuckdbWriter(self.path, tables, writer)


class DuckdbWriter(SharedWriter):
    """Writes epochs to the tables of a file."""

    def __init__(self, path: str, tables: Mapping[str, DuckdbTable], writer: str) -> None:
        self.path, self.tables, self.writer = str(Path(path).absolute()), tables, writer  # wherever the process goes
        self.fault = next(iter(tables.values())).fault
        with opened(self.path) as sql:
            sql.execute(
                f"CREATE TABLE IF NOT EXISTS {MARKS} (writer VARCHAR, epoch BIGINT, generation BIGINT)"
            ).fetchall()
            sql.execute(f"CREATE TABLE IF NOT EXISTS {CREATED} (table_name VARCHAR)").fetchall()
            mark = self._mark(sql)
            self.last, held = mark or (-1, 0)
            self.generation = held + 1
            self._set_mark(sql, self.last)

    def last_epoch(self) -> int | None:
        """Return the last epoch that the file has."""
        return self.last

    def check_published(self, epochs: Mapping[str, int]) -> None:
        """Check that no table to which rows were written had to be created anew.

        Raises:
            OutputLost: one was.
            Unavailable: another process has the file open.

        """
        with opened(self.path) as sql:
            created = {name for (name,) in sql.execute(f"SELECT table_name FROM {CREATED}").fetchall()}
        lost = [sink for name in epochs if (sink := self.tables[name]).table.lower() in created]
        if lost:
            raise OutputLost(f"{lost[0].where} was gone, and had to be created anew")

    def publish(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        """Write an epoch in one transaction.

        Raises:
            Unavailable: another process has the file open.
            WriterFenced: a newer writer has taken over.
            StoreRefused: DuckDB refuses the rows.

        """
        self.fault("before_transaction")
        with opened(self.path) as sql:
            last, generation = self._mark(sql) or (-1, 0)
            if generation != self.generation:
                raise WriterFenced(self.path)
            if epoch > last:
                try:
                    for name, batches in rows.items():
                        self._write(sql, self.tables[name], batches)
                    self.fault("before_transaction_mark")
                    self._set_mark(sql, epoch)
                    self.fault("before_transaction_ends")
                except duckdb.Error as error:
                    if _may_pass(error):
                        raise
                    raise StoreRefused(self.path, _said(error), epoch=epoch) from error
        self.last = epoch
        self.fault("after_transaction")

    def _write(self, sql: duckdb.DuckDBPyConnection, sink: DuckdbTable, batches: Iterator[pa.RecordBatch]) -> None:
        names = ", ".join(map(quote, sink.columns.names))
        table = quote(sink.table)
        sql.execute(f"DELETE FROM {CREATED} WHERE table_name = lower(?)", [sink.table]).fetchall()
        if not sink.is_table:
            for batch in batches:
                sql.register(_GIVEN, batch)
                sql.execute(f"INSERT INTO {table} SELECT {names} FROM {_GIVEN}").fetchall()
            return
        sql.execute(
            f"CREATE OR REPLACE TEMP TABLE {_CHANGES} AS SELECT *, false AS _deleted FROM {table} LIMIT 0"
        ).fetchall()
        for batch in batches:
            sql.register(_GIVEN, batch)
            sql.execute(f"INSERT INTO {_CHANGES} SELECT {names}, _deleted FROM {_GIVEN}").fetchall()
        self.fault("in_transaction")
        same = " AND ".join(f"held.{quote(name)} IS NOT DISTINCT FROM {_CHANGES}.{quote(name)}" for name in sink.key)
        sql.execute(f"DELETE FROM {table} AS held USING {_CHANGES} WHERE {same}").fetchall()
        sql.execute(f"INSERT INTO {table} SELECT {names} FROM {_CHANGES} WHERE NOT _deleted").fetchall()

    def _mark(self, sql: duckdb.DuckDBPyConnection) -> tuple[int, int] | None:
        found = sql.execute(f"SELECT epoch, generation FROM {MARKS} WHERE writer = ?", [self.writer]).fetchall()
        return (int(found[0][0]), int(found[0][1])) if found else None

    def _set_mark(self, sql: duckdb.DuckDBPyConnection, epoch: int) -> None:
        sql.execute(f"DELETE FROM {MARKS} WHERE writer = ?", [self.writer]).fetchall()
        sql.execute(f"INSERT INTO {MARKS} VALUES (?, ?, ?)", [self.writer, epoch, self.generation]).fetchall()

    def close(self) -> None:
        """Do nothing: the file is open only while an epoch is written."""


@contextmanager
def opened(path: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a file for one transaction, which is committed if the block ends well.

    Raises:
        Unavailable: another process has it open, or the disk fails.
        StoreDiffers: it is no database of DuckDB, or one of another release.

    """
    try:
        sql = duckdb.connect(path, config=database_options(f"{path}.tmp"))
    except duckdb.Error as error:
        says = str(error).lower()
        if (isinstance(error, duckdb.IOException) and _OTHER not in says) or any(word in says for word in _BUSY):
            raise Unavailable(
                f"{path} cannot be opened for writing: {_said(error)}",
                hint="DuckDB lets one process write: close the file in the others, or read a copy.",
            ) from error
        raise StoreDiffers(f"{path} cannot be opened: {_said(error)}") from error
    try:
        sql.execute("BEGIN").fetchall()
        yield sql
        sql.execute("COMMIT").fetchall()
    except duckdb.Error as error:
        if not _may_pass(error):
            raise
        raise Unavailable(f"{path} cannot be written: {_said(error)}") from error
    finally:
        sql.close()


def _may_pass(error: duckdb.Error) -> bool:
    """Whether the disk has failed or is full, which DuckDB calls a failed transaction where it meets it at its end."""
    return isinstance(error, duckdb.IOException) or says_full(error)


def _said(error: duckdb.Error) -> str:
    return str(error).splitlines()[0]


def _listed(columns: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def _alter(table: str, has: Mapping[str, str], needs: Mapping[str, str]) -> str:
    added = [f"ALTER TABLE {quote(table)} ADD COLUMN {quote(n)} {k}" for n, k in needs.items() if n not in has]
    typed = [f"ALTER TABLE {quote(table)} ALTER {quote(n)} TYPE {k}" for n, k in needs.items() if has.get(n, k) != k]
    dropped = [f"ALTER TABLE {quote(table)} DROP COLUMN {quote(n)}" for n in has if n not in needs]
    statements = "; ".join([*added, *typed, *dropped])
    return (
        f"{statements}; or write to another table."
        if statements
        else "Columns are in another order: write to another table."
    )
