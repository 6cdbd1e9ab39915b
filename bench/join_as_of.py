"""`join_as_of`: 2 M rows joined with the versions of their time, 200 000 versions of 1 000 keys, in 4 epochs.

Expected: no slower than Spark over all data at once, though ours reads it in parts, keeps its state safe and emits
each answer as soon as it is final. Spark has no as-of join: the union of both, and the last version in a window of
each key, is its fastest way; it sorts all rows, once, and keeps nothing. The rival whose answers are final as ours, row
by row while the input goes on, and which survives a restart, is a Python function with state (`as_of_state`): Spark's
joins of streams have no last version. The last figure reports DuckDB's `ASOF JOIN` alone over the same Parquet files,
in one thread, without state.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench import as_of_state
from bench.figure import Figure, compare_times, same
from bench.recompute import computed_ms, write_parquet
from bench.stepped import SteppedApp

if TYPE_CHECKING:
    from bench.rival import Way
    from bench.setting import Setting

ROWS, VERSIONS, KEYS, EPOCHS = 2_000_000, 200_000, 1_000, 4
SEED = 20260131
FIRST, HOUR = 1_767_225_600_000_000, 3_600_000_000
LEFT, RIGHT = "k bigint, v bigint, at timestamp", "k bigint, w bigint, since timestamp"
OUT_OF_ORDER, GRACE = "5 seconds", "10 seconds"
_PARTITIONS = 2

Answer = tuple[int, int, int]


class Dataset:
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
        self.parts_folder = setting.fresh("parts")
        as_of_state.write(self.parts_folder, [*self._numbered_parts(), _ends(-1, -1)])
        for name, table in (("left", self.left), ("right", self.right.append_column("nr", _numbers(self.versions)))):
            write_parquet(self.folder / name, table, files=2)

    def _numbered_parts(self) -> list[tuple[pa.Table, pa.Table]]:
        parts, first = [], 0
        for left, right in self.parts():
            parts.append((left, right.append_column("nr", _numbers(right.num_rows, first))))
            first += right.num_rows
        return parts

    def parts(self) -> list[tuple[pa.Table, pa.Table]]:
        """Return the rows and versions of each epoch."""
        cuts = [(-(-n // EPOCHS)) for n in (self.rows, self.versions)]
        return [(self.left.slice(i * cuts[0], cuts[0]), self.right.slice(i * cuts[1], cuts[1])) for i in range(EPOCHS)]


def run(setting: Setting) -> list[Figure]:
    """Measure all three in turn."""
    if not setting.spark_allowed:
        return []
    dataset = Dataset(setting)
    answer = _duckdb(dataset)[1]
    same("Spark's as-of join", _answer_of(_spark(setting, dataset)), answer)
    way, final = _with_state(setting, dataset, answer)
    mine, theirs, plain = [], [], []
    for number in range(1 + setting.runs(3, 2)):
        with OurApp(setting) as our_app:
            own = our_app.run(dataset, answer)
        took = (own, _rival(setting, dataset), _duckdb(dataset)[0])
        setting.say(f"run {number}: ours {took[0]:.0f} ms, Spark {took[1]:.0f} ms, DuckDB alone {took[2]:.0f} ms")
        if number:  # the first one warms
            for times, value in zip((mine, theirs, plain), took, strict=True):
                times.append(value)
    what = f"{dataset.rows:,} rows in {EPOCHS} epochs, {dataset.versions:,} versions: theirs over ours"
    against = (
        ("one Spark batch over all rows: union and the last version in a window", mine, theirs, ">= 1"),
        (f"final answers, from state: Spark's applyInPandasWithState, {way.name}", [median(mine)], final, ">= 1"),
        ("DuckDB's ASOF JOIN over all rows at once, one thread", mine, plain, None),
    )
    return [
        compare_times("join_as_of", what=what, rival=rival, must=must, ours=ours, theirs=others, unit="ms")
        for rival, ours, others, must in against
    ]


class OurApp(SteppedApp):
    """Our app on Spark with an empty storage, and a sink that adds up its output."""

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
        """Receive the rows of an epoch; the last ones, which only move the watermark, have no value."""
        self.got = tuple(a + b for a, b in zip(self.got, _sums(rows.filter(pc.is_valid(rows["v"]))), strict=True))  # type: ignore[assignment]

    def run(self, dataset: Dataset, answer: Answer) -> float:
        """Feed all parts, and then rows far in the future; return the milliseconds."""
        took = 0.0
        for left, right in dataset.parts():
            rows = [("rows", part, at) for at, part in enumerate(_dealt(left))]
            took += self.step([("table", right, None), *rows])
        rows = [("rows", _ends(None, -1)[0], at) for at in range(_PARTITIONS)]
        ends = [_ends(None, -nr)[1].select(["k", "w", "since"]) for nr in range(1, 20)]
        took += self.step([*rows, ("table", pa.concat_tables(ends), None)])
        same("our as-of join", self.got, answer)
        return took


# ---- theirs ----


def _rival(setting: Setting, dataset: Dataset) -> float:
    frame = _spark(setting, dataset)  # building it does not count
    return computed_ms(lambda: frame)


def _with_state(setting: Setting, dataset: Dataset, answer: Answer) -> tuple[Way, list[float]]:
    """Return the faster way of the rival with state, whose answer is right, and its time: it takes a minute."""
    same("the as-of join with state", as_of_state.answer(setting, dataset.parts_folder), answer)
    by_time, rows = {}, dataset.rows + dataset.versions + 2
    for way in as_of_state.WAYS:
        took = as_of_state.took_ms(setting, dataset.parts_folder, way, rows)
        by_time[took] = way
        setting.say(f"with state, {way.name}: {took:.0f} ms")
    return by_time[min(by_time)], [min(by_time)]


def _spark(setting: Setting, dataset: Dataset) -> Any:
    """Return the as-of join of plain Spark: for each row the last version of its key that is not later."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    spark = setting.rival({})
    left = spark.read.parquet(str(dataset.folder / "left")).select("k", "v", f.col("at"), f.lit(1).alias("is_row"))
    right = spark.read.parquet(str(dataset.folder / "right"))
    versions = right.select("k", f.struct("w").alias("version"), f.col("since").alias("at"), "nr")
    both = left.unionByName(versions.withColumn("is_row", f.lit(0)), allowMissingColumns=True)
    order = Window.partitionBy("k").orderBy("at", "is_row", "nr").rowsBetween(Window.unboundedPreceding, 0)
    joined = both.withColumn("match", f.last("version", ignorenulls=True).over(order)).where("is_row = 1")
    return joined.select("k", "v", "at", f.col("match.w").alias("w"))


def _duckdb(dataset: Dataset) -> tuple[float, Answer]:
    """Return how long DuckDB's own join takes, and the answer."""
    with duckdb.connect(config={"threads": 1}) as con:
        left, right = (f"'{dataset.folder}/{name}/*.parquet'" for name in ("left", "right"))
        once = f"SELECT * FROM {right} QUALIFY row_number() OVER (PARTITION BY k, since ORDER BY nr DESC) = 1"
        not_later = 'l.k = r.k AND l."at" >= r.since'
        query = f'SELECT l.k, l.v, l."at", r.w FROM {left} l ASOF LEFT JOIN ({once}) r ON {not_later}'
        began = time.perf_counter()
        joined = con.sql(query).to_arrow_table()
        return (time.perf_counter() - began) * 1000, _sums(joined)


def _answer_of(frame: Any) -> Answer:
    row = frame.selectExpr("count(*)", "count(*) - count(w)", "coalesce(sum(v * w), 0)").first()
    return int(row[0]), int(row[1]), int(row[2])


# ---- small functions ----


def _sums(rows: pa.Table) -> Answer:
    total = pc.sum(pc.multiply(rows.column("v"), rows.column("w"))).as_py() or 0
    return rows.num_rows, rows.column("w").null_count, total


def _times(random: np.random.Generator, count: int) -> pa.Array:
    at = FIRST + np.arange(count, dtype=np.int64) * (4 * HOUR // count) - random.integers(0, 2_000_000, count)
    return pa.array(np.maximum(at, FIRST), pa.timestamp("us", "UTC"))


def _dealt(rows: pa.Table) -> list[pa.Table]:
    """Return the rows of each partition, dealt one by one, so that the watermarks move together."""
    at = np.arange(rows.num_rows) % _PARTITIONS
    return [rows.filter(pa.array(at == number)) for number in range(_PARTITIONS)]


def _numbers(count: int, first: int = 0) -> pa.Array:
    return pa.array(np.arange(first, first + count, dtype=np.int64))


def _ends(left: int | None, right: int) -> tuple[pa.Table, pa.Table]:
    """Return a row and a version far in the future, with these keys."""
    last, nothing = pa.array([FIRST + 30 * HOUR], pa.timestamp("us", "UTC")), pa.nulls(1, pa.int64())
    key, versions = pa.array([left], pa.int64()), pa.array([right], pa.int64())
    rows = pa.table({"k": key, "v": nothing, "at": last})
    return rows, pa.table({"k": versions, "w": nothing, "since": last, "nr": pa.array([1 << 40])})
