"""What a SQLite database says of a table: its key, its columns, and their types here.

| declared as | column |
|---|---|
| …INT… | bigint |
| BOOL, BOOLEAN | boolean |
| DATE | date |
| DATETIME…, TIMESTAMP… | timestamp_ntz |
| DECIMAL(p, s), NUMERIC(p, s) with p up to 38 | decimal(p, s) |
| …REAL…, …FLOA…, …DOUB…, NUMERIC, DECIMAL | double |
| …BLOB…, BINARY…, VARBINARY… | binary |
| everything else, and nothing | string |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.blame import did_you_mean
from headrace.base.schema import MAX_PRECISION, TIMESTAMP_NTZ
from headrace.connect.capture.errors import NoPrimaryKey, NotCapturable

if TYPE_CHECKING:
    import sqlite3

_TYPES = (
    (r"INT", pa.int64()),
    (r"^BOOL(EAN)?$", pa.bool_()),
    (r"^DATE$", pa.date32()),
    (r"^(DATETIME|TIMESTAMP)", TIMESTAMP_NTZ),
    (r"REAL|FLOA|DOUB|^NUMERIC|^DECIMAL", pa.float64()),
    (r"BLOB|BINARY", pa.binary()),
)
_EXACT = re.compile(r"^(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)$")
_HIDDEN = 1  # a column of a virtual table


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table that can be captured."""

    name: str
    arrow: pa.Schema
    key: tuple[str, ...]


def quoted(name: str) -> str:
    """Return a name as SQLite reads it."""
    return '"' + name.replace('"', '""') + '"'


def described(db: sqlite3.Connection, name: str) -> CapturedTable:
    """Return what the catalogue says of a table.

    Raises:
        NotCapturable: there is no such table, or it is a view or a virtual table.
        NoPrimaryKey: it has no key.

    """
    found = db.execute("SELECT type, sql FROM sqlite_master WHERE name = ? AND type IN ('table', 'view')", [name])
    kind, text = found.fetchone() or (None, "")
    if kind is None:
        tables = [each for (each,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        raise NotCapturable(f"there is no table {name}", hint=did_you_mean(name, tables) or "Correct its name.")
    if kind == "view" or re.match(r"\s*CREATE\s+VIRTUAL", text or "", re.IGNORECASE):
        raise NotCapturable(f"{name} is a view or a virtual table, whose changes no trigger sees", hint="Name a table.")
    columns = [
        (column, declared, bool(missing), place)
        for _, column, declared, missing, _, place, hidden in db.execute(f"PRAGMA table_xinfo({quoted(name)})")
        if hidden != _HIDDEN
    ]
    key = tuple(column for column, _, _, place in sorted(columns, key=lambda each: each[3]) if place)
    if not key:
        raise NoPrimaryKey(
            name, hint=f"Make {name} anew with a PRIMARY KEY: SQLite cannot add one to a table that exists."
        )
    fields = [
        pa.field(column, type_of(declared), nullable=not (missing or column in key))
        for column, declared, missing, _ in columns
    ]
    return CapturedTable(name, pa.schema(fields), key)


def type_of(declared: str) -> pa.DataType:
    """Return the type of a column here, by what it is declared as."""
    said = declared.strip().upper()
    exact = _EXACT.match(said)
    if exact:
        precision, scale = int(exact[1]), int(exact[2] or 0)
        return pa.decimal128(precision, scale) if 0 < precision <= MAX_PRECISION and scale <= precision else pa.string()
    return next((kind for pattern, kind in _TYPES if re.search(pattern, said)), pa.string())
