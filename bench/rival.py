"""Spark's own streaming aggregate over Parquet: count and sum by key and window, RocksDB, update mode, noop sink."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.figure import same
from bench.progress import Timing, processing
from bench.rows import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.rows import Rows
    from bench.setting import Setting

_STREAMING = "spark.sql.streaming."
_STATE = "org.apache.spark.sql.execution.streaming.state."
ROCKSDB = {f"{_STREAMING}stateStore.providerClass": f"{_STATE}RocksDBStateStoreProvider"}
CHANGELOG = ROCKSDB | {f"{_STREAMING}stateStore.rocksdb.changelogCheckpointing.enabled": "true"}


@dataclass(frozen=True)
class Way:
    """A way to run the rival: how many files a batch, and which settings."""

    name: str
    files: int
    settings: Mapping[str, str]


WAYS = (
    Way("all files in one batch", 1_000_000, ROCKSDB),
    Way("all files in one batch, changelog checkpoints", 1_000_000, CHANGELOG),
    Way("10 files a batch, changelog checkpoints", 10, CHANGELOG),
    Way("4 files a batch, changelog checkpoints", 4, CHANGELOG),
)
"""A batch is all rows, a half or a fifth. The smaller ones without changelog checkpoints were never the best."""


def catch_up(setting: Setting, rows: Rows, way: Way, *, size: str, grace: str, groups: int) -> Timing:
    """Run the query on a new checkpoint until all files are processed."""
    query = _query(setting.rival(way.settings), rows, way, size=size, grace=grace)
    took, batches = process(setting, query, rows.rows, mode="update")
    states = [batch["stateOperators"][0] for batch in batches]
    closed = sum(state["numRowsRemoved"] for state in states)  # of windows that the watermark has passed
    same("groups in the rival's state, and closed", states[-1]["numRowsTotal"] + closed, groups)
    return took


def process(setting: Setting, frame: Any, rows: int, *, mode: str) -> tuple[Timing, list[Any]]:
    """Run a streaming query over `rows` rows on a new checkpoint, to a noop sink; return its batches too."""
    checkpoint = setting.fresh("theirs")
    writer = frame.writeStream.format("noop").outputMode(mode)
    began = time.perf_counter()
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    total = time.perf_counter() - began
    batches = list(query.recentProgress)
    same("rows the rival read", sum(batch["numInputRows"] for batch in batches), rows)
    shutil.rmtree(checkpoint, ignore_errors=True)
    return Timing(total, *processing(batches)), batches


def updates(setting: Setting, rows: Rows, *, size: str, grace: str) -> Path:
    """Run the query once and write its updates as Parquet, to compare the answers."""
    return collect_output(
        setting, _query(setting.rival(WAYS[0].settings), rows, WAYS[0], size=size, grace=grace), mode="update"
    )


def collect_output(setting: Setting, frame: Any, *, mode: str) -> Path:
    """Run a streaming query over files once; return a folder of Parquet with its output and a column `batch`."""
    from pyspark.sql import functions as f

    folder, checkpoint = setting.fresh("output"), setting.fresh("theirs")

    def keep(batch: Any, number: int) -> None:
        batch.withColumn("batch", f.lit(number)).write.parquet(str(folder / str(number)))

    writer = frame.writeStream.foreachBatch(keep).outputMode(mode).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return folder


def read(setting: Setting, rows: Rows, way: Way) -> Any:
    """Return the rows as a stream of the rival."""
    stream = setting.rival(way.settings).readStream.schema(SCHEMA).option("maxFilesPerTrigger", way.files)
    return stream.parquet(str(rows.parquet))


def _query(spark: Any, rows: Rows, way: Way, *, size: str, grace: str) -> Any:
    from pyspark.sql import functions as f

    read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", way.files).parquet(str(rows.parquet))
    return (
        read.withWatermark("at", grace)
        .groupBy(f.window("at", size), "k")
        .agg(f.count("*").alias("n"), f.sum("v").alias("total"))
        .select("k", f.col("window.start").alias("window_start"), "n", "total")
    )
