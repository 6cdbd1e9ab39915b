"""The seeded rows of the window benches: the same in a topic for us and in Parquet files for the rival.

Rows are a millisecond apart and arrive up to two seconds out of order; keys are even, values 0 to 99.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import headrace as hr
from bench.recompute import write_parquet

if TYPE_CHECKING:
    from pathlib import Path

    from bench.setting import Setting

SEED = 20260131
FIRST = 1_767_225_600_000_000  # 2026-01-01, the start of a window
SCHEMA = "k bigint, v bigint, at timestamp"
TOPIC = "rows"
OUT_OF_ORDER = "5 seconds"
PARTITIONS = 4
_CHUNKS = 80
"""Number of appends, dealt to the partitions in turn, so that all end at nearly the same event time."""
_FILES = 20


@dataclass(frozen=True)
class Rows:
    """Where the rows are: a log, and `files` Parquet files of equal size, in order."""

    rows: int
    log: Path
    parquet: Path
    files: int


def make(setting: Setting, *, rows: int, keys: int) -> Rows:
    """Write the rows to a topic of an embedded log and to Parquet files."""
    setting.say(f"writing {rows:,} rows with {keys:,} keys to a topic and to Parquet")
    table = _table(rows, keys)
    data = Rows(rows, setting.fresh("log"), setting.fresh("parquet"), _FILES)
    with hr.Log(data.log) as log:
        topic = log.create_topic(TOPIC, SCHEMA, partitions=PARTITIONS, event_time="at")
        chunk = -(-rows // _CHUNKS)
        for number, first in enumerate(range(0, rows, chunk)):
            topic.append(table.slice(first, chunk), partition=number % PARTITIONS)
    write_parquet(data.parquet, table, files=_FILES)
    return data


def watermark_base(data: Rows) -> int:
    """Return the base of our watermark: the least, over the partitions, of their greatest event times."""
    with hr.Log(data.log) as log:
        topic = log.topic(TOPIC)
        return min(topic.max_time(p, 0, end) or 0 for p, end in topic.end_offsets().items() if end)


def _table(rows: int, keys: int) -> pa.Table:
    random = np.random.default_rng(SEED)
    at = FIRST + np.arange(rows, dtype=np.int64) * 1_000 - random.integers(0, 2_000_000, rows)
    at = np.maximum(at, FIRST)
    return pa.table(
        {
            "k": random.integers(0, keys, rows),
            "v": random.integers(0, 100, rows),
            "at": pa.array(at, pa.timestamp("us", "UTC")),
        }
    )
