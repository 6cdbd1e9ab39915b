"""Where a capture is: the end of the last transaction that was landed, and how far the snapshot of each table is."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.connect.capture.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.connect.postgres.catalogue import CapturedTable


def lsn_text(lsn: int) -> str:
    """Return a position in the write-ahead log as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """Return a position in the write-ahead log as a number."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


@dataclass(frozen=True, slots=True)
class Position:
    """All transactions that end before `lsn` are landed. `system` is the database cluster's own id.

    `oids`: which table each was; one that is dropped and created again has another number. `types`: those of its
    columns, as they are declared: where one is changed, the server writes all rows anew without a word in the log.
    """

    system: str
    lsn: int
    tables: dict[str, Progress] = field(default_factory=dict)
    oids: dict[str, int] = field(default_factory=dict)
    types: dict[str, dict[str, str]] = field(default_factory=dict)

    def at(self, lsn: int) -> Position:
        """Return the position after more transactions."""
        return replace(self, lsn=max(lsn, self.lsn))

    def progress(self, table: CapturedTable) -> Progress:
        """Return where the snapshot of a table is."""
        return self.tables.get(table.full_name, Progress())

    def with_table(self, table: str, progress: Progress) -> Position:
        """Return the position after a chunk of a table."""
        return replace(self, tables=self.tables | {table: progress})

    def read_anew(self, tables: Collection[str], *, why: str) -> Position:
        """Return the position where the snapshots of some tables begin again, and end with what is not there."""
        known = {name: at.from_start(request=why) for name, at in self.tables.items() if name in tables}
        return replace(self, tables=self.tables | known)

    def is_of(self, table: CapturedTable) -> bool:
        """Whether the rows that were landed are of this table, and of its types."""
        name = table.full_name
        if self.oids.get(name, table.oid) != table.oid:
            return False
        before = self.types.get(name, {})
        return all(before.get(column, kind) == kind for column, kind in table.types.items())

    def with_identity(self, table: CapturedTable) -> Position:
        """Return the position of a table that is this one, and has these types."""
        name = table.full_name
        return replace(self, oids=self.oids | {name: table.oid}, types=self.types | {name: table.types})

    def to_bytes(self) -> bytes:
        """Return it as `of` reads it."""
        tables = {name: asdict(each) for name, each in self.tables.items()}
        about = {
            "system": self.system,
            "lsn": lsn_text(self.lsn),
            "tables": tables,
            "oids": self.oids,
            "types": self.types,
        }
        return json.dumps(about).encode()

    @staticmethod
    def of(stored: bytes) -> Position:
        """Return what `to_bytes` wrote."""
        read = json.loads(stored)
        tables = {name: Progress.of(each) for name, each in read["tables"].items()}
        return Position(read["system"], lsn_number(read["lsn"]), tables, read.get("oids", {}), read.get("types", {}))
