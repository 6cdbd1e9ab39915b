"""Verify: an intact topic has no finding; damage is named with its file, position and offsets."""

from random import Random

import numpy as np
import pytest

from headrace.log import Log
from headrace.log.cleaning import verify


def damage(path, at, bit=1):
    raw = bytearray(path.read_bytes())
    raw[at] ^= bit
    path.write_bytes(raw)


@pytest.fixture
def topic(again, tmp_path):
    """A compacted topic with compacted, archived, closed and open segments, of two schemas."""
    archive = tmp_path / "archive"
    archive.mkdir()
    log = again(segment_bytes=3_000)
    topic = log.create_topic("a", "k string, n int", key="k", cleanup="compact", archive=archive)
    fill(topic, 0, 40)
    topic.compact()
    topic.opened.cleaner(0)._archive()
    topic.evolve("k string, n bigint, more string")
    fill(topic, 200, 40)
    topic.compact()
    fill(topic, 400, 20)
    return topic


def fill(topic, first, appends):
    for n in range(appends):
        rows = [{"k": f"key {(first + n * i) % 100}", "n": first + 5 * n + i, "_deleted": i == 3} for i in range(5)]
        topic.append(rows, producer="p", sequence=first + n)


def folder(topic):
    return topic.opened.file.folder / "0"


def test_a_whole_topic_has_no_findings(topic, again):
    assert topic.verify() == []
    with Log(again().path) as other:
        assert other.topic("a").verify() == []
    kinds = {path.suffix for path in folder(topic).iterdir()}
    assert {".segment", ".index", ".producers", ".json"} <= kinds
    log = again(segment_bytes=3_000)
    empty = log.create_topic("b", "n int", partitions=2)
    assert empty.verify() == []
    empty.append([{"n": 1}], partition=1)
    assert empty.verify() == []


def test_every_flipped_bit_of_a_segment_is_found_and_placed(topic):
    dice = Random(5)  # noqa: S311 - a test that replays
    for path in folder(topic).glob("*.segment"):
        raw = path.read_bytes()
        for _ in range(30):
            at = dice.randrange(len(raw))
            damage(path, at, 1 << dice.randrange(8))
            found = topic.verify()
            case = f"{path.name} at {at}"
            assert found, case
            assert all(f.file == str(path) for f in found), case
            assert found[0].first is not None, case
            assert found[0].position <= at, case
            path.write_bytes(raw)
    assert topic.verify() == []


def test_a_finding_says_what_is_damaged_and_where(topic):
    path = max(folder(topic).glob("*.segment"))
    damage(path, 200)
    (found,) = topic.verify()
    assert str(found) == (
        f"partition 0 (offsets {found.first} to {found.first + 4}): "
        f"the batch's content does not match its checksum: {path}, position 0"
    )


def test_damage_beside_the_segments_is_found(topic):
    expected = {
        ".index": "the index is damaged",
        ".producers": "the snapshot of producers is damaged",
        ".json": "the list of closed segments",
        "": "a state in the head does not match its checksum",
    }
    for path in sorted(folder(topic).iterdir()):
        if path.suffix in expected and path.name != "cleaning":
            raw = path.read_bytes()
            damage(path, len(raw) // 4)
            assert [expected[path.suffix] in f.what for f in topic.verify()] == [True], path
            path.write_bytes(raw)
    assert topic.verify() == []


def test_files_that_are_missing_cut_or_foreign_are_found(topic):
    path = min(folder(topic).glob("*.segment"))
    raw = path.read_bytes()
    path.unlink()
    assert [(f.what, f.first) for f in topic.verify()] == [
        ('topic "a", partition 0: a segment is missing', int(path.name[:20]))
    ]
    path.write_bytes(raw[:-64])
    assert any("not" in f.what and f.position == len(raw) - 64 for f in topic.verify())
    path.write_bytes(raw)
    (folder(topic) / "notes.txt").write_text("mine")
    assert [f.what for f in topic.verify()] == ["the file does not belong to the log"]
    (folder(topic) / "notes.txt").unlink()
    assert topic.verify() == []


def test_an_absent_archive_is_found(again, tmp_path):
    (tmp_path / "archive").mkdir()
    topic = again(segment_bytes=500).create_topic("b", "n int", archive=tmp_path / "archive")
    for n in range(30):
        topic.append([{"n": n}])
    assert topic.clean().segments_archived > 5
    assert topic.verify() == []
    (tmp_path / "archive").rename(tmp_path / "elsewhere")
    found = topic.verify()
    assert found
    assert all("the archive folder" in f.what for f in found)


def test_a_key_that_compaction_left_twice_is_found(monkeypatch, again):
    monkeypatch.setattr("headrace.log.cleaning.compaction.latest", lambda _, rows, __: np.ones(rows, dtype=np.bool_))
    other = again(segment_bytes=3_000).create_topic("b", "k string", key="k", cleanup="compact")
    other.append([{"k": "x"}, {"k": "y"}])
    other.append([{"k": "x"}])
    other.compact()
    monkeypatch.undo()
    assert [f.what for f in other.verify()] == ["the record at offset 0 was compacted, and a later one has its key"]


def test_what_the_next_append_puts_right_is_no_finding(topic, again):
    path = max(folder(topic).glob("*.segment"))
    with path.open("ab") as file:
        file.write(b"HRF\x01 torn")
    (folder(topic) / "00000000000000000000-99.segment").write_bytes(b"of a cleaning that died")
    (folder(topic) / "layout.json.draft").write_bytes(b"{")
    assert again().topic("a").verify() == []


def test_a_cleaning_in_the_middle_is_no_damage(topic, again, monkeypatch):
    """Files that are deleted during the check were replaced: the new ones are checked instead."""
    other, looked = again(segment_bytes=3_000).topic("a"), []
    segment = verify._PartitionCheck._segment

    def cleaned_between(check, span, state):
        looked.append(span)
        if len(looked) == 1:
            fill(other, 600, 20)
            other.compact()
        return segment(check, span, state)

    monkeypatch.setattr(verify._PartitionCheck, "_segment", cleaned_between)
    assert topic.verify() == []
    assert len({span.entry for span in looked}) > 1


@pytest.mark.parametrize("harm", ["cut", "zeros", "an older copy"])
def test_a_key_file_that_lacks_keys_of_records_is_found(tmp_path, harm):
    """Nothing in the file says so: a key that was cut off, or is zeros, may be one that no record needs."""
    with Log(tmp_path) as log:
        topic = log.create_topic("t", "who string, mail string", private={"mail": "who"}, partitions=2)
        topic.append([{"who": "ann", "mail": "a@b"}])
        path = topic.opened.folder / "private.keys"
        older = path.read_bytes()
        topic.append([{"who": name, "mail": name} for name in ("bob", "eve", "joe")])
        topic.forget("joe")
        assert topic.verify() == []
        raw = path.read_bytes()
        path.write_bytes({"cut": raw[:-300], "zeros": raw[:256] + bytes(256) + raw[512:], "an older copy": older}[harm])
        (found,) = topic.verify()
    gone = 2 if harm == "zeros" else 3
    assert str(found).startswith(f"the topic: {gone} keys that records need are not in it: the private values of their")
