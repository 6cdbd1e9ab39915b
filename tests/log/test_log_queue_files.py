"""The file of a work queue that was removed, is older than the log, or is of a former topic of the same name."""

import shutil
from collections import Counter

import pytest

from headrace.base.errors import LeaseLost, TopicDeleted
from headrace.log import Log
from headrace.log.groups.looking import groups_of
from headrace.log.queues.leases import Leases
from headrace.log.queues.queue import Queue
from headrace.log.shared_state import SharedState


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path / "log", fsync=False) as opened:
        opened.create_topic("jobs", "id bigint", partitions=2, key="id")
        yield opened


def put(log, ids):
    log.topic("jobs").append([{"id": number} for number in ids])


def ids(tasks):
    return [task.value["id"] for task in tasks]


def reasons(log):
    return [row["reason"] for row in log.topic("jobs.dead").read(0, 0, 100).to_pylist()]


@pytest.mark.parametrize("older", [False, True], ids=["forgotten", "older"])
def test_no_letter_is_dropped_after_the_state_of_a_queue_is_forgotten_or_older(log, older):
    """An append of an old number is dropped in silence: the numbers go on where the topic of dead letters ends."""
    put(log, range(3))
    queues, saved = log.path / "queues", log.path / "saved"
    log.queue("g", "jobs").close()
    shutil.copytree(queues, saved)
    with log.queue("g", "jobs") as queue:
        for task in queue.take(2):
            queue.reject(task, "bad")
    shutil.rmtree(queues)
    if older:
        saved.rename(queues)
    with log.queue("g", "jobs") as queue:
        for task in queue.take(3):
            queue.reject(task, "worse")
        assert queue.status() == (0, 0, 0, 0, 0, 0)
    assert Counter(reasons(log)) == {"bad": 2, "worse": 3}


def made_again(log, rows):
    log.delete_topic("jobs")
    log.create_topic("jobs", "id bigint", key="id")
    put(log, rows)


def test_a_topic_that_is_made_again_is_handed_out_from_its_beginning(log):
    """What was in work is forgotten with the former topic; its dead letters stay, and later ones come to them."""
    put(log, range(10))
    with log.queue("g", "jobs") as former:
        former.reject(former.take(1), "bad")
        held, freed = former.take(3), former.take(3)
        former.release(freed)
        made_again(log, [100, 101])
        with log.queue("g", "jobs") as queue:
            assert queue.status() == (2, 0, 0, 0, 0, 0)
            tasks = queue.take(9)
            assert ids(tasks) == [100, 101]
            with pytest.raises(LeaseLost):
                former.ack(held)
            with pytest.raises(TopicDeleted):
                former.take()
            queue.reject(tasks, "worse")
            assert queue.take() == []
            assert queue.status() == (0, 0, 0, 0, 0, 0)
    assert reasons(log) == ["bad", "worse", "worse"]


def test_a_worker_of_the_former_topic_takes_nothing_of_the_one_that_is_made_again(log, monkeypatch):
    """It looked at the ends before the topic was deleted, and comes to its turn after the topic was made again."""
    put(log, range(10))
    with log.queue("g", "jobs") as former:
        take = Leases.take

        def late(*arguments, **bounds):
            monkeypatch.setattr(Leases, "take", take)
            made_again(log, [100])
            log.queue("g", "jobs").close()
            return take(*arguments, **bounds)

        monkeypatch.setattr(Leases, "take", late)
        with pytest.raises(TopicDeleted):
            former.take(5)
    with log.queue("g", "jobs") as queue:
        assert queue.status() == (1, 0, 0, 0, 0, 0)
        assert ids(queue.take(5)) == [100]


def test_who_opens_a_queue_of_a_former_topic_late_forgets_nothing_of_the_one_that_is_made_again(log, monkeypatch):
    put(log, range(10))
    former, change = log.topic("jobs"), SharedState.change
    with log.queue("other", "jobs") as queue:
        options = queue.options

    def late(state):
        monkeypatch.setattr(SharedState, "change", change)
        made_again(log, [100, 101])
        with log.queue("g", "jobs") as queue:
            queue.ack(queue.take())
        return change(state)

    monkeypatch.setattr(SharedState, "change", late)
    with pytest.raises(TopicDeleted):
        Queue(former, "g", log.path / "queues/g/jobs", options, log)
    with log.queue("g", "jobs") as queue:
        assert ids(queue.take(5)) == [101]


@pytest.mark.parametrize("kind", ["queue", "consumers"])
def test_who_looks_at_a_group_sees_nothing_of_a_former_topic(log, kind):
    put(log, range(10))
    if kind == "queue":
        with log.queue("g", "jobs") as queue:
            queue.ack(queue.take(9)[:5])
    else:
        with log.consumer("g", ["jobs"]) as consumer:
            consumer.poll()
            consumer.commit()
    made_again(log, [100])
    (state,) = groups_of(log, now=log.clock.now())
    assert (state.kind, state.lag, [each.next for each in state.partitions]) == (kind, 1, [None])


def test_a_file_of_an_earlier_release_is_of_the_topic_that_is_there(log):
    put(log, range(3))
    with log.queue("g", "jobs") as queue:
        queue.ack(queue.take(2))
        with queue._leases.state.change() as sql:
            sql.execute("DELETE FROM facts WHERE name = 'topic'")
    with log.queue("g", "jobs") as queue:
        assert queue.status() == (1, 0, 0, 0, 0, 0)
    made_again(log, [100])
    with log.queue("g", "jobs") as queue:
        assert ids(queue.take(5)) == [100]
