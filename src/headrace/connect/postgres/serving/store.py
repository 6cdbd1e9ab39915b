"""Views in a PostgreSQL database: ordinary tables of the schema public, which any client may query.

What is ours is in the schema `headrace`: `views` (which tables are views, of which app, and the digest of their rows)
and `marks` (the last epoch and the generation of the process that writes). An epoch is one transaction.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pyarrow as pa

from headrace.base.blame import PlanError
from headrace.base.errors import UnknownView, ViewOutOfStep
from headrace.base.names import check_identifier
from headrace.base.schema import parse_type, type_name
from headrace.connect.postgres.serving.table import ServedTable
from headrace.connect.postgres.storing.errors import as_ours, said
from headrace.connect.postgres.storing.tables import creating
from headrace.connect.postgres.storing.writer import PostgresWriter, make_ours
from headrace.connect.store import StoreDiffers, no_fault
from headrace.views.declared import check_same
from headrace.views.digest import EMPTY, added
from headrace.views.store import NO_EPOCH, ViewDescription

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from headrace.connect.postgres.address import PostgresAddress
    from headrace.views.store import Key

_OURS = """
CREATE TABLE IF NOT EXISTS headrace.views (
    owner text NOT NULL, name text PRIMARY KEY, schema bytea NOT NULL, key text NOT NULL, digest text NOT NULL
)
"""
_HAS_OURS = "SELECT to_regclass('headrace.views') IS NOT NULL"
_VIEWS = """
SELECT v.name, v.schema, v.key, v.digest, c.oid IS NOT NULL FROM headrace.views v
LEFT JOIN pg_class c ON c.relname = v.name AND c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
WHERE v.owner = %s
"""
_OWNER = "SELECT owner FROM headrace.views WHERE name = %s"
_IS_THERE = "SELECT to_regclass(%s) IS NOT NULL"
_DECLARE = """
INSERT INTO headrace.views VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (name) DO UPDATE SET schema = EXCLUDED.schema, digest = EXCLUDED.digest
"""
_SET_DIGEST = "UPDATE headrace.views SET digest = %s WHERE name = %s AND owner = %s"
_FORGET = "DELETE FROM headrace.views WHERE name = %s AND owner = %s"
_MARK = "SELECT epoch FROM headrace.marks WHERE writer = %s"


class ViewTaken(PlanError):
    """A view's table would have the name of a table that is not this app's."""

    condition = "VIEW_TAKEN"

    def __init__(self, table: ServedTable, where: str, *, owner: str | None) -> None:
        app = None if owner is None else owner.partition("/")[0]
        super().__init__(
            f'the view "{table.name}" cannot be served: {where} has {table.full_name} already'
            if app is None
            else f'the view "{table.name}" cannot be served: {where} serves one of this name for the app "{app}"',
            detail="Nothing of it was changed."
            if app is None
            else f"It belongs to {owner}. Nothing of it was changed.",
            hint="Give the view another name, or views= another database."
            if app is None
            else "Give the view another name, or views= another database. If that app or its storage is gone: "
            f"DROP TABLE {table.full_name}; DELETE FROM headrace.views WHERE name = '{table.name}'",
        )


class _Stored(NamedTuple):
    table: ServedTable
    digest: int
    there: bool


class PostgresViews:
    """A store of views in a database.

    One process writes; the writes of an older one are refused. Any number read whole epochs, and block nobody.

    Args:
        address: the database.
        owner: `<app>/<id>`: whose views they are.
        fault: called where a test may crash.

    """

    def __init__(self, address: PostgresAddress, owner: str, *, fault: Callable[[str], None] = no_fault) -> None:
        self.address, self.owner, self.fault = address, owner, fault
        self._writer: PostgresWriter | None = None

    @property
    def where(self) -> str:
        """The database, without a password."""
        return str(self.address)

    def close(self) -> None:
        """Close the connection; a later call opens it again."""
        if self._writer is not None:
            self._writer.close()

    # ---- writing -------------------------------------------------------------------------------------------

    def declare(self, name: str, schema: pa.Schema, key: Key) -> None:
        """Create a view, or do nothing if it exists with these columns and this key; see `Views.declare`.

        Raises:
            ViewTaken: there is a table of this name that is not a view of this app.
            InvalidPlan: PostgreSQL cannot have such a view.
            StoreDiffers: the role may not create it.
            Unavailable: the server does not answer.

        """
        check_identifier(name, what="view")
        schema = pa.schema([pa.field(f.name, parse_type(type_name(f.type)), nullable=f.nullable) for f in schema])
        table = ServedTable(name, schema, key)
        table.check()
        with self._written() as sql:
            stored = _views(sql, self.owner).get(name)
            if stored is not None and stored.there:
                check_same(name, (stored.table.schema, stored.table.key), (schema, key))
                table.widen(sql, stored.table.schema)
            else:
                self._check_free(sql, table)
                self._create(sql, table)
            row = [self.owner, name, bytes(schema.serialize()), json.dumps(key)]
            digest = stored.digest if stored is not None and stored.there else EMPTY
            if stored is not None and not stored.there:  # somebody has dropped the table; it may get another key
                sql.execute(_FORGET, [name, self.owner])
            sql.execute(_DECLARE, [*row, _hex(digest)])

    def apply(self, epoch: int, deltas: Mapping[str, pa.Table], *, replaced: Collection[str] = ()) -> None:
        """Apply an epoch to all its views or to none, once; see `Views.apply`.

        Raises:
            Unavailable: the server does not answer.
            WriterFenced: a newer process writes the views.
            StoreRefused: the server refuses a row.

        """
        self.fault("before_transaction")
        with self._written(epoch) as sql:
            if epoch <= _applied(sql, self._mark):
                return
            views = _views(sql, self.owner)
            digests = {name: EMPTY for name in replaced if _find(views, name).clear(sql) >= 0}
            for name, delta in deltas.items():
                missing, change = _find(views, name).apply(sql, delta, epoch=epoch, fault=self.fault)
                if missing > 0:
                    raise ViewOutOfStep(name, epoch=epoch, missing=missing)
                digests[name] = added(digests.get(name, views[name].digest), change)
            for name, digest in digests.items():
                sql.execute(_SET_DIGEST, [_hex(digest), name, self.owner])
            self._opened.set_mark(sql, epoch)
            self.fault("before_transaction_ends")
        self.fault("after_transaction")

    def drop(self, name: str) -> None:
        """Delete a view and its rows; see `Views.drop`."""
        with self._written() as sql:
            views = _views(sql, self.owner)
            _find(views, name).drop(sql)
            sql.execute(_FORGET, [name, self.owner])

    def reset(self) -> None:
        """Delete every view, and forget which epochs were applied."""
        with self.address.connected() as sql:
            if not _is_ours(sql):
                return
        self.begin_again(NO_EPOCH)

    def begin_again(self, epoch: int) -> None:
        """Delete every view, and take the epochs up to `epoch` for applied."""
        with self._written() as sql:
            for stored in _views(sql, self.owner).values():
                stored.table.drop(sql)
                sql.execute(_FORGET, [stored.table.name, self.owner])
            self._opened.set_mark(sql, epoch)

    # ---- reading -------------------------------------------------------------------------------------------

    @contextmanager
    def snapshot(self) -> Iterator[PostgresSnapshot]:
        """Return a context in which several reads see the same epoch, even while others are applied.

        Raises:
            Unavailable: the server does not answer.

        """
        try:
            with self.address.open() as sql, sql.transaction():
                sql.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                yield PostgresSnapshot(sql, self.owner, self._mark)
        except psycopg.Error as error:
            raise as_ours(error, self.where, epoch=-1) from error

    def applied(self) -> int:
        """Return the last epoch that was applied, -1 if none was."""
        with self.snapshot() as snapshot:
            return snapshot.applied()

    def names(self) -> list[str]:
        """Return the views' names, sorted."""
        with self.snapshot() as snapshot:
            return snapshot.names()

    def describe(self, name: str) -> ViewDescription:
        """Return a view's columns, key and number of rows; see `Views.describe`."""
        with self.snapshot() as snapshot:
            return snapshot.describe(name)

    def read(self, name: str) -> pa.Table:
        """Return a view's rows with the declared types, sorted by key; see `Views.read`."""
        with self.snapshot() as snapshot:
            return snapshot.read(name)

    def damage(self) -> dict[str, str]:
        """Return by view what is damaged: somebody else has changed its rows, or they were restored."""
        with self.snapshot() as snapshot:
            return snapshot.damage()

    # ---- the database --------------------------------------------------------------------------------------

    @property
    def _mark(self) -> str:
        return f"{self.owner}#views"

    @property
    def _opened(self) -> PostgresWriter:
        """The writer of the mark, whose generation fences older processes."""
        if self._writer is None:
            writer = PostgresWriter(self.address, {}, self._mark, fault=self.fault)
            writer.take_over()
            self._writer = writer
        return self._writer

    @contextmanager
    def _written(self, epoch: int = -1) -> Iterator[psycopg.Connection]:
        """Run a transaction that has this writer's lock."""
        with self._opened.connected(epoch) as sql:
            there = sql.execute(_HAS_OURS).fetchone()
            if there is None or not there[0]:
                make_ours(sql, self.where)
                with creating(sql):
                    sql.execute(_OURS)
            with sql.transaction():
                self._opened.take(sql)
                yield sql

    def _create(self, sql: psycopg.Connection, table: ServedTable) -> None:
        try:
            table.create(sql)
        except psycopg.errors.InsufficientPrivilege as error:
            raise StoreDiffers(
                f'{self.where}: the view "{table.name}" cannot be created: {said(error)}',
                hint=f"The owner of the database runs: GRANT CREATE ON SCHEMA public TO {sql.info.user}",
            ) from error

    def _check_free(self, sql: psycopg.Connection, table: ServedTable) -> None:
        found = sql.execute(_OWNER, [table.name]).fetchone()
        there = sql.execute(_IS_THERE, [table.full_name]).fetchone()
        if (found is not None and found[0] != self.owner) or (there is not None and there[0]):
            raise ViewTaken(table, self.where, owner=None if found is None else found[0])


class PostgresSnapshot:
    """The views of a database as of one epoch."""

    def __init__(self, sql: psycopg.Connection, owner: str, mark: str) -> None:
        self._sql = sql
        ours = _is_ours(sql)
        self._applied = _applied(sql, mark) if ours else NO_EPOCH
        found = _views(sql, owner) if ours else {}
        self._views = {name: stored for name, stored in found.items() if stored.there}

    def applied(self) -> int:
        """Return the epoch of the snapshot, -1 before the first."""
        return self._applied

    def names(self) -> list[str]:
        """Return the views' names, sorted; a table that somebody has dropped is none."""
        return sorted(self._views)

    def describe(self, name: str) -> ViewDescription:
        """Return a view's columns, key and number of rows; see `Views.describe`."""
        table = _find(self._views, name)
        return ViewDescription(table.schema, table.key, table.count(self._sql))

    def read(self, name: str) -> pa.Table:
        """Return a view's rows with the declared types, sorted by key; see `Views.read`."""
        return _find(self._views, name).read(self._sql)

    def damage(self) -> dict[str, str]:
        """Return what is damaged, by view; see `PostgresViews.damage`."""
        found = {}
        for name, (table, digest, _) in self._views.items():
            if table.digest(table.read(self._sql, in_order=False)) != digest:
                found[name] = f"its rows are not those of epoch {self._applied}"
        return found


def _is_ours(sql: psycopg.Connection) -> bool:
    found = sql.execute(_HAS_OURS).fetchone()
    return found is not None and bool(found[0])


def _applied(sql: psycopg.Connection, mark: str) -> int:
    found = sql.execute(_MARK, [mark]).fetchone()
    return int(found[0]) if found else NO_EPOCH


def _views(sql: psycopg.Connection, owner: str) -> dict[str, _Stored]:
    views = {}
    for name, schema, key, digest, there in sql.execute(_VIEWS, [owner]):
        columns = json.loads(key)
        read = pa.ipc.read_schema(pa.py_buffer(schema))
        table = ServedTable(name, read, None if columns is None else tuple(columns))
        views[name] = _Stored(table, int(digest, 16), there)
    return views


def _find(views: Mapping[str, _Stored], name: str) -> ServedTable:
    if not isinstance(name, str) or name not in views:
        raise UnknownView(str(name), names=sorted(views))
    return views[name].table


def _hex(digest: int) -> str:
    return f"{digest:016x}"
