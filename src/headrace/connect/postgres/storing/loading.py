"""An epoch's rows into one table: COPY, then one DELETE and one INSERT … ON CONFLICT; and the row that is refused.

Each batch and the statements on all of them have a savepoint. Where the server refuses one, halves of it are tried
again, down to the row: about twice the work, once.
"""

from __future__ import annotations

import json
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql as words

from headrace.connect.postgres.storing.encoding import Encoder
from headrace.connect.postgres.storing.errors import refuses_a_row, said
from headrace.connect.store import StoreRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.connect.postgres.storing.tables import Target

_BLOCK = 1 << 20
MOST_REFUSED = 1000
"""So many rows of an epoch and a table become dead letters; with more the table itself is wrong."""
_DELETED = "_deleted"


class Refusals:
    """What happens with rows that the server refuses: the epoch fails, or they are kept apart.

    Args:
        target: the table.
        epoch: the epoch.
        keep: called with a row and the reason; None: the epoch fails.

    """

    def __init__(self, target: Target, epoch: int, keep: Callable[[str, str], None] | None) -> None:
        self.target, self.epoch, self.keep = target, epoch, keep
        self.count = 0

    def add(self, values: Mapping[str, Any], error: psycopg.Error) -> None:
        """Keep a row, or raise `StoreRefused`, which names it."""
        named = {name: values[name] for name in self.target.key} or values
        shown = ", ".join(f"{name} = {value}" for name, value in named.items())
        self.count += 1
        if self.keep is None or self.count > MOST_REFUSED:
            more = f"{MOST_REFUSED} other rows, and " if self.keep is not None else ""
            raise StoreRefused(
                f"the table {self.target.full_name}",
                f"{more}the row with {shown[:300]}: {said(error)}",
                epoch=self.epoch,
            ) from error
        self.keep(json.dumps(values, default=str, ensure_ascii=True), said(error))


class Loader:
    """Writes to one table in a connection.

    Args:
        sql: a connection, in a transaction of an epoch while rows are written.
        target: the table.
        name: what tells its staging table from others.
        staging: the schema of the staging table; None: a temporary one.

    """

    def __init__(self, sql: psycopg.Connection, target: Target, *, name: str = "0", staging: str | None = None) -> None:
        self.sql, self.target = sql, target
        name = f"_headrace_{name}"
        self.staging = words.Identifier(name) if staging is None else words.Identifier(staging, name)
        self.temporary = staging is None
        self.deletes = False
        self.deleted = 0
        """How many rows `apply` has deleted."""
        self.encoder = Encoder(target.columns)

    def add(self, batches: Iterator[pa.RecordBatch], refusals: Refusals) -> None:
        """Append rows."""
        self._copy_all(batches, self.target.identifier, refusals)

    def is_empty(self) -> bool:
        """Whether the table has no row."""
        found = self.sql.execute(self._said("SELECT EXISTS (SELECT FROM {table})")).fetchone()
        return found is not None and not found[0]

    def fill(self, batches: Iterator[pa.RecordBatch], refusals: Refusals) -> None:
        """Write the changes of an empty table: rows that are not deleted."""
        self.add((batch.filter(pc.invert(batch.column(_DELETED))) for batch in batches), refusals)

    def stage(self, batches: Iterator[pa.RecordBatch], refusals: Refusals) -> bool:
        """Copy changes to the staging table, which is emptied before; return whether a key has a null."""
        self._make_staging()
        nulls = []

        def looked_at() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                nulls.append(any(batch.column(name).null_count for name in self.target.key))
                yield batch

        self._copy_all(looked_at(), self.staging, refusals, more=(_DELETED,))
        return any(nulls)

    def apply(self, refusals: Refusals, *, has_null: bool) -> None:
        """Apply the changes of the staging table."""
        found = self.sql.execute(self._said("SELECT EXISTS (SELECT FROM {staging} WHERE _deleted)")).fetchone()
        self.deletes = found is not None and bool(found[0])
        if self.deletes:  # whatever the server thinks of the table: no plan compares all rows of both
            indexed = "CREATE INDEX ON {staging} ({key}) WHERE _deleted"
            self.sql.execute(self._said(indexed, key=_listed(self.target.key)))
            self.sql.execute("SET LOCAL enable_material = off")
            self.sql.execute(self._said("ANALYZE {staging}"))
        try:
            with self.sql.transaction():
                self._apply("", has_null=has_null)
        except psycopg.Error as error:
            if not refuses_a_row(error):
                raise
        else:
            return
        self.sql.execute(self._said("ALTER TABLE {staging} ADD COLUMN _row bigint GENERATED ALWAYS AS IDENTITY"))
        self.sql.execute(self._said("CREATE INDEX ON {staging} (_row)"))
        self.sql.execute(self._said("ANALYZE {staging}"))
        counted = self.sql.execute(self._said("SELECT count(*) FROM {staging}")).fetchone()

        def part(start: int, end: int) -> None:
            self._apply(f"AND _row > {start} AND _row <= {end}", has_null=has_null)

        def refused(at: int, error: psycopg.Error) -> None:
            refusals.add(self._staged(at + 1), error)

        self._halves(part, 0, counted[0] if counted else 0, refused)

    def _apply(self, part: str, *, has_null: bool) -> None:
        key, names = self.target.key, self.target.columns.names
        values = {"part": words.SQL(part), "key": _listed(key), "columns": _listed(names)}
        deleted = "DELETE FROM {table} t USING {staging} s WHERE s._deleted AND {same} {part}"
        if self.deletes:
            found = self.sql.execute(self._said(deleted, same=_each(key, "t.{0} = s.{0}"), **values))
            self.deleted += found.rowcount
        if self.deletes and has_null:
            nulls = words.SQL(" OR ").join(words.SQL("s.{} IS NULL").format(words.Identifier(name)) for name in key)
            alike = _each(key, "t.{0} IS NOT DISTINCT FROM s.{0}")
            found = self.sql.execute(self._said(deleted + " AND ({nulls})", same=alike, nulls=nulls, **values))
            self.deleted += found.rowcount
        others = [name for name in names if name not in key]
        update = "UPDATE SET {others}" if others else "NOTHING"
        inserted = "INSERT INTO {table} ({columns}) SELECT {columns} FROM {staging} WHERE NOT _deleted {part} "
        inserted += "ORDER BY {key} "  # neighbours in the index and in the table are written together
        self.sql.execute(
            self._said(
                inserted + "ON CONFLICT ({key}) DO " + update,
                others=_each(others, "{0} = EXCLUDED.{0}", ", "),
                **values,
            )
        )

    def drop(self) -> None:
        """Drop the staging table, where the transaction's end does not."""
        if not self.temporary:
            self.sql.execute(self._said("DROP TABLE {staging}"))

    def _make_staging(self) -> None:
        """Create the staging table, whose columns have the types of the table and no constraint."""
        kind = "TEMP" if self.temporary else "UNLOGGED"
        end = "ON COMMIT DROP" if self.temporary else ""
        self.sql.execute(self._said("DROP TABLE IF EXISTS {staging}"))
        shape = "SELECT {columns}, false AS _deleted FROM {table}"
        create = f"CREATE {kind} TABLE {{staging}} {end} AS {shape} WITH NO DATA"
        self.sql.execute(self._said(create, columns=_listed(self.target.columns.names)))

    def _copy_all(
        self,
        batches: Iterator[pa.RecordBatch],
        to: words.Identifier,
        refusals: Refusals,
        *,
        more: tuple[str, ...] = (),
    ) -> None:
        """Copy batches; while the server reads one, a thread encodes the next one."""
        names = _listed([*self.target.columns.names, *more])
        statement = words.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(to, names)
        with ThreadPoolExecutor(1) as pool:

            def encode(rows: pa.RecordBatch) -> Future[memoryview]:
                return pool.submit(self.encoder.encode, rows, more=more)

            waiting: deque[tuple[pa.RecordBatch, Future[memoryview]]] = deque()
            for batch in batches:
                if batch.num_rows:
                    waiting.append((batch, encode(batch)))
                if len(waiting) > 1:
                    self._copy(*waiting.popleft(), encode, statement, refusals)
            for batch, encoded in waiting:
                self._copy(batch, encoded, encode, statement, refusals)

    def _copy(
        self,
        batch: pa.RecordBatch,
        encoded: Future[memoryview],
        encode: Callable[[pa.RecordBatch], Future[memoryview]],
        statement: words.Composed,
        refusals: Refusals,
    ) -> None:
        def part(start: int, end: int) -> None:
            whole = end - start == batch.num_rows
            content = (encoded if whole else encode(batch.slice(start, end - start))).result()
            with self.sql.cursor().copy(statement) as copy:
                for at in range(0, len(content), _BLOCK):
                    copy.write(content[at : at + _BLOCK])

        def refused(at: int, error: psycopg.Error) -> None:
            refusals.add(batch.select(self.target.columns.names).slice(at, 1).to_pylist()[0], error)

        self._halves(part, 0, batch.num_rows, refused)

    def _halves(
        self,
        part: Callable[[int, int], None],
        start: int,
        end: int,
        refused: Callable[[int, psycopg.Error], None],
    ) -> None:
        """Do a part in a savepoint; where it is refused, its halves, down to single rows."""
        try:
            with self.sql.transaction():
                part(start, end)
        except psycopg.Error as error:
            if not refuses_a_row(error):
                raise
            if end - start == 1:
                refused(start, error)
                return
        else:
            return
        middle = (start + end) // 2
        self._halves(part, start, middle, refused)
        self._halves(part, middle, end, refused)

    def _staged(self, row: int) -> Mapping[str, Any]:
        query = self._said(
            "SELECT row_to_json(r) FROM (SELECT {columns} FROM {staging} WHERE _row = %s) r",
            columns=_listed(self.target.columns.names),
        )
        found = self.sql.execute(query, [row]).fetchone()
        return found[0] if found else {}

    def _said(self, statement: str, **values: words.Composable) -> words.Composed:
        named = {"table": self.target.identifier, "staging": self.staging} | values
        return words.SQL(statement).format(**named)


def _listed(names: list[str] | tuple[str, ...]) -> words.Composed:
    return words.SQL(", ").join(map(words.Identifier, names))


def _each(names: list[str] | tuple[str, ...], shape: str, between: str = " AND ") -> words.Composed:
    return words.SQL(between).join(words.SQL(shape).format(words.Identifier(name)) for name in names)
