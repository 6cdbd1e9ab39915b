"""`log_compact`: compacting a topic costs at most twice what DuckDB needs to compute the last row of each key.

Expected: both read everything once or twice, group 10 M keys and write a tenth. We also check and write checksums, keep
order and offsets, and sync what we write; DuckDB decodes and encodes Parquet. Each side runs in its own process, so
that its memory can be measured; process start is not timed. DuckDB gets the faster of two queries.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from bench.figure import Figure, paired, same
from bench.setting import CORES
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.setting import Setting

RECORDS, KEYS = 10_000_000, 1_000_000
CHUNK = 100_000
SEED = 13
LIMIT = 1_000  # MB
QUERIES = {
    "grouped": "SELECT k, arg_max(id, o) AS id, arg_max(text, o) AS text, max(o) AS o FROM records GROUP BY k",
    "joined": "SELECT * FROM records WHERE o IN (SELECT max(o) FROM records GROUP BY k)",
}


class Usage(NamedTuple):
    """What one side used: seconds, and the peak memory of its process in MB."""

    seconds: float
    memory: float


def run(setting: Setting) -> list[Figure]:
    """Measure both in turn on the same rows."""
    records, keys, runs = setting.rows(RECORDS), setting.rows(KEYS), setting.runs(5, 3)
    setting.say(f"writing {records:,} records of 100 bytes, {keys:,} keys")
    source, parquet = setting.fresh("source"), setting.fresh("parquet")
    _fill(source, parquet, records, keys)
    query = min(QUERIES, key=lambda name: _apart(_theirs, parquet, setting.fresh("trial"), name).seconds)
    took = []
    for number in range(runs):
        mine, theirs = setting.fresh("mine"), setting.fresh("theirs")
        _link(source, mine)
        sides: list[Callable[[], Usage]] = [
            lambda mine=mine: _apart(_ours, mine),  # type: ignore[misc]
            lambda theirs=theirs: _apart(_theirs, parquet, theirs, query),  # type: ignore[misc]
        ]
        order = (0, 1) if number % 2 == 0 else (1, 0)
        usage = {side: sides[side]() for side in order}
        took.append((usage[0], usage[1]))
        setting.say(
            f"run {number}: {usage[0].seconds:.2f} s in {usage[0].memory:.0f} MB, "
            f"DuckDB ({query}) {usage[1].seconds:.2f} s in {usage[1].memory:.0f} MB"
        )
        if number == 0:
            _compare(mine, theirs)
    return _figures(took, runs, f"{records:,} records, {keys:,} keys")


def _figures(took: list[tuple[Usage, Usage]], runs: int, size: str) -> list[Figure]:
    ratio, spread = paired([theirs.seconds for _, theirs in took], [ours.seconds for ours, _ in took])
    ours, theirs = (sorted(pair[side].seconds for pair in took)[runs // 2] for side in (0, 1))
    memory = max(ours.memory for ours, _ in took)
    speed = Figure(
        bench="log_compact",
        what=f"compaction of {size}, speed",
        rival=f"DuckDB on {CORES} threads: the last row of each key from Parquet to Parquet, not synced",
        ratio=ratio,
        spread=spread,
        must=">= 0.5",
        ours=ours,
        theirs=theirs,
        unit="s",
        runs=runs,
    )
    memory_figure = Figure(
        bench="log_compact",
        what=f"compaction of {size}, peak memory of its process",
        rival=f"{LIMIT} MB",
        ratio=memory / LIMIT,
        must="<= 1",
        ours=memory,
        theirs=LIMIT,
        unit="MB",
        runs=runs,
    )
    return [speed, memory_figure]


# ---- the rows --------------------------------------------------------------------------------------------


def _rows(records: int, keys: int) -> Iterator[pa.Table]:
    dice = np.random.default_rng(SEED)
    for first in range(0, records, CHUNK):
        count = min(CHUNK, records - first)
        letters = dice.integers(97, 123, count * 72, dtype=np.uint8)
        bounds = np.arange(0, (count + 1) * 72, 72, dtype=np.int32)
        text = pa.StringArray.from_buffers(count, pa.py_buffer(bounds), pa.py_buffer(letters))
        at = np.arange(first, first + count)
        yield pa.table({"k": dice.integers(0, keys, count), "id": at * 7, "o": at, "text": text})


def _fill(source: Path, parquet: Path, records: int, keys: int) -> None:
    import pyarrow.parquet as pq

    parquet.mkdir()
    schema = pa.schema([("k", pa.int64()), ("id", pa.int64()), ("o", pa.int64()), ("text", pa.string())])
    with Log(source, fsync=False) as log, pq.ParquetWriter(parquet / "rows.parquet", schema) as writer:
        topic = log.create_topic("a", schema, key="k", cleanup="compact")
        for table in _rows(records, keys):
            topic.append(table)
            writer.write_table(table)
    os.sync()  # so that later syncs do not wait for what was just written


def _link(source: Path, target: Path) -> None:
    """Link a log of the same segments; only small files are copied, since closed segments never change."""
    for path in source.rglob("*"):
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
        elif path.suffix == ".segment":
            os.link(path, copy)
        else:
            copy.write_bytes(path.read_bytes())


def _compare(mine: Path, theirs: Path) -> None:
    import pyarrow.parquet as pq

    with Log(mine) as log:
        found = log.topic("a").read(0, 0, RECORDS + 1)
    same("offsets", found.column("_offset").to_pylist(), found.column("o").to_pylist())
    expected = pq.read_table(theirs / "last.parquet").sort_by("o")
    names = ["k", "id", "o", "text"]
    same("rows", found.num_rows, expected.num_rows)
    same("values", found.select(names).equals(expected.select(names).cast(found.select(names).schema)), True)  # noqa: FBT003


# ---- the sides -------------------------------------------------------------------------------------------


def _apart(side: Callable[..., Usage], *arguments: object) -> Usage:
    """Run one side in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(side, *arguments).result()


def _ours(path: Path) -> Usage:
    with Log(path) as log:
        topic = log.topic("a")
        began = time.perf_counter()
        topic.compact()
        return Usage(time.perf_counter() - began, _memory())


def _theirs(parquet: Path, target: Path, query: str) -> Usage:
    import duckdb

    target.mkdir()
    with duckdb.connect(config={"threads": CORES}) as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"CREATE VIEW records AS FROM '{parquet}/rows.parquet'")
        began = time.perf_counter()
        connection.execute(f"COPY ({QUERIES[query]}) TO '{target}/last.parquet'")
        return Usage(time.perf_counter() - began, _memory())


def _memory() -> float:
    """Return the peak memory of this process in MB; `getrusage` does not report this process alone."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000
