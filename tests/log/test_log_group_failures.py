"""A member of a consumer group whose topic is deleted, or whose disk refuses: its partitions are not stuck."""

import sqlite3
from contextlib import closing

import pytest

from headrace.base.errors import DiskFailed, UnknownTopic
from headrace.base.time import ManualClock
from headrace.log import Log
from headrace.log.topic import Topic


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path / "log", clock=ManualClock(), fsync=False) as opened:
        opened.create_topic("clicks", "id bigint", partitions=2)
        opened.create_topic("views", "id bigint")
        yield opened


def refusing(log, statement):
    """Return the file of the group "g", in which a statement is refused as by a full disk."""
    state = sqlite3.connect(log.path / "groups" / "g" / "group.db", isolation_level=None)
    state.execute(f"CREATE TRIGGER full BEFORE {statement} BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END")
    return closing(state)


def test_a_member_of_a_deleted_topic_leaves_its_group(log):
    """The others get the other topics' partitions at once."""
    member = log.consumer("g", ["clicks", "views"])
    member.poll()
    log.delete_topic("views")
    with pytest.raises(UnknownTopic):
        log.topic("views")
    member.close()
    with log.consumer("g", "clicks") as other:
        other.poll()
        assert other.assignment() == [("clicks", 0), ("clicks", 1)]


def test_a_member_that_the_disk_does_not_let_leave_is_gone(log):
    member = log.consumer("g", "clicks")
    member.poll()
    with refusing(log, "DELETE ON members") as state:
        with pytest.raises(DiskFailed):
            member.close()
        state.execute("DROP TRIGGER full")
    with log.consumer("g", "clicks") as other:
        other.poll()
        assert other.assignment() == [("clicks", 0), ("clicks", 1)]


def test_partitions_whose_begin_could_not_be_committed_are_read_by_the_next_poll(log):
    log.topic("clicks").append([{"id": number} for number in range(10)])
    with log.consumer("g", "clicks") as member:
        with refusing(log, "UPDATE OF committed ON partitions") as state:
            with pytest.raises(DiskFailed):
                member.poll()
            state.execute("DROP TRIGGER full")
        assert sum(records.rows.num_rows for records in member.poll()) == 10
        assert member.assignment() == [("clicks", 0), ("clicks", 1)]


def test_what_retention_deletes_while_a_member_reads_is_lost_and_not_an_error(log, monkeypatch):
    log.topic("views").append([{"id": number} for number in range(10)])
    with log.consumer("g", "views", session="1 day", max_poll_interval="1 day") as member:
        assert [records.rows.num_rows for records in member.poll(2)] == [2]
        look, left = Topic.start_offsets, [True]

        def looked(topic):
            starts = look(topic)
            if left:
                left.pop()
                topic.alter(retention="1 hour")
                log.clock.advance(7200)
                topic.clean()
            return starts

        monkeypatch.setattr(Topic, "start_offsets", looked)
        assert member.poll() == []
        assert member.lost == 8
