"""`join_as_of`: 2 M rows meet the versions of their time, 200 000 versions of 1 000 keys, in 4 epochs.

Expected: no slower than Spark over the whole data at once, though ours comes in parts, keeps its state safe and gives
out each answer as soon as it is final. Spark has no as-of join: the union of both, and the last version in a window of
each key, is its fastest way; it sorts all rows. Ours sorts within a key what is ready (DuckDB's `ASOF JOIN`). That join
alone over the same Parquet files, in one thread and with nothing kept, is what the second figure reports.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.anew import computed_ms, write_parquet
from bench.figure import Figure, beside, same
from bench.stepped import Stepped

if TYPE_CHECKING:
    from bench.setting import Setting

ROWS, VERSIONS, KEYS, EPOCHS = 2_000_000, 200_000, 1_000, 4
SEED = 20260131
FIRST, HOUR = 1_767_225_600_000_000, 3_600_000_000
LEFT, RIGHT = "k bigint, v bigint, at timestamp", "k bigint, w bigint, since timestamp"
OUT_OF_ORDER, GRACE = "5 seconds", "10 seconds"
_PARTITIONS = 2

Answer = tuple[int, int, int]


class World:
    """Rows and versions over four hours, each up to two seconds out of order."""

    def __init__(self, setting: Setting) -> None:
        random = np.random.default_rng(SEED)
        self.rows, self.versions = setting.rows(ROWS), setting.rows(VERSIONS)
        keys = max(1, setting.rows(KEYS))
        self.left = pa.table(
            {
                "k": random.integers(0, keys, self.rows),
                "v": random.integers(0, 100, self.rows),
                "at": _times(random, self.rows),
            }
        )
        self.right = pa.table(
            {
                "k": random.integers(0, keys, self.versions),
                "w": random.integers(0, 1_000, self.versions),
                "since": _times(random, self.versions),
            }
        )
        self.folder = setting.fresh("world")
        for name, table in (("left", self.left), ("right", self.right.append_column("nr", _numbers(self.versions)))):
            write_parquet(self.folder / name, table, files=2)

    def parts(self) -> list[tuple[pa.Table, pa.Table]]:
        """Return the rows and versions of each epoch."""
        cuts = [(-(-n // EPOCHS)) for n in (self.rows, self.versions)]
        return [(self.left.slice(i * cuts[0], cuts[0]), self.right.slice(i * cuts[1], cuts[1])) for i in range(EPOCHS)]


def run(setting: Setting) -> list[Figure]:
    """Measure all three in turn."""
    if not setting.spark_allowed:
        return []
    world = World(setting)
    answer = _duckdb(world)[1]
    same("Spark's as-of join", _answer_of(_spark(setting, world)), answer)
    mine, theirs, plain = [], [], []
    for number in range(1 + setting.runs(3, 2)):
        with Side(setting) as side:
            ours = side.run(world, answer)
        took = (ours, _rival(setting, world), _duckdb(world)[0])
        setting.say(f"run {number}: ours {took[0]:.0f} ms, Spark {took[1]:.0f} ms, DuckDB alone {took[2]:.0f} ms")
        if number:  # the first one warms
            for kept, value in zip((mine, theirs, plain), took, strict=True):
                kept.append(value)
    what = f"{world.rows:,} rows in {EPOCHS} epochs, {world.versions:,} versions: theirs over ours"
    against = (
        ("Spark batch over the whole, once: union and the last version in a window", theirs, ">= 1"),
        ("DuckDB's ASOF JOIN over the whole, once, one thread", plain, None),
    )
    return [
        beside("join_as_of", what=what, rival=rival, must=must, ours=mine, theirs=others, unit="ms")
        for rival, others, must in against
    ]


class Side(Stepped):
    """Our app on Spark on an empty storage, and a sink that adds up what comes out."""

    name = "sums"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, "versions")
        self.got: Answer = (0, 0, 0)
        timing = {"out_of_order": OUT_OF_ORDER, "partitions": _PARTITIONS}
        rows = self.app.stream("rows", LEFT, event_time="at", **timing)
        table = self.app.table("table", RIGHT, key="k", event_time="since", **timing)
        rows.join(table, on="k", as_of="at", grace=GRACE, how="left").to(self)
        self.log.create_topic("rows", LEFT, event_time="at", partitions=_PARTITIONS)
        self.log.create_topic("table", RIGHT, key="k", event_time="since", cleanup="compact", partitions=_PARTITIONS)
        self.start()

    def write(self, epoch: int, rows: pa.Table) -> None:  # noqa: ARG002 -- what a sink is given
        """Take an epoch's rows; the last ones, which only move the watermark, have no value."""
        self.got = tuple(a + b for a, b in zip(self.got, _sums(rows.filter(pc.is_valid(rows["v"]))), strict=True))  # type: ignore[assignment]

    def run(self, world: World, answer: Answer) -> float:
        """Let the app take in all parts, and rows far in the future after them; return its milliseconds."""
        took = 0.0
        for left, right in world.parts():
            rows = [("rows", part, at) for at, part in enumerate(_dealt(left))]
            took += self.step([("table", right, None), *rows])
        last = pa.array([FIRST + 30 * HOUR], pa.timestamp("us", "UTC"))
        nothing = pa.nulls(1, pa.int64())
        rows = [("rows", pa.table({"k": nothing, "v": nothing, "at": last}), at) for at in range(_PARTITIONS)]
        ends = [pa.table({"k": pa.array([-nr]), "w": nothing, "since": last}) for nr in range(1, 20)]
        took += self.step([*rows, ("table", pa.concat_tables(ends), None)])
        same("our as-of join", self.got, answer)
        return took


# ---- theirs ----


def _rival(setting: Setting, world: World) -> float:
    frame = _spark(setting, world)  # its making does not count
    return computed_ms(lambda: frame)


def _spark(setting: Setting, world: World) -> Any:
    """Return the as-of join of plain Spark: of each key the last version that stands before a row or with it."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    spark = setting.rival({})
    left = spark.read.parquet(str(world.folder / "left")).select("k", "v", f.col("at"), f.lit(1).alias("asks"))
    right = spark.read.parquet(str(world.folder / "right"))
    versions = right.select("k", f.struct("w").alias("version"), f.col("since").alias("at"), "nr")
    both = left.unionByName(versions.withColumn("asks", f.lit(0)), allowMissingColumns=True)
    order = Window.partitionBy("k").orderBy("at", "asks", "nr").rowsBetween(Window.unboundedPreceding, 0)
    found = both.withColumn("found", f.last("version", ignorenulls=True).over(order)).where("asks = 1")
    return found.select("k", "v", "at", f.col("found.w").alias("w"))


def _duckdb(world: World) -> tuple[float, Answer]:
    """Return how long DuckDB's own join takes, and the answer."""
    with duckdb.connect(config={"threads": 1}) as con:
        left, right = (f"'{world.folder}/{name}/*.parquet'" for name in ("left", "right"))
        once = f"SELECT * FROM {right} QUALIFY row_number() OVER (PARTITION BY k, since ORDER BY nr DESC) = 1"
        near = 'l.k = r.k AND l."at" >= r.since'
        query = f'SELECT l.k, l.v, l."at", r.w FROM {left} l ASOF LEFT JOIN ({once}) r ON {near}'
        began = time.perf_counter()
        made = con.sql(query).to_arrow_table()
        return (time.perf_counter() - began) * 1000, _sums(made)


def _answer_of(frame: Any) -> Answer:
    row = frame.selectExpr("count(*)", "count(*) - count(w)", "coalesce(sum(v * w), 0)").first()
    return int(row[0]), int(row[1]), int(row[2])


# ---- small words ----


def _sums(rows: pa.Table) -> Answer:
    found = pc.sum(pc.multiply(rows.column("v"), rows.column("w"))).as_py() or 0
    return rows.num_rows, rows.column("w").null_count, found


def _times(random: np.random.Generator, count: int) -> pa.Array:
    at = FIRST + np.arange(count, dtype=np.int64) * (4 * HOUR // count) - random.integers(0, 2_000_000, count)
    return pa.array(np.maximum(at, FIRST), pa.timestamp("us", "UTC"))


def _dealt(rows: pa.Table) -> list[pa.Table]:
    """Return each partition's rows, in turn one by one: so their watermarks move together."""
    at = np.arange(rows.num_rows) % _PARTITIONS
    return [rows.filter(pa.array(at == number)) for number in range(_PARTITIONS)]


def _numbers(count: int) -> pa.Array:
    return pa.array(np.arange(count, dtype=np.int64))
