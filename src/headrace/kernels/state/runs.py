"""Rows that are found by hash: immutable runs, and which of their rows have not been removed.

A run is some rows of one table, with an *index* for each set of columns by which they are looked up: the hashes of
those columns in order, and the positions of their rows. Looking ten thousand keys up in ten million rows is ten
thousand binary searches, not a scan. Hashes may collide, so a lookup finds a superset of the matching rows; the
caller compares the values. After the log-structured merge tree (O'Neil et al., 1996), without its order of keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from headrace.base.hashing import hash_columns
from headrace.kernels.state.directory import FEWEST, RARE, Directory, ends_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.base.hashing import Hashes

    Positions = NDArray[np.int64]

_Number = TypeVar("_Number", np.int64, np.uint64)
ROW = "rowid"
BITS = 40
"""A run has fewer rows than this, and a chain fewer runs than the rest."""
UNBOUNDED = 1 << 62
_PLACE = (1 << BITS) - 1
_LARGE = 1 << 14


class TooMany(Exception):
    """There are more matches than there is room for."""


@dataclass(frozen=True)
class Index:
    """Hashes in ascending order, and the position of each one's row."""

    hashes: Hashes
    positions: Positions

    @cached_property
    def directory(self) -> Directory:
        """Where the hashes of each bucket begin: made once an index, which does not change."""
        return Directory.of(self.hashes)

    @staticmethod
    def of(hashes: Hashes) -> Index:
        """Return the index of rows that have these hashes."""
        positions = np.argsort(hashes)
        return Index(hashes[positions], positions)

    @staticmethod
    def merged(parts: Sequence[Index]) -> Index:
        """Return the index of the rows of several indexes, whose positions continue from one to the next."""
        hashes = np.concatenate([part.hashes for part in parts])
        order = np.argsort(hashes, kind="stable")  # a merge sort: parts that are in order cost a pass
        return Index(hashes[order], np.concatenate([part.positions for part in parts])[order])

    def find(self, probe: Hashes) -> Positions:
        """Return the positions of the rows with any of these hashes; `probe` is in order, each once."""
        return self.pairs(probe)[1]

    def pairs(self, probe: Hashes, most: int = UNBOUNDED) -> tuple[Positions, Positions]:
        """Return which hashes of `probe`, which are in order, have which rows: numbers and positions of rows.

        Raises:
            TooMany: there are more than `most` such pairs.

        """
        if len(self.hashes) < len(probe):
            first = np.searchsorted(probe, self.hashes)
            at, which = _equal(probe, self.hashes, first, most)
        else:
            which, at = _equal(self.hashes, probe, self._first_at(probe), most)
        return which, self.positions[at]

    def _first_at(self, probe: Hashes) -> Positions:
        if FEWEST <= len(self.hashes) <= RARE * len(probe):
            return self.directory.first_at(self.hashes, probe)
        return np.searchsorted(self.hashes, probe)


def _equal(among: Hashes, hashes: Hashes, first: Positions, most: int) -> tuple[Positions, Positions]:
    """Return which of the `hashes` are where `among` others, in order; `first`: where each is, or would be."""
    last = len(among) - 1
    which = np.flatnonzero(among[np.minimum(first, last)] == hashes)
    first = first[which]
    alike = np.flatnonzero((first < last) & (among[np.minimum(first + 1, last)] == among[first]))
    if not len(alike):
        return which, first
    counts = ends_of(among, first, alike) - first
    total = int(counts.sum())
    if total > most:
        raise TooMany
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(which, counts), np.repeat(first, counts) + within


class Run:
    """Rows of one table; `number` identifies it among the runs of its chain, and grows along it.

    `ages`: the column of the times by which rows expire, where they do.
    """

    def __init__(self, number: int, rows: pa.Table, indexes: Sequence[Index], ages: str | None = None) -> None:
        self.number = number
        self.rows = rows
        self.indexes = indexes
        self._gone: NDArray[np.bool_] | None = None
        self.live: int = rows.num_rows
        self.ages = ages
        self.row_bytes: int = rows.nbytes // max(1, rows.num_rows) + 1
        """How large its rows are on average."""
        if ages is not None:
            self._times = _numbers(rows.column(ages))
            self._least, self._greatest = int(self._times.min()), int(self._times.max())

    @staticmethod
    def of(number: int, rows: pa.Table, by: Sequence[Sequence[str]], ages: str | None = None) -> Run:
        """Return a run of rows that are looked up by these sets of columns."""
        rows = rows.combine_chunks() if by else _in_few(rows)
        hashed = (hash_columns([rows.column(name) for name in names], rows.num_rows) for names in by)
        return Run(number, rows, [Index.of(hashes) for hashes in hashed], ages)

    @staticmethod
    def merged(number: int, runs: Sequence[Run]) -> Run:
        """Return one run of the live rows of several."""
        parts, indexes, first = [], [], 0
        for run in runs:
            rows, moved = run.live_rows(first)
            parts.append(rows)
            indexes.append(moved)
            first += run.live
        merged = [Index.merged(parts_of_one) for parts_of_one in zip(*indexes, strict=True)]
        rows = pa.concat_tables(parts)
        return Run(number, rows.combine_chunks() if merged else _in_few(rows), merged, runs[0].ages)

    def live_rows(self, first: int) -> tuple[pa.Table, list[Index]]:
        """Return the live rows, and their indexes with positions counted from `first`."""
        if self._gone is None:
            return self.rows, [Index(index.hashes, index.positions + first) for index in self.indexes]
        there = ~self._gone
        positions = np.cumsum(there) - 1 + first
        stays = [there[index.positions] for index in self.indexes]
        moved = [
            Index(index.hashes[stay], positions[index.positions[stay]])
            for index, stay in zip(self.indexes, stays, strict=True)
        ]
        return self.rows.filter(pa.array(there)), moved

    def remove(self, positions: Positions) -> None:
        """Mark rows as removed; some may be already, or come twice."""
        if len(positions):
            if self._gone is None:
                self._gone = np.zeros(self.rows.num_rows, dtype=np.bool_)
            removed = each_once(self.still_live(positions))  # to count all rows that are gone takes longer
            self._gone[removed] = True
            self.live -= len(removed)

    def still_live(self, positions: Positions) -> Positions:
        """Return the positions of rows that have not been removed."""
        return positions if self._gone is None else positions[~self._gone[positions]]

    def expire(self, before: int) -> int:
        """Mark the rows of an earlier time as removed, and return how many these were."""
        live = self.live
        if live and self._least < before:
            self._gone = self._times < before
            self.live = self.rows.num_rows - int(np.count_nonzero(self._gone))
        return live - self.live

    def minimum(self, column: str) -> int:
        """Return the least value of a column of numbers among the live rows: one at least."""
        values = _numbers(self.rows.column(column))
        return int((values if self._gone is None else values[~self._gone]).min())

    def between(self, first: int | None, last: int | None) -> pa.Table:
        """Return the live rows whose time is not before the first nor after the last, in their order."""
        low, high = self._least if first is None else first, self._greatest if last is None else last
        if high < self._least or low > self._greatest:
            return self.rows.slice(0, 0)
        if self._gone is None and low <= self._least and high >= self._greatest:
            return self.rows
        there = (self._times >= low) & (self._times <= high)
        return self.rows.filter(pa.array(there if self._gone is None else there & ~self._gone))

    def find(self, by: int, probe: Hashes) -> pa.Table:
        """Return the rows that may match the hashes, with their ids; `by` is the number of an index."""
        return self._at(self.still_live(self.indexes[by].find(probe)))

    def pairs(self, by: int, probe: Hashes, most: int = UNBOUNDED) -> tuple[Positions, Positions]:
        """Return which hashes, which are in order, may match which rows: their numbers, and positions.

        Raises:
            TooMany: there are more than `most` such pairs, removed rows included.

        """
        which, positions = self.indexes[by].pairs(probe, most)
        if self._gone is None:
            return which, positions
        live = ~self._gone[positions]
        return which[live], positions[live]

    def ids(self, positions: Positions) -> Positions:
        """Return the ids of rows."""
        return positions + (self.number << BITS)

    def has(self, by: int, probe: Hashes) -> bool:
        """Return whether a row may match the hashes."""
        return bool(len(self.still_live(self.indexes[by].find(probe))))

    def narrow(self, columns: Sequence[str]) -> pa.Table:
        """Return some columns of all its rows, removed ones included, with their ids; no copy."""
        return self._with_ids(self.rows.select(list(columns)), np.arange(self.rows.num_rows, dtype=np.int64))

    def all(self) -> pa.Table:
        """Return the live rows, with their ids."""
        if self._gone is None:
            return self._with_ids(self.rows, np.arange(self.rows.num_rows, dtype=np.int64))
        return self._at(np.flatnonzero(~self._gone))

    def _at(self, positions: Positions) -> pa.Table:
        return self._with_ids(self.rows.take(pa.array(positions)), positions)

    def _with_ids(self, rows: pa.Table, positions: Positions) -> pa.Table:
        return rows.append_column(ROW, pa.array(self.ids(positions)))


def _in_few(rows: pa.Table) -> pa.Table:
    """Return rows in parts that are not small; large ones stay as they are: to combine them is to copy them."""
    parts = max((column.num_chunks for column in rows.columns), default=1)
    return rows.combine_chunks() if rows.num_rows < parts * _LARGE else rows


def _numbers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return whole numbers or times without nulls."""
    parts = [chunk.view(pa.int64()).to_numpy() for chunk in column.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def divided(ids: Positions) -> dict[int, Positions]:
    """Return the positions of row ids, by the number of their run."""
    numbers = ids >> BITS
    return {int(number): ids[numbers == number] & _PLACE for number in each_once(numbers)}


def above(ids: Positions, number: int) -> NDArray[np.bool_]:
    """Return which row ids are of this run or a later one."""
    return (ids >> BITS) >= number


def probe_hashes(columns: Sequence[Any], rows: int) -> Hashes:
    """Return the hashes of probe rows, in order, each once."""
    return each_once(hash_columns(columns, rows))


def distinct(hashes: Hashes) -> bool:
    """Return whether no two hashes are equal."""
    found = np.sort(hashes)
    return not (found[1:] == found[:-1]).any()


def each_once(values: NDArray[_Number]) -> NDArray[_Number]:
    """Return whole numbers in order, each once; `np.unique` hashes them, which takes ten times as long."""
    found = np.sort(values)
    first = np.ones(len(found), np.bool_)
    np.not_equal(found[1:], found[:-1], out=first[1:])
    return found[first]
