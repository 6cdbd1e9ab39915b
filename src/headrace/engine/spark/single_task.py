"""Small epochs: one task runs all levels for all shards, since an exchange would cost more than it saves.

A stage of Spark takes at least 20 to 40 ms, and a join of tables has three. So the planner decides for each epoch
whether it is small. If so, the task that reads the input also runs all levels, with the shards in parallel on the
machine's cores, and returns only its reports. State files are the same either way, so the next epoch can be large.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.connect.source import total_rows
from headrace.engine.level_zero import run_ranges
from headrace.engine.levels import run_levels
from headrace.engine.outside import only_replayable
from headrace.engine.spark import blobs, tasks
from headrace.kernels.redo import RedoLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from headrace.connect.source import OffsetRange
    from headrace.engine.levels import Received
    from headrace.engine.spark.tasks import Job
    from headrace.engine.storage import Commit
    from headrace.kernels.program import Level
    from headrace.kernels.task import Outcome, Task

MOST_SHARDS = 16
"""One process runs each level of each shard; with more shards the exchange is cheaper."""
MOST_SECONDS = 1.0
"""Few rows may still take long: an epoch is not small if the one before took longer with as few rows."""

_POOL: list[ThreadPoolExecutor] = []


def is_small(job: Job, before: Commit, ranges: Sequence[OffsetRange]) -> bool:
    """Whether one task should run an epoch, by its rows, the state it scans, and the time of the epoch before."""
    rows = total_rows(ranges)
    return (
        rows <= job.small
        and job.program.shards <= MOST_SHARDS
        and (before.seconds <= MOST_SECONDS or before.rows > rows)
        and only_replayable(job.inputs)
        and _scans_little(job, before)
    )


def _scans_little(job: Job, before: Commit) -> bool:
    """Whether the tables that each shard scans fit a worker's memory, so that any worker can have all of them.

    Rows that wait for the watermark count too: an epoch without input may emit all of them.
    """
    return all(
        head.full_bytes + head.chain_bytes <= tasks.SMALL_BYTES
        for level in job.program.levels
        for op in level.stateful
        if not op.looks_up or op.emits_on_watermark
        for head in before.heads.get(op.step, {}).values()
    )


def read_single_task(job: Job, epoch: int, ranges: Sequence[OffsetRange], *, now: int) -> Iterator[pa.RecordBatch]:
    """Run an epoch: level 0 on ranges of sources, then all other levels; yield its reports."""
    tasks_of = job.tasks(epoch, now=now)
    redo = RedoLog(job.storage, epoch, tasks_of(0).attempt) if job.sync else None

    def task_of(shard: int) -> Task:
        return replace(tasks_of(shard), sync=redo or job.sync)

    def run(level: Level, shard: int, inputs: Received) -> Outcome:
        return tasks.run_level(job, level, task_of(shard), inputs)

    here = task_of(0)
    with tasks.cache(job, 0, here) as duck:
        first = run_ranges(duck, job.program, here, tasks.inputs_of(job), ranges)
    reports = run_levels(job.program, first, run, _pool().map if job.program.shards > 1 else map)
    if redo is not None:
        redo.write()
    yield blobs.manifest(reports)


def _pool() -> ThreadPoolExecutor:
    if not _POOL:
        _POOL.append(ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="headrace-shard"))
    return _POOL[0]
