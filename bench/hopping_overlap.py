"""`hopping_overlap`: 60 overlapping windows must not cost 30 times what 2 cost.

Expected: at most twice the time for 30 times as many results. Windows share panes: a row is added to one pane,
however many windows contain it, and the result of a closing window is a frame that slides over the panes of its key.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import duckdb

import headrace as hr
from bench import ours, rows, sums
from bench.figure import Figure, paired, same

if TYPE_CHECKING:
    from bench.progress import Timing
    from bench.rows import Rows
    from bench.setting import Setting

ROWS = 4_000_000
KEYS = 1_000
SIZE = 600_000_000
GRACE = "10 seconds"
_STILL_OPEN = 15_000_000
"""Windows that end less than this before the greatest event time are open: out of order 5 seconds, grace 10."""


def run(setting: Setting) -> list[Figure]:
    """Measure it."""
    if not setting.spark_allowed:
        return []
    data = rows.make(setting, rows=setting.rows(ROWS), keys=KEYS)
    for every in (10, 300):
        setting.say(f"warming up, and comparing the answer of windows every {every} s with a batch query")
        deltas = sums.KeptDeltas()
        _catch_up(setting, data, every, deltas)
        same(f"windows every {every} s", deltas.fingerprint(), _truth(data, every))
    many, few = [], []
    for number in range(setting.runs(5, 3)):
        sixty, two = sums.Sums(), sums.Sums()
        many.append(_catch_up(setting, data, 10, sixty).processing)
        few.append(_catch_up(setting, data, 300, two).processing)
        setting.say(f"run {number + 1}: 60 overlap {many[-1]:.2f} s ({sixty.rows_out:,} rows out), "
                    f"2 overlap {few[-1]:.2f} s ({two.rows_out:,} rows out)")  # fmt: skip
    ratio, spread = paired(many, few)
    figure = Figure(
        bench="hopping_overlap",
        what=f"{data.rows:,} rows, 10-minute windows every 10 s, final: processing time",
        rival="itself with windows every 5 minutes",
        ratio=ratio,
        spread=spread,
        must="<= 2",
        ours=statistics.median(many),
        theirs=statistics.median(few),
        unit="s",
        runs=len(many),
    )
    return [figure]


def _catch_up(setting: Setting, data: Rows, every: int, sink: sums.Sums) -> Timing:
    window = hr.hopping("10 minutes", f"{every} seconds", grace=GRACE)
    return ours.catch_up(setting, data, window, sink, emit="final")


def _truth(data: Rows, every: int) -> tuple[int, ...]:
    """Return the checksum of all windows that are closed in the end, computed window by window."""
    hop = every * 1_000_000
    with duckdb.connect() as con:
        con.execute(
            'CREATE TABLE panes AS SELECT k, epoch_us("at") // 10000000 * 10000000 AS pane, count(*) AS n, '
            f"sum(v) AS total FROM '{data.parquet}/*.parquet' GROUP BY ALL"
        )
        latest = rows.watermark_base(data)
        spread = f"unnest(range(pane // {hop} * {hop} - {SIZE} + {hop}, pane + 1, {hop})) AS w"
        groups = (
            f"(SELECT k, w, sum(n)::BIGINT AS n, sum(total)::BIGINT AS total FROM (SELECT k, n, total, pane, {spread} "
            f"FROM panes) WHERE pane < w + {SIZE} AND w + {SIZE} <= {latest - _STILL_OPEN} GROUP BY ALL)"
        )
        return (*sums.fingerprint(con, groups), 0)
