"""The state of a step whose rows are looked up by value: a chain of files, read where they are.

An epoch writes one file: of each table the rows that it put there, as a run, and the ids of the older rows that these
replace. A new file merges the last ones of its own size, so that a chain has few: the cost of an epoch follows what
changes, and grows with the logarithm of what is kept. Files are mapped, not loaded, and shared by all processes of a
machine; what a process remembers of a chain, it brings from the head that it knows to the one that is needed.

A table that ages is a buffer: rows are only appended, and expire by their time. Nothing is written for an expired row
but the time before which all have expired, so no row of an earlier time may be appended afterwards.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.time import END_OF_TIME
from headrace.kernels.files import read_metadata, read_tables
from headrace.kernels.state.matches import together
from headrace.kernels.state.runs import BITS, ROW, UNBOUNDED, Index, Run, above, divided, probe_hashes
from headrace.kernels.state.state import DELTA, State, StateHead, write_state
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from headrace.base.hashing import Hashes
    from headrace.kernels.duck import Duck
    from headrace.kernels.files import Later
    from headrace.kernels.state.matches import Matches, Probe
    from headrace.kernels.state.runs import Positions
    from headrace.kernels.state.tables import Column, TableSpec

TIER = 4
"""So many files of one size become one of the next: more means fewer rows written, and more runs to look into."""
MOST_BYTES = 1 << 30
"""A larger file is left as it is: texts of a run share one buffer of at most 2 GB."""
FEWER = 4
"""Where more than one in so many rows of a table is looked up, all are returned: DuckDB finds the matches sooner."""
MAPPED_FROM = 1 << 20
REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class Link:
    """A file of a chain: the rows that it has or replaces, those of buffers apart, its bytes, and its runs' number."""

    file: str
    number: int
    rows: int
    buffered: int
    bytes: int


@dataclass
class Chain:
    """What a process knows of a step's state in a shard, at the last of its links."""

    links: list[Link] = field(default_factory=list)
    runs: dict[str, list[Run]] = field(default_factory=dict)
    expired: dict[str, int] = field(default_factory=dict)
    """The times before which all rows of buffers are gone."""

    def read(self, folder: Path, file: str, tables: Mapping[str, TableSpec], *, checked: bool = True) -> None:
        """Add the next file; `checked` False: this process has just written it.

        Raises:
            DamagedFile: it is missing or damaged.

        """
        sections, metadata = read_tables(folder / file, checked=checked)
        number = metadata["number"]
        self.cut(number)
        for name, spec in tables.items():
            if f"{name}.gone" in sections:
                self.remove(name, sections[f"{name}.gone"].column(0).to_numpy())
            if name in sections:
                run = _run(number, sections[name], sections.get(f"{name}.index"), spec)
                self.runs.setdefault(name, []).append(run)
        for name, before in metadata["expired"].items():
            self.expire(name, before)
        size = (folder / file).stat().st_size
        self.links.append(Link(file, number, metadata["rows"], metadata["buffered"], size))

    def cut(self, number: int) -> None:
        """Drop what a later file has merged: the runs from this number on."""
        self.links = [link for link in self.links if link.number < number]
        self.runs = {name: [run for run in runs if run.number < number] for name, runs in self.runs.items()}

    def remove(self, table: str, ids: Positions) -> None:
        """Mark rows as removed."""
        runs = {run.number: run for run in self.runs.get(table, ())}
        for number, positions in divided(ids).items():
            runs[number].remove(positions)

    def still_live(self, table: str, ids: Positions) -> Positions:
        """Return the ids of the rows that have not been removed."""
        runs = {run.number: run for run in self.runs.get(table, ())}
        parts = [runs[number].still_live(positions) | (number << BITS) for number, positions in divided(ids).items()]
        return np.concatenate(parts) if parts else ids

    def expire(self, table: str, before: int) -> int:
        """Drop the rows of a buffer of an earlier time, and return how many these were."""
        self.expired[table] = before
        runs = self.runs.get(table, [])
        expired = sum(run.expire(before) for run in runs)
        self.runs[table] = [run for run in runs if run.live]
        return expired

    def buffered(self, number: int) -> int:
        """Return how many rows of buffers the runs of a number have."""
        return sum(run.live for runs in self.runs.values() for run in runs if run.number == number and run.ages)

    def weight(self, link: Link) -> int:
        """Return how many rows are copied where a file is merged into another."""
        return link.rows + self.buffered(link.number)

    @property
    def rows(self) -> int:
        """How many rows the state has."""
        return sum(run.live for runs in self.runs.values() for run in runs)


_REMEMBERED: OrderedDict[Path, Chain] = OrderedDict()
_remembering = Lock()
_SCHEMAS: dict[tuple[tuple[str, str], ...], pa.Schema] = {}
"""How tables look in Arrow, by their columns."""


class KeyedState(State):
    """A step's tables in one shard, during one epoch. Later lookups of the epoch see what it changed before."""

    def __init__(self, duck: Duck, tables: Sequence[TableSpec], head: StateHead | None, folder: Path) -> None:
        self.duck = duck
        self.tables: Mapping[str, TableSpec] = {table.name: table for table in tables}
        self.head = head
        self.oldest: int | None = None
        self._folder = folder
        self._chain = _opened(folder, head, self.tables)
        _widen(duck, self._chain, tables)
        self._first = self._chain.links[-1].number + 1 if self._chain.links else 0
        self._number = self._first
        self._gone: dict[str, list[Positions]] = {}
        self._touched = False

    @property
    def rows(self) -> int:
        """How many rows its tables have."""
        return self._chain.rows

    def lookup(self, table: str, by: Sequence[str], probe: str, *, named: Sequence[str] | None = None) -> str:
        """Return a relation of rows that may match the probe, with `rowid`: a superset (hashes collide).

        All rows that have in columns `by` what a row of relation `probe` has are in it. `by` is one of the sets that
        the table is looked up by; in `probe` these columns are `named` so, or as in the table.
        """
        return self.may_match(table, by, probe, named=named) or self._relation(self.tables[table].kinds, [])

    def find(self, table: str, by: Sequence[str], probe: Sequence[pa.ChunkedArray], count: int) -> list[pa.Table]:
        """Return the rows of `lookup` as tables; `probe` are `count` values of the columns `by`."""
        runs = self._chain.runs.get(table, [])
        if count * FEWER > sum(run.live for run in runs):
            return [run.all() for run in runs]
        number, hashes = self.tables[table].by.index(tuple(by)), probe_hashes(probe, count)
        return [run.find(number, hashes) for run in runs]

    def may_match(self, table: str, by: Sequence[str], probe: str, *, named: Sequence[str] | None = None) -> str | None:
        """Return what `lookup` does, or None where no row matches for sure."""
        if not self._chain.runs.get(table):
            return None
        if by:
            columns = self.duck.arrow(f"SELECT {', '.join(named or by)} FROM {probe}")
            found = self.find(table, by, columns.columns, columns.num_rows)
        else:  # all rows have the same key: none
            found = [run.all() for run in self._chain.runs[table]]
        return self._relation(self.tables[table].kinds, found) if any(part.num_rows for part in found) else None

    def matches(self, table: str, by: Sequence[str], probe: Probe, *, most: int = UNBOUNDED) -> Matches:
        """Return the rows that have in columns `by` what a row of the probe has: exactly these.

        `by` is one of the sets that the table is looked up by.

        Raises:
            TooMany: there are more than `most` bytes of them.

        """
        runs, number = self._chain.runs.get(table, ()), self.tables[table].by.index(tuple(by))
        return together(probe.among(runs, number, by, most=most), self.schema(table))

    def schema(self, table: str) -> pa.Schema:
        """Return the columns of a table as Arrow has them."""
        return _schema(self.duck, self.tables[table])

    def lacks(self, table: str, by: Sequence[str], hashes: Hashes) -> bool:
        """Return whether no row has in columns `by` values of these hashes, which are in order, each once."""
        number = self.tables[table].by.index(tuple(by))
        return not any(run.has(number, hashes) for run in self._chain.runs.get(table, ()))

    def name(self, table: str) -> str:
        """Return a relation of all rows of a table, with `rowid`."""
        return self._relation(self.tables[table].kinds, [run.all() for run in self._chain.runs.get(table, [])])

    def _relation(self, kinds: Sequence[Column], parts: list[pa.Table], *, ids: bool = True) -> str:
        rows = [part for part in parts if part.num_rows]
        columns = [*kinds, *([(ROW, "BIGINT")] if ids else [])]
        if not rows:
            return f"(SELECT {', '.join(f'NULL::{kind} AS {name}' for name, kind in columns)} WHERE false)"
        source = self.duck.register(pa.concat_tables(rows))
        return f"(SELECT {', '.join(f'{name}::{kind} AS {name}' for name, kind in columns)} FROM {source})"

    def replace(self, table: str, rows: pa.Table, *, at: str) -> None:
        """Put `rows` (all columns of the table, and `at`) in the place of those whose `rowid` is in column `at`.

        A row with a count of 0 only removes the old one.
        """
        if not rows.num_rows:
            return
        self._remove(table, rows.column(at).drop_null().to_numpy())
        self._add(table, rows.filter(pc.not_equal(rows.column(COUNT), 0)))
        self._touched = True

    def put(self, table: str, rows: pa.Table, gone: Positions) -> None:
        """Add rows (all columns of the table, none with a count of 0) and remove those with these ids."""
        if len(gone):
            self._remove(table, gone)
        self._add(table, rows)
        self._touched = self._touched or bool(rows.num_rows or len(gone))

    def _add(self, table: str, rows: pa.Table) -> None:
        if rows.num_rows:
            spec = self.tables[table]
            kept = _typed(self.duck, rows.select(spec.columns), spec)
            self._chain.runs.setdefault(table, []).append(Run.of(self._number, kept, spec.by, spec.ages))
            self._number += 1

    def evict(self, table: str, where: str, *, of: Sequence[str] | None = None) -> None:
        """Drop the rows for which a condition is true, over the table's columns or the columns `of` it alone."""
        runs = self._chain.runs.get(table, [])
        named = set(self.tables[table].columns if of is None else of)
        kinds = [(name, kind) for name, kind in self.tables[table].kinds if name in named]
        narrow = self._relation(kinds, [run.narrow([name for name, _ in kinds]) for run in runs])
        evicted = self.duck.arrow(f"SELECT rowid FROM {narrow} WHERE {where}")
        gone = self._chain.still_live(table, evicted.column(0).to_numpy())
        if len(gone):
            self._remove(table, gone)
            self._touched = True

    def _remove(self, table: str, ids: Positions) -> None:
        self._gone.setdefault(table, []).append(ids)
        self._chain.remove(table, ids)

    # ---- buffers ----

    def append(self, table: str, rows: pa.Table) -> None:
        """Add rows (all columns of the table) to a buffer; none is of a time that has expired."""
        if rows.num_rows:
            self._add(table, rows)
            self._touched = True

    def between(self, table: str, first: int | None, last: int | None) -> list[pa.Table]:
        """Return the rows of a buffer from the first time to the last, in order of arrival; None is no bound."""
        parts = [run.between(first, last) for run in self._chain.runs.get(table, [])]
        return [part for part in parts if part.num_rows]

    def during(self, table: str, first: int | None, last: int | None) -> str:
        """Return the rows of a buffer from the first time to the last as a relation, without `rowid`."""
        return self._relation(self.tables[table].kinds, self.between(table, first, last), ids=False)

    def minimum(self, table: str, column: str) -> int | None:
        """Return the least value of a column of numbers in a table, or None where there is no row."""
        return min((run.minimum(column) for run in self._chain.runs.get(table, ()) if run.live), default=None)

    def wait_since(self, time: int | None) -> None:
        """Say the least event time of rows that a later watermark releases; None: all are kept for rows to come."""
        self.oldest = END_OF_TIME if time is None else time
        if self.head is not None and self.rows and self.head.oldest != self.oldest:
            self._touched = True  # also where an older version did not say it

    def expire(self, table: str, before: int) -> None:
        """Drop the rows of a buffer of an earlier time; none of such a time may be appended any more."""
        if self._chain.expire(table, before):
            self._touched = True

    # ---- files ----

    @property
    def changed(self) -> bool:
        """Whether this epoch changed any row."""
        return self._touched

    @property
    def writes_full(self) -> bool:
        """Whether `save` will write the first file of a chain, or one that merges older ones."""
        return self.changed and (self.head is None or self._first_merged() < self._first)

    def save(self, folder: Path, epoch: int, attempt: str, *, sync: bool | Later) -> StateHead | None:
        """Write what changed in this epoch to a file and return the new head, or the old one if nothing did."""
        if self.changed:
            first = self._first_merged()
            merges = first < self._first
            name = f"{epoch:012d}-{attempt}{'.merged' if merges else DELTA}"
            self._write(folder / name, first, sync=sync)
            links = self._chain.links
            sizes = [link.bytes for link in links]
            self.head = StateHead(
                file=name,
                chain=len(links) - 1,
                chain_bytes=sum(sizes[1:]),
                full_bytes=sizes[0],
                rows=self._chain.rows,
                oldest=self.oldest,
            )
        _remember(self._folder, self._chain)
        return self.head

    def _first_merged(self) -> int:
        """Return the number of the first run in this epoch's file: its own, or one of an older file to merge."""
        links, weight = self._chain.links, self._chain.weight
        size, bytes_, first = max(1, self._size(self._first)), 0, self._first
        at = len(links)
        while True:
            begin = at
            while begin and weight(links[begin - 1]) < size * TIER:
                begin -= 1
            taken = links[begin:at]
            copied = sum(weight(link) for link in taken)
            bytes_ += sum(link.bytes * weight(link) // max(1, link.rows + link.buffered) for link in taken)
            if not taken or (copied and len(taken) < TIER - 1) or bytes_ > MOST_BYTES:
                return first
            size += copied
            at, first = begin, taken[0].number

    def _size(self, first: int) -> int:
        """Return how many rows a file of the runs from `first` on has, or replaces."""
        runs = [run for runs in self._chain.runs.values() for run in runs if run.number >= first]
        here = sum(run.live for run in runs if not run.ages)
        gone: int = sum(len(ids) for parts in self._gone.values() for ids in parts)
        return max(here, gone) + sum(run.live for run in runs if run.ages)

    def _write(self, path: Path, first: int, *, sync: bool | Later) -> None:
        """Write the runs from `first` on as one, with the ids of the rows before it that they replace."""
        chain, sections, merged = self._chain, {}, {}
        absorbed = [link for link in chain.links if link.number >= first]
        gone = self._gone_before(first, [link.file for link in absorbed])
        for name in self.tables:
            late = [run for run in chain.runs.get(name, ()) if run.number >= first and run.live]
            if len(gone.get(name, ())):
                sections[f"{name}.gone"] = pa.table({"id": gone[name]})
            if late:
                merged[name] = Run.merged(first, late)
                sections[name] = merged[name].rows
                if merged[name].indexes:
                    sections[f"{name}.index"] = _indexed(merged[name])
        buffered = sum(run.live for run in merged.values() if run.ages)
        size = sum(run.live for run in merged.values() if not run.ages)
        size = max(size, sum(len(ids) for ids in gone.values()))
        previous = next((link.file for link in reversed(chain.links) if link.number < first), None)
        metadata = {
            "previous": previous,
            "number": first,
            "rows": size,
            "buffered": buffered,
            "absorbed": [link.file for link in absorbed],
            "expired": chain.expired,
        }
        written = write_state(path, sections, metadata, sync=sync)
        if written >= MAPPED_FROM:
            chain.read(path.parent, path.name, self.tables, checked=False)
            return
        chain.cut(first)
        for name, run in merged.items():
            chain.runs.setdefault(name, []).append(run)
        chain.links.append(Link(path.name, first, size, buffered, written))

    def _gone_before(self, first: int, absorbed: Sequence[str]) -> dict[str, Positions]:
        """Return the ids of the rows in older runs that this epoch, or a merged file, replaced."""
        parts = {name: list(ids) for name, ids in self._gone.items()}
        marks = {f"{name}.gone": name for name in self.tables}
        for file in absorbed:
            for mark, ids in read_tables(self._folder / file, named=marks)[0].items():
                parts.setdefault(marks[mark], []).append(ids.column(0).to_numpy())
        before = {}
        for name, ids in parts.items():
            gone = np.concatenate(ids)
            before[name] = gone[~above(gone, first)]
        return before


def _opened(folder: Path, head: StateHead | None, tables: Mapping[str, TableSpec]) -> Chain:
    """Return a step's state at a head: what this process remembers of it, and the files written since.

    The memory is taken out, and put back by `save`: so a failed epoch leaves nothing behind.
    """
    with _remembering:
        chain = _REMEMBERED.pop(folder, None) or Chain()
    remembered = {link.file: at for at, link in enumerate(chain.links)}
    files: list[str] = []
    absorbed: set[str] = set()
    file = None if head is None else head.file
    while file is not None and file not in remembered:
        files.append(file)
        metadata: dict[str, Any] = read_metadata(folder / file)
        absorbed.update(metadata["absorbed"])
        file = metadata["previous"]
    beyond = [link.file for link in chain.links[(-1 if file is None else remembered[file]) + 1 :]]
    if file is None or not absorbed.issuperset(beyond):
        chain = Chain()
        if file is not None:  # what is remembered has gone another way
            files += _behind(folder, file)
    for name in reversed(files):
        chain.read(folder, name, tables)
    return chain


def _behind(folder: Path, file: str) -> list[str]:
    """Return a file and those before it, the newest first."""
    files: list[str] = []
    at: str | None = file
    while at is not None:
        files.append(at)
        at = read_metadata(folder / at)["previous"]
    return files


def _remember(folder: Path, chain: Chain) -> None:
    with _remembering:  # shards run in parallel, and the dict compares paths in Python: another thread may get in
        _REMEMBERED[folder] = chain
        while len(_REMEMBERED) > REMEMBERED:
            _REMEMBERED.popitem(last=False)


def _run(number: int, rows: pa.Table, index: pa.Table | None, spec: TableSpec) -> Run:
    columns = [] if index is None else [index.column(at).chunk(0).to_numpy() for at in range(2 * len(spec.by))]
    indexes = [Index(*columns[at : at + 2]) for at in range(0, len(columns), 2)]
    return Run(number, rows, indexes, spec.ages)


def _indexed(run: Run) -> pa.Table:
    columns = [column for index in run.indexes for column in (index.hashes, index.positions)]
    return pa.table(columns, names=[f"{'hp'[at % 2]}{at // 2}" for at in range(len(columns))])


def _widen(duck: Duck, chain: Chain, tables: Sequence[TableSpec]) -> None:
    """Bring rows that were written when the program had narrower types to those of now; their hashes are the same."""
    for spec in tables:
        for run in chain.runs.get(spec.name, ()):
            run.rows = _typed(duck, run.rows, spec)


def _typed(duck: Duck, rows: pa.Table, spec: TableSpec) -> pa.Table:
    """Return rows in the types of their table, whatever type they were computed in."""
    if rows.schema.equals(_schema(duck, spec)):
        return rows
    cast = ", ".join(f"{name}::{kind} AS {name}" for name, kind in spec.kinds)
    return duck.arrow(f"SELECT {cast} FROM {duck.register(rows)}")


def _schema(duck: Duck, spec: TableSpec) -> pa.Schema:
    kinds = spec.kinds
    schema = _SCHEMAS.get(kinds)
    if schema is None:
        schema = duck.arrow(f"SELECT {', '.join(f'NULL::{kind} AS {name}' for name, kind in kinds)} LIMIT 0").schema
        _SCHEMAS[kinds] = schema
    return schema
