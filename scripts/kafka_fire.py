"""Exactly once under fire: an app from Kafka to Kafka whose driver, workers and brokers are killed, again and again.

    python scripts/kafka_fire.py [--kills 50] [--events 1000000] [--seed 1] [--local] [--brokers 3]

Records go through Kafka into final windows (a topic), totals by user (a compacted topic) and a view. The app runs as
programs do, by `headrace run`. What happens to it, seeded: `driver` (kill -9 of the app and all its processes),
`worker` (kill -9 of a Python worker of Spark), `broker` (kill -9, and a start some seconds later: its partitions and
transactions get other leaders), `stalled broker` (SIGSTOP for longer than the cluster waits), `transaction` (the app is
stopped for longer than a transaction may last), `zombie` (the app is stopped, another process takes over, and then the
first goes on). In the end the outputs, read by librdkafka with read_committed, are held against the batch result:
nothing lost, nothing twice. Exits 1 where something is.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from scripts.broker.brokers import Kafka
from scripts.broker.servers import Servers
from scripts.processes import processes_of

import headrace as hr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

USERS = 1_000
PARTITIONS = 3
START_MS = 1_767_225_600_000  # 2026-01-01, the start of a window
WINDOW_MS = 10_000
TRANSACTION_SECONDS = 4
PATIENCE = 300
MOST_ENDS = 20
PIECES = 5
"""The events are sent in so many pieces for each misfortune, at most; what is left is sent at the end."""
WHILE_IT_RUNS = 0.75
"""How often a misfortune waits for epochs; else it may happen while the app starts."""
CLOSES_WINDOWS = -1
"""The user of the last records, an hour later, which let all windows close."""

PROGRAM = """
import headrace as hr
{prelude}
app = hr.App("fire", storage="{storage}", topics="{address}", shards=2)
schema = "id bigint, user int, amount bigint, at timestamp"
events = app.stream("events", schema, key="user", event_time="at", out_of_order="2 s")
windows = events.group_by("user").window(hr.tumbling("10 s", grace="1 s"), emit="final")
windows.agg(n="count(*)", total="sum(amount)").named("windows").to_topic("windows")
totals = events.group_by("user").agg(n="count(*)", total="sum(amount)").named("totals")
totals.to_topic("totals")
totals.to_view("totals")
"""

WITHOUT_LOCKS = """
from headrace.engine import storage
storage.lock_file = lambda *_, **__: None  # as on a file system without locks: a process takes over from a stopped one
"""


def users_of(numbers: np.ndarray, seed: int) -> np.ndarray:
    """Return the users of events by their numbers."""
    return (numbers * 7919 + seed) % USERS


def amounts_of(numbers: np.ndarray) -> np.ndarray:
    """Return the amounts of events by their numbers."""
    return numbers * 31 % 97


@dataclass
class Fire:
    """One run: the app, its cluster, and what has been sent."""

    folder: Path
    kafka: Kafka
    seed: int
    local: bool
    only: Sequence[str] = ()
    prefix: str = "fire."
    piece: int = 1_000
    sent: int = 0
    process: subprocess.Popen[bytes] | None = None
    happened: Counter[str] = field(default_factory=Counter)
    ended: list[str] = field(default_factory=list)
    """The last words of apps that ended by themselves, zombies apart."""

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)  # noqa: S311 -- moments, not secrets
        self.folder.mkdir(parents=True, exist_ok=True)
        self.storage = self.folder / "app"
        self.program, self.taking_over = self.folder / "program.py", self.folder / "taking_over.py"
        options = f"prefix={self.prefix}&transaction.timeout.ms={TRANSACTION_SECONDS * 1000}"
        address = f"{self.kafka.address}?{options}"
        for path, prelude in ((self.program, ""), (self.taking_over, WITHOUT_LOCKS)):
            path.write_text(PROGRAM.format(prelude=prelude, storage=self.storage, address=address), encoding="utf-8")
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        topic = NewTopic(f"{self.prefix}events", PARTITIONS, config={"retention.ms": "-1"})
        for done in admin.create_topics([topic]).values():
            done.result()
        settings = {"enable.idempotence": True, "message.timeout.ms": 0, "linger.ms": 20, "partitioner": "murmur2"}
        self.producer = Producer({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0, **settings})

    def send(self, count: int) -> None:
        """Send the next events: an idempotent producer tries again for ever, and doubles nothing."""
        numbers = np.arange(self.sent, self.sent + count)
        for number, user, amount in zip(
            numbers.tolist(), users_of(numbers, self.seed).tolist(), amounts_of(numbers).tolist(), strict=True
        ):
            self._produce(number, user, amount, START_MS + number)
        self.sent += count

    def close_windows(self) -> None:
        """Send a last record to each partition, which lets the windows close."""
        for number in range(PARTITIONS):
            self._produce(self.sent + number, CLOSES_WINDOWS, 0, START_MS + self.sent + 3_600_000, partition=number)
        self.producer.flush()

    def _produce(self, number: int, user: int, amount: int, at: int, **where: int) -> None:
        value = f'{{"id": {number}, "user": {user}, "amount": {amount}, "at": {at}}}'
        while True:
            try:
                self.producer.produce(f"{self.prefix}events", value, str(user), timestamp=at, **where)
                break
            except BufferError:
                self.producer.poll(0.1)
        self.producer.poll(0)

    def command(self, *more: str, program: Path | None = None) -> list[str]:
        """Return the command that runs the app."""
        run = [str(Path(sys.executable).with_name("headrace")), "run", str(program or self.program), *more]
        return run + ["--local"] * self.local

    def start(self, *, taking_over: bool = False) -> None:
        """Start the app; it goes on where it stopped."""
        command = self.command(program=self.taking_over if taking_over else None)
        with (self.folder / "output.log").open("ab") as output:
            traced = os.environ | {"PYTHONFAULTHANDLER": "1"}
            self.process = subprocess.Popen(command, env=traced, stdout=output, stderr=output, start_new_session=True)

    @property
    def wrong(self) -> list[str]:
        """What must not have happened."""
        return [each for each in self.ended if each.startswith("WRONG")]

    def look(self) -> None:
        """Start the app again if it ended by itself, and remember its words."""
        if self.process is None or self.process.poll() is not None:
            if self.process is not None:
                died = self.process.returncode < 0
                self.ended.append(f"{'WRONG: the app died of a signal: ' * died}{self.last_words()}")
                if len(self.ended) > MOST_ENDS:
                    raise SystemExit(f"the app ends by itself, again and again: {self.last_words()}")
            self.start()

    def last_words(self) -> str:
        """Return the end of what the app said."""
        text = (self.folder / "output.log").read_text(encoding="utf-8", errors="replace").rstrip()
        return text[-3000:]

    def end(self, process: subprocess.Popen[bytes] | None = None) -> None:
        """Kill the app and all its processes."""
        process = process or self.process
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process is self.process:
            self.process = None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the app and all its processes."""
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def epoch(self) -> int:
        """Return the app's last committed epoch, -1 for none."""
        return max((int(each.stem) for each in (self.storage / "epochs").glob("*.json") if each.stem.isdecimal()),
                   default=-1)  # fmt: skip

    def feed(self, epochs: int) -> None:
        """Send a piece of the events, and wait until the app has committed an epoch; so many times."""
        for _ in range(epochs):
            before, end = self.epoch(), time.monotonic() + PATIENCE
            self.send(self.piece)
            while self.epoch() <= before:
                self.look()
                if time.monotonic() > end:
                    raise SystemExit(f"the app makes no progress: {self.last_words()}")
                self.producer.poll(0.05)


def driver(fire: Fire) -> None:
    """Kill the app and all its processes."""
    fire.end()
    fire.start()


def worker(fire: Fire) -> None:
    """Kill one of Spark's Python workers; in one process there is none, and the driver dies."""
    assert fire.process is not None
    workers = [] if fire.local else [pid for pid in processes_of(fire.process.pid) if "pyspark" in command_of(pid)]
    if workers:
        with suppress(ProcessLookupError):
            os.kill(fire.chance.choice(workers), signal.SIGKILL)
    else:
        driver(fire)


def broker(fire: Fire) -> None:
    """Kill a broker, and start it again some seconds later."""
    number = fire.chance.choice(fire.kafka.brokers)
    fire.kafka.kill(number)
    time.sleep(fire.chance.uniform(0.2, 5))
    fire.kafka.restart(number)


def stalled_broker(fire: Fire) -> None:
    """Stop a broker for longer than the cluster waits for it, and let it go on: it has lost its partitions."""
    number = fire.chance.choice(fire.kafka.brokers)
    fire.kafka.pause(number)
    time.sleep(fire.chance.uniform(3, 6))
    fire.kafka.resume(number)


def transaction(fire: Fire) -> None:
    """Stop the app for longer than a transaction may last; the cluster aborts the one that was open."""
    fire.signal(signal.SIGSTOP)
    time.sleep(TRANSACTION_SECONDS + fire.chance.uniform(1, 3))
    fire.signal(signal.SIGCONT)


def zombie(fire: Fire) -> None:
    """Stop the app, let another process take over and publish, and let the first go on: it must end."""
    fire.signal(signal.SIGSTOP)
    stopped, fire.process = fire.process, None
    assert stopped is not None
    fire.start(taking_over=True)
    fire.feed(2)
    os.killpg(stopped.pid, signal.SIGCONT)
    try:
        stopped.wait(60)
    except subprocess.TimeoutExpired:
        stopped.send_signal(signal.SIGABRT)  # says where its threads are
        stopped.wait()
        fire.ended.append(f"WRONG: a zombie ran for a minute beside the process that took over: {fire.last_words()}")
    fire.end(stopped)


MISFORTUNES: dict[str, Callable[[Fire], None]] = {
    "driver": driver,
    "worker": worker,
    "broker": broker,
    "stalled broker": stalled_broker,
    "transaction": transaction,
    "zombie": zombie,
}
WEIGHTS = {"driver": 5, "worker": 3, "broker": 4, "stalled broker": 2, "transaction": 2, "zombie": 1}


def command_of(process: int) -> str:
    """Return a process's command line, empty if it is gone."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


def burn(fire: Fire, *, events: int, kills: int) -> None:
    """Send the events and let misfortunes happen meanwhile, at random moments of the app's life."""
    names = [name for name in MISFORTUNES if name in fire.only or not fire.only]
    plan = (names + fire.chance.choices(names, [WEIGHTS[name] for name in names], k=kills))[:kills]
    fire.chance.shuffle(plan)
    fire.piece = events // (PIECES * (kills + 2))
    fire.send(fire.piece)
    fire.producer.flush()
    fire.start()
    fire.feed(1)
    began = time.monotonic()
    for name in plan:
        if fire.chance.random() < WHILE_IT_RUNS:
            fire.feed(fire.chance.randint(1, PIECES - 2))
        else:
            fire.send(fire.piece)
        time.sleep(fire.chance.uniform(0, 1.5))
        fire.look()
        MISFORTUNES[name](fire)
        fire.happened[name] += 1
        print(f"{time.monotonic() - began:5.0f} s: {name}, epoch {fire.epoch()}, {fire.sent:,} events", flush=True)
    fire.send(events - fire.sent)
    fire.close_windows()
    fire.look()


def committed(servers: str, topic: str) -> Iterator[tuple[Any, Any]]:
    """Yield key and value of each record of a topic, as a consumer with read_committed gets them; both are JSON."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "fire-check", "isolation.level": "read_committed",
                         "enable.auto.commit": False, "enable.partition.eof": True})  # fmt: skip
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    open_ones = set(partitions)
    while open_ones:
        for message in consumer.consume(10_000, 1):
            if message.error():
                open_ones.discard(message.partition())
            else:
                key, value = message.key(), message.value()
                yield key, None if value is None else json.loads(value)
    consumer.close()


def check(fire: Fire) -> list[str]:
    """Return what is wrong with the outputs, after the app has caught up."""
    numbers = np.arange(fire.sent)
    users, amounts = users_of(numbers, fire.seed), amounts_of(numbers)
    counts = np.bincount(users, minlength=USERS).tolist()
    sums = np.bincount(users, amounts, minlength=USERS).astype(np.int64).tolist()
    totals = {user: (counts[user], sums[user]) for user in range(USERS) if counts[user]}
    totals[CLOSES_WINDOWS] = (PARTITIONS, 0)
    slots = numbers // WINDOW_MS * USERS + users
    found, each = np.unique(slots, return_counts=True)
    by_slot = np.bincount(slots, amounts).astype(np.int64)
    windows = {int(s): (int(n), int(by_slot[s])) for s, n in zip(found, each, strict=True)}
    servers = fire.kafka.bootstrap
    wrong = _check_windows(committed(servers, f"{fire.prefix}windows"), windows)
    wrong += _check_totals(committed(servers, f"{fire.prefix}totals"), totals)
    shown = hr.App("fire", storage=fire.storage).view("totals").to_pylist()
    if {row["user"]: (row["n"], row["total"]) for row in shown} != totals:
        wrong.append("the view of totals is not that of the batch query")
    topics = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=30).topics
    for topic in topics:
        if (
            topic.startswith(fire.prefix)
            and topic.endswith((".dead", ".late"))
            and (kept := sum(1 for _ in committed(servers, topic)))
        ):
            wrong.append(f"{topic} has {kept} records, and no record was bad or late")
    if sum(1 for _ in committed(servers, f"{fire.prefix}events")) != fire.sent + PARTITIONS:
        wrong.append("the input is not what was sent: this script is wrong")
    return wrong


def _check_windows(records: Iterator[tuple[Any, Any]], windows: dict[int, tuple[int, int]]) -> list[str]:
    seen: Counter[int] = Counter()
    differ = 0
    for _, row in records:
        start = int(datetime.fromisoformat(row["window_start"]).timestamp() * 1000)
        slot = (start - START_MS) // WINDOW_MS * USERS + row["user"]
        seen[slot] += 1
        differ += windows.get(slot) != (row["n"], row["total"])
    twice, lost = sum(n - 1 for n in seen.values()), len(windows.keys() - seen.keys())
    print(f"windows: {sum(seen.values()):,} records, {lost} lost, {twice} twice, {differ} different", flush=True)
    return ["the windows are not those of the batch query"] if lost or twice or differ else []


def _check_totals(records: Iterator[tuple[Any, Any]], totals: dict[int, tuple[int, int]]) -> list[str]:
    last: dict[Any, tuple[int, int]] = {}
    count = backwards = 0
    for _, row in records:
        count += 1
        if row is None:
            return ["the changelog of totals has a tombstone, and no user went away"]
        backwards += last.get(row["user"], (0, 0))[0] >= row["n"]  # a total that comes again was published twice
        last[row["user"]] = (row["n"], row["total"])
    print(f"totals: {count:,} records, {backwards} that came again", flush=True)
    return ["the changelog of totals does not end as the batch query, or repeats itself"] * (
        last != totals or backwards > 0
    )


def run(fire: Fire, *, events: int, kills: int) -> None:
    """Run it all: `ended` then has what went wrong, beside the last words of apps that ended by themselves."""
    try:
        burn(fire, events=events, kills=kills)
        fire.end()
        for _ in range(3):  # what was open when it died may have to time out first
            command = fire.command("--until-caught-up")
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE * 4)
            if not done.returncode:
                break
        else:
            fire.ended.append(f"WRONG: it does not catch up: {done.stdout[-300:]} {done.stderr[-1500:]}")
        fire.ended += [f"WRONG: {each}" for each in check(fire)]
    finally:
        fire.end()


def main() -> int:
    """Run it and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--local", action="store_true", help="in one process, without Spark")
    parser.add_argument("--only", nargs="+", choices=list(MISFORTUNES), default=[], help="these misfortunes alone")
    parser.add_argument("--keep", type=Path, help="the folder to use, and to keep")
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headrace-fire-", ignore_cleanup_errors=True) as made:
        folder = asked.keep or Path(made)
        kafka = Kafka(Servers(folder / "kafka", shared=True), brokers=asked.brokers)
        kafka.start()
        fire = Fire(folder, kafka, asked.seed, asked.local, asked.only)
        try:
            run(fire, events=asked.events, kills=asked.kills)
        finally:
            kafka.servers.leave()
        epochs = fire.epoch() + 1
    wrong = fire.wrong
    for words in fire.ended:
        print(words if words in wrong else f"the app ended by itself and was started again: {words[-600:]}")
    happened = ", ".join(f"{count} {name}" for name, count in fire.happened.items())
    where = "in one process" if asked.local else "on Spark"
    said = f"{fire.sent:,} events, {epochs} epochs, {sum(fire.happened.values())} kills ({happened})"
    verdict = "FAILED" if wrong else "0 lost, 0 twice"
    print(f"{said}, {where}, {time.monotonic() - began:.0f} s, seed {asked.seed}: {verdict}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
