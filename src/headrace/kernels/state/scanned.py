"""State that is scanned: a DuckDB cache that may vanish, and files that may not.

A cache is stamped with the head that it is at; opened at another head it is brought there, by the missing deltas or
from the last full file. So a cache of an attempt that was not committed is never believed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.crc import crc32
from headrace.base.names import quote
from headrace.kernels.files import in_few_bytes, read_metadata, read_tables
from headrace.kernels.sql import with_nulls
from headrace.kernels.state.state import DELTA, State, StateHead, write_state
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from headrace.kernels.duck import Duck
    from headrace.kernels.files import Later
    from headrace.kernels.state.tables import TableSpec

FEW = 30
"""Up to so many row ids are written out in SQL rather than read from a relation: a third of the time."""


class ScannedState(State):
    """Tables that are scanned, in DuckDB."""

    def __init__(self, duck: Duck, step: str, tables: Sequence[TableSpec], head: StateHead | None) -> None:
        self.duck = duck
        self.step = step
        self.tables: Mapping[str, TableSpec] = {table.name: table for table in tables}
        self.head = head
        kinds = repr([(table.name, table.kinds) for table in tables])
        self._kinds = f" {crc32(kinds.encode()):08x}"
        """Ends the cache's stamp, so that tables that were made with other types are not taken for these."""
        self._changes: dict[str, list[pa.Table]] = {}
        self._evicted: dict[str, list[str]] = {}
        self._count = head.rows if head else 0
        self._put_in = False  # whether rows were inserted in this transaction
        self._only_added = not self._count
        """Whether what was put in is all that there is."""
        self.oldest: int | None = None
        """The least event time of the rows that wait in it, where some do; set by the step, before `save`."""

    @property
    def rows(self) -> int:
        """How many rows its tables have."""
        return self._count

    def name(self, table: str) -> str:
        """Return a table's name in SQL."""
        return quote(f"{self.step}.{table}")

    def lookup(
        self,
        table: str,
        by: Sequence[str],  # noqa: ARG002 -- all rows are candidates
        probe: str,  # noqa: ARG002
        *,
        named: Sequence[str] | None = None,  # noqa: ARG002
    ) -> str:
        """Return all rows of a table: DuckDB scans them."""
        return self.name(table)

    def create(self) -> None:
        """Create the tables that are missing in the cache."""
        for table in self.tables.values():
            typed = ", ".join(f"{name} {kind}" for name, kind in table.kinds)
            self.duck.run(f"CREATE TABLE IF NOT EXISTS {self.name(table.name)} ({typed})")

    def replace(self, table: str, rows: pa.Table, *, at: str) -> None:
        """Put `rows` (all columns of the table, and `at`) in the place of those with their keys.

        `at` is the column with the `rowid` of the row that is replaced, null for a new key: deleting by it is a third
        of the cost of deleting by key. A row with a count of 0 only removes the old one.
        """
        if not rows.num_rows:
            return
        spec = self.tables[table]
        self._changes.setdefault(table, []).append(rows.select(spec.columns))
        source = self.duck.register(rows)
        if rows.column(at).null_count < rows.num_rows:
            self._only_added = False
            old = f"SELECT {at} FROM {source} WHERE {at} IS NOT NULL"
            if rows.num_rows <= FEW:
                old = ", ".join(str(row) for row in rows.column(at).to_pylist() if row is not None)
            self._count -= self.duck.change(f"DELETE FROM {self.name(table)} WHERE {self._row} IN ({old})")
        self._insert(spec, source)

    def evict(self, table: str, where: str) -> None:
        """Drop the rows for which a condition over the table's columns is true."""
        self._evicted.setdefault(table, []).append(where)
        self._only_added = False
        self._count -= self.duck.change(f"DELETE FROM {self.name(table)} WHERE {where}")

    @property
    def _row(self) -> str:
        """The row id, as deletes compare it.

        DuckDB filters a scan by the row ids of the other side of the join, and mistakes them for others among rows that
        the same transaction has inserted: wrong rows are deleted, or the process dies. It does not filter by an
        expression. (Its setting for that is one for all connections of a database, and so for other threads.)
        """
        return "(rowid | 0)" if self._put_in else "rowid"

    def _insert(self, spec: TableSpec, source: str) -> None:
        self._put_in = True
        columns = ", ".join(spec.columns)
        self._count += self.duck.change(
            f"INSERT INTO {self.name(spec.name)} SELECT {columns} FROM {source} WHERE {COUNT} <> 0"
        )

    # ---- files ----

    @property
    def changed(self) -> bool:
        """Whether this epoch changed any row."""
        return bool(self._changes or self._evicted)

    @property
    def writes_full(self) -> bool:
        """Whether `save` will write everything rather than what changed."""
        return self.changed and (self.head is None or self.head.due)

    def save(self, folder: Path, epoch: int, attempt: str, *, sync: bool | Later) -> StateHead | None:
        """Write what changed in this epoch to a file and return the new head, or the old one if nothing did."""
        if not self.changed:
            return self.head
        full = self.writes_full
        name = f"{epoch:012d}-{attempt}{'.full' if full else DELTA}"
        if full:
            tables = self._added() if self._only_added else {table: self._all(table) for table in self.tables}
            tables = {table: in_few_bytes(rows) for table, rows in tables.items()}
            size = write_state(folder / name, tables, {"previous": None, "evicted": {}}, sync=sync)
            self.head = StateHead(
                file=name, chain=0, chain_bytes=0, full_bytes=size, rows=self.rows, oldest=self.oldest
            )
        else:
            tables = {table: _concat(parts) for table, parts in self._changes.items()}
            before = self.head
            assert before is not None  # noqa: S101 -- a first head is a full one
            metadata = {"previous": before.file, "evicted": self._evicted}
            size = write_state(folder / name, tables, metadata, sync=sync)
            self.head = replace(
                before,
                file=name,
                chain=before.chain + 1,
                chain_bytes=before.chain_bytes + size,
                rows=self.rows,
                oldest=self.oldest,
            )
        self._stamp()
        return self.head

    def _stamp(self) -> None:
        """Remember which file the cache is at now."""
        if self.head is not None:
            self.duck.set_stamp(self.step, self.head.file + self._kinds)

    def restore(self, folder: Path) -> None:
        """Bring the cache, wherever it is, to the head.

        Raises:
            DamagedFile: a file of the chain is missing or damaged.

        """
        stamp, wanted = self.duck.stamp(self.step) or "", self.head.file if self.head else None
        at = stamp.removesuffix(self._kinds) if stamp.endswith(self._kinds) else None
        if at == wanted and at is not None:
            return
        chain = chain_of(folder, wanted, at)
        if not chain or not _continues(folder, chain[0], at):
            for table in self.tables:
                self.duck.run(f"DROP TABLE IF EXISTS {self.name(table)}")
        self.create()
        for file in chain:
            self._apply(folder / file)
        self._count = self.head.rows if self.head else 0
        if wanted is not None:
            self.duck.set_stamp(self.step, wanted + self._kinds)

    def _apply(self, path: Path) -> None:
        tables, metadata = read_tables(path)
        for name, rows in tables.items():
            if name in self.tables and rows.num_rows:
                source = self.duck.register(rows)
                same = self.matching(name, "s", "d", nulls=with_nulls([rows]))
                self.duck.run(f"DELETE FROM {self.name(name)} s USING {source} d WHERE {same}")
                self._insert(self.tables[name], source)
        evicted: dict[str, list[str]] = metadata["evicted"]
        for table, conditions in evicted.items():
            for where in conditions:
                self.duck.run(f"DELETE FROM {self.name(table)} WHERE {where}")

    def _added(self) -> dict[str, pa.Table]:
        """Return what was put in, without the rows that only remove others."""
        added = {table: _concat(parts) for table, parts in self._changes.items()}
        return {table: rows.filter(pc.not_equal(rows.column(COUNT), 0)) for table, rows in added.items()}

    def _all(self, table: str) -> pa.Table:
        return self.duck.arrow(f"SELECT {', '.join(self.tables[table].columns)} FROM {self.name(table)}")


def chain_of(folder: Path, head: str | None, at: str | None) -> list[str]:
    """Return the files that lead from the cache, or from the last full file, to the head, oldest first."""
    files: list[str] = []
    file = head
    while file is not None and file != at:
        files.append(file)
        file = read_metadata(folder / file)["previous"]
    return files[::-1]


def _continues(folder: Path, first: str, at: str | None) -> bool:
    previous: Any = read_metadata(folder / first)["previous"]
    return previous is not None and previous == at


def _concat(parts: list[pa.Table]) -> pa.Table:
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts)
