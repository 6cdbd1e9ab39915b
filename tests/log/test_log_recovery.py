"""After a crash: complete appends stay, torn ones are cut, damaged records are reported, never served."""

import json
from random import Random
from zlib import crc32

import pytest

from headrace.base.errors import CorruptBatch, NewerFormat, RecordsLost
from headrace.base.time import ManualClock
from headrace.log import Log, rows_to_table
from headrace.log.appending import writer
from headrace.log.segments.head import SLOT_SIZE, new_head, unpack
from headrace.log.segments.payload import encode
from headrace.log.segments.recovery import is_complete


def folder(log, topic="a"):
    return log.path / "topics" / topic / "0"


def segments(log):
    return sorted(folder(log).glob("*.segment"))


def rows(first, count):
    return [{"id": i, "text": f"text {i} " * (i % 7)} for i in range(first, first + count)]


def fill(log, appends=(3, 5, 4)):
    topic = log.create_topic("a", "id bigint, text string")
    first = 0
    for count in appends:
        topic.append(rows(first, count))
        first += count
    return topic


def ids(log):
    topic = log.topic("a")
    end = topic.end_offsets()[0]
    return [v for batch in topic.batches(0, 0, end) for v in batch.column("id").to_pylist()]


def opened(path, **options):
    return Log(path, fsync=False, clock=ManualClock(), **options)


def last_frame(log):
    """Return where the last append begins in the only segment."""
    raw = segments(log)[0].read_bytes()
    return raw.rindex(b"HRF\x01"), raw


def of_another_boot(head):
    """Return a head as the last start of the machine left it."""
    slot = max(unpack(head[:SLOT_SIZE]), unpack(head[SLOT_SIZE : 2 * SLOT_SIZE]))
    return new_head(slot._replace(boot=slot.boot ^ 1))


@pytest.mark.parametrize("head", ["missing", "garbage", "empty", "behind", "ahead"])
def test_a_tail_torn_at_any_byte_is_cut_and_appending_goes_on(log, head):
    """`ahead` is a head that a power loss kept while the segment, which was not synced, lost its end."""
    fill(log, (3, 5))
    path, head_path = segments(log)[0], folder(log) / "head"
    before = head_path.read_bytes()
    log.topic("a").append(rows(8, 4))
    after = head_path.read_bytes()
    start, raw = last_frame(log)
    log.close()
    for size in range(start, len(raw), 1 if head in ("missing", "behind") else 13):
        path.write_bytes(raw[:size])
        if head == "missing":
            head_path.unlink(missing_ok=True)
        else:
            ahead = of_another_boot(after)
            head_path.write_bytes({"garbage": b"\x07" * 192, "empty": b"", "behind": before, "ahead": ahead}[head])
        with opened(log.path) as reader:
            assert ids(reader) == list(range(8)), size
        with opened(log.path) as second:
            assert second.topic("a").append(rows(8, 1)) == {0: range(8, 9)}
            assert ids(second) == list(range(9))
            assert is_complete(folder(log), second.topic("a").opened.partition(0).state())
        with opened(log.path) as third:
            assert ids(third) == list(range(9))


@pytest.mark.parametrize("head", ["missing", "garbage", "behind"])
def test_whole_appends_behind_a_head_that_does_not_know_them_count(log, head):
    fill(log, (3,))
    head_path = folder(log) / "head"
    before = head_path.read_bytes()
    log.topic("a").append(rows(3, 5))
    log.topic("a").append(rows(8, 4))
    log.close()
    if head == "missing":
        head_path.unlink()
    else:
        head_path.write_bytes({"garbage": b"\xff" * 192, "behind": before}[head])
    with opened(log.path) as reader:
        assert ids(reader) == list(range(12))
        assert reader.topic("a").append(rows(12, 1)) == {0: range(12, 13)}
        assert ids(reader) == list(range(13))


def test_every_frame_of_an_append_counts_or_none(log):
    """The first of two frames is complete on disk, the second is not."""
    topic = fill(log, (3,))
    head = (folder(log) / "head").read_bytes()
    topic.append([{"id": i, "text": "x"} for i in range(70_000)])
    assert len(list(topic.batches(0, 3, 70_003))) == 2
    start, raw = last_frame(log)
    log.close()
    for size in (start, start + 1, start + 128, len(raw) - 1):
        segments(log)[0].write_bytes(raw[:size])
        (folder(log) / "head").write_bytes(head)
        with opened(log.path) as other:
            assert other.topic("a").append(rows(3, 1)) == {0: range(3, 4)}
            assert ids(other) == [0, 1, 2, 3]


def test_a_torn_append_takes_those_with_it_that_were_written_in_the_same_breath(log):
    """After a power loss the second of two may be complete; neither was acknowledged, and a hole would never go."""
    topic = fill(log, (3,))
    path, head = segments(log)[0], (folder(log) / "head").read_bytes()
    size = path.stat().st_size
    batch = rows_to_table(rows(3, 2), topic.schema)
    payloads = list(encode(batch, event_time=None, now=0))
    topic.opened.writer(0)._commit([writer.Request(payloads=payloads, schema=1) for _ in range(2)])
    assert topic.end_offsets() == {0: 7}
    log.close()
    with path.open("r+b") as file:
        file.seek(size)
        file.write(bytes(200))
    for kept in (head, b""):
        (folder(log) / "head").write_bytes(kept)
        with opened(log.path) as other:
            assert ids(other) == [0, 1, 2]
    with opened(log.path) as other:
        assert other.topic("a").append(rows(3, 1)) == {0: range(3, 4)}


def test_rubbish_behind_the_end_is_cut(log):
    fill(log)
    path = segments(log)[0]
    size = path.stat().st_size
    log.close()
    for rubbish in (b"\0" * 4096, Random(1).randbytes(777), b"HRF\x01" * 50, path.read_bytes()):  # noqa: S311 - a test that replays
        with path.open("r+b") as file:
            file.truncate(size)
            file.seek(size)
            file.write(rubbish)
        with opened(log.path) as other:
            assert ids(other) == list(range(12))
        with opened(log.path) as other:
            offsets = other.topic("a").append(rows(12, 1))
            assert offsets == {0: range(12, 13)}
            assert ids(other) == list(range(13))
        with path.open("r+b") as file:
            file.truncate(size)
        (folder(log) / "head").unlink()


def test_an_orphaned_segment_of_a_crashed_roll_is_taken_or_removed(log, again):
    small = again(segment_bytes=700)
    fill(small, (3, 3))
    (folder(log) / f"{6:020d}.segment").write_bytes(b"\0" * 99)
    head = folder(log) / "head"
    raw = bytearray(head.read_bytes())
    raw[128] = 1  # its writer died
    head.write_bytes(raw)
    assert again().topic("a").append(rows(6, 3)) == {0: range(6, 9)}
    assert ids(again()) == list(range(9))
    assert ids(small) == list(range(9))


def test_a_damaged_record_in_the_middle_is_told_and_the_rest_is_kept(log):
    fill(log, (3, 5, 4))
    path = segments(log)[0]
    raw = bytearray(path.read_bytes())
    second = raw.index(b"HRF\x01", 10)
    head_path = folder(log) / "head"
    pristine = head_path.read_bytes()
    log.close()
    for at in (second + 5, second + 20, second + 200):
        for head in (True, False):
            hurt = bytearray(raw)
            hurt[at] ^= 0x10
            path.write_bytes(hurt)
            head_path.write_bytes(pristine if head else b"")
            with opened(log.path) as other:
                topic = other.topic("a")
                assert topic.end_offsets() == {0: 12}
                assert topic.read(0, 0, 3).column("id").to_pylist() == [0, 1, 2]
                assert topic.read(0, 8, 9).column("id").to_pylist() == [8, 9, 10, 11]
                with pytest.raises(CorruptBatch) as error:
                    topic.read(0, 4, 1)
                assert 'topic "a", partition 0: the records at offsets 3 to 7 are damaged' in str(error.value)
                assert f"File {path}, position {second}" in str(error.value)
                assert "read on from offset 8" in str(error.value)
                assert topic.append(rows(12, 1)) == {0: range(12, 13)}
                assert topic.read(0, 12, 9).column("id").to_pylist() == [12]


def test_a_damaged_or_missing_index_is_rebuilt(log):
    with opened(log.path, segment_bytes=800) as small:
        fill(small, (3,) * 12)
        truth = ids(small)
    for path in folder(log).glob("*.index"):
        path.write_bytes(b"rubbish")
    assert ids(log) == truth
    for path in folder(log).glob("*.index"):
        path.unlink()
    with opened(log.path) as other:
        assert ids(other) == truth


def test_a_description_that_was_damaged_is_told(log):
    fill(log)
    path = log.path / "topics" / "a" / "topic.json"
    log.close()
    for each in (path, path.with_name("topic.json.copy")):
        each.write_text(each.read_text().replace('"partitions": 1', '"partitions": 2'))
    with opened(log.path) as other, pytest.raises(CorruptBatch, match=r"description .*topic\.json is damaged"):
        other.topic("a")


@pytest.mark.parametrize("damage", ["missing", "empty", "flipped", "nested", "no object"])
def test_a_description_that_is_damaged_or_missing_is_served_by_its_copy_and_found(log, damage):
    fill(log)
    path = log.path / "topics" / "a" / "topic.json"
    raw = path.read_bytes()
    log.close()
    hurt = {"empty": b"", "flipped": raw.replace(b"text", b"tegt"), "nested": b"[" * 100_000, "no object": b"[]"}
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(hurt[damage])
    with opened(log.path) as other:
        topic = other.topic("a")
        assert ids(other) == list(range(12))
        assert topic.append(rows(12, 1)) == {0: range(12, 13)}
        (finding,) = topic.verify()
        assert finding.file == str(path)
        topic.alter(retention="1 day")
        assert topic.verify() == []
        path.with_name("topic.json.copy").unlink()
        assert (topic.retention, ids(other)) == (86_400_000_000, list(range(13)))


def test_a_topic_without_any_description_is_damaged_and_neither_unknown_nor_created_again(log):
    fill(log)
    for name in ("topic.json", "topic.json.copy"):
        (log.path / "topics" / "a" / name).unlink()
    with pytest.raises(CorruptBatch, match='the description of the topic "a" is missing'):
        log.topic("a").append(rows(12, 1))
    with opened(log.path) as other:
        for call in (lambda: other.topic("a"), lambda: other.create_topic("a", "id int")):
            with pytest.raises(CorruptBatch, match='the description of the topic "a" is missing') as error:
                call()
            assert "Restore topic.json" in error.value.hint
        assert other.topics() == ["a"]


def test_a_missing_segment_is_told(log):
    with opened(log.path, segment_bytes=800) as small:
        fill(small, (3,) * 12)
    segments(log)[1].unlink()
    topic = log.topic("a")
    with pytest.raises(CorruptBatch, match="the records at offsets 3 to") as error:
        topic.read(0, 0, 36)
    assert "restore" in str(error.value).lower()
    assert topic.read(0, 30, 6).column("id").to_pylist() == list(range(30, 36))
    for path in segments(log)[1:]:
        path.unlink()
    for _ in range(2):
        with opened(log.path) as other:
            topic = other.topic("a")
            assert topic.read(0, 0, 3).num_rows == 3
            with pytest.raises(CorruptBatch, match=r"the records at offsets 3 to 3[56] are missing"):
                topic.read(0, 30, 1)
            with pytest.raises(RecordsLost, match=r"the acknowledged records at offsets 33 to 35 are gone"):
                topic.append(rows(36, 1))


def test_a_missing_first_segment_is_told(log):
    with opened(log.path, segment_bytes=800) as small:
        fill(small, (3,) * 12)
    segments(log)[0].unlink()
    with pytest.raises(CorruptBatch, match="the records at offsets 0 to"):
        ids(log)


def test_a_description_of_a_later_release_is_told_from_damage(log):
    fill(log)
    path = log.path / "topics" / "a" / "topic.json"
    body = json.loads(path.read_text())["topic"] | {"tiers": 3}
    checksum = crc32(json.dumps(body, indent=1).encode())
    path.write_text(json.dumps({"checksum": checksum, "topic": body}))
    log.close()
    with opened(log.path) as other, pytest.raises(NewerFormat, match="a later Headrace") as error:
        other.topic("a")
    assert "tiers" in str(error.value)


@pytest.mark.parametrize("size", ["nothing", "one byte", "one append", "all but a byte"])
@pytest.mark.parametrize("fsync", [True, False])
def test_a_shortened_segment_is_an_error_until_its_records_are_given_up(log, size, fsync):
    """Nothing lost is acknowledged again under the same offset, and nothing that is left is lost."""
    fill(log, (3, 5, 4))
    path = segments(log)[0]
    raw = path.read_bytes()
    log.close()
    kept = {"nothing": 0, "one byte": 1, "one append": raw.index(b"HRF\x01", 10), "all but a byte": len(raw) - 1}[size]
    intact = {"nothing": 0, "one byte": 0, "one append": 3, "all but a byte": 8}[size]
    path.write_bytes(raw[:kept])
    for _ in range(2):
        with Log(log.path, fsync=fsync, clock=ManualClock()) as other:
            topic = other.topic("a")
            assert topic.end_offsets() == {0: 12}
            assert topic.read(0, 0, intact).num_rows == intact
            with pytest.raises(CorruptBatch, match=f"offsets {intact} to 11 are"):
                topic.read(0, intact, 1)
            with pytest.raises(RecordsLost, match=f"offsets {intact} to 11 are gone") as error:
                topic.append(rows(12, 1))
            assert "headrace topics repair a" in error.value.hint
            assert path.stat().st_size == kept
            assert topic.verify()
    with Log(log.path, fsync=fsync, clock=ManualClock()) as other:
        topic = other.topic("a")
        assert topic.repair() == {0: range(intact, 12)}
        assert topic.repair() == {}
        assert topic.append(rows(12, 1)) == {0: range(12, 13)}
        assert ids(other) == [*range(intact), 12]
        assert topic.verify() == []
    with opened(log.path) as other:
        assert ids(other) == [*range(intact), 12]


def test_a_last_segment_that_is_missing_can_be_given_up(log):
    with opened(log.path, segment_bytes=800) as small:
        fill(small, (3,) * 12)
    segments(log)[-1].unlink()
    with opened(log.path) as other:
        topic = other.topic("a")
        assert topic.repair() == {0: range(33, 36)}
        topic.append(rows(36, 2))
        assert ids(other) == [*range(33), 36, 37]
        assert topic.verify() == []


@pytest.mark.parametrize("keeps_its_file", [True, False])
def test_a_segment_that_is_shortened_under_an_open_writer_is_noticed_at_the_next_append(log, keeps_its_file):
    topic = fill(log, (3, 5))
    path = segments(log)[0]
    if keeps_its_file:
        path.write_bytes(b"")
    else:
        path.unlink()
    with pytest.raises(RecordsLost, match="offsets 0 to 7 are gone"):
        topic.append(rows(8, 1))


def test_a_file_that_is_restored_is_served_again(log):
    fill(log, (3, 5))
    path = segments(log)[0]
    raw = path.read_bytes()
    log.close()
    path.write_bytes(b"")
    with opened(log.path) as other, pytest.raises(RecordsLost):
        other.topic("a").append(rows(8, 1))
    path.write_bytes(raw)
    with opened(log.path) as other:
        assert other.topic("a").append(rows(8, 1)) == {0: range(8, 9)}
        assert ids(other) == list(range(9))


def test_a_crash_in_the_middle_of_giving_up_is_finished_by_the_next_append(log):
    """The gap is written, and the head does not know it yet."""
    fill(log, (3, 5))
    path, head = segments(log)[0], folder(log) / "head"
    raw, before = path.read_bytes(), head.read_bytes()
    log.close()
    path.write_bytes(raw[: raw.index(b"HRF\x01", 10)])
    with opened(log.path) as other:
        assert other.topic("a").repair() == {0: range(3, 8)}
    head.write_bytes(before)
    with opened(log.path) as other:
        assert other.topic("a").repair() == {}
        assert other.topic("a").append(rows(8, 1)) == {0: range(8, 9)}
        assert ids(other) == [0, 1, 2, 8]
