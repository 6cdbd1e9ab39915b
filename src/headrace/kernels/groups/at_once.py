"""Aggregates of groups whose rows are all there: nothing is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.kernels.groups.aggregate import MergeRun
from headrace.kernels.groups.partial import partial_groups, partial_values

if TYPE_CHECKING:
    import pyarrow as pa


class AtOnce(MergeRun):
    """Groups of one relation; the first key alone identifies a group."""

    def results(self, rows: str) -> pa.Table:
        """Return a row for each group, by the first key: keys, results, `_weight` and `_time`, that of its last row."""
        grouping = self.grouping
        parts = [partial_groups(grouping, rows)]
        parts += [partial_values(grouping, number, rows) for number in range(len(grouping.multisets))]
        for number, part in enumerate(parts):
            self._arrived[number] = self.duck.register(self.duck.arrow(part))
        by = grouping.keys[0][0]
        return self.duck.arrow(f"{self._result_rows(f'({self._results(self._arrived[0])})', 1)} ORDER BY {by}")

    def _kept_rows(self, number: int, groups: str, *, by_value: bool) -> str:
        del groups, by_value
        return self._arrived[number]

    def _in_window(self) -> str:
        return "w.k0 = s.k0"
