"""`log_read`: reading a topic into Arrow costs about what reading the same batches from an Arrow file costs.

Expected: both map a file and return views. We also find the frames and add three system columns. The first read, which
checks every batch, is not in the figure; its time is printed. Log and file are open; a second figure opens the file for
each read.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench.figure import Figure, paired, same
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.setting import Setting
    from headrace.log import Topic

BATCH, BATCHES = 50_000, 20
SEED = 17


def run(setting: Setting) -> list[Figure]:
    """Measure both in turn, many times, as each takes less than a millisecond."""
    rows, runs = BATCH * BATCHES, setting.runs(300, 60)
    path, plain = setting.fresh("log"), setting.fresh("plain.arrow")
    with Log(path, fsync=False) as log:
        topic = log.create_topic("a", "id bigint, text string")
        for number in range(BATCHES):
            topic.append(_batch(number))
        _write(topic, plain)
        setting.say(f"{rows:,} records of 100 bytes in {BATCHES} batches; {runs} runs")
        with Log(path) as fresh:
            first = _timed(lambda: fresh.topic("a").read(0, 0, rows))
        _compare(topic, plain, rows)
        with pa.memory_map(str(plain)) as mapped:
            reader = pa.ipc.open_file(mapped)
            took = [(_timed(lambda: topic.read(0, 0, rows)), _timed(reader.read_all)) for _ in range(runs)]
        opened = [(_timed(lambda: topic.read(0, 0, rows)), _timed(lambda: _read(plain))) for _ in range(runs)]
    setting.say(f"the first read of all, which checks every batch: {first:.1f} ms")
    return [
        _figure("pyarrow.ipc reading the same batches from a file that is mapped and open", took, ">= 0.8"),
        _figure("the same, the file mapped and opened for each read", opened, None),
    ]


def _figure(rival: str, took: list[tuple[float, float]], must: str | None) -> Figure:
    ours, theirs = ([pair[side] for pair in took] for side in (0, 1))
    ratio, spread = paired(theirs, ours)
    return Figure(
        bench="log_read",
        what=f"Topic.read of {BATCH * BATCHES:,} records of 100 bytes into Arrow, mapped, with three system columns",
        rival=rival,
        ratio=ratio,
        spread=spread,
        must=must,
        ours=sorted(ours)[len(ours) // 2],
        theirs=sorted(theirs)[len(theirs) // 2],
        unit="ms",
        runs=len(ours),
    )


def _batch(number: int) -> pa.Table:
    letters = np.random.default_rng(SEED + number).integers(97, 123, BATCH * 88, dtype=np.uint8)
    bounds = np.arange(0, (BATCH + 1) * 88, 88, dtype=np.int32)
    text = pa.StringArray.from_buffers(BATCH, pa.py_buffer(bounds), pa.py_buffer(letters))
    return pa.table({"id": np.arange(number * BATCH, (number + 1) * BATCH), "text": text})


def _write(topic: Topic, path: Path) -> None:
    """Write the batches of the log to an Arrow file."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, topic.schema) as writer:
        for batch in topic.batches(0, 0, topic.end_offsets()[0]):
            writer.write_batch(batch)


def _read(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as mapped:
        return pa.ipc.open_file(mapped).read_all()


def _compare(topic: Topic, path: Path, rows: int) -> None:
    mine = topic.read(0, 0, rows)
    same("rows", mine.select(["id", "text"]).equals(_read(path)), True)  # noqa: FBT003
    same("offsets", mine.column("_offset").to_numpy().tolist(), list(range(rows)))
    same("deleted", mine.column("_deleted").to_pylist().count(False), rows)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000
