"""`log_replay_spark`: a whole topic read into plain Spark, as rows, against Parquet files of the same rows.

Expected: as fast as Spark's own Parquet source or faster. Both are columns until Spark converts them to rows. Parquet
is smaller and is decoded inside the JVM; the log is mapped and passed on undecoded, through a Python process and a
socket. So records of ids and texts, which Parquet packs badly, should favour the log, and a few numbers, which it
packs well, should favour Parquet: both shapes are measured, each consumed by a sink that drops rows and by an aggregate
over every column.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import headrace as hr
from bench.figure import Figure, paired, same
from bench.recompute import drop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.setting import Setting

SEED = 20260131
PARTITIONS = 4
FILES = 8
APPEND_ROWS = 50_000
WARM = 3
_FIRST = 1_767_225_600_000_000
_WORDS = ("river", "mill", "wheel", "stone", "grain", "bread", "water", "head", "race", "dam", "spill", "gate")


@dataclass(frozen=True)
class Shape:
    """A kind of rows: schema, number at full scale, and an aggregate that needs every column."""

    name: str
    schema: str
    rows: int
    aggregate: str


SHAPES = (
    Shape(
        "records of 85 bytes (ids, texts, numbers, a time)",
        "search_id string, user string, query string, price double, shown int, at timestamp",
        2_000_000,
        "max(search_id), max(user), max(query), max(price), sum(shown), max(at), count(*)",
    ),
    Shape("three numbers", "k bigint, v bigint, at timestamp", 4_000_000, "sum(k), sum(v), max(at), count(*)"),
)


def run(setting: Setting) -> list[Figure]:
    """Measure both shapes, each in two ways, both sides in turn."""
    return [figure for shape in SHAPES for figure in _measure(setting, shape)] if setting.spark_allowed else []


def _measure(setting: Setting, shape: Shape) -> list[Figure]:
    rows = setting.rows(shape.rows)
    log, parquet = setting.fresh("log"), setting.fresh("parquet")
    setting.say(f"writing {rows:,} {shape.name} to a topic and to Parquet")
    _write(_table(shape, rows), shape, log, parquet)
    spark = setting.rival({})
    checksum = f"count(*) AS n, bit_xor(xxhash64({', '.join(_names(shape))})) AS rows"

    def ours() -> Any:
        return spark.read.format("headrace").option("path", str(log)).option("subscribe", "rows").load()

    def theirs() -> Any:
        return spark.read.parquet(str(parquet))

    same("the rows", *(frame().selectExpr(*checksum.split(", ", 1)).collect() for frame in (ours, theirs)))
    ways = {
        "rows that are dropped": drop,
        "an aggregate over every column": lambda frame: frame.selectExpr(*shape.aggregate.split(", ")).collect(),
    }
    return [_figure(setting, f"{shape.name}, {way}", rows, (ours, theirs), do) for way, do in ways.items()]


def _figure(
    setting: Setting, what: str, rows: int, sides: tuple[Callable[[], Any], Callable[[], Any]], do: Callable[[Any], Any]
) -> Figure:
    runs = setting.runs(7, 3)
    took = [tuple(_timed(side, do) for side in sides) for _ in range(WARM + runs)][WARM:]
    mine, others = [pair[0] for pair in took], [pair[1] for pair in took]
    ratio, spread = paired(others, mine)
    setting.say(f"{what}: ours {statistics.median(mine):.2f} s, Parquet {statistics.median(others):.2f} s")
    return Figure(
        bench="log_replay_spark",
        what=f"{what}: speed of a replay into plain Spark, ours over theirs",
        rival="Spark's Parquet source, same rows",
        ratio=ratio,
        spread=spread,
        must=">= 1.0",
        ours=rows / statistics.median(mine),
        theirs=rows / statistics.median(others),
        unit="rows/s",
        runs=runs,
    )


def _timed(frame: Callable[[], Any], do: Callable[[Any], Any]) -> float:
    began = time.perf_counter()
    do(frame())
    return time.perf_counter() - began


def _names(shape: Shape) -> list[str]:
    return [part.split()[0] for part in shape.schema.split(", ")]


def _table(shape: Shape, rows: int) -> pa.Table:
    random = np.random.default_rng(SEED)
    at = pa.array(_FIRST + np.arange(rows, dtype=np.int64) * 1_000, pa.timestamp("us", "UTC"))
    if "search_id" not in _names(shape):
        return pa.table({"k": random.integers(0, 10_000, rows), "v": random.integers(0, 100, rows), "at": at})
    words = pa.array(_WORDS)
    words_of_rows = [words.take(pa.array(random.integers(0, len(words), rows))) for _ in range(4)]
    users = pa.array(random.integers(0, 100_000, rows)).cast(pa.string())
    return pa.table(
        {
            "search_id": pa.array(random.integers(0, 1 << 62, rows)).cast(pa.string()),
            "user": pc.binary_join_element_wise("user-", users, ""),
            "query": pc.binary_join_element_wise(*words_of_rows, " "),
            "price": random.random(rows) * 100,
            "shown": pa.array(random.integers(0, 50, rows), pa.int32()),
            "at": at,
        }
    )


def _write(table: pa.Table, shape: Shape, log: Path, parquet: Path) -> None:
    with hr.Log(log) as opened:
        topic = opened.create_topic("rows", shape.schema, partitions=PARTITIONS, event_time="at")
        for number, first in enumerate(range(0, table.num_rows, APPEND_ROWS)):
            topic.append(table.slice(first, APPEND_ROWS), partition=number % PARTITIONS)
    parquet.mkdir()
    part = -(-table.num_rows // FILES)
    for number, first in enumerate(range(0, table.num_rows, part)):
        pq.write_table(table.slice(first, part), parquet / f"{number:05d}.parquet")
