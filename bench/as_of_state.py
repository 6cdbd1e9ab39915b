"""An as-of join as a Spark user writes it with state: a Python function that keeps versions and waiting rows of a key.

Its answers are final as ours are: a row comes out when the watermark has passed its time by more than the grace, and
the query goes on where it was after a restart. A batch reads a file of each side, as our epochs do.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import duckdb

from bench.progress import epochs_ms
from bench.recompute import write_parquet
from bench.rival import CHANGELOG, Way, collect_output, process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from bench.setting import Setting

WAYS = (Way("default store", 1, {}), Way("RocksDB with changelog checkpoints", 1, CHANGELOG))
GRACE_US, OUT_OF_ORDER = 10_000_000, "5 seconds"
OUTPUT = "k bigint, v bigint, us bigint, w bigint"
STATE = "v binary, us binary, w binary, valid binary, since binary"


def write(folder: Path, parts: Sequence[tuple[pa.Table, pa.Table]]) -> None:
    """Write the rows and versions of each batch, in files whose times are in their order."""
    for number, (left, right) in enumerate(parts):
        write_parquet(folder / "left", left, files=1, number=number)
        write_parquet(folder / "right", right, files=1, number=number)


def took_ms(setting: Setting, folder: Path, way: Way, rows: int) -> float:
    """Return the milliseconds of all batches; `rows` are those of both sides."""
    return sum(epochs_ms(process(setting, _query(setting, folder, way), rows, mode="append")[1]))


def answer(setting: Setting, folder: Path) -> tuple[int, int, int]:
    """Return how many rows come out, how many of them without a version, and the sum of the products."""
    output = collect_output(setting, _query(setting, folder, WAYS[0]), mode="append")
    with duckdb.connect() as con:
        found = con.execute(
            "SELECT count(*), count(*) - count(w), coalesce(sum(v * w), 0)::BIGINT "
            f"FROM '{output}/**/*.parquet' WHERE v IS NOT NULL"
        ).fetchall()
    shutil.rmtree(output, ignore_errors=True)
    return int(found[0][0]), int(found[0][1]), int(found[0][2])


def _query(setting: Setting, folder: Path, way: Way) -> Any:
    spark = setting.rival(way.settings)

    def read(name: str, schema: str, *columns: str) -> Any:
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", way.files)
        return stream.parquet(str(folder / name)).selectExpr("k", *columns)

    left = read(
        "left", "k bigint, v bigint, at timestamp", "at", "unix_micros(at) us", "v", "cast(null as bigint) w", "-1L nr"
    )
    right = read(
        "right",
        "k bigint, w bigint, since timestamp, nr bigint",
        "since at",
        "unix_micros(since) us",
        "cast(null as bigint) v",
        "w",
        "nr",
    )
    grouped = left.unionByName(right).withWatermark("at", OUT_OF_ORDER).groupBy("k")
    return grouped.applyInPandasWithState(_match, OUTPUT, STATE, "append", "EventTimeTimeout")


def _match(key: tuple[int], parts: Iterator[Any], state: Any) -> Iterator[Any]:
    """Keep what arrived, and yield the rows whose time has passed with the last version of that time or before."""
    import warnings

    import numpy as np
    import pandas as pd

    warnings.simplefilter("ignore", FutureWarning)  # of how Spark puts columns of nulls together

    v, us, w, valid, since = (np.frombuffer(kept, np.int64) for kept in (state.get if state.exists else (b"",) * 5))
    if not state.hasTimedOut:
        arrived = pd.concat(list(parts))
        versions = arrived[arrived["nr"] >= 0].sort_values("nr")
        rows = arrived[arrived["nr"] < 0]
        v = np.concatenate([v, rows["v"].fillna(-1).to_numpy(np.int64)])
        us = np.concatenate([us, rows["us"].to_numpy(np.int64)])
        w = np.concatenate([w, versions["w"].fillna(0).to_numpy(np.int64)])
        valid = np.concatenate([valid, versions["w"].notna().to_numpy(np.int64)])
        since = np.concatenate([since, versions["us"].to_numpy(np.int64)])
        order = np.argsort(since, kind="stable")  # of equal times the later one is last
        w, valid, since = w[order], valid[order], since[order]
    now_ms = state.getCurrentWatermarkMs()
    past = now_ms * 1000 - GRACE_US
    due = us < past
    if due.any():
        at = np.searchsorted(since, us[due], side="right") - 1
        found = (at >= 0) & (valid[at] > 0) if len(since) else np.zeros(len(at), bool)
        matched = pd.array(w[at] if len(since) else np.zeros(len(at), np.int64), dtype="Int64")
        matched[~found] = pd.NA
        given = pd.array(v[due], dtype="Int64")
        given[v[due] < 0] = pd.NA
        yield pd.DataFrame({"k": key[0], "v": given, "us": us[due], "w": matched})
        v, us = v[~due], us[~due]
    first = max(int(np.searchsorted(since, past, side="right")) - 1, 0)  # what is over before that matches no more
    state.update(tuple(part.tobytes() for part in (v, us, w[first:], valid[first:], since[first:])))
    if len(us):
        state.setTimeoutTimestamp(max(int(us.min() + GRACE_US) // 1000, now_ms) + 1)
