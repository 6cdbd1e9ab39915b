"""What the members of a group share: a SQLite file that the processes of one machine change in turn, and who lives.

A lock of the file system orders the changes, so a process waits for its turn without polling. SQLite makes a change
whole: a killed process leaves all of it or nothing. After a power loss the last changes may be missing: WAL mode with
`synchronous=NORMAL` never damages the file, and does not wait for the disk.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import uuid
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from headrace.base.errors import DiskFailed, GroupElsewhere, InvalidArgument
from headrace.log.segments.head import BOOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TABLE = "CREATE TABLE IF NOT EXISTS "
_FACTS = f"{_TABLE}facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID"
_SECONDS = 60.0


class SharedState:
    """A SQLite file beside its lock. May be used by many threads; not across a fork.

    Args:
        path: the file; its folder is created.
        tables: the statements that create what is in it.
        fresh: run where the machine has been started since the last change: whatever held something is gone.
        alive: the folder of the members' signs of life.

    Raises:
        GroupElsewhere: members on another machine use it.

    """

    def __init__(self, path: Path, tables: tuple[str, ...], *, fresh: tuple[str, ...], alive: Path) -> None:
        self.path = path
        self._pid, self._thread = os.getpid(), threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._turn = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with self._our_turn():
                self._open(tables, fresh, alive)
        except BaseException:
            os.close(self._turn)
            raise
        self.closed = False

    def _open(self, tables: tuple[str, ...], fresh: tuple[str, ...], alive: Path) -> None:
        self._sql = sqlite3.connect(self.path, timeout=_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._sql.execute("PRAGMA journal_mode = WAL")
            self._sql.execute("PRAGMA synchronous = NORMAL")
            with self._transaction():
                for statement in (_FACTS, *tables):
                    self._sql.execute(statement)
                if self._fact("boot") != str(BOOT):
                    self._begin_anew(fresh, alive)
        except BaseException:
            self._sql.close()
            raise

    def _begin_anew(self, fresh: tuple[str, ...], alive: Path) -> None:
        if any(not is_gone(alive, each.name) for each in alive.glob("*")):
            raise GroupElsewhere(str(self.path.parent))
        for statement in fresh:
            self._sql.execute(statement)
        self._sql.execute("INSERT OR REPLACE INTO facts VALUES ('boot', ?)", [str(BOOT)])

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """Take the turn of this machine, and make one change of all or nothing.

        Raises:
            DiskFailed: the disk refused; nothing was changed.

        """
        self._check()
        with self._our_turn():
            try:
                with self._transaction():
                    yield self._sql
            except sqlite3.Error as error:
                raise self._failed(error) from error

    def ask(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Return the rows of a query, without waiting for a turn."""
        self._check()
        with self._thread:
            try:
                return self._sql.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise self._failed(error) from error

    def close(self) -> None:
        """Close the file; closing again does nothing."""
        with self._thread:
            if not self.closed:
                self.closed = True
                self._sql.close()
                os.close(self._turn)

    @contextmanager
    def _our_turn(self) -> Iterator[None]:
        with self._thread:
            fcntl.flock(self._turn, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._turn, fcntl.LOCK_UN)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._sql.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # a full disk may have ended the transaction
                self._sql.execute("ROLLBACK")
            raise

    def _fact(self, name: str) -> Any:
        found = self._sql.execute("SELECT value FROM facts WHERE name = ?", [name]).fetchone()
        return found[0] if found else None

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise InvalidArgument(
                f"{self.path.stem} belongs to the process that opened it", hint="Open it again after the fork."
            )
        if self.closed:
            raise InvalidArgument(f"{self.path.stem} is closed", hint="Open it again.")

    def _failed(self, error: sqlite3.Error) -> DiskFailed:
        return DiskFailed(str(self.path), OSError(str(error)))


def read_only(path: Path, query: str, values: tuple[Any, ...] = (), *, tables: tuple[str, ...] = ()) -> list[Any]:
    """Return the rows of a query on a file that others change; it is not created.

    `tables`: the statements that create what is in it. Of these tables one that the file does not have is empty: an
    older version made the file, or somebody is making it.
    """
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_SECONDS)) as sql:
        if tables:
            sql.execute("ATTACH ':memory:' AS absent")  # names are looked up there if the file does not have them
            for table in (_FACTS, *tables):
                if table.startswith(_TABLE):
                    sql.execute(table.replace(_TABLE, "CREATE TABLE absent.", 1))
        return sql.execute(query, values).fetchall()


class Life:
    """A sign of life of a member: a file that its process holds locked. The system lets go when the process dies.

    A process that was forked meanwhile holds it, too: then a member that dies is missed by its time only.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.id = folder, uuid.uuid4().hex
        folder.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(folder / self.id, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def end(self) -> None:
        """Be gone."""
        if self._fd >= 0:
            (self.folder / self.id).unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


def is_gone(folder: Path, member: str) -> bool:
    """Tell whether a member's process has died, or the member has ended; what is left of it is removed."""
    path = folder / member
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        path.unlink(missing_ok=True)
        return True
    finally:
        os.close(fd)
