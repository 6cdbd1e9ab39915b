"""A feed of the lines of a file."""

from __future__ import annotations

import json
import os
import threading

import pytest

import headrace as hr
from headrace.base.errors import InvalidPlan
from headrace.base.outside import FeedChanged, FeedRunsElsewhere
from headrace.connect import files
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.files import incoming
from headrace.connect.files.incoming import PlaceReading
from headrace.connect.topics import TopicSpec
from headrace.testing.connectors import COLUMNS


@pytest.fixture
def landing(tmp_path):
    opened = []

    def make():
        with_log = hr.Log(tmp_path / "log", fsync=False)
        topics = EmbeddedTopics(with_log, partitions=2, fault=print)
        spec = TopicSpec(name="t", schema=COLUMNS, key=("id",))
        opened.append((with_log, topics.landing(spec, feed="f", limit=1 << 60, read=lambda: 0)))
        return opened[-1][1]

    yield make
    for log, each in opened:
        each.close()
        log.close()


def landed(tmp_path, topic="t", column="id"):
    with hr.Log(tmp_path / "log") as log:
        found = log.topic(topic)
        return sorted(v for p, n in found.end_offsets().items() for v in found.read(p, 0, n)[column].to_pylist())


def once(path, landing):
    try:
        files.lines(path, follow=False).run(landing, threading.Event())
    finally:
        landing.close()


def line(i, **more):
    return json.dumps({"id": i, "text": f"t{i}", **more}) + "\n"


def test_lines_are_landed_once_and_the_last_one_when_it_is_whole(tmp_path, landing):
    path = tmp_path / "f.jsonl"
    path.write_text(line(1) + "\n" + line(2) + line(3)[:5])
    feed, stop = files.lines(path), threading.Event()
    opened = landing()
    stop.set()
    assert feed._land(opened), "two lines are whole"
    assert not feed._land(opened), "the third is still being written"
    path.write_text(line(1) + "\n" + line(2) + line(3))
    assert feed._land(opened)
    opened.close()
    assert landed(tmp_path) == [1, 2, 3]


def test_what_cannot_be_decoded_is_a_dead_letter_with_its_reason(tmp_path, landing):
    path = tmp_path / "f.jsonl"
    path.write_text(line(1) + "no json\n" + line("x") + "[1]\n" + line(2, more="left out"))
    once(path, landing())
    assert landed(tmp_path) == [1, 2]
    dead = landed(tmp_path, "t.dead", "record")
    assert dead == ["[1]", "no json", line("x").strip()]
    reasons = landed(tmp_path, "t.dead", "reason")
    assert reasons.count("it is no JSON object") == 2
    assert any("x" in reason for reason in reasons)


def test_a_file_that_is_replaced_or_cut_off_is_read_from_its_start(tmp_path, landing):
    path = tmp_path / "f.jsonl"
    path.write_text(line(1))
    once(path, landing())
    path.rename(tmp_path / "f.jsonl.1")
    path.write_text(line(2) + line(3))
    once(path, landing())
    path.write_text(line(4))
    once(path, landing())
    assert landed(tmp_path) == [1, 2, 3, 4]


def test_a_file_that_is_written_anew_with_its_old_number_is_read_from_its_start(tmp_path, landing):
    path = tmp_path / "f.jsonl"
    path.write_text(line(1))
    once(path, landing())
    path.write_text(line(2) + line(3))  # the same inode, as Linux gives that of a removed file to the next
    once(path, landing())
    assert landed(tmp_path) == [1, 2, 3]


def test_a_file_that_is_not_there_is_waited_for(tmp_path, landing):
    with pytest.raises(FileNotFoundError):
        once(tmp_path / "none", landing())


def test_odd_bytes_and_unicode_are_text(tmp_path, landing):
    path = tmp_path / "f.jsonl"
    path.write_bytes(line(1).replace("t1", "żółć 🌊").encode() + b'{"id": 2, "text": "\xff"}\n')
    once(path, landing())
    assert landed(tmp_path, column="text") == sorted(["żółć 🌊", "\ufffd"])


def test_one_process_at_a_time_fills_a_topic(landing):
    landing()
    with pytest.raises(FeedRunsElsewhere):
        landing()


def test_a_format_that_is_not_known_is_refused_where_it_is_named():
    with pytest.raises(InvalidPlan, match="json"):
        files.lines("x", format="jsno")


def test_another_feed_of_the_same_topic_is_refused(tmp_path):
    """The position is that of the old one."""
    with hr.Log(tmp_path / "log", fsync=False) as log:
        topics, spec = EmbeddedTopics(log, partitions=1, fault=print), TopicSpec(name="t", schema=COLUMNS)
        landing = topics.landing(spec, feed="file:a", limit=9, read=lambda: 0)
        landing.append([{"id": 1, "text": "t1"}], position=b"1")
        landing.close()
        with pytest.raises(FeedChanged, match="is file:b, and was file:a"):
            topics.landing(spec, feed="file:b", limit=9, read=lambda: 0)
        topics.landing(spec, feed="file:a", limit=9, read=lambda: 0).close()


# ---- folders -----------------------------------------------------------------------------------------------


def settle(path):
    """Let a file be one that has not changed for an hour."""
    os.utime(path, (1_700_000_000, 1_700_000_000))


def all_of(feed, landing):
    """Land what a folder has now."""
    reading = PlaceReading(feed, feed.place.open(), landing, threading.Event())
    while reading.land():
        pass


def test_the_lines_of_all_files_of_a_folder_are_landed_once_each(tmp_path, landing, monkeypatch):
    monkeypatch.setattr("headrace.connect.files.places.QUIET_SECONDS", 30.0)  # a busy machine takes its time
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "b.jsonl").write_text(line(3) + "no json\n" + line(4).strip())
    (inbox / "a.jsonl").write_text(line(1) + line(2))
    (inbox / ".hidden.jsonl").write_text(line(9))
    (inbox / "c.txt").write_text(line(9))
    feed = files.folder(inbox, "*.jsonl")
    opened = landing()
    all_of(feed, opened)
    opened.close()
    assert landed(tmp_path) == [1, 2, 3], "the last line of b may still be written"
    with (inbox / "a.jsonl").open("a") as file:
        file.write(line(5))
    (inbox / "b.jsonl").rename(inbox / "z.jsonl")
    settle(inbox / "z.jsonl")
    opened = landing()
    all_of(feed, opened)
    (inbox / "a.jsonl").rename(tmp_path / "taken")
    (inbox / "n.jsonl").write_text(line(6))
    all_of(feed, opened)
    assert len(json.loads(opened.position())["read"]) == 2, "a file that is gone is forgotten"
    opened.close()
    assert landed(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert landed(tmp_path, "t.dead", "record") == ["no json"]


def test_a_folder_is_read_in_chunks_and_to_its_end(tmp_path, landing, monkeypatch):
    monkeypatch.setattr(incoming, "CHUNK_BYTES", 40)
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for name in range(3):
        (inbox / f"{name}").write_text("".join(line(name * 50 + at) for at in range(50)).strip())
    opened = landing()
    files.folder(inbox, follow=False).run(opened, threading.Event())
    opened.close()
    assert landed(tmp_path) == list(range(150))


def test_a_new_file_that_gets_the_number_of_a_removed_one_is_read_from_its_start(tmp_path, landing):
    """Linux gives the inode of a removed file to the next one: here a hard link plays that."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    path = inbox / "a.jsonl"
    path.write_text(line(1) + line(2))
    feed = files.folder(inbox)
    opened = landing()
    all_of(feed, opened)
    opened.close()
    path.write_text(line(3) + line(4) + line(5))  # the same inode, another beginning, longer
    path.rename(inbox / "b.jsonl")
    opened = landing()
    all_of(feed, opened)
    with (inbox / "b.jsonl").open("a") as file:
        file.write(line(6))
    all_of(feed, opened)
    opened.close()
    assert landed(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_a_file_that_is_renamed_while_the_folder_is_read_is_landed_once(tmp_path, landing):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for i, name in enumerate("ab"):
        (inbox / name).write_text(line(i))
    feed, opened = files.folder(inbox), landing()
    reading = PlaceReading(feed, feed.place.open(), opened, threading.Event())
    reading.land()
    (inbox / "a").write_text(line(0) + line(2))
    read = reading._place.read

    def renamed(*args):
        if (inbox / "b").exists():
            (inbox / "b").rename(inbox / "c")
        return read(*args)

    reading._place.read = renamed
    while reading.land():
        pass
    opened.close()
    assert landed(tmp_path) == [0, 1, 2]


def test_a_folder_that_was_away_is_not_read_again(tmp_path, landing):
    """As one that is mounted from elsewhere."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "a").write_text(line(1) + line(2))
    feed, opened = files.folder(inbox), landing()
    reading = PlaceReading(feed, feed.place.open(), opened, threading.Event())
    reading.land()
    inbox.rename(tmp_path / "away")
    reading.land()
    (tmp_path / "away").rename(inbox)
    (inbox / "b").write_text(line(3))
    while reading.land():
        pass
    opened.close()
    assert landed(tmp_path) == [1, 2, 3]


def test_files_of_csv_have_a_header_that_is_left_out(tmp_path, landing):
    inbox = tmp_path / "inbox"
    (inbox / "2026").mkdir(parents=True)
    (inbox / "a.csv").write_text("id,text\n1,one\n")
    (inbox / "2026" / "b.csv").write_text('id,text\n2,"t,wo"\n')
    (inbox / "_headrace").mkdir()
    (inbox / "_headrace" / "c.csv").write_text("id,text\n3,ours\n")
    opened = landing()
    files.folder(inbox, "**/*.csv", format="csv", header=True, follow=False).run(opened, threading.Event())
    opened.close()
    assert landed(tmp_path) == [1, 2]
    assert landed(tmp_path, column="text") == ["one", "t,wo"]


@pytest.mark.parametrize("header", [False, True])
def test_lines_of_other_systems_are_those_of_ours(tmp_path, landing, header):
    """A line may end with CR LF, and a file begin with a byte order mark."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    lines = [*(["id,text"] if header else []), "1,one", '2,"t,wo"', "3,", '4,"four\r"', "5,five"]
    (inbox / "a.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    opened = landing()
    files.folder(inbox, format="csv", header=header, follow=False).run(opened, threading.Event())
    opened.close()
    assert landed(tmp_path) == [1, 2, 3, 4, 5]
    with hr.Log(tmp_path / "log") as log:
        topic = log.topic("t")
        found = [row for p, n in topic.end_offsets().items() for row in topic.read(p, 0, n).to_pylist()]
    assert {row["id"]: row["text"] for row in found} == {1: "one", 2: "t,wo", 3: None, 4: "four\r", 5: "five"}


def test_the_byte_order_mark_of_a_file_that_grows_is_left_out(tmp_path, landing):
    path = tmp_path / "f.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + (line(1) + line(2)).replace("\n", "\r\n").encode())
    once(path, landing())
    with path.open("a") as file:
        file.write(line(3))
    once(path, landing())
    assert landed(tmp_path) == [1, 2, 3]
