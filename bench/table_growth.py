"""`table_growth`: the same changes to a table ten times larger.

Expected: at most 1.3 times the time. Two tables of as many groups each are filled, then both get as many upserts in
turn: what is compared is the look at the state alone.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from bench.figure import Figure, paired
from bench.group_sums import AGGREGATES, GroupSums
from bench.tables import Rows, Side

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
    with _side(setting, small) as one, _side(setting, large) as ten:
        for number in range(WARM + setting.runs(25, 10)):
            took = one.epoch(lambda: small.update(churn)), ten.epoch(lambda: large.update(churn))
            if number >= WARM:
                less.append(took[0])
                more.append(took[1])
        one.sink.check(small)
        ten.sink.check(large)
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


def _side(setting: Setting, rows: Rows) -> Side[GroupSums]:
    return Side(setting, rows, GroupSums(rows.groups), lambda table: table.group_by("g").agg(**AGGREGATES))
