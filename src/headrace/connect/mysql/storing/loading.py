"""An epoch's rows into one table: INSERTs of many rows, one DELETE and one INSERT … ON DUPLICATE KEY UPDATE.

Each batch and the statements on all of them have a savepoint. Where the server refuses one, halves of it are tried
again, down to the row, which the error names.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pymysql

from headrace.connect.mysql.reading import quoted
from headrace.connect.mysql.storing.encoding import Encoder
from headrace.connect.mysql.storing.errors import check_warnings, refuses_a_row, said
from headrace.connect.store import StoreRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    import pyarrow as pa

    from headrace.connect.mysql.storing.encoding import Values
    from headrace.connect.mysql.storing.tables import Target

_BLOCK = 1 << 20
"""So many bytes has a statement at most, where a row is not longer."""
_ROOM = 1 << 16
"""So much of the server's max_allowed_packet is left for the rest of a statement."""
_DELETED, _ROW = "_deleted", "_headrace_row"


class Loader:
    """Writes to one table in a connection.

    Args:
        sql: a connection, in a transaction of an epoch while rows are written.
        target: the table.
        staging: the name of its temporary table, quoted.
        epoch: the epoch.

    """

    def __init__(self, sql: pymysql.Connection[Any], target: Target, *, staging: str, epoch: int) -> None:
        self.sql, self.target, self.staging, self.epoch = sql, target, staging, epoch
        self.encoder = Encoder(target.columns)
        self.longest = int(self._ask("SELECT @@max_allowed_packet")) - _ROOM
        self.staged = 0

    def add(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Append rows."""
        self._insert_all(batches, self.target.full_name, numbered=False)

    def is_empty(self) -> bool:
        """Whether the table has no row."""
        return bool(self._ask(f"SELECT NOT EXISTS (SELECT * FROM {self.target.full_name})"))

    def fill(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Write the changes of an empty table: rows that are not deleted."""
        self.add(batch.filter(pc.invert(batch.column(_DELETED))) for batch in batches)

    def stage(self, batches: Iterator[pa.RecordBatch]) -> bool:
        """Write changes to a new temporary table, with the types of the table; return whether a key has a null."""
        columns = ", ".join(map(quoted, self.target.columns.names))
        self.drop()
        self._run(
            f"CREATE TEMPORARY TABLE {self.staging} "
            f"({_DELETED} tinyint NOT NULL DEFAULT 0, {_ROW} bigint DEFAULT 0 PRIMARY KEY) "
            f"ENGINE = InnoDB AS SELECT {columns} FROM {self.target.full_name} LIMIT 0"
        )
        nulls = []

        def looked_at() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                nulls.append(any(batch.column(name).null_count for name in self.target.key))
                yield batch

        self._insert_all(looked_at(), self.staging, numbered=True)
        return any(nulls)

    def apply(self, *, has_null: bool) -> None:
        """Apply the changes of the temporary table."""

        def part(start: int, end: int) -> None:
            whole = end - start == self.staged
            self._apply("" if whole else f"AND s.{_ROW} >= {start} AND s.{_ROW} < {end}", has_null=has_null)

        self._halves(part, 0, self.staged, self._staged)

    def _apply(self, part: str, *, has_null: bool) -> None:
        key, names = [*map(quoted, self.target.key)], [*map(quoted, self.target.columns.names)]
        delete = f"DELETE t FROM {self.staging} s STRAIGHT_JOIN {self.target.full_name} t ON "
        self._run(f"{delete} {' AND '.join(f't.{k} = s.{k}' for k in key)} WHERE s.{_DELETED} {part}")
        if has_null:  # nulls are values of a key: these rows are replaced, not updated
            alike, nulls = " AND ".join(f"t.{k} <=> s.{k}" for k in key), " OR ".join(f"s.{k} IS NULL" for k in key)
            self._run(f"{delete} {alike} WHERE ({nulls}) {part}")
        others = [name for name in names if name not in key] or key[:1]
        columns, taken = ", ".join(names), ", ".join(f"s.{name}" for name in names)
        self._run(
            f"INSERT INTO {self.target.full_name} ({columns}) SELECT {taken} FROM {self.staging} s "
            f"WHERE NOT s.{_DELETED} {part} ORDER BY {', '.join(f's.{k}' for k in key)} "
            f"ON DUPLICATE KEY UPDATE {', '.join(f'{name} = VALUES({name})' for name in others)}"
        )

    def drop(self) -> None:
        """Drop the temporary table, which does not commit."""
        self._run(f"DROP TEMPORARY TABLE IF EXISTS {self.staging}")

    def _insert_all(self, batches: Iterator[pa.RecordBatch], to: str, *, numbered: bool) -> None:
        """Insert batches; while the server reads one, a thread encodes the next one."""
        more = (_DELETED,) if numbered else ()
        names = [*self.target.columns.names, *more, *((_ROW,) if numbered else ())]
        statement = f"INSERT INTO {to} ({', '.join(map(quoted, names))}) VALUES ".encode()
        with ThreadPoolExecutor(1) as pool:

            def encode(rows: pa.RecordBatch, first: int) -> Future[Values]:
                return pool.submit(self.encoder.encode, rows, first if numbered else None, more=more)

            waiting: deque[tuple[pa.RecordBatch, int, Future[Values]]] = deque()
            for batch in batches:
                if batch.num_rows:
                    waiting.append((batch, self.staged, encode(batch, self.staged)))
                    self.staged += batch.num_rows
                if len(waiting) > 1:
                    self._insert(*waiting.popleft(), encode, statement)
            for batch, first, encoded in waiting:
                self._insert(batch, first, encoded, encode, statement)

    def _insert(
        self,
        batch: pa.RecordBatch,
        first: int,
        encoded: Future[Values],
        encode: Callable[[pa.RecordBatch, int], Future[Values]],
        statement: bytes,
    ) -> None:
        def part(start: int, end: int) -> None:
            whole = end - start == batch.num_rows
            values = (encoded if whole else encode(batch.slice(start, end - start), first + start)).result()
            for each in values.parts(_BLOCK, self.longest):
                self._run(b"".join((statement, each)))

        def row(at: int) -> Mapping[str, Any]:
            named = batch.select(self.target.key or self.target.columns.names).slice(at, 1)
            try:
                return dict(named.to_pylist()[0])
            except (OverflowError, ValueError):  # an instant that Python does not have
                return {"the number in its batch": at}

        self._halves(part, 0, batch.num_rows, row)

    def _halves(
        self, part: Callable[[int, int], None], start: int, end: int, row: Callable[[int], Mapping[str, Any]]
    ) -> None:
        """Do a part in a savepoint; where it is refused, its halves, down to the row."""
        self._run("SAVEPOINT headrace", checked=False)
        try:
            part(start, end)
        except pymysql.Error as error:
            if not refuses_a_row(error):
                raise
            if end - start <= 1:
                self._refuse(row(start), error)
        else:
            return
        self._run("ROLLBACK TO SAVEPOINT headrace", checked=False)
        middle = (start + end) // 2
        self._halves(part, start, middle, row)
        self._halves(part, middle, end, row)

    def _refuse(self, values: Mapping[str, Any], error: pymysql.Error) -> None:
        shown = ", ".join(f"{name} = {value}" for name, value in values.items())
        raise StoreRefused(
            f"the table {self.target.full_name}", f"the row with {shown[:300]}: {said(error)}", epoch=self.epoch
        ) from error

    def _staged(self, row: int) -> Mapping[str, Any]:
        with self.sql.cursor(pymysql.cursors.DictCursor) as cursor:
            columns = ", ".join(map(quoted, self.target.key))
            cursor.execute(f"SELECT {columns} FROM {self.staging} WHERE {_ROW} = %s", [row])
            return dict(cursor.fetchone() or {})

    def _run(self, statement: str | bytes, *, checked: bool = True) -> None:
        with self.sql.cursor() as cursor:
            cursor.execute(statement)  # bytes are sent as they are
        if checked:  # statements without a table keep the warnings of the one before
            check_warnings(self.sql)

    def _ask(self, query: str) -> Any:
        with self.sql.cursor() as cursor:
            cursor.execute(query)
            found = cursor.fetchone()
        return found[0] if found else None
