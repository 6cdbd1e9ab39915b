"""A worker's single records are read as they are stored, where they can be: the same records as `Topic.batches`."""

from __future__ import annotations

import errno

import pytest

from headrace.base.errors import DiskFailed, OffsetOutOfRange
from headrace.log import Log
from headrace.log.queues import reading
from headrace.log.reading import first_stored
from headrace.log.segments.segment import Segment

COLUMNS = "id bigint, text string"


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path, fsync=False) as opened:
        yield opened


def taken(log, group):
    with log.queue(group, "t") as queue:
        tasks = [task for _ in range(20) for task in queue.take()]
    return [(each.partition, each.offset, each.value, each.time, each.deleted) for each in tasks]


def both(log, monkeypatch):
    """Return what is taken, after the general way of reading has returned the same."""
    found = taken(log, "fast")
    with monkeypatch.context() as patched:
        patched.setattr(reading, "first_stored", lambda *_: None)
        assert taken(log, "general") == found
    return found


def test_records_are_the_same_whatever_is_stored_with_them(log, monkeypatch):
    """Times, headers and tombstones of their own, rows that came together, numbered ones, and an older schema."""
    topic = log.create_topic("t", COLUMNS, key="id")
    topic.append([{"id": 1, "text": "one"}])
    topic.append([{"id": 2, "text": None, "_time": "2020-01-01T00:00:00Z"}])
    topic.append([{"id": 1, "_deleted": True}])
    topic.append([{"id": 3, "text": "h", "_headers": {"a": "b"}}, {"id": 4, "text": ""}])
    topic.append([{"id": 5, "text": "five"}, {"id": 6, "text": "six"}], producer="p", sequence=1)
    topic.evolve(f"{COLUMNS}, more int", {"more": 7})
    topic.append([{"id": 8, "text": "eight"}])
    found = both(log, monkeypatch)
    assert [value["id"] for _, _, value, _, _ in found] == [1, 2, 1, 3, 4, 5, 6, 8]
    assert [value["more"] for _, _, value, _, _ in found] == [7, 7, None, 7, 7, 7, 7, 7]
    assert [deleted for *_, deleted in found] == [False, False, True, *[False] * 5]
    assert first_stored(topic.opened, 0, 0, 8) is None, "an older schema"
    assert first_stored(topic.opened, 0, 7, 8).batch.to_pylist() == [{"id": 8, "text": "eight", "more": 7}]


def test_a_topic_with_an_event_time_has_that_as_the_time(log, monkeypatch):
    topic = log.create_topic("t", "id bigint, at timestamp", event_time="at")
    topic.append([{"id": 1, "at": "2026-01-31T10:00:00Z"}])
    ((*_, time, _),) = both(log, monkeypatch)
    assert time == 1_769_853_600_000_000
    assert first_stored(topic.opened, 0, 0, 1) is None


def test_what_is_read_begins_and_ends_where_it_is_asked_to(log):
    topic = log.create_topic("t", COLUMNS)
    topic.append([{"id": number, "text": "x"} for number in range(5)])
    topic.append([{"id": 5, "text": "x"}])
    found = first_stored(topic.opened, 0, 2, 4)
    assert (found.offset, found.batch.column("id").to_pylist()) == (2, [2, 3])
    assert first_stored(topic.opened, 0, 3, 6).batch.column("id").to_pylist() == [3, 4]
    assert first_stored(topic.opened, 0, 6, 6) is None
    with pytest.raises(OffsetOutOfRange):
        first_stored(topic.opened, 0, 5, 7)


def test_a_disk_that_refuses_is_named(log, monkeypatch):
    log.create_topic("t", COLUMNS).append([{"id": 1, "text": "x"}])

    def refuse(*_):
        raise OSError(errno.EIO, "no")

    with log.queue("g", "t") as queue, monkeypatch.context() as patched:
        patched.setattr(Segment, "hold", refuse)
        with pytest.raises(DiskFailed, match='topic "t"'):
            queue.take()


def test_private_values_are_not_read_as_they_are_stored(log):
    topic = log.create_topic("t", "user string, mail string", private={"mail": "user"})
    topic.append([{"user": "ann", "mail": "a@b"}])
    assert first_stored(topic.opened, 0, 0, 1) is None
    assert [value for _, _, value, _, _ in taken(log, "g")] == [{"user": "ann", "mail": "a@b"}]


def test_records_that_compaction_has_left_are_found_by_their_offsets(log, monkeypatch):
    topic = log.create_topic("t", COLUMNS, key="id", cleanup="compact")
    for number in range(6):
        topic.append([{"id": number % 2, "text": str(number)}])
    topic.compact()
    assert [offset for _, offset, *_ in both(log, monkeypatch)] == [4, 5]
