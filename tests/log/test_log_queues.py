"""Work queues: each record is acknowledged once or becomes a dead letter once, whoever dies."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from headrace.base.errors import InvalidArgument, InvalidName, InvalidTime, LeaseLost, UnknownTopic
from headrace.base.time import ManualClock
from headrace.log import Log
from headrace.log.queues.leases import Leases

WORKER = Path(__file__).parent / "queue_worker.py"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def log(tmp_path, clock):
    with Log(tmp_path / "log", clock=clock, fsync=False) as opened:
        opened.create_topic("jobs", "id bigint, text string, urgency int, at timestamp", partitions=2, key="id")
        yield opened


def put(log, ids, **columns):
    log.topic("jobs").append([{"id": number} | columns for number in ids])


def ids(tasks):
    return [task.value["id"] for task in tasks]


def dead(log, topic="jobs.dead"):
    if not log.has_topic(topic):
        return []
    rows = log.topic(topic).read(0, 0, 10_000).to_pylist()
    return [(json.loads(row["record"])["id"], row["reason"]) for row in rows]


def test_each_record_is_at_one_worker_until_it_is_acknowledged(log):
    put(log, range(10))
    with log.queue("g", "jobs") as one, log.queue("g", "jobs") as other, log.queue("h", "jobs") as fan_out:
        mine, others = one.take(6), other.take(10)
        assert sorted(ids(mine) + ids(others)) == list(range(10))
        assert {task.deliveries for task in mine + others} == {1}
        assert sorted(ids(fan_out.take(99))) == list(range(10))
        one.ack(mine)
        other.ack(iter(others))
        assert one.take() == other.take() == []
        assert one.status() == (0, 0, 0, 0, 0, 0)


def test_a_task_has_what_its_record_has(log, clock):
    log.topic("jobs").append([{"id": 7, "text": "naïve ☃", "urgency": None}, {"id": 8, "_deleted": True}])
    with log.queue("g", "jobs") as queue:
        first, second = sorted(queue.take(2), key=lambda task: task.value["id"])
    assert first.value == {"id": 7, "text": "naïve ☃", "urgency": None, "at": None}
    assert (first.topic, first.deleted, second.deleted) == ("jobs", False, True)
    assert clock.now() <= first.time < clock.now() + 1000


def test_a_lease_that_runs_out_gives_the_record_to_another_and_the_late_answer_is_refused(log, clock):
    put(log, [1, 2])
    with log.queue("g", "jobs", lease="10 seconds") as one, log.queue("g", "jobs", lease="10 seconds") as other:
        tasks = one.take(2)
        clock.advance(9)
        one.renew(tasks[0])
        clock.advance(2)
        again = other.take(2)
        assert [(task.offset, task.partition, task.deliveries) for task in again] == [
            (tasks[1].offset, tasks[1].partition, 2)
        ]
        with pytest.raises(LeaseLost, match="1 of 2 records"):
            one.ack(tasks)  # the other one is finished
        other.ack(again)
        clock.advance(100)
        assert one.take() == []


def test_what_runs_out_and_nobody_takes_can_still_be_acknowledged(log, clock):
    put(log, [1])
    with log.queue("g", "jobs", lease="1 second") as queue:
        task = queue.take()
        clock.advance(60)
        queue.ack(task)
        assert queue.take() == []


def test_a_record_that_is_never_acknowledged_is_a_dead_letter_after_its_limit(log):
    put(log, [1])
    with log.queue("g", "jobs", max_deliveries=3) as queue:
        for number in (1, 2, 3):
            (task,) = queue.take()
            assert task.deliveries == number
            queue.release(task)
        assert queue.take() == []
        assert dead(log) == [(1, "delivered 3 times, never acknowledged")]
        assert queue.status() == (0, 0, 0, 0, 0, 0)


def test_a_rejected_record_is_a_dead_letter_with_its_reason_and_place(log):
    put(log, range(4))
    with log.queue("g", "jobs") as queue:
        tasks = queue.take(4)
        queue.reject(tasks[:3], "no such customer")
        queue.ack(tasks[3])
    assert sorted(dead(log)) == sorted((number, "no such customer") for number in ids(tasks[:3]))
    letter = log.topic("jobs.dead").read(0, 0, 1).to_pylist()[0]
    assert letter["topic"] == "jobs"
    assert (letter["partition"], letter["offset"]) in {(task.partition, task.offset) for task in tasks[:3]}


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_crash_while_letters_are_appended_leaves_each_letter_once(log, monkeypatch, step):
    put(log, range(300))
    buried = Leases.buried

    def crash(self, letter):
        if step == "after":
            buried(self, letter)
        raise KeyboardInterrupt

    with log.queue("g", "jobs") as queue:
        tasks = queue.take(300)
        monkeypatch.setattr(Leases, "buried", crash)
        with pytest.raises(KeyboardInterrupt):
            queue.reject(tasks[:200], "bad")
        monkeypatch.setattr(Leases, "buried", buried)
        queue.reject(tasks[200:], "worse")
        assert queue.take() == []
    assert Counter(number for number, _ in dead(log)) == Counter(range(300))


def test_a_delay_holds_a_record_back(log, clock):
    put(log, [1])
    with log.queue("g", "jobs") as queue:
        queue.release(queue.take(), delay="1 minute")
        assert queue.take() == []
        assert queue.status().delayed == 1
        clock.advance(61)
        assert ids(queue.take()) == [1]


def test_times_below_zero_are_refused_and_the_lease_stays(log):
    put(log, [1])
    with log.queue("g", "jobs") as queue:
        (task,) = queue.take()
        with pytest.raises(InvalidTime, match="delay='-1 minute' is below zero"):
            queue.release(task, delay="-1 minute")
        with pytest.raises(InvalidTime, match="lease='-1 minute' is below zero"):
            queue.renew(task, lease="-1 minute")
        queue.ack(task)


def test_urgent_records_come_first_and_those_for_later_later(log, clock):
    put(log, [1, 2, 3], urgency=1)
    put(log, [4], urgency=9)
    put(log, [5], urgency=10, at="2030-01-01")
    put(log, [6])
    with log.queue("g", "jobs", priority="urgency", not_before="at") as queue:
        assert ids(queue.take(1)) == [4]
        assert sorted(ids(queue.take(3))) == [1, 2, 3]
        assert ids(queue.take(3)) == [6]
        assert queue.take() == []
        clock.advance(10 * 365 * 86_400)
        assert ids(queue.take(1)) == [5]


def test_records_of_a_key_come_one_after_the_other(log):
    for _ in range(3):
        put(log, [1, 2], text="x")
    with log.queue("g", "jobs", key_order=True, max_deliveries=2) as queue:
        tasks = queue.take(10)
        assert sorted(ids(tasks)) == [1, 2]
        assert queue.take(10) == []
        one = next(task for task in tasks if task.value["id"] == 1)
        queue.release(one, delay="1 hour")  # what is held back holds back what follows
        assert queue.take(10) == []
        two = next(task for task in tasks if task.value["id"] == 2)
        queue.ack(two)
        (following,) = queue.take(10)
        assert (following.value["id"], following.offset) == (2, two.offset + 1) or following.offset > two.offset
        queue.reject(following)  # a dead letter holds back nothing
        assert ids(queue.take(10)) == [2]


def test_a_window_of_records_is_put_in_order_at_a_time(log, monkeypatch):
    monkeypatch.setattr("headrace.log.queues.queue.WINDOW", 10)
    put(log, range(100), urgency=1)
    put(log, [100], urgency=2)
    with log.queue("g", "jobs", priority="urgency") as queue:
        seen = []
        while tasks := queue.take(3):
            seen += ids(tasks)
            queue.ack(tasks)
            queue._looked = queue._counted = -1.0
        assert sorted(seen) == list(range(101))


def test_records_that_retention_deleted_are_counted(log, clock):
    topic = log.create_topic("short", "id bigint", retention="1 hour")
    topic.append([{"id": 1}])
    with log.queue("g", "short") as queue:
        clock.advance(2 * 3600)
        topic.clean()
        topic.append([{"id": 2}])
        taken = queue.take(5) + queue.take(5)
        assert [task.value["id"] for task in taken] == [2]
        assert queue.status().lost == 1


def test_partitions_that_are_added_are_found(log):
    with log.queue("g", "jobs") as queue:
        put(log, range(10))
        queue.ack(queue.take(10))
        log.topic("jobs").add_partitions(5)
        put(log, range(100, 140))
        assert sorted(ids(queue.take(100))) == list(range(100, 140))


def test_what_a_closed_worker_held_goes_to_others_at_once(log):
    put(log, range(5))
    one = log.queue("g", "jobs")
    one.take(5)
    one.close()
    one.close()
    with log.queue("g", "jobs") as other:
        assert sorted(ids(other.take(5))) == list(range(5))
    with pytest.raises(InvalidArgument, match="closed"):
        one.take()


def test_a_wait_ends_when_a_record_comes(tmp_path):
    with Log(tmp_path / "log") as log:
        log.create_topic("jobs", "id bigint")
        with log.queue("g", "jobs") as queue:
            began = time.monotonic()
            assert queue.take(wait="100 milliseconds") == []
            assert 0.1 <= time.monotonic() - began < 5
            log.topic("jobs").append([{"id": 1}])
            assert ids(queue.take(wait="1 minute")) == [1]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"group": "../etc"}, InvalidName),
        ({"group": ""}, InvalidName),
        ({"topic": "job"}, UnknownTopic),
        ({"lease": "soon"}, InvalidTime),
        ({"lease": "0 seconds"}, InvalidTime),
        ({"max_deliveries": 0}, InvalidArgument),
        ({"priority": "urgencies"}, InvalidArgument),
        ({"priority": "text"}, InvalidArgument),
        ({"not_before": "id"}, InvalidArgument),
        ({"key_order": "text"}, InvalidArgument),
    ],
)
def test_impossible_options_are_refused(log, options, error):
    with pytest.raises(error):
        log.queue(**({"group": "g", "topic": "jobs"} | options))


def test_key_order_needs_a_key_and_answers_need_tasks(log):
    log.create_topic("keyless", "id bigint")
    with pytest.raises(InvalidArgument, match="no key"):
        log.queue("g", "keyless", key_order=True)
    with log.queue("g", "keyless") as queue:
        with pytest.raises(InvalidArgument, match="tasks"):
            queue.ack([3])
        with pytest.raises(InvalidArgument, match="tasks"):
            queue.ack(None)
        with pytest.raises(InvalidArgument, match="n=0"):
            queue.take(0)


def test_the_page_shows_what_its_program_prints():
    house = Path(__file__).parents[2]
    program = [sys.executable, house / "examples/redelivery.py"]
    printed = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    assert f"$ python examples/redelivery.py\n{printed}" in (house / "docs/queues.md").read_text()


@pytest.mark.parametrize("answer", ["ack", "renew", "release", "reject"])
def test_an_answer_for_a_record_and_its_former_lease_is_one_for_the_record(log, clock, answer):
    log.create_topic("narrow", "id bigint", partitions=1)
    log.topic("narrow").append([{"id": 1}, {"id": 2}])
    with log.queue("g", "narrow", lease="10 seconds") as queue:
        former = queue.take(2)
        clock.advance(11)
        (again,) = queue.take(1)
        with pytest.raises(LeaseLost, match="1 of 2 records") as lost:
            getattr(queue, answer)([*former, again, again])
        assert lost.value.places == ((0, 1),)


class Workers(RuleBasedStateMachine):
    """Three workers do anything in any order; a model knows where each record must be."""

    def __init__(self, folder):
        super().__init__()
        self.clock = ManualClock()
        self.log = Log(folder / str(time.monotonic_ns()), clock=self.clock, fsync=False)
        self.log.create_topic("jobs", "id bigint", partitions=3, key="id")
        self.count, self.acked, self.refused = 0, Counter(), Counter()
        self.held = {number: [] for number in range(3)}
        self.given = {}  # by place, the lease that was given last

    @initialize(ordered=st.booleans())
    def open(self, ordered):
        self.ordered = ordered
        self.queues = [self._opened() for _ in range(3)]

    def _opened(self):
        return self.log.queue("g", "jobs", lease="10 seconds", max_deliveries=4, key_order=self.ordered)

    @rule(count=st.integers(1, 20))
    def put(self, count):
        self.log.topic("jobs").append([{"id": number % 7} for number in range(count)])
        self.count += count

    @rule(who=st.integers(0, 2), count=st.integers(1, 10))
    def take(self, who, count):
        found = self.queues[who].take(count)
        if self.ordered:
            assert len({task.value["id"] for task in found}) == len(found)
        self.held[who] += found
        self.given.update({(task.partition, task.offset): task.lease for task in found})

    @rule(who=st.integers(0, 2), what=st.sampled_from(["ack", "release", "reject"]), count=st.integers(1, 8))
    def answer(self, who, what, count):
        tasks, self.held[who] = self.held[who][:count], self.held[who][count:]
        for task in tasks:
            try:
                getattr(self.queues[who], what)(task)
            except LeaseLost:
                continue
            assert self.given[task.partition, task.offset] == task.lease, "another worker had it"
            if what == "ack":
                self.acked[task.partition, task.offset] += 1

    @rule(who=st.integers(0, 2), count=st.integers(1, 20), renews=st.booleans())
    def acknowledge_together(self, who, count, renews):
        tasks, self.held[who] = self.held[who][:count], self.held[who][count:]
        lost = set()
        try:
            if renews:
                self.queues[who].renew(tasks)
            self.queues[who].ack(tasks)
        except LeaseLost as error:
            if renews and "renewed" in error.what:
                self.held[who] = tasks + self.held[who]
                return
            lost = set(error.places)
        for place, lease in {(task.partition, task.offset): task.lease for task in tasks}.items():
            if place not in lost:  # a worker may have been given it twice: the last lease counts
                assert self.given[place] == lease, "another worker had it"
                self.acked[place] += 1

    @rule(seconds=st.sampled_from([1, 5, 11]))
    def wait(self, seconds):
        self.clock.advance(seconds)

    @rule(who=st.integers(0, 2))
    def die(self, who):
        os.close(self.queues[who]._leases.life._fd)
        self.queues[who]._leases.life._fd = -1
        self.queues[who]._leases.state.close()
        self.queues[who], self.held[who] = self._opened(), []

    @invariant()
    def nothing_is_acknowledged_twice(self):
        assert not [place for place, times in self.acked.items() if times > 1]

    def teardown(self):
        if not hasattr(self, "queues"):
            return
        worker = self.queues[0]
        for _ in range(self.count * 6):
            self.clock.advance(11)
            tasks = worker.take(50)
            worker.ack(tasks)
            self.acked.update((task.partition, task.offset) for task in tasks)
            if not tasks and worker.status() == (0, 0, 0, 0, 0, 0):
                break
        self.nothing_is_acknowledged_twice()
        letters = Counter()
        if self.log.has_topic("jobs.dead"):
            for row in self.log.topic("jobs.dead").read(0, 0, 100_000).to_pylist():
                letters[row["partition"], row["offset"]] += 1
        assert not letters.keys() & self.acked.keys()
        assert set(letters.values()) <= {1}
        assert len(letters) + len(self.acked) == self.count
        for queue in self.queues:
            queue.close()
        self.log.close()


def test_any_order_of_takes_answers_waits_and_deaths_finishes_each_record_once(tmp_path):
    run_state_machine_as_test(
        lambda: Workers(tmp_path),
        settings=settings(
            max_examples=20, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.parametrize(
    ("workers", "tasks", "kills"), [(3, 3_000, 8), pytest.param(16, 1_000_000, 300, marks=pytest.mark.prove)]
)
def test_killed_workers_lose_nothing_and_acknowledge_nothing_twice(tmp_path, workers, tasks, kills):
    """Poison (every 500th) ends in the dead letters; any other record is acknowledged by one process."""
    with Log(tmp_path / "log", fsync=False) as log:
        log.create_topic("jobs", "id bigint, text string", partitions=4)
        for first in range(0, tasks, 100_000):
            rows = [{"id": number, "text": "x" * 150} for number in range(first, min(first + 100_000, tasks))]
            log.topic("jobs").append(rows, partition=first // 100_000 % 4)
        draw = random.Random(4)  # noqa: S311
        journal = tmp_path / "done"
        journal.mkdir()
        processes = []

        def begin():
            command = [sys.executable, str(WORKER), str(tmp_path / "log"), str(journal)]
            processes.append(subprocess.Popen(command))

        for _ in range(workers):
            begin()
        try:
            with log.queue("g", "jobs", max_deliveries=50) as queue:
                deadline = time.monotonic() + 540
                while True:
                    if kills:
                        time.sleep(draw.uniform(0.1, 0.4) if workers < 8 else 1)
                        victim = processes.pop(draw.randrange(len(processes)))
                        victim.send_signal(signal.SIGKILL)
                        victim.wait()
                        begin()
                        kills -= 1
                    status = queue.status()
                    if status == (0, 0, 0, 0, 0, 0):
                        break
                    assert time.monotonic() < deadline, status
                    time.sleep(0.05)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        done = Counter(int(line) for path in journal.iterdir() for line in path.read_text().split("\n")[:-1])
        poison = {number for number in range(tasks) if number % 500 == 0}
        assert max(done.values()) == 1
        letters = Counter(number for number, _ in dead(log))
        assert set(letters.values()) <= {1}
        assert poison <= letters.keys()
        # a worker may die after its acknowledgement and before it notes it
        assert set(range(tasks)) - done.keys() - letters.keys() == _acked_unnoted(journal, done)


def _acked_unnoted(journal, done):
    """Return what workers had begun to acknowledge and did not note: the last batch of each."""
    begun = {int(line) for path in journal.parent.glob("begun-*") for line in path.read_text().split("\n")[:-1]}
    return begun - done.keys()
