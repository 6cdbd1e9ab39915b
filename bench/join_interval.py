"""`join_interval`: two streams of 1 M rows over an hour joined within ten minutes, inner and left.

Expected: 8 times the speed of Spark's own stream-stream join: ours is one hash join of columns in each shard and an
append to its state; Spark gets and puts each row, and each row's matches, a key at a time. Every tenth of the left rows
has a key that the right side never has. A last row far in the future makes both sides emit all unmatched rows.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headrace as hr
from bench.figure import Figure, WrongAnswer, compare_times, same
from bench.ours import caught_up
from bench.recompute import write_parquet
from bench.rival import CHANGELOG, ROCKSDB, Way, collect_output, process

if TYPE_CHECKING:
    from pathlib import Path

    from bench.progress import Timing
    from bench.setting import Setting
    from headrace.plan.nodes import How

ROWS = 1_000_000
KEYS = 100_000
HOUR = 3_600_000_000
FIRST = 1_767_225_600_000_000
SEED = 20260131
OUT_OF_ORDER = "5 seconds"
WITHIN = "10 minutes"
SCHEMA = "k bigint, v bigint, at timestamp"
MUST = ">= 8"
_PARTITIONS, _CHUNKS, _FILES = 2, 20, 10

WAYS = (
    Way("default store, all files in one batch", 1_000_000, {}),
    Way("default store, half of the files a batch", _FILES // 2, {}),
    Way("RocksDB, all files in one batch", 1_000_000, ROCKSDB),
    Way("RocksDB, all files in one batch, changelog checkpoints", 1_000_000, CHANGELOG),
    Way("RocksDB, half of the files a batch, changelog checkpoints", _FILES // 2, CHANGELOG),
)


@dataclass(frozen=True)
class Sides:
    """Where the rows of both sides are."""

    rows: int
    log: Path
    parquet: Path


@dataclass
class Sums:
    """A sink that keeps only what must be equal on both sides."""

    name: str = "sums"
    rows: int = 0
    alone: int = 0
    total: int = 0

    def write(self, epoch: int, rows: pa.Table) -> None:  # noqa: ARG002 -- what a sink is given
        """Take an epoch's rows."""
        right = rows.column("v_right")
        self.rows += rows.num_rows
        self.alone += right.null_count
        self.total += _sum(pc.multiply(rows.column("v"), pc.fill_null(right, 1_000)))

    @property
    def answer(self) -> tuple[int, int, int]:
        """Rows, how many of them unmatched, and a sum over both sides' values."""
        return self.rows, self.alone, self.total


def run(setting: Setting) -> list[Figure]:
    """Measure it, inner and left."""
    if not setting.spark_allowed:
        return []
    sides = make(setting, setting.rows(ROWS))
    hows: tuple[How, ...] = ("inner", "left")
    return [_measure(setting, sides, how) for how in hows]


def _measure(setting: Setting, sides: Sides, how: How) -> Figure:
    answer = expected(sides, how)
    way = _best(setting, sides, how, answer)
    mine, theirs = setting.in_turns(
        setting.runs(3, 2),
        lambda: ours(setting, sides, how, answer),
        lambda: rival(setting, sides, how, way),
        what=f"{how}, ",
    )
    return compare_times(
        "join_interval",
        what=f"{how}, 2 x {sides.rows:,} rows, {answer[0]:,} out: processing time, theirs over ours",
        rival=f"Spark's own stream-stream join, append mode, {way.name}",
        must=MUST,
        ours=[t.processing for t in mine],
        theirs=[t.processing for t in theirs],
        unit="s",
    )


def _best(setting: Setting, sides: Sides, how: How, answer: tuple[int, int, int]) -> Way:
    """Return the rival's fastest way; the trials are its warm-up, and one run is ours."""
    same(f"their {how} join", their_answer(setting, sides, how), answer)
    ours(setting, sides, how, answer)
    by_time = {}
    for way in WAYS if setting.scale >= 1 else WAYS[1:4:2]:
        took = rival(setting, sides, how, way)
        by_time[took.processing] = way
        setting.say(f"{how}, trial: theirs, {way.name}: {took}")
    return by_time[min(by_time)]


# ---- the rows ----


def make(setting: Setting, rows: int) -> Sides:
    """Write both sides to topics of an embedded log and to Parquet files, and after them a row far in the future."""
    setting.say(f"writing 2 x {rows:,} rows to topics and to Parquet")
    sides = Sides(rows, setting.fresh("log"), setting.fresh("parquet"))
    with hr.Log(sides.log) as log:
        for side in ("l", "r"):
            table, last = _table(side, rows), _last()
            topic = log.create_topic(side, SCHEMA, partitions=_PARTITIONS, event_time="at")
            chunk = -(-rows // _CHUNKS)
            for number, first in enumerate(range(0, rows, chunk)):
                topic.append(table.slice(first, chunk), partition=number % _PARTITIONS)
            for partition in range(_PARTITIONS):
                topic.append(last, partition=partition)
            write_parquet(sides.parquet / side, pa.concat_tables([table, *[last] * _PARTITIONS]), files=_FILES)
    return sides


def _table(side: str, rows: int) -> pa.Table:
    random = np.random.default_rng([SEED, side == "l"])
    at = FIRST + np.arange(rows, dtype=np.int64) * HOUR // rows - random.integers(0, 2_000_000, rows)
    keys = random.integers(0, KEYS, rows)
    if side == "l":
        keys[::10] += KEYS
    return _rows(keys, random.integers(0, 100, rows), at)


def _last() -> pa.Table:
    return _rows(np.array([-1]), np.array([0]), np.array([FIRST + 3 * HOUR]))


def _rows(keys: Any, values: Any, at: Any) -> pa.Table:
    return pa.table({"k": keys, "v": values, "at": pa.array(at, pa.timestamp("us", "UTC"))})


def expected(sides: Sides, how: How) -> tuple[int, int, int]:
    """Return the answer, from DuckDB over all rows; the last rows match each other and are not emitted unmatched."""
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        in_reach = f"r.at BETWEEN l.at AND l.at + INTERVAL {WITHIN}"
        left, right = (f"'{sides.parquet}/{side}/*.parquet'" for side in "lr")
        found = con.execute(
            f"SELECT count(*), count(*) - count(r.v), sum(l.v * coalesce(r.v, 1000)) "
            f"FROM {left} l {how} JOIN {right} r ON l.k = r.k AND {in_reach}"
        ).fetchall()
    count, alone, total = found[0]
    return int(count), int(alone), int(total)


# ---- ours ----


def ours(setting: Setting, sides: Sides, how: How, answer: tuple[int, int, int]) -> Timing:
    """Run the app on a new storage until all rows of both topics are processed."""
    storage, sink = setting.fresh("ours"), Sums()
    app = hr.App("bench", storage=storage, topics=f"log:{sides.log}", shards=2)
    left, right = (app.stream(side, SCHEMA, event_time="at", out_of_order=OUT_OF_ORDER) for side in ("l", "r"))
    left.join(right, on="k", within=("0 seconds", WITHIN), how=how).to(sink)
    took = caught_up(setting, app, storage)
    same(f"our {how} join", sink.answer, answer)
    return took


# ---- theirs ----


def rival(setting: Setting, sides: Sides, how: How, way: Way) -> Timing:
    """Run Spark's join on a new checkpoint until all files are processed."""
    joined = _joined(setting.rival(way.settings), sides, how, way)
    return process(setting, joined, 2 * (sides.rows + _PARTITIONS), mode="append")[0]


def their_answer(setting: Setting, sides: Sides, how: How) -> tuple[int, int, int]:
    """Run Spark's join once, write its rows as Parquet, and return their answer."""
    way = WAYS[1]
    folder = collect_output(
        setting, _joined(setting.rival(way.settings), sides, how, way).select("l_v", "r_v"), mode="append"
    )
    with duckdb.connect() as con:
        found = con.execute(
            "SELECT count(*), count(*) - count(r_v), sum(l_v * coalesce(r_v, 1000)) "
            f"FROM read_parquet('{folder}/**/*.parquet')"
        ).fetchall()
    shutil.rmtree(folder, ignore_errors=True)
    count, alone, total = found[0]
    return int(count), int(alone), int(total)


def _joined(spark: Any, sides: Sides, how: How, way: Way) -> Any:
    from pyspark.sql import functions as f

    def read(side: str) -> Any:
        source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", way.files)
        rows = source.parquet(str(sides.parquet / side)).withWatermark("at", OUT_OF_ORDER)
        return rows.select(*(f.col(name).alias(f"{side}_{name}") for name in ("k", "v", "at")))

    in_reach = f"l_k = r_k AND r_at >= l_at AND r_at <= l_at + INTERVAL {WITHIN}"
    return read("l").join(read("r"), f.expr(in_reach), how)


def _sum(values: Any) -> int:
    total = pc.sum(values).as_py()
    if total is None:
        return 0
    if not isinstance(total, int):
        raise WrongAnswer(f"a sum of integers is {total!r}")
    return total
