"""Small epochs: one task runs every level for all shards, for an exchange costs more than it spreads.

A stage of Spark takes 20 to 40 ms however little it does, and a join of tables has three. So the planner of epochs
says of each whether it is small; then the task that reads it goes on through all levels, its shards side by side on
the machine's cores, and only its reports leave it. State is where it always is, so the next epoch may go the other way.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from headrace.connect.source import total_rows
from headrace.engine.level_zero import run_ranges
from headrace.engine.levels import run_levels
from headrace.engine.spark import blobs, tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.connect.source import OffsetRange
    from headrace.engine.levels import Received
    from headrace.engine.outside import Input
    from headrace.engine.spark.tasks import Job
    from headrace.engine.storage import Commit
    from headrace.kernels.program import Level
    from headrace.kernels.task import Outcome

MOST_SHARDS = 16
"""One process starts each level of each shard, so with many of them the exchange is the cheaper way."""
MOST_SECONDS = 1.0
"""Few rows may still be much work; so says the epoch before, if it had no more rows and took longer than this."""

_POOL: list[ThreadPoolExecutor] = []


def is_small(job: Job, before: Commit, ranges: Sequence[OffsetRange]) -> bool:
    """Whether one task should run an epoch, by its rows, by the state it scans, and by what the one before took."""
    rows = total_rows(ranges)
    return (
        rows <= job.small
        and job.program.shards <= MOST_SHARDS
        and (before.seconds <= MOST_SECONDS or before.rows > rows)
        and only_replayable(job.inputs)
        and _scans_little(job, before)
    )


def only_replayable(inputs: Mapping[str, Input]) -> bool:
    """Whether no source is Spark's own, of whose epochs nobody knows the rows before they are read."""
    return all(each.source is not None for each in inputs.values())


def _scans_little(job: Job, before: Commit) -> bool:
    """Whether the tables that each shard scans fit a worker's memory, so that any worker may hold all of them.

    Rows that wait for their time count too: an epoch without rows may let all of them out.
    """
    return all(
        head.full_bytes + head.chain_bytes <= tasks.SMALL_BYTES
        for level in job.program.levels
        for op in level.stateful
        if not op.looks_up or op.emits_on_watermark
        for head in before.heads.get(op.step, {}).values()
    )


def read_single_task(job: Job, epoch: int, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """Run an epoch: level 0 on ranges of sources, then all others; yields its reports."""
    task_of = job.tasks(epoch)

    def run(level: Level, shard: int, inputs: Received) -> Outcome:
        return tasks.run_level(job, level, task_of(shard), inputs)

    here = task_of(0)
    with tasks.cache(job, 0, here) as duck:
        first = run_ranges(duck, job.program, here, tasks.inputs_of(job), ranges)
    yield blobs.manifest(run_levels(job.program, first, run, _pool().map if job.program.shards > 1 else map))


def _pool() -> ThreadPoolExecutor:
    if not _POOL:
        _POOL.append(ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="headrace-shard"))
    return _POOL[0]
