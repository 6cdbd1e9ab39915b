"""Spark's own streaming aggregate over Parquet: count and sum by key and window, RocksDB, update mode, noop sink."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.figure import same
from bench.progress import Took, processing
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
    """A way to run it: how many files a batch, and with which settings."""

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


def catch_up(setting: Setting, rows: Rows, way: Way, *, size: str, grace: str, groups: int) -> Took:
    """Run the query on a new checkpoint until all files are processed."""
    query = _query(setting.rival(way.settings), rows, way, size=size, grace=grace)
    took, batches = process(setting, query, rows.rows, mode="update")
    same("groups the rival holds", batches[-1]["stateOperators"][0]["numRowsTotal"], groups)
    return took


def process(setting: Setting, frame: Any, rows: int, *, mode: str) -> tuple[Took, list[Any]]:
    """Run a streaming query over so many rows on a new checkpoint, to a noop sink; return its batches too."""
    checkpoint = setting.fresh("theirs")
    writer = frame.writeStream.format("noop").outputMode(mode)
    began = time.perf_counter()
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    whole = time.perf_counter() - began
    batches = list(query.recentProgress)
    same("rows the rival read", sum(batch["numInputRows"] for batch in batches), rows)
    shutil.rmtree(checkpoint, ignore_errors=True)
    return Took(whole, *processing(batches)), batches


def updates(setting: Setting, rows: Rows, *, size: str, grace: str) -> Path:
    """Run the query once with its updates kept as Parquet, for the comparison of the answers."""
    return kept(setting, _query(setting.rival(WAYS[0].settings), rows, WAYS[0], size=size, grace=grace), mode="update")


def kept(setting: Setting, frame: Any, *, mode: str) -> Path:
    """Run a streaming query over files once and return the folder with what it gave, by `batch`, as Parquet."""
    from pyspark.sql import functions as f

    folder, checkpoint = setting.fresh("kept"), setting.fresh("theirs")

    def keep(batch: Any, number: int) -> None:
        batch.withColumn("batch", f.lit(number)).write.parquet(str(folder / str(number)))

    writer = frame.writeStream.foreachBatch(keep).outputMode(mode).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return folder


def read(setting: Setting, rows: Rows, way: Way) -> Any:
    """Return the rows as a stream of the rival's."""
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
