"""DuckDB, as the kernels use it: one thread, times in UTC, Arrow in and out."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from headrace.base.memory import task_memory
from headrace.base.names import literal
from headrace.base.schema import TIMESTAMP_NTZ
from headrace.base.temporary import cache_root, spill_folder
from headrace.kernels.spool import spooled
from headrace.kernels.zones import without_zones

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.base.errors import HeadraceError

SETTINGS: dict[str, Any] = {
    "threads": 1,  # Spark runs one task a core already
    "autoinstall_known_extensions": False,
    "preserve_insertion_order": True,
}

ROWS_PER_BATCH = 1 << 17
IN_MEMORY = Path(":memory:")
"""The path of a database that is in no file."""
_numbers = count()
"""For the names of attached files: shards that run side by side attach theirs to one database."""
_defining = Lock()
_IDLE_MEMORY = "16MB"
_idle: dict[int, tuple[tuple[object, ...], Duck]] = {}
"""By process: the host that was given back last, and its folders. A child does not touch the one of its parent."""


class Duck:
    """A connection to a database in memory, or in a file; `forget` drops registered tables.

    Through `host` it is one beside that one's, with the path `IN_MEMORY` too: the first takes 16 ms to open, each other
    one 0.5. Without a path it sees the tables of its host, but for temporary ones. `tasks`: of how many tasks the
    databases beside each other are; they share their memory.

    It remembers a *stamp* for each step whose tables it has: which state file they are at. Stamps are part of the
    transaction, and of the file where there is one.

    Raises:
        duckdb.Error: the file is broken; `duckdb.IOException`: another process has it open.

    """

    def __init__(self, path: Path | None = None, *, host: Duck | None = None, tasks: int = 1) -> None:
        self.connection: duckdb.DuckDBPyConnection
        self.connection = _database(tasks) if host is None else host.connection.cursor()
        self.run("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
        self._file = None if path is None else f"headrace_cache_{next(_numbers)}"
        self.epoch_time: int | None = None
        if host is not None and host.epoch_time is not None:
            self.set_epoch_time(host.epoch_time)
        self._keeps_stamps = path is not None and path != IN_MEMORY
        if path is not None:
            self.run(f"ATTACH {literal(str(path))} AS {self._file}; USE {self._file}")
        self._names = 0
        self._registered: list[str] = []
        self.defined: dict[str, Callable[..., Any]] = {} if host is None else host.defined  # DuckDB shares them too
        self.kept: list[Callable[..., Any]] = [] if host is None else host.kept  # DuckDB drops them with a connection
        self.blamed: HeadraceError | None = None
        """The error of a function that SQL called: DuckDB keeps no more of it than the text."""
        self._sources: dict[str, object] = {}
        self._stamped: dict[str, str] = {}
        self._stamping: dict[str, str] = {}
        if self._keeps_stamps:
            self.run("CREATE TABLE IF NOT EXISTS _heads (step VARCHAR, file VARCHAR)")
            self._stamped = dict(self.rows("SELECT step, file FROM _heads"))

    def run(self, sql: str) -> None:
        """Execute a statement for its effect."""
        self.connection.execute(sql).fetchall()

    def change(self, sql: str) -> int:
        """Execute an INSERT or DELETE and return how many rows it changed."""
        return int(self.connection.execute(sql).fetchall()[0][0])

    def arrow(self, sql: str) -> pa.Table:
        """Return a query's rows."""
        submit = getattr(self.connection, "_submit", None)  # what `sql` ends in: it plans the query once, not twice
        if submit is not None:
            return submit(sql, None, "arrow", ROWS_PER_BATCH).arrow_table()
        return self.connection.sql(sql).to_arrow_table(ROWS_PER_BATCH)

    def stream(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Yield a query's rows in batches, at least one: for results that may be larger than the memory.

        Read them to the end before the next statement.
        """
        submit = getattr(self.connection, "_submit", None)
        if submit is not None:
            reader = submit(sql, None, "stream", ROWS_PER_BATCH).arrow_reader()
        else:
            reader = self.connection.sql(sql).to_arrow_reader(ROWS_PER_BATCH)
        yield pa.RecordBatch.from_pylist([], reader.schema)
        try:
            yield from reader
        except OSError as error:  # Arrow's way to pass on what DuckDB said
            raise duckdb.Error(str(error)) from error

    def large(self, sql: str) -> pa.Table:
        """Return a query's rows; those that do not fit in memory are mapped from a file."""
        batches = self.stream(sql)
        return spooled(next(batches).schema, batches)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return a query's few rows as tuples."""
        return self.connection.execute(sql).fetchall()

    def register(self, table: pa.Table) -> str:
        """Make an Arrow table readable by SQL, without a copy, and return the name it has there."""
        table = _unsliced(without_zones(table))
        source = getattr(self.connection, "_register_source", None)  # what `register` begins with, before a view
        if source is not None:
            handle = source(table)
            name = f'"{handle.name}"'
            self._sources[name] = handle
            return name
        self._names += 1
        name = f"arrow{self._names}"
        self.connection.register(name, table)
        self._registered.append(name)
        return name

    def register_large(self, sql: str) -> str:
        """Return the name of a query's rows, which are computed now; `release` frees them before `forget` does."""
        return self.register(self.large(sql))

    def release(self, name: str) -> None:
        """Drop a registered table."""
        if self._sources.pop(name, None) is None:
            self._registered.remove(name)
            self.connection.unregister(name)

    def define(self, name: str, function: Callable[..., pa.Array], takes: list[str], returns: str) -> None:
        """Make a function of one or two Arrow arrays callable in SQL, or another one under the same name and types.

        Trap: a new function must not be defined inside a transaction, or its end may take it away.
        """
        with _defining:  # connections to one database share what is defined, and may be of several threads
            is_new = name not in self.defined
            self.defined[name] = function
            if is_new:
                self._create(name, takes, returns)

    def _create(self, name: str, takes: list[str], returns: str) -> None:
        def unary(argument: pa.Array) -> pa.Array:
            return self.defined[name](argument)

        def binary(left: pa.Array, right: pa.Array) -> pa.Array:
            return self.defined[name](left, right)

        function = unary if len(takes) == 1 else binary  # DuckDB counts the parameters
        self.kept.append(function)
        self.connection.create_function(  # type: ignore[call-overload] # its stub knows the words as enums alone
            name,
            function,
            [duckdb.sqltype(kind) for kind in takes],
            duckdb.sqltype(returns),
            type="arrow",
            null_handling="special",
        )

    def set_epoch_time(self, micros: int) -> None:
        """Set the time of the epoch that SQL is computed for, which expressions read."""
        if self.epoch_time != micros:
            self.run(f"SET VARIABLE headrace_epoch_time = make_timestamp({micros})")
            self.epoch_time = micros

    def stamp(self, step: str) -> str | None:
        """Return which state file the tables of a step are at, if it has them."""
        return self._stamping.get(step, self._stamped.get(step))

    def set_stamp(self, step: str, file: str) -> None:
        """Set which state file the tables of a step are at; takes effect with `commit`."""
        self._stamping[step] = file
        if self._keeps_stamps:
            self.run(f"DELETE FROM _heads WHERE step = {literal(step)}")
            self.run(f"INSERT INTO _heads VALUES ({literal(step)}, {literal(file)})")

    def begin(self) -> None:
        """Begin a transaction."""
        self.run("BEGIN")

    def commit(self) -> None:
        """Make what the transaction did lasting."""
        self.run("COMMIT")
        self._stamped |= self._stamping
        self._stamping.clear()

    def rollback(self) -> None:
        """Undo what the open transaction did, if there is one."""
        self._stamping.clear()
        with suppress(duckdb.TransactionException):
            self.connection.rollback()

    def forget(self) -> None:
        """Drop the Arrow tables registered so far."""
        for name in self._registered:
            self.connection.unregister(name)
        self._registered.clear()
        self._sources.clear()

    def close(self) -> None:
        """Close the connection, and its file."""
        if self._file:
            self.rollback()
            self.run(f"USE memory; DETACH {self._file}")
        self.connection.close()


def open_host(tasks: int) -> Duck:
    """Return a database in memory, for others beside it: one that was given back, else a new one.

    A new one takes 15 ms of processor time, as much as a small epoch. End with `give_back`.
    """
    folders, host = _idle.pop(os.getpid(), (None, None))
    if host is not None:
        with suppress(duckdb.Error):  # a fatal error, of whatever database beside it, ends a host
            host.run(f"SET memory_limit = '{task_memory() * tasks}B'")
            if folders == _folders():
                return host
        host.close()
    return Duck(tasks=tasks)


def give_back(host: Duck) -> None:
    """Keep a host, beside which nothing is open any more, for the next `open_host`; or close it."""
    _, other = _idle.pop(os.getpid(), (None, None))
    if other is not None:
        other.close()
    if not host.defined:  # functions of its user, which no other one may meet
        with suppress(duckdb.Error):
            host.run(f"SET memory_limit = '{_IDLE_MEMORY}'")  # which also returns what it holds to the system
            _idle[os.getpid()] = _folders(), host
            return
    host.close()


def _folders() -> tuple[object, ...]:
    return spill_folder(), cache_root()


def _database(tasks: int) -> duckdb.DuckDBPyConnection:
    """Open a database in memory, which spills to the disk what is more than the share of so many tasks.

    It can open files in the folder of caches only: no SQL reads another file, whoever wrote it.
    """
    memory = {"memory_limit": f"{task_memory() * tasks}B", "temp_directory": str(spill_folder())}
    connection = duckdb.connect(config=SETTINGS | memory)
    connection.execute(f"SET allowed_directories = [{literal(str(cache_root()))}]; SET enable_external_access = false")
    return connection


def typed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return DuckDB's rows with the columns and types of `schema`; other columns are dropped."""
    columns = []
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            column = _instants(column, field.type)
        columns.append(column)
    return pa.table(columns, schema=pa.schema([(field.name, field.type) for field in schema]))


def _instants(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_timestamp(kind) and column.type == TIMESTAMP_NTZ:
        return pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)
    return column.cast(kind)


def _unsliced(table: pa.Table) -> pa.Table:
    """Return the table without nested columns that start in the middle of their buffers: DuckDB refuses those."""
    if any(
        field.type.num_fields and any(chunk.offset for chunk in table.column(at).chunks)
        for at, field in enumerate(table.schema)
    ):
        return table.take(pa.array(range(table.num_rows), pa.int64()))
    return table
