"""Small epochs: one task runs all levels for all shards, since an exchange would cost more than it saves.

A stage of Spark takes at least 20 to 40 ms, and a join of tables has three. So the planner decides for each epoch
whether it is small. If so, the task that reads the input also runs all levels, with the shards in parallel on the
machine's cores, and returns only its reports. Shards run in threads, or in processes beside the worker where these are
worth it (`shard_processes`). State files are the same either way, so the next epoch can be large.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.base.time import SystemClock
from headrace.engine.level_zero import run_dealt
from headrace.engine.levels import each_shard, run_levels
from headrace.engine.spark import blobs, caches, tasks
from headrace.engine.spark.shard_processes import MOST_BYTES, ShardProcesses
from headrace.kernels.redo import RedoLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from headrace.connect.source import OffsetRange
    from headrace.engine.levels import Received
    from headrace.engine.spark.tasks import Job
    from headrace.engine.watermarks import EpochTimes
    from headrace.kernels.program import Level
    from headrace.kernels.task import Outcome, Task

PROCESSES = ShardProcesses()
_CLOCK = SystemClock()
_POOL: list[ThreadPoolExecutor] = []


def read_single_task(
    job: Job, epoch: int, ranges: Sequence[OffsetRange], times: EpochTimes
) -> Iterator[pa.RecordBatch]:
    """Run an epoch: level 0 on ranges of sources, then all other levels; yield its reports."""
    _pool().submit(caches.open_host, job.app_id)  # in an app's first epoch, while its records are read
    tasks_of = job.tasks(epoch, times)
    redo = RedoLog(job.storage, epoch, tasks_of(0).attempt) if job.sync else None

    def task_of(shard: int) -> Task:
        return replace(tasks_of(shard), sync=redo or job.sync)

    def run(level: Level, shard: int, inputs: Received) -> Outcome:
        return tasks.run_level(job, level, task_of(shard), inputs)

    program = job.program
    map_shards = _pool().map if program.shards > 1 else map
    first = run_dealt(
        program,
        tasks.inputs_of(job),
        ranges,
        threads=caches.THREADS,
        task_of=task_of,
        duck_of=lambda number: caches.cache(job.app_id, 0, number),
        map_parts=map_shards,
    )
    few = sum(rows.nbytes for outcome in first for *_, rows in outcome.sent) <= MOST_BYTES
    if few and job.beside:
        PROCESSES.start(job)
    beside = few and job.processes > 1 and PROCESSES.are_ready(wait=job.beside)
    began = _CLOCK.monotonic()
    if beside:
        reports = run_levels(program, first, PROCESSES.running(job, task_of, run))
    else:
        reports = run_levels(program, first, each_shard(program.shards, run, map_shards))
    if few and not beside:
        PROCESSES.spend(_CLOCK.monotonic() - began, job)
    if redo is not None:
        redo.write()
    yield blobs.manifest(reports)


def _pool() -> ThreadPoolExecutor:
    if not _POOL:
        _POOL.append(ThreadPoolExecutor(caches.THREADS, thread_name_prefix="headrace-shard"))
    return _POOL[0]
