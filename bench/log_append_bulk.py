"""`log_append_bulk`: a durable append costs little more than the same bytes written to a file and synced.

Expected: 10 k records of 100 bytes are one frame and one fsync; what the log adds is a checksum over the bytes, a
header of 128 bytes and two stores into a mapped page.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench.figure import Figure, paired, same
from headrace.log import Log

if TYPE_CHECKING:
    from pathlib import Path

    from bench.setting import Setting

BATCH = 10_000
BATCHES = 200
SEED = 11


def run(setting: Setting) -> list[Figure]:
    """Measure both in turn, each time in the other order."""
    count, runs = setting.rows(BATCHES), setting.runs(7, 3)
    batch = _batch()
    setting.say(f"{count} batches of {BATCH} records, {batch.nbytes / 1e6:.2f} MB each; {runs} runs")
    _ours(setting.fresh("warm"), batch, 3)
    took = []
    for number in range(runs):
        size = 0
        for side in ("ours", "theirs") if number % 2 == 0 else ("theirs", "ours"):
            if side == "ours":
                ours, size = _ours(setting.fresh("log"), batch, count)
            else:
                theirs = _plain(setting.fresh("plain"), batch, count)
        took.append((ours, theirs))
        setting.say(f"run {number}: {ours:.0f} MB/s, plain file {theirs:.0f} MB/s ({size / 1e6:.0f} MB)")
    ours_all, theirs_all = ([pair[side] for pair in took] for side in (0, 1))
    ratio, spread = paired(ours_all, theirs_all)
    figure = Figure(
        bench="log_append_bulk",
        what=f"fsynced appends of {BATCH} records of 100 bytes",
        rival="write + fsync of the same bytes to a plain file",
        ratio=ratio,
        spread=spread,
        must=">= 0.7",
        ours=sorted(ours_all)[runs // 2],
        theirs=sorted(theirs_all)[runs // 2],
        unit="MB/s",
        runs=runs,
    )
    return [figure]


def _batch() -> pa.Table:
    """Return records of a bigint and 88 bytes of text (and its offset of 4): 100 bytes each."""
    dice = np.random.default_rng(SEED)
    letters = dice.integers(97, 123, BATCH * 88, dtype=np.uint8)
    bounds = np.arange(0, (BATCH + 1) * 88, 88, dtype=np.int32)
    text = pa.StringArray.from_buffers(BATCH, pa.py_buffer(bounds), pa.py_buffer(letters))
    return pa.table({"id": pa.array(np.arange(BATCH)), "text": text})


def _ours(path: Path, batch: pa.Table, count: int) -> tuple[float, int]:
    with Log(path) as log:
        topic = log.create_topic("a", "id bigint, text string")
        began = time.perf_counter()
        for _ in range(count):
            topic.append(batch)
        took = time.perf_counter() - began
        same("end", topic.end_offsets(), {0: count * BATCH})
        last = topic.read(0, (count - 1) * BATCH, BATCH)
        same("the last batch", last.select(batch.column_names).combine_chunks(), batch.combine_chunks())
    size = sum(file.stat().st_size for file in path.rglob("*.segment"))
    return batch.nbytes * count / took / 1e6, size


def _plain(path: Path, batch: pa.Table, count: int) -> float:
    """Write the batch's own bytes, in as many writes and syncs, to one file."""
    path.mkdir()
    raw = batch.combine_chunks().to_batches()[0].serialize().to_pybytes()
    fd = os.open(path / "plain", os.O_WRONLY | os.O_CREAT, 0o644)
    began = time.perf_counter()
    for _ in range(count):
        same("bytes written", os.write(fd, raw), len(raw))
        os.fsync(fd)
    took = time.perf_counter() - began
    os.close(fd)
    return batch.nbytes * count / took / 1e6
