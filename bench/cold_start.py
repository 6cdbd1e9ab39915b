"""`cold_start`: from `headrace run` to the first committed epoch, and the second epoch.

The rival is a bare PySpark program: its own streaming aggregate over Parquet, RocksDB state, as installed. Both are
processes of their own, which are started in turn; both read the same 1,000 rows, and 1,000 more when the first epoch is
committed. A commit counts when its file is there. Expected: 1.2 of the rival's time, since most of it is the JVM's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from bench.figure import Figure, WrongAnswer, compare_times

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.setting import Setting

ROWS, KEYS = 1_000, 100
_PATIENCE_SECONDS = 300
_OURS = """
import headrace as hr

app = hr.App("cold", storage="{folder}/app", shards=2)
app.stream("rows", "k bigint, v bigint").group_by("k").agg(n="count(*)", total="sum(v)").named("sums").to_topic("sums")
"""
_THEIRS = """
from pyspark.sql import SparkSession, functions as f

state = "spark.sql.streaming.stateStore.providerClass"
rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").config(state, rocksdb)
spark = builder.config("spark.ui.enabled", "false").getOrCreate()
rows = spark.readStream.schema("k bigint, v bigint").parquet("{folder}/rows")
sums = rows.groupBy("k").agg(f.count("*").alias("n"), f.sum("v").alias("total"))
writer = sums.writeStream.outputMode("update").format("noop").option("checkpointLocation", "{folder}/checkpoint")
writer.start().awaitTermination()
"""


def run(setting: Setting) -> list[Figure]:
    """Measure it."""
    if not setting.spark_allowed:
        return []
    runs = setting.runs(5, 3)
    took = [(_ours(setting), _theirs(setting)) for _ in range(runs)]
    return [
        compare_times(
            "cold_start",
            what=what,
            rival="bare PySpark, its own streaming aggregate over Parquet",
            must=must,
            ours=[mine[at] for mine, _ in took],
            theirs=[other[at] for _, other in took],
            unit="s",
        )
        for at, (what, must) in enumerate(
            [("from the command to the first committed epoch", ">= 0.833"), ("the second epoch", ">= 0.833")]
        )
    ]


def _ours(setting: Setting) -> tuple[float, float]:
    folder = setting.fresh("ours")
    folder.mkdir()
    commits = folder / "app" / "epochs"
    with hr.Log(folder / "app" / "log") as log:
        log.create_topic("rows", "k bigint, v bigint")
        return _timed(
            setting,
            "ours",
            folder,
            _OURS,
            [str(Path(sys.executable).with_name("headrace")), "run"],
            add=lambda number: log.topic("rows").append(_rows(number)),
            commits=lambda: len(list(commits.glob("*.json"))),
        )


def _theirs(setting: Setting) -> tuple[float, float]:
    folder = setting.fresh("theirs")
    (folder / "rows").mkdir(parents=True)

    def add(number: int) -> None:
        pq.write_table(_rows(number), folder / f"{number}.parquet")
        (folder / f"{number}.parquet").rename(folder / "rows" / f"{number}.parquet")

    done = folder / "checkpoint" / "commits"
    return _timed(
        setting,
        "bare PySpark",
        folder,
        _THEIRS,
        [sys.executable],
        add=add,
        commits=lambda: len([each for each in done.glob("*") if each.name.isdigit()]),
    )


def _timed(
    setting: Setting,
    who: str,
    folder: Path,
    program: str,
    command: Sequence[str],
    *,
    add: Callable[[int], object],
    commits: Callable[[], int],
) -> tuple[float, float]:
    """Return the seconds from the start of a program to its first commit, and from new rows to the next one."""
    (folder / "program.py").write_text(program.format(folder=folder), "utf-8")
    add(0)
    began = time.perf_counter()
    with (folder / "said").open("wb") as said:
        started = subprocess.Popen(
            [*command, str(folder / "program.py")], stdout=said, stderr=said, start_new_session=True
        )
    try:
        first = _await(began, lambda: commits() >= 1, started, folder / "said")
        time.sleep(2)  # what a start leaves to do is done
        known, again = commits(), time.perf_counter()
        add(1)
        second = _await(again, lambda: commits() > known, started, folder / "said")
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
    setting.say(f"{who}: first epoch after {first:.1f} s, the second in {second * 1000:.0f} ms")
    return first, second


def _await(began: float, there: Callable[[], bool], program: subprocess.Popen[bytes], said: Path) -> float:
    while not there():
        if program.poll() is not None or time.perf_counter() > began + _PATIENCE_SECONDS:
            raise WrongAnswer(f"no epoch was committed: {said.read_text('utf-8', 'replace')[-1500:]}")
        time.sleep(0.002)
    return time.perf_counter() - began


def _rows(number: int) -> pa.Table:
    values = range(number * ROWS, (number + 1) * ROWS)
    return pa.table({"k": [value % KEYS for value in values], "v": list(values)})
