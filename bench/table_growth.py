"""`table_growth`: the same changes to a table ten times larger.

Expected: at most 1.3 times the time. Two tables of as many groups each are filled, then both get the same number of
upserts in turn: only the look-up in the state differs.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from bench.figure import Figure, paired
from bench.group_sums import AGGREGATES, GroupSums
from bench.tables import Rows, TableApp

if TYPE_CHECKING:
    from bench.setting import Setting

ROWS, GROUPS, CHURN = 2_000_000, 100_000, 20_000
WARM = 5


def run(setting: Setting) -> list[Figure]:
    """Measure epochs of both in turn."""
    if not setting.spark_allowed:
        return []
    groups, churn = setting.rows(GROUPS), setting.rows(CHURN)
    small, large = (Rows(setting.rows(ROWS) * times, groups, moving=True) for times in (1, 10))
    less, more = [], []
    with _table_app(setting, small) as small_app, _table_app(setting, large) as large_app:
        for number in range(WARM + setting.runs(25, 10)):
            took = small_app.epoch(lambda: small.update(churn)), large_app.epoch(lambda: large.update(churn))
            if number >= WARM:
                less.append(took[0])
                more.append(took[1])
        small_app.sink.check(small)
        large_app.sink.check(large)
    ratio, spread = paired(more, less)
    return [
        Figure(
            bench="table_growth",
            what=f"{churn:,} upserts into {len(large):,} rows, an aggregate of {groups:,} groups",
            rival=f"the same into {len(small):,} rows",
            ratio=ratio,
            spread=spread,
            must="<= 1.3",
            ours=statistics.median(more),
            theirs=statistics.median(less),
            unit="ms",
            runs=len(less),
        )
    ]


def _table_app(setting: Setting, rows: Rows) -> TableApp[GroupSums]:
    return TableApp(setting, rows, GroupSums(rows.groups), lambda table: table.group_by("g").agg(**AGGREGATES))
