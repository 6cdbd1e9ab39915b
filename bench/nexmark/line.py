"""What was measured of a query."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Line:
    """A query's figures: seconds, and the processor's seconds; None: not measured, or the rival cannot express it.

    `spark_ratio`: Spark's streaming over ours on Spark, processing time. `duckdb_ratio`: our processor time in process
    over that of DuckDB's batch query.
    """

    query: str
    about: str
    rows: int
    in_process: float
    in_process_cpu: float
    on_spark: float | None = None
    spark: float | None = None
    duckdb_cpu: float | None = None
    spark_ratio: float | None = None
    duckdb_ratio: float | None = None
    note: str = ""
