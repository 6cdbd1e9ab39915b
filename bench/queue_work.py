"""`queue_work`: 8 processes take tasks of 200 bytes from a durable queue, and acknowledge them, until it is empty.

RabbitMQ: a durable queue of persistent messages, manual acknowledgements through pika, 100 messages sent ahead; the
best of an acknowledgement each and of one for 100. Ours: `take(100)` and `ack` of those; a second figure acknowledges
each by itself. Expected: 3 times its speed, since a batch of ours is one change of a file, and every message of
RabbitMQ passes a socket and a Python loop alone. All ids are added up on both sides: each task is worked on once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa

from bench import rabbit
from bench.figure import Figure, Skipped, compare_times, same
from bench.workers import Task, Worked, seconds, together
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.setting import Setting

WORKERS, SIZE, TOGETHER, PARTITIONS = 8, 200, 100, 4
TASKS = 200_000
_RIVAL = "RabbitMQ: durable, manual acknowledgements through pika, the better of one each and one for 100"


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure it in turn."""
    tasks, ours, singly, theirs = setting.rows(TASKS), [], [], []
    try:
        with rabbit.broker(setting) as url:
            for number in range(setting.runs(3, 2)):
                ours.append(_ours(setting, tasks, each=False))
                singly.append(_ours(setting, tasks, each=True))
                rivals = [_theirs(url, tasks, together) for together in (1, TOGETHER)]
                theirs.append(min(rivals))
                rates = ", ".join(f"{tasks / took:,.0f}" for took in (ours[-1], singly[-1], *rivals))
                setting.say(f"run {number}: tasks a second: {rates} (ours, one ack each; theirs, one for {TOGETHER})")
    except rabbit.NoRabbit as reason:
        return [Skipped(bench="queue_work", rival=_RIVAL, reason=str(reason))]
    what = f"take and ack of {tasks:,} tasks of {SIZE} bytes, {WORKERS} workers"
    return [
        compare_times("queue_work", what=f"{what}, {way}", rival=_RIVAL, must=must, ours=took, theirs=theirs, unit="s")
        for way, took, must in ((f"{TOGETHER} at a time", ours, ">= 3"), ("an ack each", singly, None))
    ]


def _ours(setting: Setting, tasks: int, *, each: bool) -> float:
    path = setting.fresh("log")
    with Log(path) as log:
        topic = log.create_topic("jobs", "id bigint, text string", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            ids = pa.array(range(partition, tasks, PARTITIONS), pa.int64())
            topic.append(pa.table({"id": ids, "text": ["x" * (SIZE - 8)] * len(ids)}), partition=partition)
        worked = together(Task(_work, (path, each)), WORKERS)
        with log.queue("g", "jobs") as queue:
            same("what is left", queue.status(), (0, 0, 0, 0, 0, 0))
    return seconds(worked, tasks)


def _work(begin: Callable[[], object], number: int, path: Path, each: bool) -> Worked:  # noqa: FBT001 -- sent to it
    del number
    with Log(path) as log, log.queue("g", "jobs", lease="10 minutes") as queue:
        log.topic("jobs").read(0, 0, 1)
        begin()
        count, ids, began = 0, 0, time.monotonic()
        ended = began
        while tasks := queue.take(TOGETHER, wait="2 seconds"):
            ids += sum(task.value["id"] for task in tasks)
            for some in tasks if each else [tasks]:
                queue.ack(some)
            count, ended = count + len(tasks), time.monotonic()
    return Worked(count, ids, began, ended)


def _theirs(url: str, tasks: int, at_once: int) -> float:
    rabbit.empty_queue(url)
    rabbit.fill(url, tasks, SIZE)
    took = seconds(together(Task(rabbit.work, (url, TOGETHER, at_once)), WORKERS), tasks)
    same("what is left", rabbit.waiting(url), 0)
    return took
