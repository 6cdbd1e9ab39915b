"""A mark tells the record before an offset from any other that could be there."""

from __future__ import annotations

import shutil

import pytest

from headrace.base.errors import InvalidArgument, InvalidTopic
from headrace.log import Log


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path / "log", fsync=False, segment_bytes=2_000) as log:
        log.create_topic("t", "id int", key="id", partitions=1)
        yield log


def test_each_batch_has_a_mark_which_its_records_share(log):
    topic = log.topic("t")
    for rows in ([1, 2, 3], [4], [4]):
        topic.append([{"id": n} for n in rows])
    marks = [topic.mark(0, offset) for offset in range(7)]
    assert (marks[0], marks[6]) == (None, None), "there is no record before the first offset, and none at the end"
    assert marks[1] == marks[2] == marks[3]
    assert len({*marks[3:6]}) == 3
    topic.append([{"id": 5}])
    assert [topic.mark(0, offset) for offset in range(6)] == marks[:6]


def test_records_that_were_appended_to_an_older_copy_have_other_marks(log, tmp_path):
    topic = log.topic("t")
    topic.append([{"id": 1}])
    shutil.copytree(log.path, tmp_path / "older")
    topic.append([{"id": 2}])
    with Log(tmp_path / "older", fsync=False) as older:
        older.topic("t").append([{"id": 2}])
        assert older.topic("t").mark(0, 1) == topic.mark(0, 1)
        assert older.topic("t").mark(0, 2) != topic.mark(0, 2)


def test_what_was_compacted_or_removed_has_no_mark(log):
    topic = log.topic("t")
    for start in range(0, 2_000, 100):
        topic.append([{"id": n % 300} for n in range(start, start + 100)])
    last = topic.mark(0, 2_000)
    topic.alter(cleanup="compact")
    assert topic.compact().records_removed
    assert topic.mark(0, 50) is None
    assert topic.mark(0, 2_000) in (None, last)
    topic.alter(cleanup="delete", retention_bytes=1)
    assert topic.clean()
    assert topic.mark(0, topic.start_offsets()[0]) is None


def test_a_mark_is_of_a_partition_and_a_whole_offset(log):
    with pytest.raises(InvalidTopic):
        log.topic("t").mark(1, 0)
    for offset in ("1", -1, 1.0, None):
        with pytest.raises(InvalidArgument):
            log.topic("t").mark(0, offset)
