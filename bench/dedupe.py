"""`dedupe`: the first row of each key; keys are kept for longer than the rows span.

Expected: 6 times the speed of Spark's `dropDuplicatesWithinWatermark`: ours looks up all keys of an epoch in one query,
Spark asks RocksDB for every row. Both keep every key until the end. Spark may choose any row of a key within a
batch, so only keys are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb

from bench import rival, rows, sums
from bench.catching_up import Case, measure

if TYPE_CHECKING:
    from bench.figure import Figure
    from bench.setting import Setting

ROWS, KEYS = 2_000_000, 1_000_000
WITHIN = "3 hours"
"""Longer than the rows span, on both sides."""


def run(setting: Setting) -> list[Figure]:
    """Measure it."""
    if not setting.spark_allowed:
        return []
    data = rows.make(setting, rows=setting.rows(ROWS), keys=setting.rows(KEYS))
    with duckdb.connect() as con:
        keys = f"(SELECT k, 0 AS w, 1 AS n, k AS total FROM '{data.parquet}/*.parquet' GROUP BY k)"
        truth = (*sums.fingerprint(con, keys), 0)
    case = Case(
        bench="dedupe",
        what="keys",
        rival="Spark's dropDuplicatesWithinWatermark, RocksDB",
        must=">= 6",
        at="0::BIGINT",
        steps=lambda stream: stream.dedupe("k", within=WITHIN).select("k", n="1L", total="k"),
        query=_query,
        ways=rival.WAYS if setting.scale >= 1 else rival.WAYS[:2],
        mine=truth,
        truth=truth,
    )
    return [measure(setting, case, data)]


def _query(stream: Any) -> Any:
    unique = stream.withWatermark("at", WITHIN).dropDuplicatesWithinWatermark(["k"])
    return unique.selectExpr("k", "1L AS n", "k AS total")
