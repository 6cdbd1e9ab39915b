"""`queue_work`: 8 processes take tasks of 200 bytes from a durable queue, and acknowledge them, until it is empty.

RabbitMQ: a durable queue of persistent messages, manual acknowledgements through pika, 100 messages sent ahead; the
best of an acknowledgement each and of one for 100. Ours: `take(100)` and `ack` of those; a second figure acknowledges
each by itself. Expected: 3 times its speed, since a batch of ours is one change of a file, and every message of
RabbitMQ passes a socket and a Python loop alone. All ids are added up on both sides: each task is worked on once.

Where other processes use the cores, the time varies: a worker of ours that loses its core while it changes the file
holds up the others. So there is the processor time, too: of the workers alone, without that of RabbitMQ's broker.
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
    processor: list[tuple[float, float]] = []
    try:
        with rabbit.broker(setting) as url:
            for number in range(setting.runs(3, 2)):
                both = _ours(setting, tasks, each=False), _ours(setting, tasks, each=True)
                rivals = [_theirs(url, tasks, together) for together in (1, TOGETHER)]
                ours.append(both[0][0])
                singly.append(both[1][0])
                theirs.append(min(rivals)[0])
                processor.append((both[0][1], min(rivals)[1]))
                rates = ", ".join(f"{tasks / took:,.0f}" for took, _ in (*both, *rivals))
                setting.say(f"run {number}: tasks a second: {rates} (ours, one ack each; theirs, one for {TOGETHER})")
    except rabbit.NoRabbit as reason:
        return [Skipped(bench="queue_work", rival=_RIVAL, reason=str(reason))]
    what = f"take and ack of {tasks:,} tasks of {SIZE} bytes, {WORKERS} workers"
    times = (
        (f"{TOGETHER} at a time", ours, theirs, ">= 3"),
        ("an ack each", singly, theirs, None),
        (f"{TOGETHER} at a time: processor time of the workers", *zip(*processor, strict=True), None),
    )
    return [
        compare_times("queue_work", what=f"{what}, {way}", rival=_RIVAL, must=must, ours=mine, theirs=rival, unit="s")
        for way, mine, rival, must in times
    ]


def _ours(setting: Setting, tasks: int, *, each: bool) -> tuple[float, float]:
    """Return the seconds, and the seconds of processor time."""
    path = setting.fresh("log")
    with Log(path) as log:
        topic = log.create_topic("jobs", "id bigint, text string", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            ids = pa.array(range(partition, tasks, PARTITIONS), pa.int64())
            topic.append(pa.table({"id": ids, "text": ["x" * (SIZE - 8)] * len(ids)}), partition=partition)
        worked = together(Task(_work, (path, each)), WORKERS)
        with log.queue("g", "jobs") as queue:
            same("what is left", queue.status(), (0, 0, 0, 0, 0, 0))
    return seconds(worked, tasks), sum(of.processor for of in worked)


def _work(begin: Callable[[], object], number: int, path: Path, each: bool) -> Worked:  # noqa: FBT001 -- sent to it
    del number
    with Log(path) as log, log.queue("g", "jobs", lease="10 minutes") as queue:
        log.topic("jobs").read(0, 0, 1)
        begin()
        count, ids, began, used = 0, 0, time.monotonic(), time.process_time()
        ended = began
        while tasks := queue.take(TOGETHER, wait="2 seconds"):
            ids += sum(task.value["id"] for task in tasks)
            for some in tasks if each else [tasks]:
                queue.ack(some)
            count, ended = count + len(tasks), time.monotonic()
        used = time.process_time() - used
    return Worked(count, ids, began, ended, used)


def _theirs(url: str, tasks: int, at_once: int) -> tuple[float, float]:
    rabbit.empty_queue(url)
    rabbit.fill(url, tasks, SIZE)
    worked = together(Task(rabbit.work, (url, TOGETHER, at_once)), WORKERS)
    same("what is left", rabbit.waiting(url), 0)
    return seconds(worked, tasks), sum(of.processor for of in worked)
