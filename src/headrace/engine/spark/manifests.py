"""Brings the manifest of an epoch, its tasks' reports, to the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.spark import blobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.kernels.task import Report

_PLANNED = "org.apache.spark.sql.execution.LogicalRDD"
_AT = blobs.SCHEMA.get_field_index("rows")


def manifest(frame: DataFrame) -> list[Report]:
    """Run the tasks of a frame whose rows are reports, and return these."""
    return [report for row in frame.collect() for report in blobs.reports_of(bytes(row["rows"]))]


def manifest_of_batch(batch: DataFrame) -> list[Report]:
    """Run the only task of a batch as `foreachBatch` gives it, and return its reports, which are one row.

    Spark has planned such a batch already. `collect` would plan, explain and announce it once more, as a query of its
    own, which takes a tenth of a small epoch; its RDD is run as it is. Trap: Spark writes each row of a task over the
    one before, so an RDD of its rows can be collected only where there is one.
    """
    plan = batch._jdf.logicalPlan()  # noqa: SLF001 -- only the JVM has it
    if plan.getClass().getName() != _PLANNED:
        return manifest(batch)
    return [report for row in plan.rdd().collect() for report in blobs.reports_of(bytes(row.getBinary(_AT)))]
