"""The Spark session that a query runs in: the user's own, or a quiet local one."""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headrace.engine.spark.java import environment

if TYPE_CHECKING:
    from collections.abc import Mapping

BLOBS_PER_BATCH = 32
BYTES_PER_BATCH = 64 * 1024 * 1024
LOOPBACK = "127.0.0.1"
_LOGGING = Path(__file__).with_name("log4j2.properties")

# Settings of our query, whatever the user's session has. A Spark row is an Arrow blob of up to some tens of MB:
# with Spark's 10 000 rows a batch, a batch would be gigabytes.
QUERY_SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BLOBS_PER_BATCH),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BYTES_PER_BATCH),
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}


def session(
    spark: SparkSession | None = None,
    *,
    master: str | None = None,
    memory: str = "2g",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return `spark`, else the active session, else a new one. An existing session is not changed.

    A new session runs on all cores of this machine unless `master` says otherwise, in UTC, without a web page or a
    fixed port. It logs errors only and writes nothing into the current folder. A program that was started by
    `spark-submit` gets the session that it describes.

    Args:
        spark: the session to use.
        master: Spark's master; ignored where a session exists, like the next two.
        memory: the driver's memory.
        settings: Spark settings; they override ours.

    Raises:
        JavaNotFound: a JVM is needed and no Java was found.

    """
    if spark is not None:
        return spark
    if SparkContext._active_spark_context is not None or "PYSPARK_GATEWAY_PORT" in os.environ:  # noqa: SLF001 - it has no public name
        return SparkSession.builder.getOrCreate()
    where = master or "local[*]"
    local = where.startswith("local")
    builder = SparkSession.builder.master(where).appName("headrace")
    for name, value in (_local(memory) | dict(settings or {}) if local else dict(settings or {})).items():
        builder = builder.config(name, value)
    with environment(_python(local=local)):
        created = builder.getOrCreate()
    if local and "spark.sql.shuffle.partitions" not in (settings or {}):
        created.conf.set("spark.sql.shuffle.partitions", created.sparkContext.defaultParallelism)
    return created


def query_session(spark: SparkSession) -> SparkSession:
    """Return a session for one query: a copy of `spark` with `QUERY_SETTINGS`; `spark` is not changed.

    The copy has the current settings, functions, temporary views and artifacts of `spark`, and shares the executors.
    A frame belongs to the session that created it; a query runs with the settings of its leftmost frame's session.
    """
    copy = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())  # noqa: SLF001 - only the JVM can copy
    for name, value in QUERY_SETTINGS.items():
        copy.conf.set(name, value)
    return copy


def _local(memory: str) -> dict[str, str]:
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / f"headrace-warehouse-{uuid.uuid4().hex}"),
    }
    if "SPARK_CONF_DIR" not in os.environ:  # such a folder has its own logging configuration
        settings["spark.driver.extraJavaOptions"] = f'-Dlog4j2.configurationFile="{_LOGGING.as_uri()}"'
    return settings


def _python(*, local: bool) -> dict[str, str]:
    """Return environment variables for the JVM: its tasks must run in this Python to connect back."""
    wanted = {"PYSPARK_DRIVER_PYTHON": sys.executable}
    if local:
        wanted |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": LOOPBACK}
    elif "PYSPARK_PYTHON" not in os.environ:
        wanted["PYSPARK_PYTHON"] = sys.executable
    return wanted
