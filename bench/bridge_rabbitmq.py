"""`bridge_rabbitmq`: messages of a queue become durable in a topic, then they are acknowledged.

The rival is a program as people write it: pika receives, a batch is written to a file and synced, and then
acknowledged. It decodes nothing. Ours decodes JSON into columns and remembers ids. Both have the same prefetch, and the
same number of messages in a batch. What is in the topic, and in the file, is compared with what was sent. The time is
that of the processor of the receiving process, next to that of the wall: the broker computes on the same cores.
Expected: the receiving of pika is most of the rival's time; ours reads deliveries itself (design note 0077).
"""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from bench import rabbit
from bench.figure import Figure, Skipped, compare_times, same
from headrace.connect import rabbitmq
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.messages.address import BrokerAddress
from headrace.connect.messages.writing import Outgoing
from headrace.connect.rabbitmq.publishing import Publisher
from headrace.connect.topics import TopicSpec
from headrace.log import Log

if TYPE_CHECKING:
    from pathlib import Path

    from bench.setting import Setting

MESSAGES, PREFETCH = 100_000, 5_000
_RIVAL = "a pika consumer that writes a file and syncs it by batches"
_WHAT = "messages of 200 bytes from RabbitMQ, durable before they are acknowledged"
_SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure it in turn."""
    try:
        with rabbit.broker(setting) as url:
            return _measured(setting, url)
    except rabbit.NoRabbit as reason:
        return [Skipped(bench="bridge_rabbitmq", rival=_RIVAL, reason=str(reason))]


def _measured(setting: Setting, url: str) -> list[Figure | Skipped]:
    count = setting.rows(MESSAGES)
    wall: tuple[list[float], list[float]] = ([], [])
    busy: tuple[list[float], list[float]] = ([], [])
    for number in range(setting.runs(5, 3) + 1):
        for side, receive in enumerate((_ours, _theirs)):
            rabbit.empty_queue(url)
            _send(url, count)
            began, computed = time.perf_counter(), time.process_time()
            found = receive(url, count, setting.fresh("received"))
            took, used = time.perf_counter() - began, time.process_time() - computed
            same("the sum of the ids", found, count * (count - 1) // 2)
            setting.say(f"run {number}: {'ours' if side == 0 else 'theirs'} {took:.2f} s, {used:.2f} s of processor")
            if number:
                wall[side].append(took)
                busy[side].append(used)
    named = [(_WHAT, wall, ">= 0.8"), (f"{_WHAT}: time of the processor", busy, None)]
    return [
        compare_times("bridge_rabbitmq", what=what, rival=_RIVAL, must=must, ours=ours, theirs=theirs, unit="s")
        for what, (ours, theirs), must in named
    ]


def _send(url: str, count: int) -> None:
    publisher = Publisher(BrokerAddress(url), "", content_type=None, mandatory=True)
    for first in range(0, count, 1_000):
        some = range(first, min(first + 1_000, count))
        bodies = [json.dumps({"id": i, "text": "x" * 176}).encode() for i in some]
        publisher.send(
            [Outgoing(f"m{i}", body, None, rabbit.QUEUE, {}, None) for i, body in zip(some, bodies, strict=True)]
        )
    publisher.flush()
    publisher.close()


def _ours(url: str, count: int, folder: Path) -> int:
    with closing(Log(folder)) as log:
        topics = EmbeddedTopics(log, partitions=1, fault=lambda _: None)
        spec = TopicSpec(name="landed", schema=_SCHEMA)
        with closing(topics.landing(spec, feed="f", limit=1 << 60, read=lambda: 0)) as landing:
            feed, stop = rabbitmq.queue(url, rabbit.QUEUE, prefetch=PREFETCH), threading.Event()
            feed.run(_Until(landing, count, stop), stop)
        topic = log.topic("landed")
        return sum(pc.sum(batch.column("id")).as_py() for batch in topic.batches(0, 0, count, columns=["id"]))


class _Until:
    """A landing that stops its feed with the last row, as the rival stops."""

    def __init__(self, landing: Any, count: int, stop: threading.Event) -> None:
        self._landing, self._left, self._stop = landing, count, stop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._landing, name)

    def append(self, rows: pa.Table, **more: Any) -> None:
        self._landing.append(rows, **more)
        self._left -= rows.num_rows
        if not self._left:
            self._stop.set()


def _theirs(url: str, count: int, folder: Path) -> int:
    folder.mkdir()
    with (folder / "messages").open("wb") as file, closing(rabbit.connected(url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH)
        held: list[bytes] = []
        for seen, (method, _, body) in enumerate(channel.consume(rabbit.QUEUE), 1):
            held.append(body)
            if len(held) == PREFETCH // 2 or seen == count:
                file.write(b"\n".join([*held, b""]))
                file.flush()
                os.fsync(file.fileno())
                channel.basic_ack(method.delivery_tag, multiple=True)
                held = []
            if seen == count:
                break
        channel.cancel()
    return sum(json.loads(line)["id"] for line in (folder / "messages").read_bytes().splitlines())
