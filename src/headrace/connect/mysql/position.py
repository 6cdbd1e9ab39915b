"""Where a capture is: the last transaction of each domain that was landed, and how far the snapshots are."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from headrace.connect.capture.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from headrace.connect.mysql.catalogue import CapturedTable


class LogPlace(NamedTuple):
    """A place in the log of one server: the number of the file, and the byte in it."""

    file: int
    byte: int

    @staticmethod
    def of(name: str, byte: int) -> LogPlace:
        """Return the place in a file of a name, which ends with its number."""
        return LogPlace(int(name.rpartition(".")[2]), byte)


@dataclass(frozen=True, slots=True)
class Position:
    """All transactions up to the last one of each domain are landed; `gtids`: domain to server and number."""

    gtids: dict[int, tuple[int, int]]
    tables: dict[str, Progress] = field(default_factory=dict)

    def at(self, gtids: Mapping[int, tuple[int, int]]) -> Position:
        """Return the position after more transactions."""
        return replace(self, gtids=self.gtids | dict(gtids)) if gtids else self

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

    @property
    def gtid_text(self) -> str:
        """Return the transactions as MariaDB writes them: `0-1-42,1-1-7`."""
        return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self.gtids.items()))

    @staticmethod
    def gtids_of(text: str) -> dict[int, tuple[int, int]]:
        """Return transactions that MariaDB has written."""
        parts = [tuple(map(int, each.split("-"))) for each in text.split(",") if each.strip()]
        return {domain: (server, number) for domain, server, number in parts}

    def to_bytes(self) -> bytes:
        """Return it as `of` reads it."""
        tables = {name: asdict(each) for name, each in self.tables.items()}
        return json.dumps({"gtid": self.gtid_text, "tables": tables}).encode()

    @staticmethod
    def of(stored: bytes) -> Position:
        """Return what `to_bytes` wrote."""
        read = json.loads(stored)
        return Position(
            Position.gtids_of(read["gtid"]), {name: Progress.of(each) for name, each in read["tables"].items()}
        )
