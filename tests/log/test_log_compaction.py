"""Compaction: the last record of each key stays, at its offset and in its order; nothing else changes."""

import pyarrow as pa
import pytest

from headrace.base.errors import CorruptBatch, InvalidRows, InvalidTopic
from headrace.log.cleaning import latest
from headrace.log.segments import payload

HOUR = 3_600


def topic_of(log, columns="k string, n bigint", **options):
    return log.create_topic("a", columns, **{"key": "k", "cleanup": "compact", **options})


def put(topic, text):
    """Append a record for each letter, in one append; a capital letter deletes."""
    first = topic.end_offsets()[0]
    topic.append([{"k": c.lower(), "n": first + i, "_deleted": c.isupper()} for i, c in enumerate(text)])


def records_by_offset(topic, start=0):
    """Return what a reader from `start` sees: letters by offset, tombstones as capitals."""
    rows = topic.read(0, start, 10**6).to_pylist()
    return {row["_offset"]: row["k"].upper() if row["_deleted"] else row["k"] for row in rows}


@pytest.fixture
def small(again):
    return again(segment_bytes=600)


def test_the_last_record_of_each_key_stays_at_its_offset(log, again):
    topic = topic_of(log)
    put(topic, "abacabad")
    done = topic.compact()
    assert done.records_removed == 4
    assert records_by_offset(topic) == records_by_offset(again().topic("a")) == {3: "c", 5: "b", 6: "a", 7: "d"}
    assert topic.read(0, 0, 9).column("n").to_pylist() == [3, 5, 6, 7]
    assert (topic.start_offsets(), topic.end_offsets()) == ({0: 0}, {0: 8})
    put(topic, "ax")
    assert records_by_offset(topic) == {3: "c", 5: "b", 6: "a", 7: "d", 8: "a", 9: "x"}
    topic.compact()
    assert records_by_offset(topic) == {3: "c", 5: "b", 7: "d", 8: "a", 9: "x"}


def test_a_read_at_an_offset_that_is_gone_goes_on_with_the_next(log):
    topic = topic_of(log)
    put(topic, "aaabbbc")
    topic.compact()
    for start, first in ((0, 2), (1, 2), (2, 2), (3, 5), (4, 5), (5, 5), (6, 6)):
        assert topic.read(0, start, 1).column("_offset").to_pylist() == [first]
    assert [b.to_pylist() for b in topic.batches(0, 3, 5, columns=["k"])] == []
    assert [b.to_pylist() for b in topic.batches(0, 1, 4, columns=["k"])] == [[{"k": "a"}]]


def test_clean_leaves_the_segment_that_is_written_to_alone(small):
    topic = topic_of(small)
    put(topic, "aaab")
    assert not topic.clean()
    assert len(records_by_offset(topic)) == 4
    put(topic, "aaab")
    put(topic, "a")
    topic.clean()
    assert records_by_offset(topic) == {6: "a", 7: "b", 8: "a"}


def test_clean_compacts_where_half_of_the_bytes_are_new(small):
    topic = topic_of(small)
    for _ in range(4):
        put(topic, "abcdefgh")
    assert topic.clean().records_removed >= 8
    before = records_by_offset(topic)
    assert not topic.clean()
    assert records_by_offset(topic) == before


def test_a_delete_marker_stays_until_delete_retention_has_passed_since_it_was_first_compacted(log, clock):
    topic = topic_of(log, delete_retention="2 hours")
    put(topic, "abAc")
    clock.advance(100 * HOUR)
    topic.compact()
    assert records_by_offset(topic) == {1: "b", 2: "A", 3: "c"}
    clock.advance(2 * HOUR - 1)
    topic.compact()
    assert records_by_offset(topic) == {1: "b", 2: "A", 3: "c"}
    clock.advance(1)
    assert topic.clean().records_removed == 1
    assert records_by_offset(topic) == {1: "b", 3: "c"}
    assert not topic.clean()


def test_waiting_markers_keep_their_own_terms(log, clock):
    """A tombstone that is copied together with a newer one is not kept longer for it."""
    topic = topic_of(log, delete_retention="2 hours")
    put(topic, "abA")
    topic.compact()
    clock.advance(HOUR)
    put(topic, "Bc")
    topic.compact()
    assert records_by_offset(topic) == {2: "A", 3: "B", 4: "c"}
    clock.advance(HOUR)
    topic.compact()
    assert records_by_offset(topic) == {3: "B", 4: "c"}
    clock.advance(HOUR)
    topic.compact()
    assert records_by_offset(topic) == {4: "c"}


def test_a_marker_at_the_end_stays_so_that_readers_arrive(log, clock):
    topic = topic_of(log, delete_retention="1 hour")
    put(topic, "abB")
    topic.compact()
    clock.advance(2 * HOUR)
    topic.compact()
    assert records_by_offset(topic) == {0: "a", 2: "B"}
    put(topic, "c")
    topic.compact()
    assert records_by_offset(topic) == {0: "a", 3: "c"}


def test_a_key_that_came_back_after_its_delete_lives(log, clock):
    topic = topic_of(log, delete_retention="1 hour")
    put(topic, "aAaX")
    topic.compact()
    assert records_by_offset(topic) == {2: "a", 3: "X"}
    clock.advance(2 * HOUR)
    put(topic, "b")
    topic.compact()
    assert records_by_offset(topic) == {2: "a", 4: "b"}


def test_records_keep_their_times_headers_and_values(log, clock):
    columns = "k string, n bigint, at timestamp, deep struct<x:int, y:array<string>>"
    topic = topic_of(log, columns, event_time="at")
    for n in range(20):
        deep = {"x": n, "y": ["t"] * (n % 3)} if n % 4 else None
        topic.append([{"k": f"k{n % 7}", "n": n, "at": n * 1000, "deep": deep, "_headers": {"h": str(n)}}])
        clock.advance(5)
    topic.append([{"k": "k3", "_deleted": True, "_time": 77_000}])
    columns = [*topic.schema.names, "_offset", "_time", "_deleted", "_headers"]
    before = pa.Table.from_batches(topic.batches(0, 0, 21, columns=columns)).to_pylist()
    expected = list({row["k"]: row for row in before}.values())
    topic.compact()
    after = pa.Table.from_batches(topic.batches(0, 0, 21, columns=columns)).to_pylist()
    assert after == sorted(expected, key=lambda row: row["_offset"])
    assert topic.max_time(0, 0, 21) == 77_000_000
    assert topic.min_time(0, 0, 21) == 13_000_000
    assert topic.max_time(0, 0, 15) == 14_000_000
    assert topic.max_time(0, 0, 13) is None
    assert topic.offsets_at(15_500) == {0: 16}


def test_without_an_event_time_column_records_keep_the_time_of_their_append(log, clock):
    topic = topic_of(log)
    for text in ("ab", "ac", "d"):
        put(topic, text)
        clock.advance(10)
    before = {row["_offset"]: row["_time"] for row in topic.read(0, 0, 9).to_pylist()}
    topic.compact()
    after = {row["_offset"]: row["_time"] for row in topic.read(0, 0, 9).to_pylist()}
    assert after == {at: before[at] for at in (1, 2, 3, 4)}
    assert len(set(after.values())) == 3


def test_keys_of_several_columns_are_equal_as_a_whole(log):
    topic = topic_of(log, "a string, b bigint, f double, s struct<x:int>, n bigint", key=("a", "b", "f", "s"))
    keys = [("x", 1, 0.0, {"x": 1}), ("x", 2, 0.0, {"x": 1}), ("x", 1, -0.0, {"x": 1}), ("x", None, 0.0, None),
            ("x", None, 0.0, {"x": None}), ("x", 1, float("nan"), {"x": 1}), ("x", 1, float("nan"), {"x": 1}),
            (None, 1, 0.0, {"x": 1}), ("x", None, 0.0, None)]  # fmt: skip
    topic.append([{"a": a, "b": b, "f": f, "s": s, "n": n} for n, (a, b, f, s) in enumerate(keys)])
    topic.compact()
    assert topic.read(0, 0, 99).column("n").to_pylist() == [1, 2, 4, 6, 7, 8]


def test_a_record_without_a_key_is_refused(log):
    topic = topic_of(log)
    with pytest.raises(InvalidRows) as error:
        topic.append([{"k": "a"}, {"k": None, "n": 3}])
    assert 'rows[1] has no key: k is null, and the topic "a" is compacted' in str(error.value)
    assert topic.end_offsets() == {0: 0}
    pair = log.create_topic("b", "k string, l string", key=("k", "l"), cleanup="compact")
    pair.append([{"k": "x"}, {"l": "y"}])
    with pytest.raises(InvalidRows, match=r"rows\[0\] has no key: k, l is null"):
        pair.append([{}])
    log.create_topic("c", "k string", key="k").append([{"k": None}])


def test_records_without_a_key_from_older_versions_stay(log, monkeypatch):
    topic = topic_of(log)
    monkeypatch.setattr("headrace.log.records._refuse_without_key", lambda *_: None)
    topic.append([{"k": None, "n": 1}, {"k": "a", "n": 2}, {"k": None, "n": 3}, {"k": "a", "n": 4}])
    topic.compact()
    assert topic.read(0, 0, 9).column("n").to_pylist() == [1, 3, 4]


def test_only_a_compacted_topic_is_compacted(log):
    topic = log.create_topic("a", "k string", key="k")
    with pytest.raises(InvalidTopic, match='is not compacted: its cleanup is "delete"'):
        topic.compact()


def test_a_producer_is_known_after_compaction_took_its_records(log, again):
    topic = topic_of(log)
    for number in range(5):
        topic.append([{"k": "a", "n": number}], producer=f"p{number % 2}", sequence=number)
    topic.compact()
    for path in (log.path / "topics" / "a" / "0").glob("*.producers"):
        path.unlink()
    other = again().topic("a")
    assert other.append([{"k": "a"}], producer="p0", sequence=4) == {0: range(4, 5)}
    assert other.append([{"k": "a"}], producer="p1", sequence=3) == {0: range(3, 4)}
    assert other.append([{"k": "a"}], producer="p1", sequence=5) == {0: range(5, 6)}


def test_another_process_that_knew_the_producer_earlier_still_knows_it(log, again):
    """What it has not read yet may be compacted away before it reads on."""
    topic, other = topic_of(log), again().topic("a")
    assert other.append([{"k": "a"}], producer="p", sequence=0) == {0: range(1)}
    for number in range(1, 4):
        topic.append([{"k": "a", "n": number}], producer="p", sequence=number)
    topic.compact()
    assert other.append([{"k": "a"}], producer="p", sequence=3) == {0: range(3, 4)}
    assert topic.end_offsets() == {0: 4}


def test_segments_of_which_nothing_is_left_are_told_from_missing_ones(small, again, clock):
    topic = topic_of(small, retention="10 hours")
    put(topic, "abc" * 9)
    put(topic, "abc" * 9)
    topic.compact()
    assert records_by_offset(topic) == records_by_offset(again().topic("a")) == {51: "a", 52: "b", 53: "c"}
    assert topic.min_time(0, 0, 27) is None
    assert (topic.start_offsets(), topic.verify()) == ({0: 0}, [])
    assert not topic.clean()
    clock.advance(11 * HOUR)
    topic.clean()
    assert topic.start_offsets() == {0: 54}


def test_what_was_compacted_is_not_written_anew_for_nothing(log, clock):
    topic = topic_of(log, delete_retention="1 hour")
    put(topic, "aAb")
    put(topic, "Bc")
    put(topic, "bd")
    topic.compact()
    names = {path.name for path in (log.path / "topics" / "a" / "0").glob("*.segment")}
    for _ in range(3):
        clock.advance(60)
        topic.compact()
    assert {path.name for path in (log.path / "topics" / "a" / "0").glob("*.segment")} == names


def test_records_of_several_schemas_are_compacted_together(log):
    """A widened key is the same key; records that stay keep their schema, and the defaults of later columns."""
    topic = topic_of(log, "k int, n bigint")
    topic.append([{"k": 1, "n": 1}, {"k": 2, "n": 2}, {"k": 3, "n": 3}])
    topic.evolve("k bigint, n bigint, more string", {"more": "x"})
    topic.append([{"k": 1, "n": 4, "more": "y"}, {"k": 1 << 40, "n": 5}])
    topic.append([{"k": 3, "_deleted": True}])
    assert topic.compact().records_removed == 2
    assert topic.read(0, 0, 9).drop_columns(["_time"]).to_pylist() == [
        {"k": 2, "n": 2, "more": "x", "_offset": 1, "_deleted": False},
        {"k": 1, "n": 4, "more": "y", "_offset": 3, "_deleted": False},
        {"k": 1 << 40, "n": 5, "more": "x", "_offset": 4, "_deleted": False},
        {"k": 3, "n": None, "more": None, "_offset": 5, "_deleted": True},
    ]
    assert topic.verify() == []


def test_small_segments_become_one_and_whole_ones_stay_where_they_are(small):
    topic = topic_of(small)
    folder = small.path / "topics" / "a" / "0"
    for n in range(12):
        put(topic, f"{'abcdefghijkl'[n]}xyz")
    assert len(list(folder.glob("*.segment"))) == 12
    topic.compact()
    assert len(list(folder.glob("*.segment"))) <= 3
    names = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.segment")}
    assert not topic.compact().records_removed
    assert {path.name: path.stat().st_mtime_ns for path in folder.glob("*.segment")} == names


def test_retention_takes_what_compaction_left_when_both_are_asked_for(log, clock):
    topic = topic_of(log, retention="10 hours")
    put(topic, "aab")
    topic.compact()
    clock.advance(11 * HOUR)
    put(topic, "c")
    assert topic.clean().segments_dropped == 1
    assert records_by_offset(topic, topic.start_offsets()[0]) == {3: "c"}


def test_a_reader_in_the_middle_goes_on_over_a_compaction(small, again):
    """Nothing twice, nothing out of order, and the last of each key is read."""
    for first in (1, 3, 7):
        topic = topic_of(small)
        for _ in range(10):
            put(topic, "abcdefgh")
        reader = again(segment_bytes=600).topic("a")
        reading = reader.batches(0, 0, topic.end_offsets()[0], columns=["k", "_offset"])
        seen = [row for _ in range(first) for row in next(reading).to_pylist()]
        put(topic, "abc")
        topic.compact()
        seen += [row for batch in reading for row in batch.to_pylist()]
        offsets = [row["_offset"] for row in seen]
        assert offsets == sorted(set(offsets))
        assert {row["k"] for row in seen} >= set("defgh")
        small.delete_topic("a")


def test_many_keys_are_found_in_several_passes(log, monkeypatch):
    monkeypatch.setattr(latest, "KEYS_BYTES", 20_000)
    monkeypatch.setattr(latest, "CHUNK_ROWS", 500)
    monkeypatch.setattr(payload, "MAX_ROWS", 100)
    topic = topic_of(log)
    for first in range(0, 9_000, 3_000):
        topic.append([{"k": f"key {(i * 7919) % 2_000}", "n": i} for i in range(first, first + 3_000)])
    last = {f"key {(i * 7919) % 2_000}": i for i in range(9_000)}
    assert topic.compact().records_removed == 7_000
    assert topic.read(0, 0, 10**5).column("n").to_pylist() == sorted(last.values())


def test_a_damaged_segment_is_not_compacted(log, again):
    topic = topic_of(log)
    put(topic, "aab")
    put(topic, "aab")
    topic.opened.writer(0).roll()
    path = next((log.path / "topics" / "a" / "0").glob("*.segment"))
    raw = bytearray(path.read_bytes())
    raw[200] ^= 1
    path.write_bytes(raw)
    with pytest.raises(CorruptBatch, match="offsets 0 to 2 are damaged"):
        again().topic("a").compact()
    assert path.read_bytes() == raw
