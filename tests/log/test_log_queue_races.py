"""What others do, or the disk refuses, while a worker takes: no record is lost, and none dies that nobody was given."""

import pytest

from headrace.base.errors import CorruptBatch
from headrace.log import Log


@pytest.fixture
def log(tmp_path, clock):
    with Log(tmp_path / "log", clock=clock, fsync=False) as opened:
        opened.create_topic("jobs", "id bigint, user bigint, mail string", key="id", private={"mail": "user"})
        opened.create_topic("plain", "id bigint", key="id")
        yield opened


def ids(tasks):
    return [task.value["id"] for task in tasks]


def after_the_next_look(monkeypatch, queue, happens):
    """Let something happen once, when the queue has looked where its topic ends, and before it goes on."""
    look, left = queue.topic.end_offsets, [happens]

    def looked():
        ends = look()
        if left:
            left.pop()()
        return ends

    monkeypatch.setattr(queue.topic, "end_offsets", looked)


@pytest.mark.parametrize("options", [{}, {"key_order": True}], ids=["as-it-comes", "in-order"])
@pytest.mark.parametrize("partitions", [1, 2], ids=["a-record", "a-partition"])
def test_a_record_that_came_and_was_given_back_while_a_worker_looked_is_not_lost(
    log, tmp_path, clock, monkeypatch, options, partitions
):
    """It lies behind what the worker saw as the end of the topic, perhaps in a partition that it has not seen."""
    others = Log(tmp_path / "log", clock=clock, fsync=False)
    with others, log.queue("g", "plain", **options) as one, others.queue("g", "plain", **options) as other:
        log.topic("plain").append([{"id": 0}])
        one.release(one.take())

        def come_and_give_back():
            if partitions > 1:
                others.topic("plain").add_partitions(partitions)
            others.topic("plain").append([{"id": 1}], partition=partitions - 1)
            tasks = other.take(2)
            assert ids(tasks) == [0, 1]
            other.release(tasks)

        after_the_next_look(monkeypatch, one, come_and_give_back)
        tasks = one.take(2)
        tasks += one.take(2)
        assert ids(tasks) == [0, 1]
        assert one.status().lost == 0


def test_records_that_could_not_be_read_were_not_handed_out(log, clock):
    """They wait until the lease ends, and none becomes a dead letter, however often it happens."""
    log.topic("jobs").append([{"id": number, "user": number, "mail": "a@b"} for number in range(3)])
    keys = log.path / "topics" / "jobs" / "private.keys"
    with log.queue("g", "jobs", max_deliveries=2) as queue:
        keys.rename(keys.with_suffix(".away"))
        for _ in range(4):
            with pytest.raises(CorruptBatch):
                queue.take(2)
            clock.advance(60)
        keys.with_suffix(".away").rename(keys)
        tasks = queue.take(3)
        assert ids(tasks) == [0, 1, 2]
        assert [task.deliveries for task in tasks] == [1, 1, 1]
        assert not log.has_topic("jobs.dead")


@pytest.mark.parametrize("options", [{}, {"key_order": True}], ids=["as-it-comes", "in-order"])
def test_what_retention_deletes_while_a_worker_takes_is_lost_and_not_an_error(log, clock, monkeypatch, options):
    topic = log.topic("plain")
    topic.append([{"id": number} for number in range(30)])
    with log.queue("g", "plain", lease="1 day", **options) as queue:
        look, left = queue.topic.start_offsets, [True]

        def looked():
            starts = look()
            if left:
                left.pop()
                topic.alter(retention="1 hour")
                clock.advance(7200)
                topic.clean()
                topic.append([{"id": 30}])
            return starts

        monkeypatch.setattr(queue.topic, "start_offsets", looked)
        tasks = queue.take(30)
        tasks += queue.take(30)
        assert ids(tasks) == [30]
