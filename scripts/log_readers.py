"""One process appends at full speed, three read what it appends: no gap, no repeat.

    python scripts/log_readers.py [--seconds 60]

Each reader reads on in its own way: tables, mapped batches, or single columns; every row is checked. The appender
stops first; every reader then reads to the end.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.log import Topic

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["headrace.log", "numpy", "pyarrow.compute"])
SEGMENT_BYTES = 2_000_000
READERS = ("tables", "batches", "column")


def appending(path: Path, seconds: float, out: Any) -> None:
    """Append numbered rows for this long, in appends of all sizes, then send how many there are."""
    until, n, size = time.monotonic() + seconds, 0, 1
    with Log(path, segment_bytes=SEGMENT_BYTES) as log:
        topic = log.topic("a")
        while time.monotonic() < until:
            topic.append(pa.table({"n": np.arange(n, n + size), "twice": 2 * np.arange(n, n + size)}))
            n, size = n + size, 1 + size * 7 % 5_003
    out.send(n)


def reading(path: Path, way: str, end: Any, out: Any) -> None:
    """Read to the end, which the appender sends; send (offset, number of looks), or a text about an error."""
    at, looks = 0, 0
    last = None
    with Log(path) as log:
        topic = log.topic("a")
        while last is None or at < last:
            for offsets, n in _next(topic, way, at):
                expected = np.arange(at, at + len(n))
                if not (np.array_equal(n, expected) and np.array_equal(offsets, expected)):
                    out.send(f"{way}: at offset {at} are the offsets {offsets[:3]} with {n[:3]}")
                    return
                at += len(n)
            looks += 1
            if last is None and end.poll(0.001):
                last = end.recv()
    out.send((at, looks))


def _next(topic: Topic, way: str, at: int) -> Iterator[tuple[Any, Any]]:
    if way == "tables":
        table = topic.read(0, at, 3_000)
        assert table.column("twice").to_pylist() == [2 * n for n in table.column("n").to_pylist()]
        yield table.column("_offset").to_numpy(), table.column("n").to_numpy()
        return
    columns = ["_offset", "n", "twice"] if way == "batches" else ["_offset", "twice"]
    for batch in topic.batches(0, at, topic.end_offsets()[0], columns=columns):
        twice = batch.column("twice").to_numpy()
        yield batch.column("_offset").to_numpy(), batch.column("n").to_numpy() if way == "batches" else twice // 2


def stress(path: Path, seconds: float) -> tuple[int, dict[str, int]]:
    """Run it; return how many rows there were, and how often each reader looked for new rows.

    Raises:
        AssertionError: a reader saw a gap or a repeat.

    """
    with Log(path) as log:
        log.create_topic("a", "n bigint, twice bigint")
    ends, outs = {}, {}
    processes = []
    for way in READERS:
        end, ends[way] = CONTEXT.Pipe(duplex=False)
        outs[way], out = CONTEXT.Pipe(duplex=False)
        processes.append(CONTEXT.Process(target=reading, args=(path, way, end, out), daemon=True))
    count_out, out = CONTEXT.Pipe(duplex=False)
    processes.append(CONTEXT.Process(target=appending, args=(path, seconds, out), daemon=True))
    for process in processes:
        process.start()
    total = count_out.recv()
    for end in ends.values():
        end.send(total)
    found = {way: out.recv() for way, out in outs.items()}
    for process in processes:
        process.join()
    wrong = [answer for answer in found.values() if isinstance(answer, str)]
    assert not wrong, "; ".join(wrong)
    assert all(answer[0] == total for answer in found.values()), f"{total} rows, read were {found}"
    return total, {way: answer[1] for way, answer in found.items()}


def main() -> int:
    """Run it for as long as the command line says."""
    parser = argparse.ArgumentParser(description="one process appends, three read")
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-readers-") as folder:
        total, looks = stress(Path(folder), options.seconds)
    print(f"{total} rows in {options.seconds:.0f} s, read by three processes ({looks} looks): no gap, no repeat")
    return 0


if __name__ == "__main__":
    sys.exit(main())
