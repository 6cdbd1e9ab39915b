"""Idempotent producers: a retry never appends twice."""

import threading

import pyarrow as pa
import pytest

from headrace.base.errors import AppendFailed, InvalidRows
from headrace.log import Log
from headrace.log.appending import writer
from headrace.log.appending.producers import identity
from headrace.log.segments.payload import encode


def append(topic, n, sequence, producer="app"):
    return topic.append([{"n": n}, {"n": n}], producer=producer, sequence=sequence)


def values(topic):
    return topic.read(0, 0, 10_000).column("n").to_pylist()


def test_a_retry_gets_the_offsets_of_the_first_attempt(log, again):
    topic = log.create_topic("a", "n bigint")
    assert append(topic, 1, 5) == {0: range(2)}
    assert append(topic, 2, 6) == {0: range(2, 4)}
    assert append(topic, 3, 6, producer="other") == {0: range(4, 6)}
    for reopened in (topic, again().topic("a")):
        assert append(reopened, 9, 6) == {0: range(2, 4)}
        assert append(reopened, 9, 6, producer="other") == {0: range(4, 6)}
        assert append(reopened, 9, 5) == {0: range(6, 6)}
    assert values(topic) == [1, 1, 2, 2, 3, 3]


def test_what_another_process_appended_is_known(log, again):
    topic, other = log.create_topic("a", "n bigint"), again()
    assert append(topic, 1, 1) == {0: range(2)}
    assert append(other.topic("a"), 2, 2) == {0: range(2, 4)}
    assert append(topic, 2, 2) == {0: range(2, 4)}
    assert append(topic, 3, 3) == {0: range(4, 6)}
    assert append(other.topic("a"), 3, 3) == {0: range(4, 6)}
    assert values(topic) == [1, 1, 2, 2, 3, 3]


def test_producers_survive_the_segments_that_named_them(again):
    """A snapshot is enough, and a damaged snapshot is replaced by reading the segments."""
    with again(segment_bytes=900) as small:
        topic = small.create_topic("a", "n bigint")
        append(topic, 0, 7, producer="early")
        for n in range(1, 30):
            append(topic, n, n)
        folder = small.path / "topics" / "a" / "0"
        snapshots = sorted(folder.glob("*.producers"))
        assert len(snapshots) == 2
    with again() as other:
        assert append(other.topic("a"), 9, 7, producer="early") == {0: range(2)}
    raw = snapshots[-1].read_bytes()
    for damaged in (raw[:-3], b"", b"x" + raw[1:]):
        snapshots[-1].write_bytes(damaged)
        with again() as other:
            assert append(other.topic("a"), 9, 7, producer="early") == {0: range(2)}
            assert append(other.topic("a"), 9, 29) == {0: range(58, 60)}
    for snapshot in snapshots:
        snapshot.unlink()
    with again() as other:
        assert append(other.topic("a"), 9, 7, producer="early") == {0: range(2)}


def test_a_retry_without_a_key_meets_its_partition(log, again):
    topic = log.create_topic("a", "n bigint", partitions=3)
    given = append(topic, 1, 10)
    topic.append([{"n": 5}])
    assert append(topic, 1, 10) == given == append(again().topic("a"), 1, 10)


def test_a_retry_completes_what_a_crash_left_in_some_partitions(log, monkeypatch):
    topic = log.create_topic("a", "n bigint", partitions=2, key="n")
    rows = [{"n": n} for n in range(20)]
    writes = []

    def fails_second(fd, buffers, position, **how):
        writes.append(position)
        if len(writes) == 2:
            raise OSError(5, "Input/output error")
        written(fd, buffers, position, **how)

    written = writer.write_at
    monkeypatch.setattr(writer, "write_at", fails_second)
    with pytest.raises(AppendFailed, match="Input/output error"):
        topic.append(rows, producer="p", sequence=1)
    assert min(topic.end_offsets().values()) == 0
    given = topic.append(rows, producer="p", sequence=1)
    assert sum(map(len, given.values())) == 20 == sum(topic.end_offsets().values())


def test_partitions_are_synced_at_the_same_time_and_one_that_fails_holds_no_other_up(tmp_path, monkeypatch):
    """Four fsyncs that wait for each other: one after the other would never end."""
    together, synced = threading.Barrier(4, timeout=60), writer._sync

    def sync(fd):
        if together.wait() == 0 and refusing:
            raise OSError(5, "Input/output error")
        synced(fd)

    with Log(tmp_path) as log:
        topic = log.create_topic("a", "n bigint", partitions=4, key="n")
        rows = [{"n": n} for n in range(100)]
        monkeypatch.setattr(writer, "_sync", sync)
        refusing = True
        with pytest.raises(AppendFailed, match="Input/output error"):
            topic.append(rows, producer="p", sequence=1)
        ends = sorted(topic.end_offsets().values())
        assert ends[0] == 0 < ends[1]
        monkeypatch.setattr(writer, "_sync", synced)
        given = topic.append(rows, producer="p", sequence=1)
        assert sum(map(len, given.values())) == 100
        assert sum(topic.end_offsets().values()) == 100


def test_two_retries_at_the_same_moment_are_one(log):
    """Two threads whose appends are written together may have the same append."""
    topic = log.create_topic("a", "n bigint")
    append(topic, 0, 1)
    payloads = list(encode(pa.table({"n": [1, 1]}), event_time=None, now=0))
    requests = [
        writer.Request(payloads=payloads, schema=1, producer=identity("app"), sequence=sequence)
        for sequence in (2, 2, 1, 3, 2)
    ]
    topic.opened.writer(0)._commit(requests)
    assert [r.offsets for r in requests] == [range(2, 4), range(2, 4), range(2, 2), range(4, 6), range(2, 2)]
    assert values(topic) == [0, 0, 1, 1, 1, 1]


def test_producer_and_sequence_belong_together(log):
    topic = log.create_topic("a", "n bigint")
    for options in ({"producer": "p"}, {"sequence": 1}):
        with pytest.raises(InvalidRows, match="belong together"):
            topic.append([{"n": 1}], **options)
    with pytest.raises(InvalidRows, match="producer must be text"):
        topic.append([{"n": 1}], producer=1, sequence=1)
    for sequence in (1 << 63, -(1 << 63), True, 1.0):
        with pytest.raises(InvalidRows, match="sequence a number"):
            topic.append([{"n": 1}], producer="p", sequence=sequence)


def test_a_torn_append_is_not_remembered(tmp_path):
    with Log(tmp_path, fsync=False) as log:
        topic = log.create_topic("a", "n bigint")
        append(topic, 1, 1)
        append(topic, 2, 2)
    folder = tmp_path / "topics" / "a" / "0"
    path = next(folder.glob("*.segment"))
    path.write_bytes(path.read_bytes()[:-1])
    (folder / "head").unlink()
    with Log(tmp_path, fsync=False) as log:
        assert append(log.topic("a"), 2, 2) == {0: range(2, 4)}
        assert values(log.topic("a")) == [1, 1, 2, 2]
