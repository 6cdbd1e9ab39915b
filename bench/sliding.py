"""`sliding`: sliding windows of a minute, where each row ends one window and is in about twelve more.

Expected: no target; ours keeps up to date what the rival computes once, in less time. Spark joins all rows of a key
with all window ends of the key; ours sorts the rows of a key once and slides two frames over them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import duckdb

import headrace as hr
from bench import ours, rows, sums
from bench.figure import Figure, compare_times, same
from bench.recompute import drop

if TYPE_CHECKING:
    from pathlib import Path

    from bench.rows import Rows
    from bench.setting import Setting

ROWS, KEYS = 1_000_000, 10_000
SIZE = 60_000_000
"""A key has a row every 10 seconds, however many rows there are: about seven in a window."""
GRACE = "3 hours"
"""Longer than the rows span: every window stays open, and is corrected, until the end."""


def run(setting: Setting) -> list[Figure]:
    """Measure it."""
    if not setting.spark_allowed:
        return []
    data = rows.make(setting, rows=setting.rows(ROWS), keys=KEYS)
    _agree(setting, data)
    mine, theirs = setting.in_turns(
        setting.runs(5, 3), lambda: _ours(setting, data, sums.Sums()), lambda: _theirs(setting, data, None)
    )
    figure = compare_times(
        "sliding",
        what=f"{data.rows:,} rows, {KEYS:,} keys, sliding windows of a minute: time to catch up, theirs over ours",
        rival="a batch self-join in Spark over Parquet of the same rows, noop sink",
        must=None,
        ours=mine,
        theirs=theirs,
        unit="s",
    )
    return [figure]


def _agree(setting: Setting, data: Rows) -> None:
    """Compare both answers row by row; this is the warm-up of both sides too."""
    setting.say("comparing the answers, row by row")
    deltas, answer = sums.KeptDeltas(), setting.fresh("windows")
    _ours(setting, data, deltas)
    _theirs(setting, data, answer)
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        windows = f"(SELECT k, epoch_us(window_start) AS w, n, total FROM '{answer}/*.parquet')"
        same("our windows against Spark's", deltas.fingerprint(), (*sums.fingerprint(con, windows), 0))


def _ours(setting: Setting, data: Rows, sink: sums.Sums) -> float:
    return ours.catch_up(setting, data, hr.sliding("1 minute", grace=GRACE), sink).processing


def _theirs(setting: Setting, data: Rows, answer: Path | None) -> float:
    spark = setting.rival({})
    spark.read.parquet(str(data.parquet)).createOrReplaceTempView("t")
    began = time.perf_counter()
    if answer is None:
        drop(_windows(spark))
    else:
        _windows(spark).write.parquet(str(answer))
    return time.perf_counter() - began


def _windows(spark: Any) -> Any:
    size = f"make_dt_interval(0, 0, 0, {SIZE / 1_000_000})"
    after = f"make_dt_interval(0, 0, 0, {SIZE / 1_000_000 + 0.000001:.6f})"
    ends = f"SELECT k, at AS w FROM t UNION SELECT k, at + {after} AS w FROM t"
    joined = f"({ends}) e JOIN t ON t.k = e.k AND t.at BETWEEN e.w - {size} AND e.w"
    return spark.sql(
        f"SELECT e.k, e.w - {size} AS window_start, count(*) AS n, sum(v) AS total FROM {joined} GROUP BY e.k, e.w"
    )
