"""`expressions`: thirty everyday expressions over the same Parquet rows, ours in DuckDB, the rival's in Spark SQL.

Expected: 1.5 times the speed of Spark in the geometric mean. Both read one Parquet folder with two threads, both are
warm (Spark's code is generated and compiled before it is timed), Spark's rows end in the noop sink, ours in Arrow
batches that are discarded: ours includes the conversion to Arrow. A vectorised engine gains most on plain numbers and
times, and least on texts that must equal the JVM's exactly (regular expressions, casts).
"""

from __future__ import annotations

import statistics
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.figure import Figure, same
from bench.recompute import drop
from bench.setting import CORES
from headrace.base.schema import parse
from headrace.expressions import scalar

if TYPE_CHECKING:
    from pathlib import Path

    from bench.setting import Setting

_SEED = 20260401
_SCHEMA = parse(
    "id bigint, i int, j int, l bigint, d double, m decimal(10,2), s string, t string, url string, digits string,"
    "day date, at timestamp, nums array<int>"
)
EXPRESSIONS = (
    "m * i",
    "i + j * 2",
    "l / j",
    "i % 7",
    "round(d, 2)",
    "m / 3",
    "case when i > 50 then 'high' when i > 20 then 'mid' else 'low' end",
    "coalesce(i, 0) + 1",
    "if(d > 0.5D, d, -d)",
    "i between 10 and 50 and d is not null",
    "upper(s)",
    "lower(trim(s))",
    "length(s)",
    "substring(s, 1, 3)",
    "concat(s, '-', i)",
    "split_part(url, '/', 3)",
    "replace(url, 'http', 'https')",
    "url like '%example%'",
    "url rlike '^https?://[a-z]+[.]com'",
    "regexp_extract(url, '([a-z]+)[.]com', 1)",
    "regexp_replace(s, '[aeiou]+', '_')",
    "date_trunc('hour', at)",
    "year(at) * 100 + month(at)",
    "date_format(at, 'yyyy-MM-dd')",
    "datediff(day, date'2024-01-01')",
    "at + interval 90 minutes",
    "cast(digits as int)",
    "cast(m as string)",
    "md5(s)",
    "size(filter(nums, x -> x > 50))",
)
_WORDS = np.array(["apple", "  Banana ", "cherry", "Dragon fruit", "elderberry", "Fig", "grape", "HONEYDEW melon"])
_HOSTS = np.array(["http://example.com/a/b", "https://shop.example.org/item", "http://news.com/today", "ftp://x.net"])


def run(setting: Setting) -> list[Figure]:
    """Measure it."""
    if not setting.spark_allowed:
        return []
    rows, runs = setting.rows(5_000_000), setting.runs(5, 3)
    folder = _written(setting, rows)
    spark = setting.rival({"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"})
    theirs = spark.read.parquet(str(folder))
    duck = duckdb.connect(config={"threads": CORES})
    duck.execute("SET TimeZone = 'UTC'")
    ratios, ours_all, theirs_all = [], 0.0, 0.0
    for text in EXPRESSIONS:
        query = f"SELECT {scalar(text, _SCHEMA, step='bench').sql} AS x FROM {_rows(folder)}"
        _compare(duck, theirs, text, folder)
        times = [(_ours(duck, query), _theirs(theirs, text)) for _ in range(runs + 1)][1:]
        ours, others = (statistics.median(side) for side in zip(*times, strict=True))
        ratios.append(others / ours)
        ours_all, theirs_all = ours_all + ours, theirs_all + others
        setting.say(f"{text}: {others / ours:.2f} (ours {ours * 1000:.0f} ms, Spark {others * 1000:.0f} ms)")
    duck.close()
    return [
        Figure(
            bench="expressions",
            what=f"{len(EXPRESSIONS)} everyday expressions over {rows:,} rows of Parquet, geometric mean",
            rival="the same in Spark SQL, code generated and warm, noop sink",
            ratio=statistics.geometric_mean(ratios),
            must=">= 1.5",
            ours=ours_all,
            theirs=theirs_all,
            unit="s for all",
            runs=runs,
            spread=(min(ratios), max(ratios)),
        )
    ]


def _written(setting: Setting, rows: int) -> Path:
    setting.say(f"writing {rows:,} rows to Parquet")
    folder = setting.fresh("parquet")
    folder.mkdir()
    random = np.random.default_rng(_SEED)
    parts = 4 * CORES
    for part in range(parts):
        pq.write_table(_table(random, part * rows // parts, (part + 1) * rows // parts), folder / f"{part:02d}.parquet")
    return folder


def _table(random: np.random.Generator, first: int, end: int) -> pa.Table:
    count = end - first
    small = random.integers(0, 100, count)
    cents = pa.array(random.integers(-100_000, 1_000_000, count)).cast(pa.decimal128(19, 0))
    price = pc.multiply(cents, pa.scalar(Decimal("0.01"))).cast(pa.decimal128(10, 2))
    columns = {
        "id": pa.array(np.arange(first, end)),
        "i": pa.array(small.astype(np.int32), mask=random.random(count) < 0.02),
        "j": pa.array(random.integers(1, 1000, count).astype(np.int32)),
        "l": pa.array(random.integers(-(2**50), 2**50, count)),
        "d": pa.array(random.normal(0, 100, count), mask=random.random(count) < 0.02),
        "m": price,
        "s": pa.array(_WORDS[random.integers(0, len(_WORDS), count)]),
        "t": pa.array(_WORDS[random.integers(0, len(_WORDS), count)]),
        "url": pa.array(_HOSTS[random.integers(0, len(_HOSTS), count)]),
        "digits": pa.array(random.integers(-(10**6), 10**6, count)).cast(pa.string()),
        "day": pa.array(random.integers(18_000, 20_000, count).astype(np.int32)).cast(pa.date32()),
        "at": pa.array(random.integers(1_600_000_000_000_000, 1_750_000_000_000_000, count)).cast(
            pa.timestamp("us", "UTC")
        ),
        "nums": pa.ListArray.from_arrays(
            np.arange(0, 4 * count + 1, 4, dtype=np.int32), random.integers(0, 100, 4 * count).astype(np.int32)
        ),
    }
    return pa.table(columns)


def _rows(folder: Path) -> str:
    """Return the rows in the form that expressions expect: instants as their UTC readings."""
    return f'(SELECT * REPLACE (make_timestamp(epoch_us("at")) AS "at") FROM read_parquet(\'{folder}/*.parquet\'))'


def _ours(duck: duckdb.DuckDBPyConnection, query: str) -> float:
    began = time.perf_counter()
    for _ in duck.sql(query).to_arrow_reader(100_000):
        pass
    return time.perf_counter() - began


def _theirs(frame: Any, text: str) -> float:
    began = time.perf_counter()
    drop(frame.selectExpr(f"{text} AS x"))
    return time.perf_counter() - began


def _compare(duck: duckdb.DuckDBPyConnection, frame: Any, text: str, folder: Path) -> None:
    """Compare the answers of every hundredth row.

    Raises:
        Wrong: they differ.

    """
    translated = scalar(text, _SCHEMA, step="bench").sql
    chosen = f"FROM {_rows(folder)} WHERE id % 100 = 0 ORDER BY id"
    ours = duck.sql(f"SELECT {translated} AS x {chosen}").to_arrow_table().column("x")
    theirs = frame.where("id % 100 = 0").selectExpr("id", f"{text} AS x").orderBy("id").toArrow().column("x")
    if pa.types.is_timestamp(theirs.type):
        theirs = theirs.cast(ours.type)
    same(text, ours.to_pylist(), theirs.to_pylist())
