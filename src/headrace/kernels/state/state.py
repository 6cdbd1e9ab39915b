"""The state of a step in a shard: tables that an epoch reads and changes, and files that are the truth.

`<step>/<shard>/<epoch>-<attempt>.delta` holds the rows that one epoch changed and names the file before it; a `.full`
file holds everything and ends the chain. The commit of epoch n says which file each step and shard is at, its *head*.
There are two kinds of state, by how rows are found: `scanned` and `keyed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headrace.base.disk import make_folder
from headrace.base.time import END_OF_TIME
from headrace.kernels.files import write_tables
from headrace.kernels.sql import alike

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from headrace.kernels.files import Later
    from headrace.kernels.state.tables import TableSpec

MAX_CHAIN = 200
"""Deltas after which a full file is written, however small they are: a rebuild reads no more files than this."""
MIN_FULL_BYTES = 256 * 1024
DELTA = ".delta"
"""How the files end that leave those before them in force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateHead:
    """Which file a step's state in a shard is at: the file that holds its last change, and the chain behind it.

    `oldest` is the least event time of the rows that wait in it: `END_OF_TIME` where the step says that none does, and
    all are kept for rows to come.
    """

    file: str
    chain: int
    chain_bytes: int
    full_bytes: int
    rows: int = 0
    oldest: int | None = None

    @property
    def ends(self) -> bool:
        """Whether a later watermark may release something."""
        return self.rows > 0 and (self.oldest is None or self.oldest < END_OF_TIME)

    @property
    def due(self) -> bool:
        """Whether the deltas have outgrown the last full file, so that the next change writes everything."""
        return self.chain >= MAX_CHAIN or self.chain_bytes > max(self.full_bytes, MIN_FULL_BYTES)


class State(Protocol):
    """A step's tables in one shard, during one epoch."""

    tables: Mapping[str, TableSpec]
    oldest: int | None
    """The least event time of the rows that wait in it, where some do; set by the step, before `save`."""

    @property
    def rows(self) -> int:
        """How many rows its tables have."""
        ...

    def name(self, table: str) -> str:
        """Return a relation of all rows of a table, with `rowid`."""
        ...

    def lookup(self, table: str, by: Sequence[str], probe: str, *, named: Sequence[str] | None = None) -> str:
        """Return a relation of rows that may match the probe, with `rowid`: a superset.

        All rows that have in columns `by` what a row of relation `probe` has are in it. `by` is one of the sets that
        the table is looked up by; in `probe` these columns are `named` so, or as in the table.
        """
        ...

    def matching(self, table: str, left: str, right: str, *, nulls: Container[str]) -> str:
        """Return the join condition on a table's key between two aliases, as `alike`."""
        return alike(left, right, [name for name, _ in self.tables[table].keys], nulls=nulls)

    def replace(self, table: str, rows: pa.Table, *, at: str) -> None:
        """Put `rows` (all columns of the table, and `at`) in the place of those whose `rowid` is in column `at`.

        It is null for a new key. A row with a count of 0 only removes the old one.
        """
        ...

    def evict(self, table: str, where: str) -> None:
        """Drop the rows for which a condition over the table's columns is true."""
        ...

    @property
    def writes_full(self) -> bool:
        """Whether `save` will write more than what changed."""
        ...

    def save(self, folder: Path, epoch: int, attempt: str, *, sync: bool | Later) -> StateHead | None:
        """Write what changed in this epoch to a file and return the new head, or the old one if nothing did."""
        ...


def write_state(
    path: Path,
    tables: Mapping[str, pa.Table | pa.RecordBatchReader],
    metadata: Mapping[str, Any],
    *,
    sync: bool | Later,
) -> int:
    """Write a file of state, as `write_tables` does.

    A new folder is on the disk at once, whatever takes charge of its files: a task that syncs its own file there later
    does not sync the names of folders that it has found.
    """
    make_folder(path.parent, sync=sync is not False)
    return write_tables(path, tables, metadata, sync=sync)
