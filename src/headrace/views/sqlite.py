"""Views in one SQLite file: an epoch is a transaction, a reader's snapshot is another.

Each view is a table of its name, for any program that reads SQLite; `values` says how each type is stored.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from headrace.base.crc import crc32
from headrace.base.disk import file_size_limit
from headrace.base.errors import UnknownView, ViewOutOfStep, ViewsDamaged, ViewsFailed
from headrace.base.names import check_identifier
from headrace.base.outside import FileTooLarge
from headrace.base.schema import parse_type, type_name
from headrace.views.declared import check_same
from headrace.views.digest import EMPTY, added
from headrace.views.store import NO_EPOCH, WEIGHT, ViewDescription
from headrace.views.table import RESERVED_PREFIXES, ViewTable, distinct_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from headrace.views.store import Key

_WAIT_SECONDS = 60.0  # for another process that writes
_LOG_BYTES = 64 * 1024 * 1024  # what one large epoch leaves of the write-ahead log
_NO_DAMAGE = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_NOMEM")
_EPOCH = ""  # no view has this name: the digest of the applied epoch
_CREATE = (
    "CREATE TABLE IF NOT EXISTS headrace_views (name TEXT PRIMARY KEY, stored TEXT, schema BLOB, key TEXT)",
    "CREATE TABLE IF NOT EXISTS headrace_digests (name TEXT PRIMARY KEY, digest TEXT)",
    "CREATE TABLE IF NOT EXISTS headrace_epoch (one INTEGER PRIMARY KEY CHECK (one = 1), applied INTEGER)",
)


class SqliteViews:
    """A store of views in the file `path`, which is created with the first view.

    One process writes. Any number read whole epochs, and never block the writer. An applied epoch survives a power
    cut; with `durable=False` it survives the process only, and is applied faster.
    """

    def __init__(self, path: str | Path, *, durable: bool = True) -> None:
        self._db: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self.path = Path(path)
        self.durable = durable

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    @property
    def where(self) -> str:
        """The file."""
        return str(self.path)

    def close(self) -> None:
        """Close the file; a later call opens it again."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    # ---- writing -------------------------------------------------------------------------------------------

    def declare(self, name: str, schema: pa.Schema, key: Key) -> None:
        """Create a view, or do nothing if it exists with these columns and this key; see `Views.declare`."""
        check_identifier(name, what="view")
        schema = pa.schema([pa.field(f.name, parse_type(type_name(f.type)), nullable=f.nullable) for f in schema])
        with self._transaction() as db:
            tables = _tables(db)
            if name in tables:
                check_same(name, (tables[name].schema, tables[name].key), (schema, key))
                db.execute("UPDATE headrace_views SET schema = ? WHERE name = ?", [_serialized(schema), name])
                if _digest(db, name) is None:  # of a version that wrote none
                    _write_digest(db, name, tables[name].digest(db))
                return
            table = ViewTable(name, _free_table_name(name, tables.values()), schema, key)
            table.create(db)
            row = [name, table.stored, _serialized(schema), json.dumps(key)]
            db.execute("INSERT INTO headrace_views VALUES (?, ?, ?, ?)", row)
            _write_digest(db, name, EMPTY)

    def apply(self, epoch: int, deltas: Mapping[str, pa.Table], *, replaced: Collection[str] = ()) -> None:
        """Apply an epoch to all its views or to none, once; see `Views.apply`."""
        with self._transaction() as db:
            if epoch <= _applied(db):
                return
            tables = _tables(db)
            for name in replaced:
                _find(tables, name).clear(db)
                _write_digest(db, name, EMPTY)
            for name, delta in deltas.items():
                missing, change = _find(tables, name).apply(db, delta)
                if missing:
                    raise ViewOutOfStep(name, epoch=epoch, missing=missing)
                before = _digest(db, name)
                if before is not None:
                    _write_digest(db, name, added(before, change))
            db.execute("INSERT OR REPLACE INTO headrace_epoch VALUES (1, ?)", [epoch])
            _write_digest(db, _EPOCH, _epoch_digest(epoch))

    def drop(self, name: str) -> None:
        """Delete a view and its rows; see `Views.drop`."""
        with self._transaction() as db:
            _find(_tables(db), name).drop(db)
            for table in ("headrace_views", "headrace_digests"):
                db.execute(f"DELETE FROM {table} WHERE name = ?", [name])

    def reset(self) -> None:
        """Delete every view, and forget which epochs were applied."""
        if not self.path.exists():
            return
        with self._transaction() as db:
            for table in _tables(db).values():
                table.drop(db)
            for own in ("headrace_views", "headrace_digests", "headrace_epoch"):
                db.execute(f"DELETE FROM {own}")

    def begin_again(self, epoch: int) -> None:
        """Delete every view, and take the epochs up to `epoch` for applied."""
        self.reset()
        self.apply(epoch, {})

    # ---- reading -------------------------------------------------------------------------------------------

    @contextmanager
    def snapshot(self) -> Iterator[SqliteSnapshot]:
        """Return a context in which several reads see the same epoch, even while others are applied."""
        with self._opened_to_read() as db:
            db.execute("BEGIN")
            yield SqliteSnapshot(db)

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
        """Return what is damaged, by view: its rows are not those that its epochs made; "" is the whole file.

        It reads everything, and blocks nobody.

        Raises:
            ViewsFailed: the file may not be read, or is locked; that says nothing of what is in it.

        """
        if not self.path.exists():
            return {}
        try:
            with self.snapshot() as snapshot:
                return snapshot.damage()
        except ViewsFailed as error:
            if self.path.is_file() and getattr(error.__cause__, "sqlite_errorname", "").startswith(_NO_DAMAGE):
                raise
            return {"": error.what}

    def rescue_to(self, path: Path) -> tuple[int, set[str]]:
        """Copy the views that are whole from a damaged file to a new one.

        Returns:
            The epoch of the copies, and their names; -1 and none where the file cannot be read.

        """
        epoch, copies = NO_EPOCH, {}
        with SqliteViews(path, durable=self.durable) as new, suppress(ViewsFailed):
            with self.snapshot() as snapshot:
                epoch, names = snapshot.applied(), snapshot.names()
            for name in names:
                with suppress(ViewsFailed), self.snapshot() as snapshot:
                    if snapshot.wrong(name) is None:
                        about, rows = snapshot.describe(name), snapshot.read(name)
                        new.declare(name, about.schema, about.key)
                        copies[name] = rows.append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int32()), len(rows)))
            new.apply(epoch, copies)
        return epoch, set(copies)

    def copy_to(self, path: Path) -> int:
        """Write a copy of the file as of one epoch, while others write; return the epoch, -1 before the first."""
        with self._opened_to_read() as db, closing(sqlite3.connect(path)) as copy:
            db.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
        with SqliteViews(path) as copied:
            return copied.applied()

    # ---- the file ------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._as_views_failed():
            if self._db is None:
                self._db = self._open_to_write()
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def _open_to_write(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        db.execute(f"PRAGMA synchronous = {'FULL' if self.durable else 'OFF'}")
        for statement in _CREATE:
            db.execute(statement)

    @contextmanager
    def _opened_to_read(self) -> Iterator[sqlite3.Connection]:
        """Open the file to read; where this process may not write beside it SQLite has no log, and locks nobody out."""
        alone = self._alone()
        where = self.path.absolute().as_uri()
        where = f"{where}?mode=rw" if alone is None else f"{where}?mode=ro&immutable=1"
        where = where if self.path.exists() else ":memory:"
        with self._as_views_failed():
            opened = sqlite3.connect(where, uri=True, timeout=_WAIT_SECONDS, isolation_level=None)
            with closing(opened) as db:
                yield db
            if alone is not None and alone != self._alone():
                raise sqlite3.OperationalError("another process has written it while it was read")

    def _alone(self) -> tuple[int, int] | None:
        """Return what changes when the file is written; None where there is a log, or this process can begin one."""
        log = self.path.with_name(f"{self.path.name}-wal")
        effective = os.access in os.supports_effective_ids
        if os.access(self.path.parent, os.W_OK, effective_ids=effective) or not self.path.exists():
            return None
        if log.exists() and log.stat().st_size:
            return None
        seen = self.path.stat()
        return seen.st_mtime_ns, seen.st_size

    @contextmanager
    def _as_views_failed(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:  # of what reads the rows that are printed inside a snapshot
            raise
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # the last: its own text is not UTF-8
            if getattr(error, "sqlite_errorname", "").startswith("SQLITE_IOERR") and file_size_limit() is not None:
                raise FileTooLarge(f"views {self.path}", str(error)) from error  # SQLite does not say which error
            # malformed, or no database; others, as locked, are subclasses
            damaged = type(error) in (sqlite3.DatabaseError, UnicodeDecodeError)
            raise (ViewsDamaged if damaged else ViewsFailed)(str(self.path), why=str(error)) from error


class SqliteSnapshot:
    """The views as of one epoch; valid inside `SqliteViews.snapshot()` only."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        # the first read fixes what is seen; a new file, or none, has no table of views yet
        exists = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'headrace_epoch'").fetchone()[0]
        self._applied = _applied(db) if exists else NO_EPOCH
        self._tables = _tables(db) if exists else {}

    def applied(self) -> int:
        """Return the epoch of the snapshot, -1 before the first."""
        return self._applied

    def names(self) -> list[str]:
        """Return the views' names, sorted."""
        return sorted(self._tables)

    def describe(self, name: str) -> ViewDescription:
        """Return a view's columns, key and number of rows; see `Views.describe`."""
        table = _find(self._tables, name)
        return ViewDescription(table.schema, table.key, table.count(self._db))

    def read(self, name: str) -> pa.Table:
        """Return a view's rows with the declared types, sorted by key; see `Views.read`."""
        with _readable(name):
            return _find(self._tables, name).read(self._db)

    def damage(self) -> dict[str, str]:
        """Return what is damaged, by view; see `SqliteViews.damage`."""
        wrong = [text for (text,) in self._db.execute("PRAGMA integrity_check(3)") if text != "ok"]
        found = {"": "; ".join(wrong)} if wrong else {}
        for name in self._tables:
            what = self.wrong(name)
            if what is not None:
                found[name] = what
        return found

    def wrong(self, name: str) -> str | None:
        """Return how a view's rows differ from those that its epochs made, None if they do not."""
        try:
            with _readable(name):
                stored = _digest(self._db, name)
                whole = stored is None or stored == _find(self._tables, name).digest(self._db)
        except sqlite3.DatabaseError as error:
            return str(error)
        return None if whole else f"its rows are not those of epoch {self._applied}"


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Turn the error of a stored value of another type, or form, into one of the database."""
    try:
        yield
    except (ValueError, TypeError, ArithmeticError, RecursionError, pa.ArrowException) as error:
        raise sqlite3.DatabaseError(f'a value of "{name}" cannot be read: {error}') from error


def _epoch_digest(epoch: int) -> int:
    return crc32(str(epoch).encode())


def _digest(db: sqlite3.Connection, name: str) -> int | None:
    try:
        row = db.execute("SELECT digest FROM headrace_digests WHERE name = ?", [name]).fetchone()
    except sqlite3.OperationalError:  # an older version wrote the file
        return None
    with _readable("headrace_digests"):
        return None if row is None else int(row[0], 16)


def _write_digest(db: sqlite3.Connection, name: str, value: int) -> None:
    db.execute("INSERT OR REPLACE INTO headrace_digests VALUES (?, ?)", [name, f"{value:016x}"])


def _applied(db: sqlite3.Connection) -> int:
    row = db.execute("SELECT applied FROM headrace_epoch").fetchone()
    with _readable("headrace_epoch"):
        applied = int(row[0]) if row else NO_EPOCH
        if _digest(db, _EPOCH) not in (None, _epoch_digest(applied)):
            raise ValueError(f"{applied} does not match its digest")
    return applied


def _tables(db: sqlite3.Connection) -> dict[str, ViewTable]:
    tables = {}
    for name, stored, schema, key in db.execute("SELECT name, stored, schema, key FROM headrace_views"):
        with _readable("headrace_views"):
            columns = json.loads(key)
            arrow_schema = pa.ipc.read_schema(pa.py_buffer(schema))
            tables[name] = ViewTable(name, stored, arrow_schema, None if columns is None else tuple(columns))
    return tables


def _find(tables: Mapping[str, ViewTable], name: str) -> ViewTable:
    if not isinstance(name, str) or name not in tables:
        raise UnknownView(str(name), names=sorted(tables))
    return tables[name]


def _free_table_name(name: str, tables: Iterable[ViewTable]) -> str:
    """Return a name for a table: the view's own unless SQLite or another view has it."""
    reserved = name.lower().startswith(RESERVED_PREFIXES)
    return distinct_names([f"view_{name}" if reserved else name], taken=[table.stored for table in tables])[0]


def _serialized(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize())
