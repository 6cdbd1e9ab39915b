"""Triggers that note the keys of changed rows in a table of the database, and who reads these notes.

A note is a number and a key, not a row: the reader looks the row up. So a trigger costs one small insert, a column that
is added later needs no new trigger, and a row that changed ten times between two looks is read once.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, NamedTuple

from headrace.connect.capture.errors import NotCapturable
from headrace.connect.sqlite.catalogue import quoted

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from headrace.connect.sqlite.catalogue import CapturedTable

_CAPTURED = "_headrace_captured"
_READERS = "_headrace_readers"
_EVENTS = {"insert": ("NEW",), "update": ("OLD", "NEW"), "delete": ("OLD",)}


def notes_of(table: str) -> str:
    """Return the name of the table with the notes of a table."""
    return f"_headrace_changes_{table}"


def key_columns(count: int) -> list[str]:
    """Return the names of the key's columns in a table of notes."""
    return [f"k{place}" for place in range(count)]


def install(db: sqlite3.Connection, table: CapturedTable) -> bool:
    """Make triggers and their tables in one transaction; return False if they were there, for this key."""
    if installed(db, table) is not None:
        return False
    with _transaction(db):
        _drop(db, table.name)
        db.execute(f"CREATE TABLE IF NOT EXISTS {_CAPTURED} (name TEXT PRIMARY KEY, id TEXT, key TEXT)")
        db.execute(
            f"CREATE TABLE IF NOT EXISTS {_READERS} (name TEXT, reader TEXT, token TEXT, seq INTEGER, "
            "PRIMARY KEY (name, reader))"
        )
        keys, notes = key_columns(len(table.key)), quoted(notes_of(table.name))
        db.execute(f"CREATE TABLE {notes} (seq INTEGER PRIMARY KEY AUTOINCREMENT, {', '.join(keys)})")
        for event, sides in _EVENTS.items():
            inserts = " ".join(
                f"INSERT INTO {notes} ({', '.join(keys)}) VALUES "
                f"({', '.join(f'{side}.{quoted(name)}' for name in table.key)});"
                for side in sides
            )
            db.execute(
                f"CREATE TRIGGER {quoted(_trigger(table.name, event))} AFTER {event} ON {quoted(table.name)} "
                f"BEGIN {inserts} END"
            )
        db.execute(
            f"INSERT INTO {_CAPTURED} VALUES (?, ?, ?)", [table.name, uuid.uuid4().hex, json.dumps(list(table.key))]
        )
    return True


def remove(db: sqlite3.Connection, table: str) -> bool:
    """Remove the triggers of a table and their tables; return whether there was any."""
    there = _exists(db, notes_of(table))
    with _transaction(db):
        _drop(db, table)
        if _exists(db, _CAPTURED) and not db.execute(f"SELECT 1 FROM {_CAPTURED}").fetchone():
            db.execute(f"DROP TABLE {_CAPTURED}")
            db.execute(f"DROP TABLE {_READERS}")
    return there


def installed(db: sqlite3.Connection, table: CapturedTable) -> str | None:
    """Return the id of the triggers of a table, None if they are not there, or note another key."""
    there = db.execute(
        "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? AND name IN (?,?,?)",
        [table.name, *(_trigger(table.name, event) for event in _EVENTS)],
    ).fetchone()[0]
    if there != len(_EVENTS) or not _exists(db, _CAPTURED) or not _exists(db, notes_of(table.name)):
        return None
    found = db.execute(f"SELECT id, key FROM {_CAPTURED} WHERE name = ?", [table.name]).fetchone()
    if found is None or tuple(json.loads(found[1])) != table.key:
        return None
    return str(found[0])


def require(db: sqlite3.Connection, table: CapturedTable) -> str:
    """Return the id of the triggers of a table.

    Raises:
        NotCapturable: there are none.

    """
    found = installed(db, table)
    if found is None:
        raise NotCapturable(
            f"no triggers note the changes of the table {table.name}",
            detail="They were never made, or went when the table was dropped, or note another key than it has now.",
            hint="headrace connect install FILE makes them.",
        )
    return found


def last_number(db: sqlite3.Connection, table: str) -> int:
    """Return the number of the last note that there ever was, 0 before the first."""
    found = db.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", [notes_of(table)]).fetchone()
    return int(found[0]) if found else 0


class Registration(NamedTuple):
    """A reader of a table's notes: who has its name, and up to which note it has landed them."""

    token: str
    seq: int


def register(db: sqlite3.Connection, table: str, reader: str, token: str) -> int:
    """Let a reader hold the notes of a table from here on, and return the number of the last one before."""
    with _transaction(db):
        last = last_number(db, table)
        db.execute(f"INSERT OR REPLACE INTO {_READERS} VALUES (?, ?, ?, ?)", [table, reader, token, last])
    return last


def registration(db: sqlite3.Connection, table: str, reader: str) -> Registration | None:
    """Return how a reader is registered, None if it is not."""
    found = db.execute(f"SELECT token, seq FROM {_READERS} WHERE name = ? AND reader = ?", [table, reader]).fetchone()
    return None if found is None else Registration(*found)


def release(db: sqlite3.Connection, reader: str, upto: Sequence[tuple[str, int]]) -> None:
    """Say up to which notes of some tables a reader is, and delete those that no reader needs."""
    with _transaction(db):
        for table, number in upto:
            db.execute(f"UPDATE {_READERS} SET seq = ? WHERE name = ? AND reader = ?", [number, table, reader])
            least = f"(SELECT min(seq) FROM {_READERS} WHERE name = ?)"
            db.execute(f"DELETE FROM {quoted(notes_of(table))} WHERE seq <= {least}", [table])


class _transaction:  # noqa: N801 -- used like a function
    """A transaction that may write, from its start."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def __enter__(self) -> None:
        self.db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.db.execute("COMMIT" if kind is None else "ROLLBACK")


def _drop(db: sqlite3.Connection, table: str) -> None:
    for event in _EVENTS:
        db.execute(f"DROP TRIGGER IF EXISTS {quoted(_trigger(table, event))}")
    db.execute(f"DROP TABLE IF EXISTS {quoted(notes_of(table))}")
    for each in (_CAPTURED, _READERS):
        if _exists(db, each):
            db.execute(f"DELETE FROM {each} WHERE name = ?", [table])


def _trigger(table: str, event: str) -> str:
    return f"_headrace_{event}_{table}"


def _exists(db: sqlite3.Connection, table: str) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", [table]).fetchone() is not None
