"""State that an epoch of many rows scans as Arrow tables, straight from its files.

Where an epoch brings as many rows as there are, or only closes windows, a table in DuckDB is filled to be read once. So
such an epoch reads the files into columns and changes these; the files that it writes are those of `ScannedState`. The
cache in DuckDB stays as it is, behind the head: the next epoch that wants it brings it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.kernels.arrays import room
from headrace.kernels.files import read_tables
from headrace.kernels.sql import with_nulls
from headrace.kernels.state.scanned import ScannedState, chain_of
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.kernels.duck import Duck
    from headrace.kernels.state.state import StateHead

LEAST_ROWS = 4_096
"""Fewer rows are sooner put into tables of DuckDB, which the next epochs find there."""
KEPT_A_ROW = 4
"""With more kept rows than so many for each row that arrives, these are not read anew."""
MOST_FILES = 8
_ROW_BYTES = 128
_ROW = "rowid"


def reads_columns(duck: Duck, step: str, head: StateHead | None, arrived: int) -> bool:
    """Return whether an epoch with so many rows scans a step's state as columns: not where the cache is at its head."""
    if head is None:
        return arrived >= LEAST_ROWS
    stamp = duck.stamp(step)
    if stamp is not None and stamp.split(" ")[0] == head.file:
        return False
    few = arrived >= LEAST_ROWS and head.rows <= arrived * KEPT_A_ROW
    fits = (head.rows + arrived) * _ROW_BYTES <= room()
    return (few or not arrived) and fits and head.chain <= MOST_FILES


class ColumnState(ScannedState):
    """Tables that are scanned, as Arrow tables of this epoch; a row keeps its number as long as it is there."""

    def restore(self, folder: Path) -> None:
        """Read the tables from the files of the head.

        Raises:
            DamagedFile: a file of the chain is missing or damaged.

        """
        self._parts: dict[str, list[pa.Table]] = {table: [] for table in self.tables}
        self._next = 0
        for file in chain_of(folder, self.head.file if self.head else None, None):
            tables, metadata = read_tables(folder / file)
            for name, rows in tables.items():
                if name in self.tables and rows.num_rows:
                    self._supersede(name, rows)
                    self._add(name, rows)
            for table, conditions in metadata["evicted"].items():
                for where in conditions:
                    self._drop(table, where)

    @property
    def rows(self) -> int:
        """How many rows its tables have."""
        return sum(part.num_rows for parts in self._parts.values() for part in parts)

    def name(self, table: str) -> str:
        """Return a relation of all rows of a table, with `rowid`."""
        kinds = [*self.tables[table].kinds, (_ROW, "BIGINT")]
        columns = ", ".join(f"{name}::{kind} AS {name}" for name, kind in kinds)
        parts = [f"SELECT {columns} FROM {self.duck.register(part)}" for part in self._parts[table]]
        nothing = ", ".join(f"NULL::{kind} AS {name}" for name, kind in kinds)
        return f"({' UNION ALL '.join(parts) or f'SELECT {nothing} WHERE false'})"

    def replace(self, table: str, rows: pa.Table, *, at: str) -> None:
        """Put `rows` in the place of those whose number is in column `at`, as `State.replace` says."""
        if not rows.num_rows:
            return
        changed = rows.select(self.tables[table].columns)
        self._changes.setdefault(table, []).append(changed)
        if rows[at].null_count < len(rows):
            self._only_added = False
            self._remove(table, rows[at].drop_null().to_numpy())
        self._add(table, changed)

    def evict(self, table: str, where: str) -> None:
        """Drop the rows for which a condition over the table's columns is true."""
        self._evicted.setdefault(table, []).append(where)
        self._only_added = False
        self._drop(table, where)

    def _add(self, table: str, rows: pa.Table) -> None:
        counts = rows[COUNT].to_numpy()
        if not counts.all():
            rows = rows.filter(pa.array(counts != 0))
        if rows.num_rows:
            numbers = np.arange(self._next, self._next + rows.num_rows)
            self._next += rows.num_rows
            self._parts[table].append(rows.append_column(_ROW, pa.array(numbers)))

    def _drop(self, table: str, where: str) -> None:
        found = self.duck.arrow(f"SELECT {_ROW} FROM {self.name(table)} WHERE {where}")
        self._remove(table, found[_ROW].to_numpy())

    def _supersede(self, table: str, rows: pa.Table) -> None:
        """Remove the rows that others replace, by their keys."""
        if self._parts[table]:
            same = self.matching(table, "s", "d", nulls=with_nulls([rows]))
            found = f"SELECT s.{_ROW} FROM {self.name(table)} s SEMI JOIN {self.duck.register(rows)} d ON {same}"
            self._remove(table, self.duck.arrow(found)[_ROW].to_numpy())

    def _remove(self, table: str, numbers: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
        if len(numbers):
            gone = np.zeros(self._next, np.bool_)
            gone[numbers] = True
            parts = [part.filter(pa.array(~gone[part[_ROW].to_numpy()])) for part in self._parts[table]]
            self._parts[table] = [part for part in parts if part.num_rows]

    def _all(self, table: str) -> pa.Table:
        return self.duck.arrow(f"SELECT {', '.join(self.tables[table].columns)} FROM {self.name(table)}")

    def _stamp(self) -> None:
        """Leave the cache in DuckDB where it is."""
