"""Rows that came after their own sliding window had closed: a later row may open one that has them, else they are late.

They are in the groups like all others, so whatever window takes them counts them. Here they wait for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.kernels.groups.grouping import GROUPS, HELD
from headrace.kernels.groups.slides import SlideSql
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.kernels.duck import Duck
    from headrace.kernels.groups.grouping import Grouping
    from headrace.kernels.state.scanned import ScannedState


@dataclass(frozen=True, slots=True)
class HeldRows:
    """The waiting rows of one shard."""

    duck: Duck
    grouping: Grouping
    state: ScannedState

    @property
    def _sql(self) -> SlideSql:
        assert self.grouping.sliding is not None  # noqa: S101 -- others hold no rows
        return SlideSql(self.grouping.sliding)

    @property
    def _columns(self) -> list[str]:
        return [f"c{i}" for i in range(len(self.grouping.held))]

    def gone(self, watermark: int) -> pa.Table | None:
        """Return the rows that no window took while one could, and drop them."""
        self.state.create()  # a state of before there were such rows has no table
        held, gone = self.state.name(HELD), self._sql.gone("_pane", watermark)
        if not self.duck.rows(f"SELECT EXISTS (FROM {held} WHERE {gone})")[0][0]:
            return None
        names = (f"c{i} AS {quote(name)}" for i, (name, _) in enumerate(self.grouping.held))
        columns = [*names, "1::INTEGER AS _weight", "_pane AS _time"]
        late = self.duck.arrow(
            f"SELECT {', '.join(columns)} FROM (SELECT *, unnest(range({COUNT})) FROM {held} WHERE {gone}) "
            "ORDER BY _time"
        )
        self.state.evict(HELD, gone)
        return late

    def take(self, doubtful: list[pa.Table], watermark: int) -> None:
        """Hold the rows of an epoch that no open window has, and let go of those that one has by now.

        The epoch's groups are in the state already.
        """
        columns = [f"{quote(name)}::{kind} AS c{i}" for i, (name, kind) in enumerate(self.grouping.held)]
        parts = [f"SELECT {', '.join(columns)}, _time AS _pane FROM {self.duck.register(part)}" for part in doubtful]
        own = ", ".join([*self._columns, "_pane"])
        every = f"SELECT {own}, {COUNT} AS n, rowid AS o_row FROM {self.state.name(HELD)}"
        if parts:
            open_yet = f"NOT {self._sql.gone('_pane', watermark)}"
            every += f" UNION ALL SELECT {own}, 1, NULL FROM ({' UNION ALL '.join(parts)}) WHERE {open_yet}"
        counted = "sum(n)::BIGINT AS n, max(o_row) AS o_row, bool_or(o_row IS NULL) AS is_new"
        merged = f"SELECT {own}, {counted} FROM ({every}) GROUP BY {own}"
        taken = f"SELECT h.*, {self._is_taken(watermark)} AS taken FROM ({merged}) h"
        rows = self.duck.arrow(
            f"SELECT {own}, CASE WHEN taken THEN 0 ELSE n END::BIGINT AS {COUNT}, o_row FROM ({taken}) "
            "WHERE (taken AND o_row IS NOT NULL) OR (NOT taken AND is_new)"
        )
        self.state.replace(HELD, rows.select([*self.state.tables[HELD].columns, "o_row"]), at="o_row")

    def _is_taken(self, watermark: int) -> str:
        """Return whether an open window has a waiting row `h`: it ends with a later row, or begins after an earlier."""
        sql, opens = self._sql, self._sql.open_end(watermark)
        names = [name for name, _ in self.grouping.held]
        same = [
            f"g.k{i} IS NOT DISTINCT FROM h.c{names.index(name)}" for i, (name, _, _) in enumerate(self.grouping.keys)
        ]
        later = f"g._pane BETWEEN {opens} AND h._pane + {sql.reach - 1}"
        earlier = f"g._pane BETWEEN {opens - sql.reach} AND h._pane - 1"
        return f"EXISTS (FROM {self.state.name(GROUPS)} g WHERE {' AND '.join([*same, f'({later} OR {earlier})'])})"
