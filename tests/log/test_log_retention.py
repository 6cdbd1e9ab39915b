"""Retention deletes whole closed segments from the start, by age and by size, and nothing else."""

import pytest

from headrace.base.errors import InvalidTime, InvalidTopic, OffsetOutOfRange
from headrace.log import Cleaned, Log

DAY = 86_400


def fill(topic, appends, *, clock=None, seconds=0):
    for _ in range(appends):
        first = topic.end_offsets()[0]
        topic.append([{"id": first + i, "text": "x" * 40} for i in range(3)])
        if clock is not None:
            clock.advance(seconds)


def ids(topic):
    return topic.read(0, topic.start_offsets()[0], 10**6).column("id").to_pylist()


@pytest.fixture
def small(again):
    """A log in which each append of `fill` has a segment of its own."""
    return again(segment_bytes=500)


def test_segments_whose_newest_record_is_too_old_go_from_the_start(small, clock):
    topic = small.create_topic("a", "id bigint, text string", retention="10 days")
    fill(topic, 5, clock=clock, seconds=3 * DAY)
    assert topic.start_offsets() == {0: 3}  # the append on day 12 closed a segment, so retention was applied
    assert topic.clean() == Cleaned(segments_dropped=1, bytes_dropped=512)
    assert topic.start_offsets() == {0: 6}
    assert ids(topic) == list(range(6, 15))
    assert not topic.clean()


def test_age_is_that_of_the_append_and_not_of_the_event(small, clock):
    """History that is loaded today is not deleted today, and an event in the far future keeps nothing for ever."""
    topic = small.create_topic("a", "id bigint, text string, at timestamp", event_time="at", retention="10 days")
    for year in (1990, 2990, 1990):
        topic.append([{"id": year, "text": "x" * 100, "at": f"{year}-01-01"} for _ in range(3)])
    assert not topic.clean()
    clock.advance(11 * DAY)
    assert topic.clean().segments_dropped == 3
    assert topic.start_offsets() == topic.end_offsets() == {0: 9}


def test_a_quiet_topic_expires_although_its_segment_was_never_full(log, clock):
    topic = log.create_topic("a", "id bigint, text string", retention="7 days")
    fill(topic, 2)
    clock.advance(7 * DAY)
    assert not topic.clean()
    clock.advance(1)
    assert topic.clean().segments_dropped == 1
    assert (topic.start_offsets(), topic.end_offsets()) == ({0: 6}, {0: 6})
    assert topic.append([{"id": 6}]) == {0: range(6, 7)}
    assert ids(topic) == [6]


def test_an_append_closes_a_segment_that_has_waited_too_long(log, clock):
    topic = log.create_topic("a", "id bigint, text string", retention="1 day")
    fill(topic, 1)
    clock.advance(DAY + 1)
    fill(topic, 1)
    assert topic.start_offsets() == {0: 3}
    assert ids(topic) == [3, 4, 5]


def test_size_is_bounded_by_whole_segments_and_at_least_so_much_is_kept(small):
    topic = small.create_topic("a", "id bigint, text string", retention_bytes=1_000)
    fill(topic, 20)
    folder = small.path / "topics" / "a" / "0"
    sizes = [path.stat().st_size for path in sorted(folder.glob("*.segment"))]
    assert 1_000 <= sum(sizes) < 1_000 + sizes[0]
    assert ids(topic) == list(range(topic.start_offsets()[0], 60))
    assert len(list(folder.glob("*.index"))) == len(sizes) - 1


def test_a_read_before_the_start_says_where_to_read(small, clock):
    topic = small.create_topic("a", "id bigint, text string", retention="1 day")
    fill(topic, 4)
    clock.advance(2 * DAY)
    topic.clean()
    fill(topic, 1)
    with pytest.raises(OffsetOutOfRange, match="cannot be read at offset 2") as error:
        topic.read(0, 2, 10)
    assert "It has the offsets from 12 up to, not including, 15" in str(error.value)
    assert "Hint: Read from 12." in str(error.value)


def test_who_is_reading_keeps_the_segment_at_hand_and_is_told_when_the_next_is_gone(small, again, clock):
    topic = small.create_topic("a", "id bigint, text string", retention="1 day")
    fill(topic, 4)
    other = again().topic("a")
    reading = other.batches(0, 0, 12)
    batch = next(reading)
    clock.advance(2 * DAY)
    topic.clean()
    assert batch.column("id").to_pylist() == [0, 1, 2]
    with pytest.raises(OffsetOutOfRange, match="offsets 3 to 12") as error:
        next(reading)
    assert "Read from 12" in str(error.value)
    assert other.start_offsets() == {0: 12}


def test_retention_outlives_a_lost_head(small, again, clock):
    """The start never goes back, and offsets are never used twice."""
    topic = small.create_topic("a", "id bigint, text string", retention="1 day")
    fill(topic, 4)
    clock.advance(2 * DAY)
    topic.clean()
    head = small.path / "topics" / "a" / "0" / "head"
    for content in (b"", b"\7" * 192, None):
        head.write_bytes(content) if content is not None else head.unlink()
        reader = again().topic("a")
        assert (reader.start_offsets(), reader.end_offsets()) == ({0: 12}, {0: 12})
    assert again().topic("a").append([{"id": 12}]) == {0: range(12, 13)}


def test_a_producer_is_known_after_retention_took_its_records(small, again, clock):
    topic = small.create_topic("a", "id bigint, text string", retention="1 day")
    for number in range(5):
        topic.append([{"id": number, "text": "x" * 300}], producer="p", sequence=number)
    clock.advance(2 * DAY)
    topic.clean()
    assert topic.start_offsets() == {0: 5}
    folder = small.path / "topics" / "a" / "0"
    for snapshots in ("kept", "gone"):
        assert again().topic("a").append([{"id": 4}], producer="p", sequence=4) == {0: range(4, 5)}, snapshots
        assert topic.end_offsets() == {0: 5}
        for path in folder.glob("*.producers"):
            path.unlink()


def test_retention_that_fails_does_not_fail_the_append(small, clock, monkeypatch, caplog):
    topic = small.create_topic("a", "id bigint, text string", retention="1 day")
    fill(topic, 2)
    clock.advance(2 * DAY)
    no_space = OSError(28, "no space")
    monkeypatch.setattr("headrace.log.segments.layout.write", lambda *_, **__: (_ for _ in ()).throw(no_space))
    fill(topic, 2)
    assert "retention failed" in caplog.text
    monkeypatch.undo()
    assert ids(topic) == list(range(12))
    topic.clean()
    assert ids(topic) == list(range(6, 12))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"retention": "-1 day"}, "retention is -86400000000"),
        ({"retention_bytes": -1}, "retention_bytes is -1"),
        ({"retention_bytes": "1 GB"}, "retention_bytes is '1 GB'"),
        ({"retention_bytes": True}, "retention_bytes is True"),
        ({"archive_after": "1 day"}, "archive is not"),
        ({"cleanup": "compact", "key": "tags"}, 'the key column "tags" is a array<int>'),
    ],
)
def test_rules_that_make_no_sense_are_refused(log, wrong, says):
    with pytest.raises(InvalidTopic) as error:
        log.create_topic("a", "id bigint, tags array<int>", **wrong)
    assert says in str(error.value)


def test_a_length_of_time_that_is_none_is_refused(log):
    with pytest.raises(InvalidTime, match="is not a delete_retention"):
        log.create_topic("a", "id bigint", key="id", cleanup="compact", delete_retention="soon")


def test_rules_are_kept_with_the_topic(tmp_path):
    with Log(tmp_path / "l", fsync=False) as log:
        log.create_topic("a", "id bigint", key="id", retention="2 days", retention_bytes=77, delete_retention="1 hour")
    with Log(tmp_path / "l") as log:
        meta = log.topic("a").opened.meta()
        assert (meta.retention, meta.retention_bytes, meta.delete_retention) == (172_800_000_000, 77, 3_600_000_000)
