"""The n first rows of each group among rows that are only added: what is compared is sorted, not whole rows.

In a part no other row of theirs can matter. After the exchange they are the delta as they are where their group had
none before and its order alone decides; the others are compared with what was given out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.kernels.arrays import as_one, micros, nullable
from headrace.kernels.duck import typed
from headrace.kernels.groups.aggregate import concat_present
from headrace.kernels.ranking import BEST, RankingRun, columns_of, group_of, terms_of, window_of
from headrace.kernels.sql import alike
from headrace.kernels.state.tables import COUNT
from headrace.kernels.zones import without_zones

if TYPE_CHECKING:
    from headrace.kernels.duck import Duck
    from headrace.kernels.ranking import Ranking
    from headrace.kernels.state.keyed import KeyedState
    from headrace.kernels.state.runs import Positions

    Mask = np.ndarray[Any, np.dtype[np.bool_]]

AT = "o_at"
"""The column with a row's number."""
MANY = 4_096
"""So many rows are worth the statements that find out which groups are new."""
SAMPLE = 256
"""So many rows say whether most groups are."""


def first_of_part(duck: Duck, ranking: Ranking, parts: list[pa.Table]) -> pa.Table:
    """Return the n first of each group among rows that are only added, in the order in which they came.

    Rows are sorted by the order that was asked for. The whole row is compared only where that leaves too many. What
    does not fit in memory is left to DuckDB.
    """
    rows = _as_one(parts)
    if rows is None:
        source = " UNION ALL ".join(f"SELECT * FROM {duck.register(part)}" for part in parts)
        columns = ", ".join([*columns_of(ranking), *terms_of(ranking), COUNT, "_time"])
        nth = f"{ranking.ties}() OVER ({window_of(ranking)}{_latest(ranking)})"
        return duck.arrow(f"SELECT {columns} FROM ({source}) QUALIFY {nth} <= {ranking.n}")
    position = "rank" if ranking.ties == "row_number" else ranking.ties
    found = duck.arrow(
        f"SELECT {AT}, row_number() OVER w > {ranking.n} AS o_more FROM {_numbered(duck, rows)} "
        f"WINDOW w AS ({window_of(ranking, decided=False)}) QUALIFY {position}() OVER w <= {ranking.n}"
    )
    first = rows.take(pa.array(np.sort(found.column(AT).to_numpy())))
    if ranking.shares or not found.column("o_more").to_numpy().any():
        return first
    nth = f"row_number() OVER ({window_of(ranking)}{_latest(ranking)})"
    found = duck.arrow(f"SELECT {AT} FROM {_numbered(duck, first)} QUALIFY {nth} <= {ranking.n}")
    return first.take(pa.array(np.sort(found.column(AT).to_numpy())))


@dataclass
class AddedRowsRun(RankingRun):
    """One epoch of one ranking in one shard, of rows that are only added, not of windows.

    `ranked`: each part has the first rows of its groups alone.
    """

    state: KeyedState
    ranked: bool

    def run(self, parts: list[pa.Table]) -> pa.Table | None:
        """Take in rows (columns, order terms, `_n` and `_time`) and return the delta of the first n of each group."""
        if not parts:
            return None
        few = sum(part.num_rows for part in parts) < MANY
        every = None if few or self.ranking.shares else _as_one(parts)
        if every is None or not self._mostly_new(every):
            return super().run(parts if self.ranked else [first_of_part(self.duck, self.ranking, parts)])
        rows, places, tied = self._first(every)
        new = ~(tied | self._had(rows))
        if new.all():
            return self._entered(rows, places)
        others = first_of_part(self.duck, self.ranking, [rows.filter(pa.array(~new))])
        return concat_present([super().run([others]), self._entered(rows.filter(pa.array(new)), places[new])])

    def _mostly_new(self, rows: pa.Table) -> bool:
        had = self._had(rows.slice(0, SAMPLE))
        return 2 * int(np.count_nonzero(had)) <= len(had)

    def _first(self, rows: pa.Table) -> tuple[pa.Table, Positions, Mask]:
        """Return the first rows, each group's together and in order; their places, and those of groups with ties."""
        found = self.duck.arrow(
            f"SELECT {AT}, row_number() OVER w AS o_place, rank() OVER w AS o_rank FROM {_numbered(self.duck, rows)} "
            f"WINDOW w AS ({window_of(self.ranking, decided=False)}) QUALIFY o_rank <= {self.ranking.n} "
            f"ORDER BY {', '.join([*group_of(self.ranking), 'o_place'])}"
        )
        first = rows.take(found.column(AT))
        places: Positions = found.column("o_place").to_numpy()
        tied = (places != found.column("o_rank").to_numpy()) | (first.column(COUNT).to_numpy() != 1)
        return first, places, _greatest(places, tied)

    def _had(self, rows: pa.Table) -> Mask:
        """Return which rows are of a group of which rows were given out."""
        had = np.zeros(rows.num_rows, np.bool_)
        group, probe = group_of(self.ranking), _numbered(self.duck, rows.select(group_of(self.ranking)))
        kept = self.state.may_match(BEST, group, probe)
        if kept is not None:
            found = self.duck.arrow(f"SELECT {AT} FROM {probe} p SEMI JOIN {kept} s ON {alike('p', 's', group)}")
            had[found.column(0).to_numpy()] = True
        return had

    def _entered(self, rows: pa.Table, places: Positions) -> pa.Table | None:
        """Keep the first rows of groups that had none; return them as inserts at the time of the group's last."""
        if not rows.num_rows:
            return None
        times = nullable(_greatest(places, micros(rows.column("_time"))))
        rows = typed(rows, self.state.schema(BEST))
        self.state.put(BEST, rows, np.empty(0, np.int64))
        named = [name for name, _ in self.ranking.columns]
        delta = rows.select(columns_of(self.ranking)).rename_columns(named)
        if self.ranking.rank is not None:
            delta = delta.append_column(self.ranking.rank, pa.array(places, pa.int32()))
        delta = delta.append_column("_weight", pa.repeat(pa.scalar(1, pa.int32()), rows.num_rows))
        return delta.append_column("_time", times)


def _greatest(places: Positions, values: Any) -> Any:
    """Return for each row the greatest value of its group; groups are together, and each begins at place 1."""
    starts = np.flatnonzero(places == 1)
    if not len(starts):
        return values
    return np.repeat(np.maximum.reduceat(values, starts), np.diff(np.append(starts, len(places))))


def _latest(ranking: Ranking) -> str:
    """Return the end of an order that tells equal rows apart, where they do not share a position."""
    return "" if ranking.shares else ", _time DESC"


def _as_one(parts: list[pa.Table]) -> pa.Table | None:
    return as_one(parts, without_zones(parts[0]).schema)


def _numbered(duck: Duck, rows: pa.Table) -> str:
    """Return rows as a relation that has their numbers."""
    return duck.register(rows.append_column(AT, pa.array(np.arange(rows.num_rows))))
