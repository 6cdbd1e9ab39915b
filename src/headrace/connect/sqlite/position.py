"""Where a capture is, table by table; it is stored with the rows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class TablePosition:
    """Where the capture of a table is.

    `triggers`: their id. `token`: under which the reader is registered. `seq`: all notes up to it are landed.
    `columns`: those that every row of the topic has. `after`: the key of the last row of the snapshot that is landed;
    `rows`: how many; `done`: whether it has all. `request`: the request that the snapshot answers.
    """

    triggers: str
    token: str
    seq: int
    columns: tuple[str, ...]
    after: tuple[Any, ...] | None = None
    rows: int = 0
    done: bool = False
    request: str | None = None

    def from_start(self, **changes: Any) -> TablePosition:
        """Return it with a snapshot that begins."""
        return replace(self, after=None, rows=0, done=False, **changes)


@dataclass(frozen=True, slots=True)
class Position:
    """Where the capture of each table is."""

    tables: dict[str, TablePosition] = field(default_factory=dict)

    def with_table(self, name: str, table: TablePosition) -> Position:
        """Return the position with a table's."""
        return Position(self.tables | {name: table})

    def to_bytes(self) -> bytes:
        """Return it as `of` reads it."""
        return json.dumps({name: asdict(each) for name, each in self.tables.items()}, default=_blob).encode()

    @staticmethod
    def of(stored: bytes | None) -> Position:
        """Return what `to_bytes` wrote; None is the beginning."""
        if stored is None:
            return Position()
        read = json.loads(stored)
        return Position({name: _table(each) for name, each in read.items()})


def _table(read: dict[str, Any]) -> TablePosition:
    after = read["after"]
    values = None if after is None else tuple(bytes.fromhex(v["hex"]) if isinstance(v, dict) else v for v in after)
    return TablePosition(**{**read, "columns": tuple(read["columns"]), "after": values})


def _blob(value: object) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    raise TypeError(f"{value!r} is no value of SQLite")
