"""`avro_decode`: bids as Avro records in Parquet files, decoded into all their columns.

Expected: 2 times the speed of Spark's `from_avro`, which builds a row a record, and is warm. Both sides read the same
Parquet files with one binary column, by two threads, and discard the columns: Spark to its noop sink, ours as Arrow.
The sums of all columns are compared before anything is timed. It is a process of its own that runs Spark, because its
Avro package has to be there when the JVM starts.
"""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench import avro_spark
from bench.figure import Figure, same
from bench.setting import CORES
from headrace.base.schema import parse
from headrace.connect.formats import avro
from headrace.connect.formats.avro_schema import of_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.setting import Setting

_SEED = 20260701
_PARTS = 8
_BASE = 20_000
_SCHEMA = parse(
    "auction bigint, bidder bigint, price bigint, channel string, url string, date_time timestamp, extra string"
)


def run(setting: Setting) -> list[Figure]:
    """Measure it."""
    if not setting.spark_allowed:
        return []
    rows, runs = setting.rows(4_000_000), setting.runs(5, 3)
    schema = of_rows(_SCHEMA, "Bid")
    setting.say(f"writing {rows:,} bids as Avro")
    folder = _written(setting, rows, schema)
    form = avro(schema=schema)

    def decoded(path: Path) -> pa.RecordBatch:
        values = pq.read_table(path).column("value").combine_chunks()
        return form.decode(values, _SCHEMA).rows

    setting.say("Spark")
    theirs = avro_spark.started(str(folder), schema, runs)
    files = sorted(folder.glob("*.parquet"))
    same("the sums of the columns", _sums([decoded(path) for path in files]), theirs["answer"])
    setting.say("ours")
    ours = [_timed(files, decoded) for _ in range(runs + 1)][1:]
    ratios = [other / own for own, other in zip(ours, theirs["seconds"], strict=True)]
    return [
        Figure(
            bench="avro_decode",
            what=f"{rows:,} Avro bids in Parquet to columns",
            rival="Spark's from_avro, warm, noop sink",
            ratio=statistics.median(theirs["seconds"]) / statistics.median(ours),
            must=">= 2",
            ours=statistics.median(ours),
            theirs=statistics.median(theirs["seconds"]),
            unit="s",
            runs=runs,
            spread=(min(ratios), max(ratios)),
        )
    ]


def _written(setting: Setting, rows: int, schema: str) -> Path:
    folder = setting.fresh("avro")
    folder.mkdir()
    random = np.random.default_rng(_SEED)
    base = min(_BASE, rows)
    bids = avro(schema=schema).encode(_bids(random, base))
    for part in range(_PARTS):
        count = (part + 1) * rows // _PARTS - part * rows // _PARTS
        chosen = pa.array(random.integers(0, base, count))
        table = pa.table({"value": bids.take(chosen)})
        pq.write_table(table, folder / f"{part}.parquet", compression="none", use_dictionary=False)
    return folder


def _bids(random: np.random.Generator, count: int) -> pa.RecordBatch:
    texts = {
        "channel": np.array(["apple", "google", "facebook", "baidu"])[random.integers(0, 4, count)],
        "url": [f"https://www.nexmark.com/item.htm?query={each}" for each in random.integers(0, 2**30, count)],
        "extra": ["x" * each for each in random.integers(20, 40, count)],
    }
    columns = [
        *(pa.array(random.integers(0, 10**7, count)) for _ in range(3)),
        pa.array(texts["channel"]),
        pa.array(texts["url"]),
        pa.array(random.integers(1_600_000_000_000_000, 1_750_000_000_000_000, count)).cast(pa.timestamp("us", "UTC")),
        pa.array(texts["extra"]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _sums(batches: list[pa.RecordBatch]) -> list[int]:
    table = pa.Table.from_batches(batches)
    sums = [len(table)]
    for column in table.columns:
        if pa.types.is_string(column.type):
            sums.append(pc.sum(pc.utf8_length(column)).as_py())
        else:
            part = 1_000_003 if pa.types.is_timestamp(column.type) else 2**62  # their sum is beyond 64 bits
            sums.append(sum((chunk.view(pa.int64()).to_numpy() % part).sum() for chunk in column.chunks))
    return [int(each) for each in sums]


def _timed(files: list[Path], decoded: Callable[[Path], pa.RecordBatch]) -> float:
    begun = time.perf_counter()
    with ThreadPoolExecutor(CORES) as threads:
        for _ in threads.map(decoded, files):
            pass
    return time.perf_counter() - begun
