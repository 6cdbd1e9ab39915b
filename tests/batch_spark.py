"""Batch Spark as tests ask it: thousands of queries, each over few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
}
"""Compiling a query, or cutting it into tasks, takes longer here than computing it."""


def quick_session(spark: SparkSession) -> SparkSession:
    """Return a session beside `spark` that is quick with few rows; its temporary views are its own."""
    beside = spark.newSession()
    for name, value in QUICK.items():
        beside.conf.set(name, value)
    return beside
