"""Runs levels inside Spark's Python workers: level 0 in the source's tasks, the others in `mapInArrow`.

A task reads all that it needs to know of its epoch from the commit of the epoch before. Its results are the files that
it writes and the blobs that it returns. Any worker process may run the next task.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from headrace.base.time import SystemClock
from headrace.engine.epoch import PlannedEpoch, Settings, task
from headrace.engine.inputs import Inputs, read_schemas
from headrace.engine.level_zero import run_ranges
from headrace.engine.pace import first_rows
from headrace.engine.spark import blobs, workers
from headrace.engine.spark.caches import cache
from headrace.engine.spark.planning import Planning, commit_before
from headrace.kernels.level import LevelRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from headrace.connect.source import OffsetRange
    from headrace.engine.input import Input
    from headrace.engine.watermarks import EpochTimes
    from headrace.kernels.program import Level, Program
    from headrace.kernels.task import Outcome, Task


@dataclass(frozen=True, kw_only=True)
class Job:
    """The parameters of every task of a query: plain values that are pickled to executors."""

    app_id: str
    program: Program
    storage: Path
    topics: str | None
    sync: bool
    inputs: Mapping[str, Input]
    fault: Callable[[str], None]
    base: int
    """The epoch of the query's batch 0."""
    small: int
    """How many rows a small epoch may have (`Settings.small`)."""
    query: str
    """Identifies one start of the app: the readers that a worker keeps open belong to one query."""
    ahead: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The steps that emit by the watermark that an epoch's input reaches, with their sources."""
    processes: int = 1
    """How many processes may run the shards of a small epoch at once."""
    beside: bool = False
    """Whether they do so from the first epoch on (`Settings.beside`)."""

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, (vars(self),)

    @property
    def planning(self) -> Planning:
        """What the planner of epochs knows of it.

        Rows that wait for the watermark are scanned too: an epoch without input may emit all of them.
        """
        stateful = [op for level in self.program.levels for op in level.stateful]
        return Planning(
            app_id=self.app_id,
            app=self.program.app,
            storage=self.storage,
            shards=self.program.shards,
            inputs=self.inputs,
            first=first_rows(read_schemas(self.inputs, self.program)),
            small=self.small,
            scanned=frozenset(op.step for op in stateful if not op.looks_up or op.emits_on_watermark),
            fault=self.fault,
            ahead=self.ahead,
        )

    def now(self) -> int:
        """Return the time for rows of sources without event time, in microseconds."""
        return SystemClock().now()

    def task(self, epoch: int, shard: int, times: EpochTimes) -> Task:
        """Return the parameters of one task of an epoch, with a new attempt."""
        return self.tasks(epoch, times)(shard)

    def tasks(self, epoch: int, times: EpochTimes) -> Callable[[int], Task]:
        """Return a function from a shard to its task of an epoch; all have the same attempt."""
        settings = Settings(
            storage=self.storage,
            topics=self.topics,
            shards=self.program.shards,
            clock=SystemClock(),
            sync=self.sync,
            fault=self.fault,
        )
        before = commit_before(self.storage, self.program.app, epoch)
        planned = PlannedEpoch(
            epoch=epoch, ranges=(), bounds={}, before=before, began=0.0, now=times.now, reached=times.reached
        )
        attempt = uuid.uuid4().hex[:12]
        return lambda shard: task(settings, planned, shard=shard, shards=self.program.shards, attempt=attempt)


def _unpickled(fields: Mapping[str, Any]) -> Job:
    """Return the job in a worker; the first of our code that runs for a task."""
    workers.prepare()
    return Job(**fields)


def read_ranges(job: Job, here: Task, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """Run level 0 on ranges of sources: one task of the source."""
    with cache(job.app_id, 0, here.shard) as duck:
        yield from blobs.outgoing(run_ranges(duck, job.program, here, inputs_of(job), ranges), mark(job, 0, here))


_INPUTS: OrderedDict[str, Inputs] = OrderedDict()
MOST_QUERIES = 4
_opening = Lock()


def inputs_of(job: Job) -> Inputs:
    """Return the inputs of a query, with readers that this worker keeps open across epochs."""
    with _opening:
        if job.query not in _INPUTS:
            _INPUTS[job.query] = Inputs(job.inputs, clock=SystemClock())
            if len(_INPUTS) > MOST_QUERIES:
                _INPUTS.popitem(last=False)[1].close()
        _INPUTS.move_to_end(job.query)
        return _INPUTS[job.query]


def level(job: Job, number: int, times: EpochTimes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that runs a level of an epoch for the shard of the task that calls it."""
    edges = frozenset(edge for edge, _ in job.program.levels[number].receives)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        epoch, shard = current_epoch(job), partition_number()
        inbox: dict[int, list[pa.Table]] = {}
        attempts: dict[str, str] = {}
        yield from blobs.sort_out(batches, edges, inbox, attempts)
        spec = job.program.levels[number]
        deltas = {delta: inbox.get(edge, []) for edge, delta in spec.receives}
        here = job.task(epoch, shard, times)
        outcome = run_level(job, spec, here, deltas)
        outcome.report.attempts |= attempts
        yield from blobs.outgoing(outcome, mark(job, number, here))

    return run


def mark(job: Job, number: int, here: Task) -> blobs.Mark | None:
    """Return the mark of a task's output, where another attempt of the task may give another output.

    Functions of the user's may, though they should say so (`deterministic=False`); and what is below them.
    """
    levels = job.program.levels
    if number + 1 == len(levels) or not any(level.calls_users for level in levels[: number + 1]):
        return None
    return blobs.Mark(task=f"{number}.{here.shard}", attempt=here.attempt, shards=job.program.shards)


def run_level(job: Job, spec: Level, here: Task, deltas: Mapping[int, list[pa.Table]]) -> Outcome:
    """Run a level for a shard on its input, by delta number."""
    scanned = {op.step for op in spec.stateful if not op.looks_up}
    arrived = sum(rows.nbytes for tables in deltas.values() for rows in tables)
    size = arrived + sum(head.full_bytes + head.chain_bytes for step, head in here.heads.items() if step in scanned)
    with cache(job.app_id, spec.number, here.shard, size=size if scanned else 0) as duck:
        return LevelRun(duck, spec, here).run(deltas)


def current_epoch(job: Job) -> int:
    """Return the epoch that the running task belongs to."""
    batch = _context().getLocalProperty("streaming.sql.batchId")
    if batch is None:
        from headrace.base.errors import InternalError

        raise InternalError("a level runs outside a streaming batch")
    return job.base + int(batch)


def partition_number() -> int:
    """Return the number of the running task's partition; after an exchange it is the shard."""
    return int(_context().partitionId())


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        from headrace.base.errors import InternalError

        raise InternalError("a level runs outside a Spark task")
    return context
