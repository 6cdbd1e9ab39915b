"""Brings the manifest of an epoch, its tasks' reports, to the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import UnknownException, convert_exception

from headrace.engine.spark import blobs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from py4j.java_gateway import JavaObject
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
    return [report for row in _collected(plan.rdd()) for report in blobs.reports_of(bytes(row.getBinary(_AT)))]


def _collected(rdd: JavaObject) -> Iterable[JavaObject]:
    """Return the rows of an RDD of the JVM's.

    `collectAsync`, since Spark reads the bytecode of the class from which a job is started, each time: that takes 4 ms
    for the large ones behind `collect`. An array, since Py4J needs 10 ms to iterate over a list of Scala's.
    """
    try:
        rows: Iterable[JavaObject] = rdd.toJavaRDD().collectAsync().get().toArray()
    except Py4JJavaError as failed:
        cause = failed.java_exception.getCause()
        known = failed if cause is None else convert_exception(cause)
        raise (failed if isinstance(known, UnknownException) else known) from None
    return rows
