"""The state of a shard, and that of steps that scan it: a DuckDB cache that may vanish, and files that may not.

Steps that look rows up by value keep them another way, in `keyed`. Truth is in files:
`<step>/<shard>/<epoch>-<attempt>.delta` holds the rows that one epoch changed and names the file before it; a `.full`
file holds everything and ends the chain. The commit of epoch n says which file each step and shard is at, its *head*.
A cache is stamped with the head that it is at; opened at another head it is brought there, by the missing deltas or
from the last full file. So a cache of an attempt that was not committed is never believed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from headrace.base.names import quote
from headrace.kernels.files import read_metadata, read_tables, write_tables

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from headrace.kernels.duck import Duck
    from headrace.kernels.spec import Column

MAX_CHAIN = 200
"""Deltas after which a full file is written, however small they are: a rebuild reads no more files than this."""
MIN_FULL_BYTES = 256 * 1024
DELTA = ".delta"
"""How the files end that leave those before them in force."""
COUNT = "_n"
FEW = 30
"""Up to so many row ids are written out in SQL rather than read from a relation: a third of the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where a step's state in a shard stands: the file that holds its last change, and the chain behind it.

    `oldest` is the least event time of the rows that wait in it.
    """

    file: str
    chain: int
    chain_bytes: int
    full_bytes: int
    rows: int = 0
    oldest: int | None = None

    @property
    def due(self) -> bool:
        """Whether the deltas have outgrown the last full file, so that the next change writes everything."""
        return self.chain >= MAX_CHAIN or self.chain_bytes > max(self.full_bytes, MIN_FULL_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """A table of state: rows by key, each with a count `_n`; a row whose count is 0 is gone.

    `by`: the sets of columns by whose values rows are looked up; without any, rows are found by scanning all. A table
    that `ages` by a column of times, in microseconds, is a buffer: its rows are added, never replaced, and go when
    their time is past. They have no count.
    """

    name: str
    keys: tuple[Column, ...]
    values: tuple[Column, ...]
    by: tuple[tuple[str, ...], ...] = ()
    ages: str | None = None

    @property
    def kinds(self) -> tuple[Column, ...]:
        """All columns, in order, with their types."""
        return (*self.keys, *(((COUNT, "BIGINT"),) if self.ages is None else ()), *self.values)

    @property
    def columns(self) -> list[str]:
        """All columns, in order."""
        return [name for name, _ in self.kinds]


class State(Protocol):
    """A step's tables in one shard, during one epoch."""

    tables: Mapping[str, TableSpec]
    oldest: int | None
    """The least event time of the rows that wait in it, where some do; set by the step, before `save`."""

    def name(self, table: str) -> str:
        """Return a relation of all rows of a table, with `rowid`."""
        ...

    def lookup(self, table: str, by: Sequence[str], probe: str, *, named: Sequence[str] | None = None) -> str:
        """Return a relation of rows with `rowid`: all that have in columns `by` what a row of `probe` has.

        There may be others. `by` is one of the sets that the table is looked up by; in relation `probe` these columns
        are `named` so, or as in the table.
        """
        ...

    def matching(self, table: str, left: str, right: str, *, nulls: Container[str]) -> str:
        """Return the join condition on a table's key between two aliases, as `alike`."""
        return alike(left, right, [name for name, _ in self.tables[table].keys], nulls=nulls)

    def replace(self, table: str, rows: pa.Table, *, at: str) -> None:
        """Put `rows` (all columns of the table, and `at`) in the place of those whose `rowid` is in column `at`.

        It is null for a new key. Rows with a count of 0 take the old one away and leave nothing.
        """
        ...

    def evict(self, table: str, where: str) -> None:
        """Drop the rows that meet a condition over the table's columns, whatever came before in this epoch."""
        ...

    @property
    def writes_full(self) -> bool:
        """Whether `save` will write more than what changed."""
        ...

    def save(self, folder: Path, epoch: int, attempt: str, *, sync: bool) -> Head | None:
        """Write what changed in this epoch to a file and return the new head, or the old one if nothing did."""
        ...


class StepState(State):
    """Tables that are scanned, in DuckDB."""

    def __init__(self, duck: Duck, step: str, tables: Sequence[TableSpec], head: Head | None) -> None:
        self.duck = duck
        self.step = step
        self.tables: Mapping[str, TableSpec] = {table.name: table for table in tables}
        self.head = head
        self._changes: dict[str, list[pa.Table]] = {}
        self._evicted: dict[str, list[str]] = {}
        self._count = head.rows if head else 0
        self._put_in = False  # whether rows have come in this transaction
        self.oldest: int | None = None
        """The least event time of the rows that wait in it, where some do; set by the step, before `save`."""

    def name(self, table: str) -> str:
        """Return a table's name in SQL."""
        return quote(f"{self.step}.{table}")

    def lookup(
        self,
        table: str,
        by: Sequence[str],  # noqa: ARG002 -- all rows are near
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
        of the cost of deleting by key. Rows with a count of 0 take the old one away and leave nothing.
        """
        if not rows.num_rows:
            return
        spec = self.tables[table]
        self._changes.setdefault(table, []).append(rows.select(spec.columns))
        source = self.duck.register(rows)
        if rows.column(at).null_count < rows.num_rows:
            old = f"SELECT {at} FROM {source} WHERE {at} IS NOT NULL"
            if rows.num_rows <= FEW:
                old = ", ".join(str(row) for row in rows.column(at).to_pylist() if row is not None)
            self._count -= self._changed(f"DELETE FROM {self.name(table)} WHERE rowid IN ({old})")
        self._insert(spec, source)

    def evict(self, table: str, where: str) -> None:
        """Drop the rows that meet a condition over the table's columns, whatever came before in this epoch."""
        self._evicted.setdefault(table, []).append(where)
        self._count -= self.duck.change(f"DELETE FROM {self.name(table)} WHERE {where}")

    def _changed(self, delete: str) -> int:
        """Delete by row ids, and return how many rows went.

        DuckDB filters the scan by the row ids that the other side of the join has, and takes them for others in rows
        that the same transaction has put in: wrong rows go, or the process dies.
        """
        if not self._put_in:
            return self.duck.change(delete)
        self.duck.run("SET disabled_optimizers = 'join_filter_pushdown'")
        try:
            return self.duck.change(delete)
        finally:
            self.duck.run("RESET disabled_optimizers")

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

    def save(self, folder: Path, epoch: int, attempt: str, *, sync: bool) -> Head | None:
        """Write what changed in this epoch to a file and return the new head, or the old one if nothing did."""
        if not self.changed:
            return self.head
        full = self.writes_full
        name = f"{epoch:012d}-{attempt}{'.full' if full else DELTA}"
        if full:
            tables = {table: self._all(table) for table in self.tables}
            size = write_tables(folder / name, tables, {"previous": None, "evicted": {}}, sync=sync)
            self.head = Head(file=name, chain=0, chain_bytes=0, full_bytes=size, rows=self._count, oldest=self.oldest)
        else:
            tables = {table: _concat(parts) for table, parts in self._changes.items()}
            before = self.head
            assert before is not None  # noqa: S101 -- a first head is a full one
            metadata = {"previous": before.file, "evicted": self._evicted}
            size = write_tables(folder / name, tables, metadata, sync=sync)
            self.head = replace(
                before,
                file=name,
                chain=before.chain + 1,
                chain_bytes=before.chain_bytes + size,
                rows=self._count,
                oldest=self.oldest,
            )
        self.duck.set_stamp(self.step, self.head.file)
        return self.head

    def restore(self, folder: Path) -> None:
        """Bring the cache, wherever it is, to the head.

        Raises:
            DamagedFile: a file of the chain is missing or damaged.

        """
        at, wanted = self.duck.stamp(self.step), self.head.file if self.head else None
        if at == wanted and at is not None:
            return
        chain = _chain(folder, wanted, at)
        if not chain or not _continues(folder, chain[0], at):
            for table in self.tables:
                self.duck.run(f"DROP TABLE IF EXISTS {self.name(table)}")
        self.create()
        for file in chain:
            self._apply(folder / file)
        self._count = self.head.rows if self.head else 0
        if wanted is not None:
            self.duck.set_stamp(self.step, wanted)

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

    def _all(self, table: str) -> pa.Table:
        return self.duck.arrow(f"SELECT {', '.join(self.tables[table].columns)} FROM {self.name(table)}")


def _chain(folder: Path, head: str | None, at: str | None) -> list[str]:
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


def alike(left: str, right: str, names: Iterable[str], *, nulls: Container[str] | None = None) -> str:
    """Return the SQL condition that columns are equal between two aliases; nulls are equal to each other.

    `nulls`: the columns in which one side may have nulls, where that is known. The others are compared by `=`, which
    DuckDB turns into a filter on the scan of the larger side: half of the time at ten million rows.
    """
    made = [
        f"{left}.{name} {'IS NOT DISTINCT FROM' if nulls is None or name in nulls else '='} {right}.{name}"
        for name in names
    ]
    return " AND ".join(made) or "true"


def with_nulls(parts: Iterable[pa.Table]) -> frozenset[str]:
    """Return the columns that have a null in any of the tables, or may have one inside a value."""
    return frozenset(
        field.name
        for part in parts
        for at, field in enumerate(part.schema)
        if field.type.num_fields or part.column(at).null_count
    )


def _concat(parts: list[pa.Table]) -> pa.Table:
    import pyarrow as pa

    return parts[0] if len(parts) == 1 else pa.concat_tables(parts)
