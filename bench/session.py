"""`session`: session windows that close; most of the work is to keep the growing sessions.

Expected: 5 times the speed of Spark's own `session_window` in append mode. Ours combines rows into chunks before the
exchange, and merges the chunks with the open sessions; Spark sorts the rows of each key with its sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb

import headrace as hr
from bench import ours, rival, rows, sums
from bench.catching_up import Case, measure

if TYPE_CHECKING:
    from bench.figure import Figure
    from bench.rows import Rows
    from bench.setting import Setting

ROWS, KEYS = 2_000_000, 20_000
GAP = 30_000_000
"""A key has a row every 20 seconds, however many rows there are: of its gaps a fifth and more end a session."""
_DELAY = 5_000_000
_LOCAL = {"spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition": "true"}


def run(setting: Setting) -> list[Figure]:
    """Measure it."""
    if not setting.spark_allowed:
        return []
    data = rows.make(setting, rows=setting.rows(ROWS), keys=KEYS)
    latest, mine, truth = _truth(data)
    ways = rival.WAYS if setting.scale >= 1 else rival.WAYS[:2]
    merged = rival.Way(f"{ways[1].name}, merged before the exchange", ways[1].files, {**ways[1].settings, **_LOCAL})
    case = Case(
        bench="session",
        what=f"sessions closed in {latest:.0f} s of event time",
        rival="Spark's session_window, RocksDB, append mode",
        must=">= 5",
        at="epoch_us(window_start)",
        steps=lambda stream: (
            stream.group_by("k")
            .window(hr.session("30 seconds", grace="0 seconds"), emit="final")
            .agg(**ours.AGGREGATES)
        ),
        query=_query,
        ways=(*ways, merged),
        mine=mine,
        truth=truth,
    )
    return [measure(setting, case, data)]


def _query(stream: Any) -> Any:
    from pyspark.sql import functions as f

    return (
        stream.withWatermark("at", rows.OUT_OF_ORDER)
        .groupBy(f.session_window("at", "30 seconds"), "k")
        .agg(f.count("*").alias("n"), f.sum("v").alias("total"))
        .select("k", f.col("session_window.start").alias("window_start"), "n", "total")
    )


def _truth(data: Rows) -> tuple[float, tuple[int, ...], tuple[int, ...]]:
    """Return the seconds that the rows span, and the checksums of the closed sessions from a plain batch query.

    Our watermark is the least of the partitions' watermarks and closes what ends before it. Spark's follows the latest
    row, in whole milliseconds, and also closes what ends at it.
    """
    with duckdb.connect() as con:
        source = f"(SELECT k, v, epoch_us(\"at\") AS t FROM '{data.parquet}/*.parquet')"
        fresh = f"SELECT *, CASE WHEN t - lag(t) OVER w > {GAP} THEN 1 ELSE 0 END AS fresh FROM {source}"
        con.execute(
            "CREATE TABLE sessions AS SELECT k, min(t) AS w, max(t) AS last, count(*) AS n, sum(v)::BIGINT AS total "
            f"FROM (SELECT *, sum(fresh) OVER w AS nr FROM ({fresh} WINDOW w AS (PARTITION BY k ORDER BY t)) "
            "WINDOW w AS (PARTITION BY k ORDER BY t)) GROUP BY k, nr"
        )
        latest = int(con.execute("SELECT max(last) FROM sessions").fetchall()[0][0])

        def closed(until: int) -> tuple[int, ...]:
            gone = f"(SELECT k, w, n, total FROM sessions WHERE last + {GAP} < {until - _DELAY})"
            return (*sums.fingerprint(con, gone), 0)

        return (latest - rows.FIRST) / 1_000_000, closed(rows.watermark_base(data)), closed(latest // 1_000 * 1_000 + 1)
