"""Workers of a bench as processes of their own, which begin at one moment and report what they did."""

from __future__ import annotations

import multiprocessing
import queue
from typing import TYPE_CHECKING, NamedTuple

from bench.figure import WrongAnswer, same

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.synchronize import Barrier

_LIMIT = 900


class Worked(NamedTuple):
    """What a worker did: how many tasks, the sum of their ids, and when it began and ended (monotonic clock).

    `processor` is the seconds of processor time between them, where it was measured.
    """

    count: int
    ids: int
    began: float
    ended: float
    processor: float = 0.0


class Task(NamedTuple):
    """What workers run: `work(begin, number, *values)`, which calls `begin()` when it is ready, then works."""

    work: Callable[..., Worked]
    values: tuple[object, ...]


def together(task: Task, count: int) -> list[Worked]:
    """Run a task in processes; `begin()` returns in all of them at once."""
    spawn = multiprocessing.get_context("spawn")
    barrier, results = spawn.Barrier(count), spawn.Queue()
    processes = [spawn.Process(target=_run, args=(barrier, results, number, task)) for number in range(count)]
    for each in processes:
        each.start()
    try:
        found = [results.get(timeout=_LIMIT) for _ in processes]
    except queue.Empty as error:
        raise WrongAnswer("a worker gave no answer") from error
    finally:
        for each in processes:
            each.join(10)
            each.kill()
    for each in found:
        if isinstance(each, str):
            raise WrongAnswer(each)
    return found


def _run(barrier: Barrier, results: multiprocessing.Queue[object], number: int, task: Task) -> None:
    try:
        results.put(task.work(barrier.wait, number, *task.values))
    except BaseException as error:
        results.put(f"a worker failed: {error!r}")
        barrier.abort()
        raise


def seconds(worked: Sequence[Worked], tasks: int) -> float:
    """Return the seconds from the first begin to the last end; every task was worked on once."""
    same("tasks", sum(each.count for each in worked), tasks)
    same("sum of the ids", sum(each.ids for each in worked), tasks * (tasks - 1) // 2)
    return max(each.ended for each in worked) - min(each.began for each in worked)
