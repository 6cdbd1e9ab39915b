"""Kill a plain PySpark query that copies a topic, again and again, and hold the copy against the source.

    python scripts/spark_kills.py [--kills 6] [--seed 1]

The query (`readStream` and `writeStream` with `format("headrace")`, one checkpoint) dies by kill -9 at random moments
between its first and its last micro-batch: in tasks, in the sink's commit, between that and Spark's own. In the end
every record is in the copy once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import pyarrow as pa

from headrace.log import Log

ROWS = 60_000
A_BATCH = 400
SCHEMA = "id bigint, text string"

QUERY = """
import sys
from headrace.engine.spark.session import session

folder = sys.argv[1]
spark = session(master="local[2]", memory="1g")
source = spark.readStream.format("headrace").option("path", folder + "/log").option("subscribe", "source")
frame = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", sys.argv[2]).load()
sink = frame.writeStream.format("headrace").option("path", folder + "/log").option("topic", "copy")
query = sink.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
"""


def copied(log: Log) -> int:
    """Return how many records the copy has."""
    return sum(log.topic("copy").end_offsets().values())


def run(folder: Path, log: Log, *, until: int | None) -> None:
    """Run the query to its end, or kill driver and JVM once the copy has so many records; workers follow."""
    query = subprocess.Popen(
        [sys.executable, "-c", QUERY, str(folder), str(A_BATCH)],
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while query.poll() is None:
        if until is not None and copied(log) >= until:
            os.killpg(query.pid, signal.SIGKILL)
        time.sleep(0.002)
    if until is None and query.returncode:
        sys.exit(f"the query failed with {query.returncode}; its folder is {folder}")


def main() -> int:
    """Kill, go on, compare."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--kills", type=int, default=6)
    given.add_argument("--seed", type=int, default=1)
    asked = given.parse_args()
    random = Random(asked.seed)  # noqa: S311 -- moments, not secrets
    folder = Path(tempfile.mkdtemp(prefix="headrace-spark-kills-"))
    with Log(folder / "log") as log:
        source = log.create_topic("source", SCHEMA, partitions=3, key="id")
        log.create_topic("copy", SCHEMA, partitions=2, key="id")
        source.append(pa.table({"id": range(ROWS), "text": [f"text {n}" for n in range(ROWS)]}))
        for kill in range(asked.kills):
            until = copied(log) + random.randrange(1, ROWS // asked.kills)
            run(folder, log, until=until)
            print(f"kill {kill + 1}: {copied(log):,} of {ROWS:,} records", flush=True)
        run(folder, log, until=None)
        copy = log.topic("copy")
        ids = [n for p, end in copy.end_offsets().items() for n in copy.read(p, 0, end + 1).column("id").to_pylist()]
    if sorted(ids) != list(range(ROWS)):
        print(f"WRONG: {len(ids)} records, {len(set(ids))} of them different, of {ROWS}; {folder} is kept")
        return 1
    print(f"{asked.kills} kills, seed {asked.seed}: {ROWS:,} records, each once")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
