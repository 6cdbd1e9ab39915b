"""The archive: closed segments move to a second folder and are read as before."""

import pytest

from headrace.base.errors import ArchiveMissing, CleaningFailed, InvalidTopic
from headrace.log.cleaning import archive

DAY = 86_400


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "slow disk"
    folder.mkdir()
    return folder


def fill(topic, appends):
    for _ in range(appends):
        first = topic.end_offsets()[0]
        topic.append([{"id": first + i, "text": "x" * 40} for i in range(3)])


def ids(topic, start=0):
    return topic.read(0, start, 10**6).column("id").to_pylist()


def segments(path):
    return sorted(found.name for found in path.rglob("*.segment"))


def test_old_segments_move_and_are_read_as_before(again, clock, folder):
    log = again(segment_bytes=500)
    topic = log.create_topic("a", "id bigint, text string", archive=folder, archive_after="1 day")
    fill(topic, 4)
    clock.advance(2 * DAY)
    fill(topic, 3)
    before = segments(log.path)
    done = topic.clean()
    assert done.segments_archived == len(segments(folder)) == 4
    assert done.bytes_archived == sum(path.stat().st_size for path in folder.rglob("*.segment"))
    assert sorted([*segments(folder), *segments(log.path)]) == before
    for reader in (topic, again().topic("a")):
        assert ids(reader) == list(range(21))
        assert ids(reader, 10) == list(range(10, 21))
        assert reader.max_time(0, 0, 12) < reader.max_time(0, 0, 13)
        assert reader.verify() == []
    assert not topic.clean()


def test_a_quiet_topic_is_archived_whole(log, clock, folder):
    topic = log.create_topic("a", "id bigint, text string", archive=folder, archive_after="1 day")
    fill(topic, 2)
    clock.advance(DAY + 1)
    assert topic.clean().segments_archived == 1
    assert segments(log.path) == []
    assert ids(topic) == list(range(6))
    fill(topic, 1)
    assert ids(topic) == list(range(9))


def test_retention_deletes_from_the_archive(again, clock, folder):
    topic = again(segment_bytes=500).create_topic(
        "a", "id bigint, text string", archive=folder, retention="10 days", archive_after="1 day"
    )
    fill(topic, 3)
    clock.advance(5 * DAY)
    fill(topic, 3)
    topic.clean()
    assert len(segments(folder)) == 3
    clock.advance(6 * DAY)
    topic.clean()
    assert segments(folder) == ["00000000000000000009.segment", "00000000000000000012.segment",
                                "00000000000000000015.segment"]  # fmt: skip
    assert ids(topic, 9) == list(range(9, 18))


def test_compaction_reads_and_replaces_what_was_archived(log, folder):
    topic = log.create_topic("a", "k string, n bigint", key="k", cleanup="compact", archive=folder)
    for n in range(3):
        topic.append([{"k": "x", "n": n}, {"k": f"y{n}", "n": n}])
        topic.compact()
        topic.clean()
    assert segments(log.path) == []
    assert len(segments(folder)) == 1
    assert topic.read(0, 0, 9).column("k").to_pylist() == ["y0", "y1", "x", "y2"]


def test_an_archive_that_is_absent_is_named_and_newer_records_are_read(again, folder):
    log = again(segment_bytes=500)
    topic = log.create_topic("a", "id bigint, text string", archive=folder)
    fill(topic, 4)
    topic.clean()
    away = folder.rename(folder.with_name("unplugged"))
    reader = again().topic("a")
    with pytest.raises(ArchiveMissing) as error:
        reader.read(0, 0, 1)
    assert f'the archive folder "{folder}' in str(error.value)
    assert "Mount or restore the folder" in str(error.value)
    assert ids(reader, 9) == [9, 10, 11]
    fill(topic, 3)
    with pytest.raises(ArchiveMissing, match=f'the archive folder "{folder}" is missing'):
        topic.clean()
    assert not folder.exists()
    away.rename(folder)
    assert topic.clean().segments_archived == 3
    assert ids(reader) == list(range(21))


def test_an_archive_must_be_there_when_the_topic_is_made(log, folder):
    with pytest.raises(InvalidTopic, match="is not a folder") as error:
        log.create_topic("a", "id bigint", archive=folder / "none")
    assert "mkdir -p" in str(error.value)
    topic = log.create_topic("a", "id bigint")
    with pytest.raises(InvalidTopic, match="is not a folder"):
        topic.alter(archive=str(folder / "none"))
    topic.alter(archive=folder, archive_after="1 hour")


def test_a_topic_that_is_deleted_leaves_nothing_in_its_archives(again, folder):
    log = again(segment_bytes=500)
    topic = log.create_topic("a", "id bigint, text string", archive=folder)
    fill(topic, 3)
    topic.clean()
    second = folder.with_name("second")
    second.mkdir()
    topic.alter(archive=second)
    fill(topic, 3)
    topic.clean()
    assert (len(segments(folder)), len(segments(second))) == (2, 3)
    assert ids(again().topic("a")) == list(range(18))
    log.delete_topic("a")
    assert list(folder.iterdir()) == list(second.iterdir()) == []


def test_an_archive_without_room_changes_nothing(again, folder, monkeypatch):
    topic = again(segment_bytes=500).create_topic("a", "id bigint, text string", archive=folder)
    fill(topic, 4)

    def full(source, copy, _):
        copy.write(source.read(100))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive.shutil, "copyfileobj", full)
    with pytest.raises(CleaningFailed, match='cleaning topic "a", partition 0 failed: No space left on device'):
        topic.clean()
    assert ids(topic) == list(range(12))
    monkeypatch.undo()
    assert topic.clean().segments_archived == 3
    assert [path.suffix for path in folder.rglob("*") if path.is_file()] == [".segment"] * 3
    assert ids(topic) == list(range(12))
