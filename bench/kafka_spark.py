"""Spark's side of the Kafka benches, a process of its own: its connector and `from_json`, as installed.

    python -m bench.kafka_spark JSON

The connector comes by its coordinates. Each run prints a line of JSON: its seconds from the first batch's start to the
last one's end, and what it put out. The first run is cold, the others are warm.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.progress import processing

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
"""The newest one that is published for the major version of PySpark that we use."""
_STATE = "org.apache.spark.sql.execution.streaming.state."
_FIELDS = {
    "filter": "auction long",
    "windowed": "auction long, price long, dateTime timestamp",
    "copy": "auction long, bidder long, price long, dateTime timestamp",
    "latency": "k long, ts long",
}
DIVISOR = 123


@dataclass(frozen=True)
class Job:
    """What to run: `query` is "filter", "windowed", "copy" or "latency"; `to` is a topic, for the latter two."""

    query: str
    servers: str
    topic: str
    runs: int = 2
    batch: int = 0
    rocksdb: bool = True
    to: str = ""

    def command(self) -> list[str]:
        """Return the command that runs it."""
        return [sys.executable, "-m", "bench.kafka_spark", json.dumps(asdict(self))]

    def results(self) -> list[dict[str, Any]]:
        """Run it in a process, and return what each run printed.

        Raises:
            RuntimeError: it failed.

        """
        ran = subprocess.run(
            self.command(), cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False, timeout=1_800
        )
        if ran.returncode:
            raise RuntimeError(f"Spark with its connector failed:\n{ran.stderr[-2000:]}")
        return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    """Run the job of the command line."""
    job = Job(**json.loads(sys.argv[1]))
    spark = _session(job)
    if job.query == "latency":
        _count_for_ever(spark, job)
    for _ in range(job.runs):
        print(json.dumps(_run(spark, job)), flush=True)
    spark.stop()


def _session(job: Job) -> Any:
    from headrace.engine.spark.session import session

    settings = {
        "spark.jars.packages": CONNECTOR,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
    }
    if job.rocksdb:
        settings["spark.sql.streaming.stateStore.providerClass"] = f"{_STATE}RocksDBStateStoreProvider"
    return session(master="local[2]", memory="4g", settings=settings)


def _rows(spark: Any, job: Job) -> Any:
    from pyspark.sql import functions as f

    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", job.servers)
    reader = reader.option("subscribe", job.topic).option("startingOffsets", "earliest")
    if job.batch:
        reader = reader.option("maxOffsetsPerTrigger", job.batch)
    decoded = f.from_json(f.col("value").cast("string"), _FIELDS[job.query])
    return reader.load().select(decoded.alias("row")).select("row.*")


def _run(spark: Any, job: Job) -> dict[str, Any]:
    from pyspark.sql import functions as f

    rows, mode = _rows(spark, job), "append"
    if job.query == "filter":
        rows = rows.where(f"auction % {DIVISOR} = 0").observe("seen", f.count("*").alias("n"))
    elif job.query == "windowed":
        rows = rows.withWatermark("dateTime", "4 seconds").groupBy(f.window("dateTime", "10 seconds"), "auction")
        rows = rows.agg(f.count("*").alias("n"), f.sum("price").alias("total"))
        rows = rows.observe("seen", f.count("*").alias("groups"), f.sum("n").alias("n"), f.sum("total").alias("total"))
        mode = "update" if not job.batch else "append"  # in one batch each group is updated once, so all are counted
    folder = tempfile.mkdtemp(prefix="headrace-bench-checkpoint-")
    writer = (_to_topic(rows, job) if job.query == "copy" else rows.writeStream.format("noop")).outputMode(mode)
    query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
    query.awaitTermination()
    batches = list(query.recentProgress)
    shutil.rmtree(folder, ignore_errors=True)
    seen = [batch["observedMetrics"]["seen"].asDict() for batch in batches if batch["observedMetrics"]]
    answer = {name: sum(each[name] or 0 for each in seen) for name in (seen[0] if seen else {})}
    seconds, count = processing(batches)
    return {"seconds": seconds, "batches": count, "rows": sum(b["numInputRows"] for b in batches)} | answer


def _to_topic(rows: Any, job: Job) -> Any:
    out = rows.selectExpr("cast(auction as string) AS key", "to_json(struct(*)) AS value")
    return out.writeStream.format("kafka").option("kafka.bootstrap.servers", job.servers).option("topic", job.to)


def _count_for_ever(spark: Any, job: Job) -> None:
    """Count by key from topic to topic until the process is ended, each batch right after the one before."""
    from pyspark.sql import functions as f

    counted = _rows(spark, job).groupBy("k").agg(f.count("*").alias("n"), f.max("ts").alias("ts"))
    out = counted.selectExpr("cast(k AS string) AS key", "to_json(struct(*)) AS value")
    writer = out.writeStream.format("kafka").option("kafka.bootstrap.servers", job.servers).option("topic", job.to)
    folder = tempfile.mkdtemp(prefix="headrace-bench-checkpoint-")
    writer.outputMode("update").option("checkpointLocation", folder).start().awaitTermination()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # Spark's threads may still run
