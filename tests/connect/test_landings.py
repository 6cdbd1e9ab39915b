"""The file with a feed's position: damage is found, removing it begins the feed again, and it is of one topic."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.base.errors import DamagedFile
from headrace.base.outside import FeedChanged, FeedTopicReplaced
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.topics import TopicSpec
from headrace.log import Log

SCHEMA = pa.schema([("id", pa.int32()), ("text", pa.string())])


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path / "log", fsync=False) as log:
        yield log


def land(log, *rows, position=b""):
    """Open the landing, append rows if there are any, and return the position that it had."""
    topics = EmbeddedTopics(log, partitions=1, fault=lambda point: None)  # noqa: ARG005 -- nothing happens there
    spec = TopicSpec(name="t", schema=SCHEMA)
    landing = topics.landing(spec, feed="f", limit=1 << 60, read=lambda: 0)
    try:
        before = landing.position()
        if rows:
            landing.append(list(rows), position=position)
        return before
    finally:
        landing.close()


def ids(log):
    topic = log.topic("t")
    return topic.read(0, 0, 1000).column("id").to_pylist()


def test_no_bit_and_no_byte_of_a_landing_is_missed(log):
    land(log, {"id": 1, "text": "one"}, position=b"7")
    path = log.path / "landings" / "t"
    raw = path.read_bytes()
    hurt = [raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :] for at in range(0, len(raw), 7)]
    hurt += [raw[:size] for size in range(0, len(raw) - 1, 31)]
    for content in hurt:
        path.write_bytes(content)
        with pytest.raises(DamagedFile) as error:
            land(log)
        assert str(path) in str(error.value)
        assert "Restore it from a copy" in error.value.hint
    assert ids(log) == [1]


def test_a_landing_of_an_earlier_release_is_read(log):
    land(log, {"id": 1, "text": "one"}, position=b"7")
    path = log.path / "landings" / "t"
    path.write_bytes(path.read_bytes().rpartition(b"HRSUM")[0])
    assert land(log, {"id": 2, "text": "two"}, position=b"8") == b"7"
    assert land(log) == b"8"
    assert ids(log) == [1, 2]


def test_a_feed_whose_position_was_removed_begins_again_and_nothing_of_it_is_dropped(log):
    for number in range(3):
        land(log, {"id": number, "text": ""}, position=b"%d" % number)
    (log.path / "landings" / "t").unlink()
    assert land(log, {"id": 7, "text": ""}, position=b"0") is None
    assert land(log, {"id": 8, "text": ""}, position=b"1") == b"0"
    assert ids(log) == [0, 1, 2, 7, 8]


def test_a_feed_does_not_go_on_into_a_topic_that_was_created_again(log):
    land(log, {"id": 1, "text": ""}, position=b"1")
    log.delete_topic("t")
    with pytest.raises(FeedTopicReplaced) as error:
        land(log, {"id": 2, "text": ""}, position=b"2")
    (log.path / "landings" / "t").unlink()
    assert str(log.path / "landings" / "t") in error.value.hint
    assert land(log, {"id": 1, "text": ""}, position=b"1") is None
    assert ids(log) == [1]


def test_appends_that_leave_the_position_as_it_is_write_nothing_but_the_topic(log):
    """And their numbers go on after the landing is opened again, also where a file has an older one."""
    land(log, {"id": 1, "text": ""}, position=b"1")
    path = log.path / "landings" / "t"
    stored = path.read_bytes()
    for number in range(2, 5):
        assert land(log, {"id": number, "text": ""}, position=b"1") == b"1"
    land(log, {"id": 5, "text": ""}, position=None)
    assert path.read_bytes() == stored
    land(log, {"id": 6, "text": ""}, position=b"2")
    assert land(log) == b"2"
    assert ids(log) == [1, 2, 3, 4, 5, 6]


def test_the_first_append_says_which_feed_it_is_though_it_has_no_position(log):
    land(log, {"id": 1, "text": ""}, position=None)
    topics = EmbeddedTopics(log, partitions=1, fault=lambda point: None)  # noqa: ARG005 -- nothing happens there
    with pytest.raises(FeedChanged):
        topics.landing(TopicSpec(name="t", schema=SCHEMA), feed="g", limit=1, read=lambda: 0)
    land(log, {"id": 2, "text": ""}, position=None)
    assert ids(log) == [1, 2]


def test_an_append_that_failed_is_followed_by_one_that_writes_the_file(log, monkeypatch):
    """What was appended of the failed one may be there; no number is used twice, so nothing that follows is dropped."""
    topics = EmbeddedTopics(log, partitions=1, fault=lambda point: None)  # noqa: ARG005 -- nothing happens there
    landing = topics.landing(TopicSpec(name="t", schema=SCHEMA), feed="f", limit=1, read=lambda: 0)
    landing.append([{"id": 1, "text": ""}], position=b"1")
    with monkeypatch.context() as patched:
        patched.setattr(type(landing.topic), "append", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            landing.append([{"id": 2, "text": ""}])
    landing.append([{"id": 3, "text": ""}])
    landing.append([{"id": 4, "text": ""}])
    landing.close()
    assert ids(log) == [1, 3, 4]
    assert land(log) == b"1"
    assert ids(log) == [1, 3, 4]
