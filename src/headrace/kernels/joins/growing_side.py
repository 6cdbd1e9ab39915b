"""A side of a join of tables to which an epoch only adds rows: each is a version by itself, and none is replaced.

Of a growing side that is always so. Of any other it is so where no row is withdrawn, and the hashes say that each row
is another one, which is not kept yet; then nothing is netted, and no kept row is joined.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.joins.sides import SideRun
from headrace.kernels.state.runs import probe_hashes
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.duck import Duck
    from headrace.kernels.joins.sides import TableSide
    from headrace.kernels.state.keyed import KeyedState


@dataclass
class GrowingSideRun(SideRun):
    """One epoch in one shard that only adds rows to a side."""

    _rows: list[pa.Table] = field(default_factory=list)

    def find_changes(self, parts: list[pa.Table]) -> None:
        """Take an epoch's rows as they are."""
        self._rows = parts
        self.changed = True

    @property
    def versions(self) -> str:
        """Return a relation of the rows, each of which was not there before."""
        rows = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in self._rows)
        numbers = "0::BIGINT AS n_old, 1::BIGINT AS n_new, _time, _time AS _when, NULL::BIGINT AS id"
        return f"(SELECT {', '.join(self.side.names)}, {numbers} FROM ({rows}))"

    @property
    def _replaced(self) -> str | None:
        return None

    def _keep_changes(self, matches: str | None) -> None:
        del matches  # a side whose rows count their matches is no growing one
        rows = pa.concat_tables([part.select([*self.side.names, "_time"]) for part in self._rows])
        self.state.append(self.side.name, rows.append_column(COUNT, pa.repeat(1, rows.num_rows)))


def run_of(duck: Duck, side: TableSide, state: KeyedState, arrived: Sequence[pa.Table]) -> SideRun:
    """Return one epoch of a side, for the rows that arrived."""
    grows = side.growing or (bool(arrived) and _only_adds(side, state, arrived))
    return (GrowingSideRun if grows else SideRun)(duck, side, state)


def _only_adds(side: TableSide, state: KeyedState, arrived: Sequence[pa.Table]) -> bool:
    """Return whether rows are inserts of different rows of which none is kept, as far as hashes say it."""
    if side.counts_matches or not side.keeps_rows:
        return False
    rows = pa.concat_tables([part.select([*side.identity_columns, "_weight"]) for part in arrived])
    least = pc.min_max(rows.column("_weight"))
    if least["min"].as_py() != 1 or least["max"].as_py() != 1:
        return False
    hashes = probe_hashes([rows.column(name) for name in side.identity_columns], rows.num_rows)
    return len(hashes) == rows.num_rows and state.lacks(side.name, side.identity_columns, hashes)
