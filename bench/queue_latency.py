"""`queue_latency`: the time from before a durable put until a worker of another process has the task; median and 99 %.

One process puts a task every few milliseconds and waits until it is durable: ours an append with fsync, RabbitMQ a
persistent message with its confirmation. One worker waits in `take`, or in pika's loop, and acknowledges each task.
Expected: no slower than RabbitMQ, over whose two sockets a message goes.

Ours is taken when it is on disk. RabbitMQ has two kinds of durable queues. A classic one hands a message to a worker
that waits before it is on disk, and confirms it afterwards; a quorum queue, here of one node, writes and syncs its log
first, which is what ours promises. So there are four figures: against both kinds, until the classic one has confirmed
the message, and, without any disk, ours with `fsync=False` against the classic one.
"""

from __future__ import annotations

import random
import time
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from bench import rabbit
from bench.figure import Figure, Skipped, paired, percentile, same
from bench.workers import Task, Worked, together
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.setting import Setting

SIZE, TASKS, SEED = 200, 2_000, 5
PAUSE = 0.005
WARM, WARM_SECONDS = 20, 3.0
"""So many tasks come first, and then a pause: a worker that has just started has compiled and cached by then."""
_RIVAL = "RabbitMQ: durable, confirms and manual acknowledgements through pika"


class Way(NamedTuple):
    """A comparison: what of ours, against what of theirs."""

    ours: str
    theirs: str
    must: str | None
    about: str


_WAYS = (
    Way("ours", "classic", "<= 1", "handed out before it is on disk"),
    Way("ours", "quorum", "<= 1", "a quorum queue of one node: on disk before it is handed out"),
    Way("ours", "confirmed", None, "until it is confirmed: on disk"),
    Way("ours without fsync", "classic", None, "handed out before it is on disk; ours without a disk, too"),
)


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure it in turn."""
    tasks = setting.rows(TASKS)
    took: dict[str, list[list[float]]] = {}
    try:
        with rabbit.broker(setting) as url:
            for number in range(setting.runs(5, 3)):
                classic, confirmed = _theirs(setting, url, tasks, "classic")
                run = {
                    "ours": _ours(setting, tasks, fsync=True),
                    "classic": classic,
                    "confirmed": confirmed,
                    "quorum": _theirs(setting, url, tasks, "quorum")[0],
                    "ours without fsync": _ours(setting, tasks, fsync=False),
                }
                for name, each in run.items():
                    took.setdefault(name, []).append(each)
                shown = (f"{name} {percentile(of, 0.5):.2f}, {percentile(of, 0.99):.2f}" for name, of in run.items())
                setting.say(f"run {number}: median and 99 %, ms: {'; '.join(shown)}")
    except rabbit.NoRabbit as reason:
        return [Skipped(bench="queue_latency", rival=_RIVAL, reason=str(reason))]
    parts = ("median", 0.5), ("99 %", 0.99)
    return [_figure(name, part, took, way) for way in _WAYS for name, part in parts]


def _figure(name: str, part: float, took: dict[str, list[list[float]]], way: Way) -> Figure:
    mine, rival = ([percentile(each, part) for each in took[side]] for side in (way.ours, way.theirs))
    ratio, spread = paired(mine, rival)
    without = ", without fsync" if way.ours != "ours" else ""
    return Figure(
        bench="queue_latency",
        what=f"put until taken, {name} of {len(took['ours'][0]):,} durable tasks of {SIZE} bytes{without}",
        rival=f"{_RIVAL}, {way.about}",
        ratio=ratio,
        spread=spread,
        must=way.must,
        ours=percentile(mine, 0.5),
        theirs=percentile(rival, 0.5),
        unit="ms",
        runs=len(mine),
    )


def _ours(setting: Setting, tasks: int, *, fsync: bool) -> list[float]:
    path, times = setting.fresh("log"), setting.fresh("times")
    with Log(path) as log:
        log.create_topic("jobs", "id bigint, text string")
    return _latencies(Task(_our_side, ((path, fsync), times, tasks)), times, tasks)[0]


def _theirs(setting: Setting, url: str, tasks: int, kind: str) -> tuple[list[float], list[float]]:
    rabbit.empty_queue(url, kind)
    times = setting.fresh("times")
    return _latencies(Task(_their_side, (url, times, tasks)), times, tasks)


def _latencies(task: Task, times: Path, tasks: int) -> tuple[list[float], list[float]]:
    """Run both sides; return the milliseconds from a put until it was taken, and until it was done, once warm."""
    times.mkdir(parents=True)
    together(task, 2)
    put, done, taken = (
        [float(line) for line in (times / name).read_text().split()] for name in ("put", "done", "taken")
    )
    same("tasks", (len(put), len(taken)), (WARM + tasks, WARM + tasks))
    until = [[(there - here) * 1000 for here, there in zip(put, ends, strict=True)][WARM:] for ends in (taken, done)]
    return until[0], until[1]


def _our_side(begin: Callable[[], object], number: int, opened: tuple[Path, bool], times: Path, tasks: int) -> Worked:
    taken: dict[int, float] = {}
    with Log(opened[0], fsync=opened[1]) as log:
        if number == 0:
            topic = log.topic("jobs")
            text = "x" * (SIZE - 8)
            return _put(begin, times, tasks, lambda task: topic.append([{"id": task, "text": text}]))
        with log.queue("g", "jobs") as queue:
            begin()
            while len(taken) < WARM + tasks:
                for task in queue.take(wait="1 minute"):
                    taken[task.value["id"]] = time.monotonic()
                    queue.ack(task)
    return _noted(times, taken)


def _their_side(begin: Callable[[], object], number: int, url: str, times: Path, tasks: int) -> Worked:
    import pika

    taken: dict[int, float] = {}
    with closing(rabbit.connected(url)) as connection:
        channel = connection.channel()
        if number == 0:
            channel.confirm_delivery()
            about = pika.BasicProperties(delivery_mode=2)
            return _put(
                begin,
                times,
                tasks,
                lambda task: channel.basic_publish("", rabbit.QUEUE, rabbit.body(task, SIZE), about, mandatory=True),
            )
        channel.basic_qos(prefetch_count=1)
        begin()
        for method, _, content in channel.consume(rabbit.QUEUE):
            taken[int.from_bytes(content[:8], "big")] = time.monotonic()
            channel.basic_ack(method.delivery_tag)
            if len(taken) == WARM + tasks:
                break
        channel.cancel()
    return _noted(times, taken)


def _put(begin: Callable[[], object], times: Path, tasks: int, put: Callable[[int], object]) -> Worked:
    draw, began, done = random.Random(SEED), [], []
    begin()
    for task in range(WARM + tasks):
        time.sleep(WARM_SECONDS if task == WARM else draw.uniform(0, 2 * PAUSE))
        began.append(time.monotonic())
        put(task)
        done.append(time.monotonic())
    (times / "done").write_text("\n".join(map(str, done)))
    (times / "put").write_text("\n".join(map(str, began)))
    return Worked(len(began), 0, began[0], began[-1])


def _noted(times: Path, taken: dict[int, float]) -> Worked:
    (times / "taken").write_text("\n".join(str(taken[task]) for task in sorted(taken)))
    return Worked(len(taken), sum(taken), min(taken.values()), max(taken.values()))
