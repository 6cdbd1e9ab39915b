"""Times of a query: ours on Spark and in this process, Spark's own streaming, and DuckDB's batch query."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from bench.nexmark.answers import Weights, checksum, of_updates
from bench.nexmark.checking import MACROS
from bench.nexmark.generator import FIRST_US, OUT_OF_ORDER, SCHEMAS
from bench.ours import caught_up
from bench.rival import CHANGELOG, ROCKSDB, collect_output, process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.nexmark.generator import Events, Generator
    from bench.nexmark.queries import Query
    from bench.progress import Timing
    from bench.setting import Setting

PARTITIONS = 2
FILES = 20
THREADS = 2


@dataclass(frozen=True)
class Data:
    """The same events in topics of a log and in Parquet files; `rows` counts them by stream."""

    log: Path
    parquet: Path
    rows: dict[str, int]


def write(setting: Setting, generator: Generator, events: int) -> Data:
    """Write events to topics and to Parquet."""
    setting.say(f"writing {events:,} events to topics and to Parquet")
    data = Data(setting.fresh("log"), setting.fresh("parquet"), dict.fromkeys(SCHEMAS, 0))
    kept: dict[str, list[pa.Table]] = {name: [] for name in SCHEMAS}
    for chunk in appended(setting, data.log, generator, events):
        for name in SCHEMAS:
            kept[name].append(getattr(chunk, name))
    for name, tables in kept.items():
        whole = pa.concat_tables(tables)
        data.rows[name] = whole.num_rows
        (data.parquet / name).mkdir(parents=True)
        part = -(-whole.num_rows // FILES)
        for number, first in enumerate(range(0, whole.num_rows, part)):
            path = data.parquet / name / f"{number:05d}.parquet"
            pq.write_table(whole.slice(first, part), path)
            os.utime(path, (FIRST_US // 1_000_000 + number,) * 2)  # Spark's streams read files in this order
    return data


def appended(setting: Setting, folder: Path, generator: Generator, events: int) -> Iterator[Events]:
    """Append events to the topics of a new log, and yield each chunk when it is there."""
    took = 0.0
    with hr.Log(folder) as log:
        topics = {
            name: log.create_topic(name, schema, partitions=PARTITIONS, event_time="dateTime")
            for name, schema in SCHEMAS.items()
        }
        for number, chunk in enumerate(generator.chunks(events)):
            began = time.process_time()
            for name, topic in topics.items():
                topic.append(getattr(chunk, name), partition=number % PARTITIONS)
            took += time.process_time() - began
            yield chunk
    setting.say(f"appended {events / took:,.0f} events per processor second")


# ---- ours ----


def ours_on_spark(setting: Setting, query: Query, log: Path, sink: Weights, *, shards: int = PARTITIONS) -> Timing:
    """Run the query on Spark, on a new storage, until it has caught up."""
    storage = setting.fresh("ours")
    app, result = query.app(storage=storage, topics=f"log:{log}", shards=shards)
    result.to(sink)
    return caught_up(setting, app, storage)


def ours_in_process(
    setting: Setting, query: Query, log: Path, sink: Weights, *, shards: int = PARTITIONS
) -> tuple[float, float]:
    """Run the query in this process; return its seconds, and the processor's."""
    storage = setting.fresh("ours")
    app, result = query.app(storage=storage, topics=f"log:{log}", shards=shards)
    result.to(sink)
    began, began_processor = time.perf_counter(), time.process_time()
    running = app.start(carrier="in-process")
    try:
        running.await_caught_up(timeout=3600)
        return time.perf_counter() - began, time.process_time() - began_processor
    finally:
        running.stop()
        shutil.rmtree(storage, ignore_errors=True)  # else the files of all runs fill the machine's memory


# ---- Spark's own streaming ----


@dataclass(frozen=True, eq=False)
class Way:
    """How the rival is run: files a batch, and settings."""

    name: str
    files: int
    settings: dict[str, str]


WAYS = (Way("all files in one batch", 1_000_000, dict(ROCKSDB)), Way("five batches", FILES // 5, dict(CHANGELOG)))


def spark_streaming(setting: Setting, query: Query, data: Data, way: Way) -> Timing:
    """Run the query as Spark's own streaming, to a sink that throws rows away."""
    frame, rows = _frame(setting, query, data, way)
    took, _ = process(setting, frame, rows, mode="update" if query.key else "append")
    return took


def spark_answer(setting: Setting, query: Query, data: Data) -> tuple[int, int]:
    """Return what Spark's own streaming answers."""
    frame, _ = _frame(setting, query, data, WAYS[0])
    return of_updates(collect_output(setting, frame, mode="update" if query.key else "append"), query.key)


def _frame(setting: Setting, query: Query, data: Data, way: Way) -> tuple[Any, int]:
    """Return the query as a streaming frame, and how many rows it reads: a stream that is read twice counts twice."""
    session = setting.rival(way.settings)
    for name in query.reads:
        read = session.readStream.schema(SCHEMAS[name]).option("maxFilesPerTrigger", way.files)
        frame = read.parquet(str(data.parquet / name)).withWatermark("dateTime", OUT_OF_ORDER)
        frame.createOrReplaceTempView(name)
    text = query.streaming or ""
    return session.sql(text), sum(data.rows[name] * _reads(text, name) for name in query.reads)


def _reads(text: str, name: str) -> int:
    words = text.replace("(", " ").split()
    return sum(words[at] in {"from", "join"} and words[at + 1] == name for at in range(len(words) - 1))


# ---- DuckDB ----


def duckdb_batch(query: Query, data: Data) -> tuple[float, float]:
    """Run the batch query over the Parquet files and throw its rows away; return its seconds, and the processor's."""
    with _opened(query, data) as con:
        began, began_processor = time.perf_counter(), time.process_time()
        for _ in _batches(con, query.duckdb):
            pass
        return time.perf_counter() - began, time.process_time() - began_processor


def duckdb_answer(query: Query, data: Data) -> tuple[int, int]:
    """Return what DuckDB answers."""
    with _opened(query, data) as con:
        con.execute(f"CREATE VIEW given AS {query.duckdb}")
        return checksum(con, "given")


def _opened(query: Query, data: Data) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(config={"threads": THREADS})
    con.execute(f"SET TimeZone = 'UTC'; {MACROS}")
    for name in query.reads:
        columns = con.sql(f"DESCRIBE FROM '{data.parquet / name}/*.parquet'").fetchall()
        times = [column for column, kind, *_ in columns if kind.startswith("TIMESTAMP")]
        replaced = ", ".join(f"{at}::TIMESTAMP AS {at}" for at in times)
        con.execute(f"CREATE VIEW {name} AS SELECT * REPLACE ({replaced}) FROM '{data.parquet / name}/*.parquet'")
    return con


def _batches(con: duckdb.DuckDBPyConnection, text: str) -> Iterator[pa.RecordBatch]:
    yield from con.sql(text).to_arrow_reader(100_000)
