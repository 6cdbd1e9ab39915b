"""The file with a feed's position: damage is found, removing it begins the feed again, and it is of one topic."""

from __future__ import annotations

from zlib import crc32

import pyarrow as pa
import pytest

from headrace.base.errors import DamagedFile
from headrace.base.outside import FeedChanged, FeedTopicReplaced
from headrace.connect.embedded import EmbeddedTopics, landing_file
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


@pytest.mark.parametrize("sealed", [False, True])
def test_a_landing_of_an_earlier_release_is_read(log, sealed):
    land(log, {"id": 1, "text": "one"}, position=b"7")
    path = log.path / "landings" / "t"
    about, parts = landing_file.read(path)
    packed = {}
    for name, rows in parts.items():
        with pa.BufferOutputStream() as out:
            with pa.ipc.new_stream(out, rows.schema) as stream:
                stream.write_table(rows)
            packed[name] = pa.array([out.getvalue().to_pybytes()], pa.binary())
    batch = pa.record_batch(packed)
    with pa.ipc.new_file(path, batch.schema.with_metadata(about)) as file:
        file.write_batch(batch)
    if sealed:
        raw = path.read_bytes()
        path.write_bytes(raw + b"HRSUM %08x\n" % crc32(raw))
    assert land(log, {"id": 2, "text": "two"}, position=b"8") == b"7"
    assert land(log) == b"8"
    assert ids(log) == [1, 2]


@pytest.mark.parametrize("release", ["this", "earlier"])
def test_a_long_position_is_kept_byte_by_byte_and_one_that_is_a_text_is_read(log, monkeypatch, release):
    """The ids of 10,000 messages are 160 kB: they are stored as they are. Earlier releases stored them as JSON."""
    position = bytes(range(256)) * 625
    if release == "earlier":
        monkeypatch.setattr(landing_file, "_SHORT", 1 << 40)
    land(log, {"id": 1, "text": "one"}, position=position)
    assert land(log, {"id": 2, "text": "two"}, position=position[::-1]) == position
    monkeypatch.undo()
    path = log.path / "landings" / "t"
    assert (path.stat().st_size < 5 * len(position)) == (release == "this")
    assert land(log) == position[::-1]
    assert land(log, {"id": 3, "text": "three"}, position=b"short") == position[::-1]
    assert land(log) == b"short"
    assert ids(log) == [1, 2, 3]


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


def landed_thrice(log, *texts):
    """Land three times; return the file, and its content after the second and after the third time."""
    path, seen = log.path / "landings" / "t", []
    for number, text in enumerate(texts or ("one", "two", "three")):
        land(log, {"id": number, "text": text}, position=b"%d" % number)
        seen.append(path.read_bytes())
    return path, seen[-2], seen[-1]


def test_a_write_that_was_cut_off_anywhere_leaves_the_append_before_it(log):
    """The places are written in turn: each mixture of the old bytes and the new ones is the old append, or the new."""
    path, before, after = landed_thrice(log, "one", "two", "three, which is longer than the first one was")
    changed = [at for at in range(4096, len(after)) if before[at : at + 1] != after[at : at + 1]]
    for cut in changed[1::5]:
        path.write_bytes(before[:4096] + after[4096:cut] + before[cut:])
        assert landing_file.read(path)[0][b"headrace.position"] == b"1"
        path.write_bytes(before[:4096] + before[4096:cut] + after[cut:])
        assert landing_file.read(path)[0][b"headrace.position"] == b"1"


def test_an_append_whose_place_is_whole_is_the_last_one_though_the_head_does_not_name_it(log):
    """Its process died before it wrote the head, or the power failed: the next append takes the other place."""
    path, before, after = landed_thrice(log)
    path.write_bytes(before[:4096] + after[4096:])
    assert land(log) == b"2"
    assert path.read_bytes() == after
    path.write_bytes(before[:4096] + after[4096:])
    assert land(log, {"id": 3, "text": "four"}, position=b"3") == b"2"
    assert land(log) == b"3"
    assert ids(log) == [0, 1, 2, 3]


def test_damage_of_the_last_append_is_not_taken_for_a_write_that_was_cut_off(log):
    path, before, after = landed_thrice(log)
    place = [at for at in range(4096, len(before)) if before[at] != after[at]]
    for at in (*place[::9], *range(0, 4096, 97)):
        path.write_bytes(after[:at] + bytes([after[at] ^ 4]) + after[at + 1 :])
        with pytest.raises(DamagedFile):
            land(log)
    path.write_bytes(after)
    assert land(log) == b"2"


def test_appends_of_any_size_follow_each_other_and_a_file_that_is_too_large_is_written_anew(log):
    path, sizes = log.path / "landings" / "t", [1, 30_000, 5, 200_000, 9, 9, 2_000_000, 1, 1]
    for number, size in enumerate(sizes):
        text = chr(97 + number) * size
        assert land(log, {"id": number, "text": text}, position=b"%d" % number) == (
            b"%d" % (number - 1) if number else None
        )
        assert landing_file.read(path)[1]["rows"].column("text").to_pylist() == [text]
    assert path.stat().st_size < 100_000
    assert ids(log) == list(range(len(sizes)))
