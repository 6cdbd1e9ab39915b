"""A side of a join of tables to which rows are only added: each is a version by itself, and nothing is looked up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.kernels.joins.sides import SideRun
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from headrace.kernels.duck import Duck
    from headrace.kernels.joins.sides import TableSide
    from headrace.kernels.state.keyed import KeyedState


@dataclass
class GrowingSideRun(SideRun):
    """One epoch of a growing side in one shard."""

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


def run_of(duck: Duck, side: TableSide, state: KeyedState) -> SideRun:
    """Return one epoch of a side."""
    return (GrowingSideRun if side.growing else SideRun)(duck, side, state)
