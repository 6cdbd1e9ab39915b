"""Processes beside a worker of Spark's: each runs some of the shards of small epochs, and has their state in memory.

    the worker     level 0, and of each level after it the shards 0, n, 2n, …
    process 1      the shards 1, n + 1, …: it is asked to run a level for them, and answers with their outcomes
    process n - 1  the shards n - 1, 2n - 1, …

Threads of one process pass Python's lock to one another at each of the thousand short calls of a small epoch, and are
hardly faster than one. A process takes a second to start and some 200 MB: so these are started when the worker has
spent `WORTH_SECONDS` on levels, and are not asked for many bytes, which are computed without Python's lock.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections import OrderedDict
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any
from weakref import WeakSet

from pyspark.serializers import CloudPickleSerializer

from headrace.base.memory import cores, memory_limit
from headrace.base.outside import WorkerLost
from headrace.base.temporary import cache_root
from headrace.engine.epoch import no_fault
from headrace.engine.lease import lock_file
from headrace.engine.spark import tasks, workers
from headrace.engine.spark.channel import Channel
from headrace.kernels.task import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from headrace.engine.levels import Received, RunLevel, RunShards, Take
    from headrace.engine.spark.tasks import Job
    from headrace.kernels.files import Later
    from headrace.kernels.program import Level
    from headrace.kernels.task import Report, Task

VARIABLE = "HEADRACE_PROCESSES"
"""The environment variable with the most processes that run shards of an app's small epochs; 1: threads do."""
WORTH_SECONDS = 2.0
MOST_BYTES = 8 << 20
"""They are not asked where level 0 sends more."""
MOST_PROCESSES = 8
MEMORY = 1 << 30
"""For each of them the machine must have so much memory."""
MOST_JOBS = 4
LOCK = "processes.lock"
"""In the folder of an app's caches: of the worker that has processes for it."""
_SCRIPT = "from headrace.engine.spark.shard_processes import serve; serve({})"


_ENDS: WeakSet[socket.socket] = WeakSet()
"""Our ends of the sockets of processes."""


def _forked() -> None:
    """Close them in a process that somebody forks, such as a user's function: it may outlive this one."""
    for end in _ENDS:
        end.close()


if hasattr(os, "register_at_fork"):  # not every system has it
    os.register_at_fork(after_in_child=_forked)


class FailedBeside(Exception):
    """The trace of what a process raised: Spark takes errors of its own workers to the driver as text too."""


class ShardProcess:
    """A process that runs levels for shards. It ends when this process does.

    Raises:
        OSError: it cannot be started.

    """

    def __init__(self) -> None:
        self._end, theirs = socket.socketpair()
        _ENDS.add(self._end)
        self._channel = Channel(self._end)
        with theirs, ExitStack() as opened:
            opened.callback(self._end.close)
            self.process = subprocess.Popen(  # noqa: S603 -- our own
                [sys.executable, "-c", _SCRIPT.format(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.DEVNULL,
            )
            opened.pop_all()
        self.jobs: OrderedDict[str, None] = OrderedDict()
        self._ready = False

    def is_ready(self, *, wait: bool) -> bool:
        """Return whether it has started, or wait until it has.

        Raises:
            WorkerLost: it has ended.

        """
        if not self._ready and (wait or self._has_answered()):
            self.answer()
            self._ready = True
        return self._ready

    def ask(self, job: Job, level: Level, here: Sequence[Task], inputs: Sequence[Received]) -> None:
        """Ask it to run a level for shards: `here` are their tasks, `inputs` the rows that they received.

        Raises:
            WorkerLost: it has ended.

        """
        packed = None if job.query in self.jobs else CloudPickleSerializer().dumps(_for_others(job))
        _keep(self.jobs, job.query, None)
        parts = [[(number, table) for number, tables in received.items() for table in tables] for received in inputs]
        question = _Question(
            query=job.query,
            packed=packed,
            level=level.number,
            here=[replace(task, sync=bool(task.sync), fault=no_fault) for task in here],
            numbers=[[number for number, _ in part] for part in parts],
        )
        try:
            self._channel.send(question, [table for part in parts for _, table in part])
        except OSError as error:
            raise self._lost() from error

    def answer(self) -> tuple[list[_Ran], list[pa.Table]]:
        """Wait for its answer: what it ran, and what that sent.

        Raises:
            WorkerLost: it has ended.
            FailedBeside: it raised an error.

        """
        try:
            answer, tables = self._channel.receive()
        except (OSError, EOFError) as error:
            raise self._lost() from error
        if isinstance(answer, str):
            raise FailedBeside(f"\n{answer}")  # its first line is found as that of a trace
        return answer, tables

    def _has_answered(self) -> bool:
        poll = select.poll()  # `select` takes no descriptor above 1,023
        poll.register(self._end, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def has_died(self) -> bool:
        """Whether it could be asked before, and has ended since."""
        return self._ready and self.process.poll() is not None

    def close(self) -> None:
        """End it."""
        self._channel.close()
        self.process.kill()
        self.process.wait()

    def _lost(self) -> WorkerLost:
        self.close()
        return WorkerLost(f"a process beside it ended with status {self.process.returncode}")


@dataclass
class ShardProcesses:
    """The processes beside this one.

    `refused`: one could not be started, or ended before it was asked anything: then this process does without.
    """

    spent: float = 0.0
    processes: list[ShardProcess] = field(default_factory=list)
    refused: bool = False
    _lock: IO[str] | None = None

    def spend(self, seconds: float, job: Job) -> None:
        """Count seconds in which this process alone ran levels; many of them start the others."""
        self.spent += seconds
        if self.spent >= WORTH_SECONDS:
            self.start(job)

    def start(self, job: Job) -> None:
        """Start as many as a job can use."""
        with self._or_none():
            while not self.refused and len(self.processes) < usable(job) - 1 and self._may(job):
                self.processes.append(ShardProcess())

    def _may(self, job: Job) -> bool:
        """Whether no other worker has processes for this app: Spark gives its epochs to all idle workers in turn."""
        if self._lock is None:
            folder = cache_root() / job.app_id
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / LOCK).open("w")
            if lock_file(lock) is False:
                lock.close()
            else:
                self._lock = lock
        return self._lock is not None

    def are_ready(self, *, wait: bool = False) -> bool:
        """Return whether they can be asked, or wait until they can. Where one has died they are all ended."""
        if any(each.has_died for each in self.processes):
            self.close()
        with self._or_none():
            return bool(self.processes) and all(each.is_ready(wait=wait) for each in self.processes)
        return False

    @contextmanager
    def _or_none(self) -> Iterator[None]:
        try:
            yield
        except (OSError, WorkerLost):
            self.close()
            self.refused = True

    def running(self, job: Job, task_of: Callable[[int], Task], run: RunLevel) -> RunShards:
        """Return what runs a level for all shards: those of this process with `run`, while the others run theirs.

        A user's functions are called in this process alone.
        """

        def run_shards(level: Level, take: Take) -> list[Outcome]:
            processes = [] if level.calls_users else self.processes[: usable(job) - 1]
            count = len(processes) + 1
            mine, *others = (range(owner, job.program.shards, count) for owner in range(count))
            outcomes: dict[int, Outcome] = {}
            try:
                for process, shards in zip(processes, others, strict=True):
                    process.ask(job, level, [task_of(shard) for shard in shards], [take(s) for s in shards])
                for shard in mine:
                    outcomes[shard] = run(level, shard, take(shard))
                for process, shards in zip(processes, others, strict=True):
                    outcomes.update(zip(shards, _outcomes(*process.answer(), task_of(shards[0]).sync), strict=True))
            except BaseException:
                self.close()  # the next question would get the answer to this one
                raise
            return [outcomes[shard] for shard in range(job.program.shards)]

        return run_shards

    def close(self) -> None:
        """End them; they are started again when they are worth it once more."""
        for process in self.processes:
            process.close()
        self.processes.clear()
        self.spent = 0.0
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def usable(job: Job) -> int:
    """Return how many processes may run shards of a job at once, this one included."""
    return min(job.program.shards, job.processes, most_processes())


def most_processes() -> int:
    """Return how many processes may run shards of an app at once, this one included; each app has its own."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen.isdecimal():
        return max(1, int(chosen))
    return min(cores(), MOST_PROCESSES, memory_limit() // MEMORY) if os.name == "posix" else 1


# ---- what they are asked, and answer ----


def _for_others(job: Job) -> Job:
    """Return what other processes need of a job.

    A user's functions and the inputs stay here: since the driver pickled them they may hold models, locks, connections.
    """
    levels = [replace(each, ops=()) if each.calls_users or not each.number else each for each in job.program.levels]
    return replace(job, inputs={}, program=replace(job.program, levels=tuple(levels)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """A level to run for some shards; a process is told a job with the first question about it.

    `numbers`: for each shard the deltas of the tables that follow.
    """

    query: str
    packed: bytes | None
    level: int
    here: Sequence[Task]
    numbers: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    """What ran for a shard: its report, the files that it wrote with their sizes, and where each table goes."""

    report: Report
    files: Sequence[tuple[Path, int]]
    sent: Sequence[tuple[int, int, int]]


class _Noted:
    """Notes the files that are written: the process that asked makes them durable."""

    def __init__(self) -> None:
        self.files: list[tuple[Path, int]] = []

    def add(self, path: Path, size: int) -> None:
        """Note a file."""
        self.files.append((path, size))


def _outcomes(ran: Sequence[_Ran], tables: Sequence[pa.Table], sync: bool | Later) -> list[Outcome]:  # noqa: FBT001 -- as a task has it
    """Return the outcomes of shards; what they wrote is made durable as the task of this process says."""
    left = iter(tables)
    for each in ran:
        for path, size in each.files:
            if not isinstance(sync, bool):
                sync.add(path, size)
    return [Outcome(sent=[(*place, next(left)) for place in each.sent], report=each.report) for each in ran]


def serve(descriptor: int) -> None:
    """Run levels for the process at the other end of a socket, until that ends; then this one does, at once.

    Like Spark's workers it leaves Python's own end out: there DuckDB would print frozen objects as leaks, in 30 lines.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all
    workers.hide_pandas()
    channel, jobs = Channel(socket.socket(fileno=descriptor)), OrderedDict[str, "Job"]()
    gc.freeze()
    with suppress(EOFError, ConnectionError):
        channel.send([])
        while True:
            question, tables = channel.receive()
            channel.send(*_answered(jobs, question, tables))
    os._exit(0)


def _answered(
    jobs: OrderedDict[str, Job], question: _Question, tables: Sequence[pa.Table]
) -> tuple[list[_Ran] | str, list[pa.Table]]:
    """Return what ran and what it sent, or the trace of an error."""
    try:
        return _ran(jobs, question, tables)
    except Exception:  # noqa: BLE001 -- whatever it is, the other end raises it
        return traceback.format_exc(), []


def _ran(
    jobs: OrderedDict[str, Job], question: _Question, tables: Sequence[pa.Table]
) -> tuple[list[_Ran], list[pa.Table]]:
    if question.packed is not None:
        _keep(jobs, question.query, CloudPickleSerializer().loads(question.packed))
    job = jobs[question.query]
    _keep(jobs, question.query, job)
    left = iter(tables)
    ran, sent = list[_Ran](), list["pa.Table"]()
    for here, numbers in zip(question.here, question.numbers, strict=True):
        inputs: Received = {}
        for number in numbers:
            inputs.setdefault(number, []).append(next(left))
        noted = _Noted()
        task = replace(here, sync=noted if here.sync else False, fault=job.fault)
        outcome = tasks.run_level(job, job.program.levels[question.level], task, inputs)
        places = [(edge, at, to) for edge, at, to, _ in outcome.sent]
        ran.append(_Ran(report=outcome.report, files=noted.files, sent=places))
        sent += [table for *_, table in outcome.sent]
    return ran, sent


def _keep(jobs: OrderedDict[str, Any], query: str, job: Any) -> None:
    """Remember a job; both ends forget the same ones."""
    jobs[query] = job
    jobs.move_to_end(query)
    if len(jobs) > MOST_JOBS:
        jobs.popitem(last=False)
