"""Spark's side of `avro_decode`, a process of its own: `from_avro` over the same Parquet files, as installed.

    python -m bench.avro_spark JSON

The package comes by its coordinates. The first line is the answer, each further line the seconds of a warm run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

PACKAGE = "org.apache.spark:spark-avro_2.13:4.1.1"
"""The newest one that is published for the major version of PySpark that we use."""


def started(folder: str, schema: str, runs: int) -> dict[str, Any]:
    """Run it; return `answer`, the sums of the columns, and `seconds` of each warm run.

    Raises:
        RuntimeError: Spark has failed.

    """
    work = json.dumps({"folder": folder, "schema": schema, "runs": runs})
    command = [sys.executable, "-m", "bench.avro_spark", work]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("[", "{"))]
    if done.returncode or len(lines) != runs + 1:
        raise RuntimeError(done.stderr[-2000:])
    return {"answer": json.loads(lines[0]), "seconds": [json.loads(line)["seconds"] for line in lines[1:]]}


def main() -> None:
    """Print the answer and the times."""
    work = json.loads(sys.argv[1])
    from bench.setting import CORES
    from headrace.engine.spark.session import session

    spark = session(master=f"local[{CORES}]", memory="3g", settings={"spark.jars.packages": PACKAGE})
    from pyspark.sql.avro.functions import from_avro

    rows = spark.read.parquet(work["folder"]).select(from_avro("value", work["schema"]).alias("r")).select("r.*")
    answer = rows.selectExpr(
        "count(*)", "sum(auction)", "sum(bidder)", "sum(price)", "sum(length(channel))", "sum(length(url))",
        "sum(unix_micros(date_time) % 1000003)", "sum(length(extra))",
    ).collect()[0]  # fmt: skip
    print(json.dumps(list(answer)), flush=True)
    for run in range(work["runs"] + 2):
        begun = time.perf_counter()
        rows.write.format("noop").mode("overwrite").save()
        if run > 1:  # the others warm it up
            print(json.dumps({"seconds": time.perf_counter() - begun}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
