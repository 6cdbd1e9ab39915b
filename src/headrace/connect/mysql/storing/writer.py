"""Writes epochs to the tables of an address: one transaction an epoch, with its mark, and a generation that fences.

What is ours is in the database of the address:

| table | what |
|---|---|
| `headrace_marks` | by writer, the last epoch that is here, and how often a writer of this name was opened |
| `headrace_created` | tables that we have created, and nothing was written to: who has written to them has lost them |

All transactions of a writer have a lock of the server (GET_LOCK), by which the connection that has it is found. A
newer writer waits for it, then ends that connection.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pymysql

from headrace.base.outside import OutputLost, Unavailable
from headrace.connect.mysql.reading import quoted
from headrace.connect.mysql.storing.errors import as_ours, code_of
from headrace.connect.mysql.storing.loading import Loader
from headrace.connect.mysql.storing.tables import creating
from headrace.connect.mysql.storing.types import EXACT
from headrace.connect.sink import SharedWriter
from headrace.connect.store import StoreDiffers, WriterFenced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from headrace.connect.mysql.address import MysqlAddress
    from headrace.connect.mysql.storing.tables import Target

MARKS, CREATED = "headrace_marks", "headrace_created"
OLDEST = (10, 5)
LONGEST_WAIT = 30
"""So many seconds an epoch waits for a lock of somebody else, before that is told; then it is tried again."""
PATIENCE = 5
"""So many seconds a newer writer waits for an older one, before it ends its connection."""
_MODE = (
    "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,NO_AUTO_VALUE_ON_ZERO,NO_BACKSLASH_ESCAPES,NO_ENGINE_SUBSTITUTION"
)
_SESSION = "SET SESSION sql_mode = %s, innodb_lock_wait_timeout = %s, lock_wait_timeout = %s"
_OURS = (
    "CREATE TABLE IF NOT EXISTS {marks} (writer varchar(700) PRIMARY KEY, epoch bigint, generation bigint) {end}",
    "CREATE TABLE IF NOT EXISTS {created} (table_name varchar(700) PRIMARY KEY) {end}",
)
_END = f"ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE {EXACT}"
_OPEN = "INSERT INTO {marks} VALUES (%s, -1, 1) ON DUPLICATE KEY UPDATE generation = generation + 1"
_NO_SUCH_THREAD, _NOT_OURS = 1094, 1095


class Stored(NamedTuple):
    """A table that is written to: its rows are changes by key, or are added."""

    target: Target
    changes: bool


def prepare(address: MysqlAddress, target: Target, *, creates: bool = True) -> None:
    """Create what is missing of ours and the table, or check it; without `creates` only check what is there.

    Raises:
        StoreDiffers: the table cannot store the rows, nothing may be created, or the server is no MariaDB of 10.5 on.
        Unavailable: the server does not answer.

    """
    sql = address.open()
    try:
        _check_version(sql, str(address))
        if creates:
            make_ours(sql, address)
        target.make(sql, _named(address, CREATED) if creates else None)
    except pymysql.Error as error:
        raise as_ours(error, str(address), epoch=-1) from error
    finally:
        if sql.open:
            sql.close()


def make_ours(sql: pymysql.Connection[Any], address: MysqlAddress) -> None:
    """Create the tables of marks, if they are missing."""
    names = {"marks": _named(address, MARKS), "created": _named(address, CREATED), "end": _END}
    with sql.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = %s AND table_name IN (%s, %s)",
            [address.database, MARKS, CREATED],
        )
        if (found := cursor.fetchone()) is not None and found[0] == len(_OURS):
            return
        with creating(sql, address.database):
            for statement in _OURS:
                cursor.execute(statement.format(**names))


class MysqlWriter(SharedWriter):
    """Writes epochs to tables of one address.

    Args:
        address: the server and the database of the marks.
        tables: by sink.
        writer: `<app>/<storage id>`.
        fault: called where a test may crash.

    """

    opening_wait = LONGEST_WAIT
    """So many seconds `take_over` waits for the mark, which an older writer may have locked."""

    def __init__(
        self, address: MysqlAddress, tables: Mapping[str, Stored], writer: str, *, fault: Callable[[str], None]
    ) -> None:
        self.address, self.tables, self.writer, self.fault = address, tables, writer, fault
        self.sql: pymysql.Connection[Any] | None = None
        self.last, self.generation = -1, -1
        self.marks, self.created = _named(address, MARKS), _named(address, CREATED)
        self.short = hashlib.sha256(f"{address.database}\0{writer}".encode()).hexdigest()[:24]

    def take_over(self) -> None:
        """Begin: older writers of the same name are fenced.

        Raises:
            Unavailable: the server does not answer, or somebody else holds the lock.

        """
        with self.connected(-1) as sql:
            make_ours(sql, self.address)
            if not self.locked(sql, PATIENCE):
                self.end_holder(sql)
            run(sql, "SET SESSION innodb_lock_wait_timeout = %s", [self.opening_wait])
            with self._transaction(sql):
                run(sql, _OPEN.format(marks=self.marks), [self.writer])
                self.last, self.generation = self.locked_mark(sql)
            run(sql, "SET SESSION innodb_lock_wait_timeout = %s", [LONGEST_WAIT])

    def last_epoch(self) -> int | None:
        """Return the last epoch that the database has."""
        return self.last

    def check_published(self, epochs: Mapping[str, int]) -> None:
        """Check that no table to which rows were written had to be created anew.

        Raises:
            OutputLost: one was.

        """
        with self.connected(-1) as sql:
            created = {name for (name,) in run(sql, f"SELECT table_name FROM {self.created}")}
        lost = [target for name in epochs if (target := self.tables[name].target.full_name) in created]
        if lost:
            raise OutputLost(f"the table {lost[0]} of {self.address} was gone, and had to be created anew")

    def publish(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        """Write an epoch in one transaction.

        Raises:
            Unavailable: the server does not answer.
            WriterFenced: a newer writer has taken over.
            StoreRefused: the server refuses a row, or the transaction.

        """
        self.fault("before_transaction")
        with self.connected(epoch) as sql, self._transaction(sql):
            if self.take(sql) < epoch:
                self.write(sql, epoch, rows)
                self.set_mark(sql, epoch)
                self.fault("before_transaction_ends")
        self.last = epoch
        self.fault("after_transaction")

    def take(self, sql: pymysql.Connection[Any]) -> int:
        """Lock this writer's mark until the transaction ends, and return the epoch that is here.

        Raises:
            WriterFenced: a newer writer has taken over.

        """
        last, generation = self.locked_mark(sql)
        if generation != self.generation:
            raise WriterFenced(str(self.address))
        return last

    def mark_of(self, sql: pymysql.Connection[Any]) -> int:
        """Return the epoch that is committed here, -1 for none."""
        there = run(
            sql,
            "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            [self.address.database, MARKS],
        )
        found = run(sql, f"SELECT epoch FROM {self.marks} WHERE writer = %s", [self.writer]) if there else []
        return int(found[0][0]) if found else -1

    def set_mark(self, sql: pymysql.Connection[Any], epoch: int) -> None:
        """Write the mark, in the transaction of the rows."""
        run(sql, f"UPDATE {self.marks} SET epoch = %s WHERE writer = %s", [epoch, self.writer])

    def write(self, sql: pymysql.Connection[Any], epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        """Write an epoch's rows to all tables, in a transaction."""
        for number, (name, batches) in enumerate(rows.items()):
            stored = self.tables[name]
            staging = _named(self.address, f"_headrace_{self.short}_{number}")
            loader = Loader(sql, stored.target, staging=staging, epoch=epoch)
            if not stored.changes:
                loader.add(batches)
            elif loader.is_empty():
                loader.fill(batches)
            else:
                has_null = loader.stage(batches)
                self.fault("in_transaction")
                loader.apply(has_null=has_null)
                loader.drop()
            run(sql, f"DELETE FROM {self.created} WHERE table_name = %s", [stored.target.full_name])
            self.fault("in_transaction_after_a_table")

    def locked_mark(self, sql: pymysql.Connection[Any]) -> tuple[int, int]:
        """Lock this writer's mark until the transaction ends; return its epoch and generation."""
        found = run(sql, f"SELECT epoch, generation FROM {self.marks} WHERE writer = %s FOR UPDATE", [self.writer])
        if not found:
            raise StoreDiffers(
                f"{self.address} has lost the mark of {self.writer}",
                detail=f"The table {MARKS} has no row of it: what was written cannot be told.",
                hint="Restore it, or start again: then the epoch is written once more.",
            )
        return int(found[0][0]), int(found[0][1])

    @contextmanager
    def _transaction(self, sql: pymysql.Connection[Any]) -> Iterator[None]:
        """Run a transaction under this writer's lock; where the block fails, the connection is closed after it."""
        self.lock(sql)
        sql.begin()
        yield
        sql.commit()
        unlock(sql)

    def lock(self, sql: pymysql.Connection[Any]) -> None:
        """Wait for this writer's lock, which a connection has for as long as it has a transaction of an epoch.

        Raises:
            Unavailable: another one does not end.

        """
        if not self.locked(sql, LONGEST_WAIT):
            raise Unavailable(f"{self.address} is written by another process", hint="It is tried again.")

    def locked(self, sql: pymysql.Connection[Any], seconds: int) -> bool:
        """Wait for this writer's lock for some seconds; return whether this connection has it."""
        return bool(run(sql, "SELECT GET_LOCK(%s, %s)", [f"headrace {self.short}", seconds])[0][0])

    def end_holder(self, sql: pymysql.Connection[Any]) -> None:
        """End the connection that has this writer's lock: it hangs in its transaction, which is rolled back."""
        ((holder,),) = run(sql, "SELECT IS_USED_LOCK(%s)", [f"headrace {self.short}"])
        try:
            if holder is not None:
                run(sql, f"KILL CONNECTION {int(holder)}")
        except pymysql.Error as error:
            if code_of(error) == _NOT_OURS:
                raise Unavailable(
                    f"{self.address} is written by another user's process, which hangs", hint=f"KILL {int(holder)}"
                ) from error
            if code_of(error) != _NO_SUCH_THREAD:
                raise

    @contextmanager
    def connected(self, epoch: int) -> Iterator[pymysql.Connection[Any]]:
        """Give a connection, kept until something fails; errors of the server as ours."""
        try:
            if self.sql is None or not self.sql.open:
                self.sql = self.address.open()
                run(self.sql, _SESSION, [_MODE, LONGEST_WAIT, LONGEST_WAIT])
            yield self.sql
        except BaseException as error:
            self.close()
            if isinstance(error, pymysql.Error):
                raise as_ours(error, str(self.address), epoch=epoch) from error
            raise

    def close(self) -> None:
        """Close the connection."""
        if self.sql is not None and self.sql.open:
            with suppress(pymysql.Error):
                self.sql.close()
        self.sql = None

    def __del__(self) -> None:
        """Close what a crash in a test left open."""
        if getattr(self, "sql", None) is not None:
            self.close()


def _named(address: MysqlAddress, name: str) -> str:
    return f"{quoted(address.database)}.{quoted(name)}"


def unlock(sql: pymysql.Connection[Any]) -> None:
    """Give back the locks of a connection."""
    run(sql, "DO RELEASE_ALL_LOCKS()")


def run(sql: pymysql.Connection[Any], statement: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
    """Run a statement and return its rows."""
    with sql.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())


def _check_version(sql: pymysql.Connection[Any], where: str) -> None:
    version = str(run(sql, "SELECT version()")[0][0])
    if "mariadb" not in version.lower() or tuple(int(each) for each in version.split(".")[:2]) < OLDEST:
        raise StoreDiffers(f"{where} is version {version}", hint="MariaDB 10.5 or later is needed.")
