"""The Spark session that a query runs in: the user's own, or a quiet local one."""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.base.errors import OutsideError
from headrace.base.outside import SparkNotStarted
from headrace.base.trace import traced
from headrace.engine.spark import sockets
from headrace.engine.spark.java import environment
from headrace.engine.spark.python import python_program

if TYPE_CHECKING:
    from collections.abc import Mapping

BLOBS_PER_BATCH = 32
BYTES_PER_BATCH = 64 * 1024 * 1024
LOOPBACK = "127.0.0.1"
_LOST: dict[str, str] = {}
"""The settings of the session whose JVM was lost."""
_OF_ONE_RUN = {
    *("spark.app.id", "spark.app.startTime", "spark.app.submitTime", "spark.driver.port", "spark.executor.id"),
    *("spark.submit.pyFiles", "spark.submit.deployMode", "spark.ui.showConsoleProgress", "spark.sql.warehouse.dir"),
}
"""Settings that a JVM gives itself, or that are for it alone."""
_HELD = (
    *((SparkContext, name) for name in ("_gateway", "_jvm", "_active_spark_context")),
    *((SparkSession, name) for name in ("_instantiatedSession", "_activeSession")),
)
"""Where PySpark keeps what belongs to its JVM."""
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
    "spark.sql.ui.explainMode": "simple",  # each batch is explained, for a web page: another form takes 2 ms more
    "spark.sql.streaming.stopTimeout": "0",  # none: who stops an app waits for its epoch
    "spark.sql.streaming.pollingDelay": "20ms",  # as without Spark; with 10 waiting takes a third of a core
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
        SparkNotStarted: the JVM did not start.

    """
    if spark is not None:
        return spark
    if _LOST and "PYSPARK_GATEWAY_PORT" in os.environ:
        raise SparkNotOurs("the JVM that started this program is gone", hint="Start the program again: spark-submit …")
    if SparkContext._active_spark_context is not None or "PYSPARK_GATEWAY_PORT" in os.environ:  # noqa: SLF001 - it has no public name
        return SparkSession.builder.getOrCreate()
    settings = {**_LOST, **(settings or {})}
    where = master or settings.pop("spark.master", "local[*]")
    local = where.startswith("local")
    builder = SparkSession.builder.master(where).appName("headrace")
    for name, value in (_quiet() | (_local(memory) if local else {}) | settings).items():
        builder = builder.config(name, value)
    with environment(_python(local=local)):
        try:
            created = builder.getOrCreate()
        except (PySparkException, Py4JError, OSError) as error:
            raise SparkNotStarted(
                f"Spark did not start: {str(error).strip().splitlines()[0]}",
                hint="What its JVM printed above says why; HEADRACE_TRACE=1 shows the whole trace.",
            ) from (error if traced() else None)
    if local and "spark.sql.shuffle.partitions" not in (settings or {}):
        created.conf.set("spark.sql.shuffle.partitions", created.sparkContext.defaultParallelism)
    return created


class SparkNotOurs(OutsideError):
    """A JVM that this program did not start is gone, so it cannot start another one like it."""

    condition = "SPARK_LOST"


def settings_of(spark: SparkSession) -> dict[str, str]:
    """Return the settings of a session, to start one like it after its JVM was lost."""
    return {name: value for name, value in spark.sparkContext.getConf().getAll() if name not in _OF_ONE_RUN}


def forget_lost(settings: Mapping[str, str]) -> None:
    """Forget a JVM that is gone, in PySpark too: the next session starts one with these settings."""
    _LOST.clear()
    _LOST.update(settings)
    context = SparkContext._active_spark_context  # noqa: SLF001 -- PySpark has no name for a lost JVM
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")  # that it cannot be shut down cleanly is known
        if context is not None:
            context.stop()
    gateway = SparkContext._gateway  # noqa: SLF001 -- the same
    for holder, name in _HELD:
        setattr(holder, name, None)
    with suppress(Exception):
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(timeout=5)


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
    return {
        "spark.driver.memory": memory,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / f"headrace-warehouse-{uuid.uuid4().hex}"),
        **sockets.settings(),
    }


def _quiet() -> dict[str, str]:
    settings = {"spark.ui.showConsoleProgress": "false"}
    if "SPARK_CONF_DIR" not in os.environ:  # such a folder has its own logging configuration
        level = "error" if traced() else "fatal"
        options = f'-Dlog4j2.configurationFile="{_LOGGING.as_uri()}" -Dheadrace.log={level}'
        settings["spark.driver.extraJavaOptions"] = options
    return settings


def _python(*, local: bool) -> dict[str, str]:
    """Return environment variables for the JVM: its tasks must run in this Python to connect back."""
    if local:
        program = python_program()
        return {"PYSPARK_DRIVER_PYTHON": program, "PYSPARK_PYTHON": program, "SPARK_LOCAL_IP": LOOPBACK}
    wanted = {"PYSPARK_DRIVER_PYTHON": sys.executable}
    if "PYSPARK_PYTHON" not in os.environ:
        wanted["PYSPARK_PYTHON"] = sys.executable
    return wanted
