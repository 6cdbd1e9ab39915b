"""`tiny_epoch`: what an epoch of 100 rows costs, one level on Spark.

Expected: 0.7 of the time of Spark's own stateful aggregate as installed, and 1.4 of it when its checkpoint is written
by our quiet files too (which only Headrace has). Both times are what the query reports for a batch, from asking the
source to the commit log. The rival generates its rows itself and writes them to a noop sink; ours reads them from a
topic and publishes to a sink that sums. Epochs without rows, in which ours closes windows, are not counted.
"""

from __future__ import annotations

import shutil
import statistics
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import headrace as hr
from bench import ours, sums
from bench.figure import Figure, paired, percentile, same
from bench.progress import epochs_ms
from bench.rows import SCHEMA, TOPIC
from headrace.engine.spark.quiet_files import quiet_location

if TYPE_CHECKING:
    from bench.setting import Setting

ROWS = 100
KEYS = 20
WARM = 15
SECOND = 1_000_000
_INSTALLED = "Spark's own stateful aggregate, as installed"
_QUIET = "Spark's own stateful aggregate, its checkpoint on quiet files"


def run(setting: Setting) -> list[Figure]:
    """Measure it in rounds of all three, one after the other."""
    if not setting.spark_allowed:
        return []
    epochs = setting.runs(50, 25)
    rounds: list[tuple[list[float], list[float], list[float]]] = []
    for number in range(setting.runs(5, 2) + 1):
        times_of_all = (
            epochs_of_ours(setting, epochs),
            epochs_of_spark(setting, epochs, quiet=False),
            epochs_of_spark(setting, epochs, quiet=True),
        )
        shown = ", ".join(f"{statistics.median(times):.0f} ms" for times in times_of_all)
        setting.say(f"round {number}: ours, installed, quiet: {shown}{'' if number else ' (warm-up, not counted)'}")
        rounds += [times_of_all] if number else []
    return [
        figure
        for rival, at, must in ((_INSTALLED, 1, "<= 0.7"), (_QUIET, 2, "<= 1.4"))
        for figure in _figures(rival, must, [r[0] for r in rounds], [r[at] for r in rounds])
    ]


def _figures(rival: str, must: str, mine: list[list[float]], theirs: list[list[float]]) -> list[Figure]:
    """Return the figures of median and p99; only the median has a target."""
    figures = []
    for what, measure, target in (
        ("median", statistics.median, must),
        ("p99", lambda times: percentile(times, 0.99), None),
    ):
        ratio, spread = paired([measure(times) for times in mine], [measure(times) for times in theirs])
        figures.append(
            Figure(
                bench="tiny_epoch",
                what=f"epoch of {ROWS} rows, {what}",
                rival=rival,
                ratio=ratio,
                spread=spread,
                must=target,
                ours=measure([time for times in mine for time in times]),
                theirs=measure([time for times in theirs for time in times]),
                unit="ms",
                runs=sum(len(times) for times in mine),
            )
        )
    return figures


# ---- ours -----------------------------------------------------------------------------------------------------


def epochs_of_ours(setting: Setting, epochs: int) -> list[float]:
    """Return how long each of so many epochs took, in milliseconds, after the warm-up."""
    storage, sink = setting.fresh("ours"), sums.Sums()
    app = hr.App("tiny", storage=storage, shards=2)
    rows = app.stream(TOPIC, SCHEMA, event_time="at", out_of_order="10 seconds")
    table = rows.group_by("k").window(hr.tumbling("10 seconds", grace="0 seconds")).agg(**ours.AGGREGATES)
    table.to(sink)
    with app.start(setting.spark) as running, hr.Log(storage / "log") as log:
        for number in range(WARM + epochs):
            log.topic(TOPIC).append(_rows(number))
            running.await_caught_up(timeout=60)
        took = [batch for batch in ours.progress(running) if batch["batchId"] in sink.epochs]
    same("rows counted", sink.n, (WARM + epochs) * ROWS)
    same("epochs with rows", len(sink.epochs), WARM + epochs)
    shutil.rmtree(storage, ignore_errors=True)
    return epochs_ms(took)[-epochs:]


def _rows(number: int) -> pa.Table:
    """Return the rows that the rival's source generates in this batch; each batch is a second later."""
    values = range(number * ROWS, (number + 1) * ROWS)
    at = pa.array([number * SECOND] * ROWS, pa.timestamp("us", "UTC"))
    return pa.table({"k": [value % KEYS for value in values], "v": list(values), "at": at})


# ---- the rival ------------------------------------------------------------------------------------------------


def epochs_of_spark(setting: Setting, epochs: int, *, quiet: bool) -> list[float]:
    """Return how long each of so many epochs of Spark's own aggregate took, in milliseconds, after the warm-up."""
    from pyspark.sql import functions as f

    spark = setting.rival({})
    folder = setting.fresh("theirs")
    folder.mkdir()
    checkpoint = quiet_location(spark, folder) if quiet else str(folder)
    rows = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2)
        .option("advanceMillisPerBatch", 1000).load()
        .selectExpr(f"value % {KEYS} AS k", "value AS v", "timestamp AS at")
    )  # fmt: skip
    table = (
        rows.withWatermark("at", "10 seconds")
        .groupBy(f.window("at", "10 seconds"), "k")
        .agg(f.count("*").alias("n"), f.sum("v").alias("total"))
    )
    writer = table.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
    took = _until(spark, writer.start(), WARM + epochs)
    shutil.rmtree(folder, ignore_errors=True)
    return took[WARM:][:epochs]


def _until(spark: Any, query: Any, epochs: int) -> list[float]:
    """Let a query that never waits run for `epochs` batches."""
    until = time.monotonic() + 120
    try:
        while len(query.recentProgress) < epochs and time.monotonic() < until:
            time.sleep(0.05)
        return epochs_ms(query.recentProgress, rows=ROWS)
    finally:
        spark.sparkContext.setLogLevel("OFF")  # a query stopped within a batch prints long traces
        query.stop()
        spark.sparkContext.setLogLevel("ERROR")
