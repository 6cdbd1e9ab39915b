"""A rival that recomputes its answer by a batch query over Parquet: its input, and how long it takes."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    from bench.setting import Setting

_FIRST = 1_767_225_600
WARM_SECONDS = 90


def write_parquet(folder: Path, table: pa.Table, *, files: int, number: int = 0) -> None:
    """Write a table as files of equal size, in order; the first file gets the number `number`."""
    folder.mkdir(parents=True, exist_ok=True)
    part = -(-table.num_rows // files)
    for file_number, first in enumerate(range(0, table.num_rows, part), number):
        path = folder / f"{file_number:05d}.parquet"
        pq.write_table(table.slice(first, part), path)
        os.utime(path, (_FIRST + file_number,) * 2)  # a stream in Spark reads files in the order of their times


def drop(frame: Any) -> None:
    """Compute all rows of a frame and discard them."""
    frame.write.format("noop").mode("overwrite").save()


def computed_ms(frame: Callable[[], Any]) -> float:
    """Return the milliseconds that a query takes, from building it to its last row."""
    began = time.perf_counter()
    drop(frame())
    return (time.perf_counter() - began) * 1000


def warm_in_turn(setting: Setting, epoch: Callable[[], float], frame: Callable[[], Any]) -> None:
    """Run our epochs and the rival's recomputations in turn until both are warm.

    The JVM compiles what Spark runs for a minute or two, on the same cores, and takes nearly half of one at first.
    """
    until = time.perf_counter() + setting.runs(WARM_SECONDS, 5)
    while time.perf_counter() < until:
        setting.say(f"warming up: an epoch {epoch():.0f} ms, a recomputation {computed_ms(frame):.0f} ms")


def in_turn(setting: Setting, epoch: Callable[[], float], frame: Callable[[], Any]) -> tuple[list[float], list[float]]:
    """Measure our epochs and the rival's recomputations in turn; return both in milliseconds."""
    mine, theirs = [], []
    for number in range(setting.runs(15, 5)):
        mine.append(epoch())
        theirs.append(computed_ms(frame))
        setting.say(f"run {number + 1}: an epoch {mine[-1]:.0f} ms, a recomputation {theirs[-1]:.0f} ms")
    return mine, theirs
