"""The sink: rows are written by their primary key, with timestamps that grow with the writers and with the epochs.

What has an older timestamp changes nothing. So an epoch may be written again, also in part; and what an old process of
the app still sends comes too late, since its timestamps are older than those of the newer one.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Self

import cassandra
import pyarrow as pa
from cassandra.concurrent import execute_concurrent
from cassandra.query import SimpleStatement

from headrace.base.errors import InvalidPlan
from headrace.base.outside import OutputLost, Unavailable
from headrace.connect.cassandra.address import CassandraAddress, failures
from headrace.connect.cassandra.values import cql_type, parameters, rows_of, stored, stored_schema
from headrace.connect.comparing import compare_rows
from headrace.connect.sink import SinkWriter
from headrace.connect.store import StoreDiffers, StoreRefused, StoreSink, WriterFenced

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.base.time import Clock
    from headrace.connect.sink import Difference

MARKS = "headrace_marks"
_NAME = re.compile(r"[A-Za-z0-9_]{1,222}")
CONCURRENT = 100
"""So many statements are on their way at once."""
_AT_ONCE = 5_000
_TRIES = 10
_IS_THERE = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
_REFUSALS = (cassandra.InvalidRequest, TypeError, ValueError, OverflowError)


def table(address: str, name: str, *, partition_by: str | Sequence[str] = ()) -> CassandraTable:
    """Return a table of Cassandra, or of a server of its protocol, as a sink: the current rows of a table, by its key.

    Exactly once, row by row: a repeated or late write changes nothing, and each row has the value of the last epoch.
    But the rows of one epoch become visible one after the other. Instants are cut to milliseconds; nested values are
    JSON. A key may have no nulls, and no instants.

    Args:
        address: `cassandra://user:env:PASSWORD@host,host:9042/keyspace`; `cassandras://` with TLS. The keyspace exists.
        name: of the table, which is created where it is missing.
        partition_by: the columns of the key by which rows are spread over nodes, the others order a partition; all of
            the key where there are none.

    Raises:
        InvalidPlan: the address is none, or the name is none of a table.

    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == MARKS:
        raise InvalidPlan(f"{name!r} is no name of a table", hint="It has letters of ASCII, digits and _, 1 to 222.")
    columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    return CassandraTable(address=CassandraAddress.parse(address), table=name, partition_by=columns)


@dataclass(frozen=True, kw_only=True)
class CassandraTable(StoreSink):
    """A table of Cassandra."""

    address: CassandraAddress
    table: str
    partition_by: tuple[str, ...] = ()
    takes_streams: ClassVar[bool] = False

    @property
    def where(self) -> str:
        """The address and the table."""
        return f"the table {self.table} of {self.address.place}"

    @property
    def name(self) -> str:
        """The address and the table."""
        return f"{self.address.place}/{self.table}"

    def for_step(
        self, *, schema: pa.Schema, key: tuple[str, ...] | None, is_table: bool, sealed: frozenset[str]
    ) -> Self:
        """Return the sink for the rows of a step.

        Raises:
            InvalidPlan: the key has instants or nested values, or not the columns to partition by.

        """
        fitted = super().for_step(schema=schema, key=key, is_table=is_table, sealed=sealed)
        for each in fitted.key:
            kind = schema.field(each).type
            if pa.types.is_timestamp(kind) or pa.types.is_nested(kind):
                raise InvalidPlan(
                    f'{self.where}: the key\'s column "{each}" cannot be a part of a primary key',
                    detail="Instants are cut to milliseconds, and nested values have no order there.",
                    hint="Make it a text or a bigint: .with_columns(…).",
                )
        if not set(self.partition_by) <= set(fitted.key):
            raise InvalidPlan(
                f"{self.where} is to be partitioned by {', '.join(self.partition_by)}",
                hint=f"Take columns of the key: {', '.join(fitted.key)}.",
            )
        return fitted

    @property
    def partition(self) -> tuple[str, ...]:
        """The columns of the partition key, in the key's order."""
        return tuple(name for name in self.key if name in self.partition_by) or self.key

    @contextmanager
    def session(self) -> Iterator[Any]:
        """Connect, with errors as ours.

        Raises:
            StoreDiffers: there is no such keyspace.
            Unavailable: no node answers.
            AccessRefused: user, password or rights are wrong.

        """
        with failures(self.where):
            cluster = self.address.cluster()
            try:
                session = cluster.connect()
                if self.address.keyspace not in cluster.metadata.keyspaces:
                    raise StoreDiffers(
                        f'{self.where}: there is no keyspace "{self.address.keyspace}"',
                        hint=f"CREATE KEYSPACE {_quoted(self.address.keyspace)} WITH replication = "
                        "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}",
                    )
                session.set_keyspace(self.address.keyspace)
                yield session
            finally:
                cluster.shutdown()

    def prepare(self, *, clock: Clock) -> None:
        """Create the table and that of the marks, or check its columns.

        Raises:
            StoreDiffers: it has other columns, or another primary key.
            Unavailable: no node answers.

        """
        del clock
        rest = [name for name in self.key if name not in self.partition]
        primary = ", ".join([f"({', '.join(map(_quoted, self.partition))})", *map(_quoted, rest)])
        columns = ", ".join(f"{_quoted(each.name)} {cql_type(each.type)}" for each in self.columns)
        wanted = {each.name: cql_type(each.type) for each in self.columns}
        with self.session() as session:
            session.execute(
                f"CREATE TABLE IF NOT EXISTS {MARKS} (name text, writer text, base bigint, written bigint, "
                "epoch bigint, PRIMARY KEY (name, writer))"
            )
            self._take_back_marks(session)
            session.execute(f"CREATE TABLE IF NOT EXISTS {_quoted(self.table)} ({columns}, PRIMARY KEY ({primary}))")
            keyspace = self.address.keyspace
            session.cluster.refresh_table_metadata(keyspace, self.table)
            found = session.cluster.metadata.keyspaces[keyspace].tables[self.table]
            has = {name: each.cql_type for name, each in found.columns.items()}
            key = [each.name for each in found.primary_key]
            partition = [each.name for each in found.partition_key]
        if not wanted.items() <= has.items() or (key, partition) != ([*self.partition, *rest], [*self.partition]):
            raise StoreDiffers(
                f"{self.where} has other columns, or another primary key, than the step",
                detail=f"It has {_told(has)} with the key {', '.join(key)}, partitioned by {', '.join(partition)}; "
                f"the step has {_told(wanted)} with the key {', '.join([*self.partition, *rest])}.",
                hint="ALTER TABLE … ADD a column that is missing, or write to another table: it is filled.",
            )

    def _take_back_marks(self, session: Any) -> None:
        """Where the table is gone, say so in the marks of all that wrote to it, before it is created anew."""
        look = session.prepare(f"SELECT writer, epoch FROM {MARKS} WHERE name = ?")
        look.consistency_level = cassandra.ConsistencyLevel.LOCAL_SERIAL
        marks = [row for row in session.execute(look, [self.table]) if row.epoch >= 0]
        if marks and session.execute(_IS_THERE, [self.address.keyspace, self.table]).one() is None:
            take_back = session.prepare(f"UPDATE {MARKS} SET epoch = -1 WHERE name = ? AND writer = ? IF epoch = ?")
            for each in marks:
                session.execute(take_back, [self.table, each.writer, each.epoch])

    def compare(self, rows: Iterator[pa.RecordBatch], *, repair: bool) -> Difference | None:
        """Return how the table differs from what it should have, and with `repair` bring it level.

        Raises:
            Unavailable: no node answers.

        """
        plain = replace(self, columns=stored_schema(self.columns))
        names = ", ".join(map(_quoted, self.columns.names))
        with self.session() as session:
            query = SimpleStatement(f"SELECT {names} FROM {_quoted(self.table)}", fetch_size=_AT_ONCE)
            held = rows_of(session.execute(query), plain.columns, _AT_ONCE)
            return compare_rows(plain, (stored(each, self.columns) for each in rows), held, repair=repair)

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer.

        Raises:
            Unavailable: no node answers.

        """
        return TableWriter(self, writer, clock)


class TableWriter(SinkWriter):
    """Writes epochs: their rows with one timestamp, then the mark, if no newer writer has taken it over."""

    def __init__(self, sink: CassandraTable, writer: str, clock: Clock) -> None:
        self.sink, self.writer = sink, writer
        self._open = ExitStack()
        self._session: Any = None
        with self._connected():
            self.base, self.last = self._take_over(clock)
        self._first = self.last

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Connect, if there is no connection; one that fails is closed, so that the next epoch gets a new one."""
        try:
            with failures(self.sink.where):
                if self._session is None:
                    self._session = self._open.enter_context(self.sink.session())
                    self._prepare()
                yield
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        names, key = self.sink.columns.names, self.sink.key
        table, values = _quoted(self.sink.table), ", ".join("?" * len(names))
        same = " AND ".join(f"{_quoted(name)} = ?" for name in key)
        prepared = self._session.prepare
        self._put = prepared(
            f"INSERT INTO {table} ({', '.join(map(_quoted, names))}) VALUES ({values}) USING TIMESTAMP ?"
        )
        self._delete = prepared(f"DELETE FROM {table} USING TIMESTAMP ? WHERE {same}")
        for each in (self._put, self._delete):
            each.is_idempotent = True
        self._mark = prepared(
            f"UPDATE {MARKS} SET epoch = ?, written = ? WHERE name = ? AND writer = ? IF base = ? AND epoch = ?"
        )

    def _take_over(self, clock: Clock) -> tuple[int, int]:
        """Return a timestamp that is later than all that were written to the table, and the last epoch.

        Raises:
            Unavailable: other processes do the same all the time.

        """
        look = self._session.prepare(f"SELECT writer, base, written, epoch FROM {MARKS} WHERE name = ?")
        look.consistency_level = cassandra.ConsistencyLevel.LOCAL_SERIAL
        begin = f"INSERT INTO {MARKS} (name, writer, base, written, epoch) VALUES (?, ?, ?, ?, -1) IF NOT EXISTS"
        go_on = f"UPDATE {MARKS} SET base = ? WHERE name = ? AND writer = ? IF base = ?"
        for _ in range(_TRIES):
            marks = {row.writer: row for row in self._session.execute(look, [self.sink.table])}
            used = max((max(row.base, row.written) for row in marks.values()), default=0)
            base, mine = max(clock.now(), used + 1), marks.get(self.writer)
            if mine is None:
                taken = self._execute(begin, self.sink.table, self.writer, base, base)
            else:
                taken = self._execute(go_on, base, self.sink.table, self.writer, mine.base)
            if taken:
                return base, -1 if mine is None else mine.epoch
        raise Unavailable(f"{self.sink.where}: other processes of this app take it over again and again")

    def _execute(self, statement: str, *values: Any) -> bool:
        return bool(self._session.execute(self._session.prepare(statement), values).was_applied)

    def last_epoch(self) -> int | None:
        """Return the last epoch that the table has."""
        return self.last

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Write an epoch's rows, then its mark.

        Raises:
            Unavailable: too few nodes answer; what is written already is written again.
            StoreRefused: the table refuses a row; rows before it are written, and will be again.
            WriterFenced: a newer process of the app writes.
            OutputLost: the table was dropped.

        """
        if epoch <= self.last:
            return
        fault, at = self.sink.fault, self.base + epoch - self._first
        fault("before_rows")
        with self._connected():
            for batch in rows:
                self._write(epoch, at, batch)
                fault("rows_written")
            self._write_mark(epoch, at)
        self.last = epoch
        fault("after_mark")

    def _write_mark(self, epoch: int, at: int) -> None:
        """Write the mark after the one that this writer wrote last.

        Raises:
            WriterFenced: a newer process of the app has taken over.
            OutputLost: the cluster has an older mark: it has lost acknowledged writes.

        """
        values = [epoch, at, self.sink.table, self.writer, self.base, self.last]
        try:
            marked = self._session.execute(self._mark, values)
        except cassandra.InvalidRequest as error:
            raise OutputLost(f"{self.sink.where}: the marks of epochs are gone: {error}") from None
        if marked.was_applied:
            return
        found = marked.one()
        if getattr(found, "base", self.base) != self.base:
            raise WriterFenced(self.sink.where)
        has = getattr(found, "epoch", None)
        if has != epoch:  # else an attempt before this one has written it, and did not hear so
            raise OutputLost(f"{self.sink.where} has epoch {has}, and epoch {self.last} was written to it")

    def _write(self, epoch: int, at: int, batch: pa.RecordBatch) -> None:
        rows = stored(batch, self.sink.columns)
        names, deleted = rows.schema.names, batch.column("_deleted").to_pylist()
        columns = parameters(rows)
        places = [names.index(name) for name in self.sink.key]
        keys = list(zip(*(columns[place] for place in places), strict=True))
        for key in keys if any(rows.column(place).null_count for place in places) else ():
            if None in key:
                why = f"a primary key has no nulls, and a row has {key}"
                raise StoreRefused(self.sink.where, why, epoch=epoch, in_part=True)
        statements = (
            (self._delete, (at, *key)) if gone else (self._put, (*row, at))
            for row, key, gone in zip(zip(*columns, strict=True), keys, deleted, strict=True)
        )
        done = 0
        while part := list(islice(statements, _AT_ONCE)):
            results = execute_concurrent(self._session, part, concurrency=CONCURRENT, raise_on_first_error=False)
            for number, (succeeded, result) in enumerate(results):
                if not succeeded and isinstance(result, _REFUSALS):
                    why = f"{result} (key: {keys[done + number]})"
                    raise StoreRefused(self.sink.where, why, epoch=epoch, in_part=True)
                if not succeeded:
                    raise result
            done += len(part)

    def close(self) -> None:
        """Close the connections."""
        self._session = None
        self._open.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _told(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in sorted(columns.items()))
