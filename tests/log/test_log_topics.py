"""Topics: created, found, appended to, read and deleted."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.base.errors import (
    AppendFailed,
    InvalidName,
    InvalidRows,
    InvalidSchema,
    InvalidTopic,
    LogClosed,
    OffsetOutOfRange,
    TopicDeleted,
    TopicExists,
    UnknownColumn,
    UnknownTopic,
)
from headrace.log import Log
from headrace.log.appending import writer

AT = datetime(2024, 1, 31, 10, 0, tzinfo=UTC)
NOW = datetime(2025, 1, 1, tzinfo=UTC)


def copied(topic):
    return pickle.loads(pickle.dumps(topic))  # noqa: S301 - our own bytes


def values(topic, column="id", partition=0):
    end = topic.end_offsets()[partition]
    return [v for batch in topic.batches(partition, 0, end) for v in batch.column(column).to_pylist()]


def test_opening_a_log_touches_nothing(tmp_path):
    with Log(tmp_path / "log") as log:
        assert log.topics() == []
        assert not log.has_topic("a")
        assert not (tmp_path / "log").exists()
        log.create_topic("a", "id bigint")
        assert log.topics() == ["a"]


def test_a_topic_keeps_what_it_was_made_with(log, again):
    log.create_topic(
        "orders",
        "id bigint not null, at timestamp",
        partitions=3,
        key="id",
        event_time="at",
        retention="7 days",
        cleanup="compact",
    )
    for topic in (log.topic("orders"), again().topic("orders"), copied(log.topic("orders"))):
        assert (topic.name, topic.partitions, topic.key, topic.event_time) == ("orders", 3, ("id",), "at")
        assert (topic.cleanup, topic.retention) == ("compact", 7 * 86_400_000_000)
        assert topic.schema.field("id") == pa.field("id", pa.int64(), nullable=False)
        assert topic.start_offsets() == topic.end_offsets() == {0: 0, 1: 0, 2: 0}


def test_a_missing_topic_is_named_with_the_nearest_and_the_way_to_make_it(log):
    log.create_topic("orders", "id bigint")
    with pytest.raises(UnknownTopic) as error:
        log.topic("order")
    assert f'the log "{log.path}" has no topic "order"' in str(error.value)
    assert 'Did you mean "orders"? Create it: Log(' in str(error.value)


@pytest.mark.parametrize("name", ["../x", ".x", "a/b", "", "..", "x" * 300])
def test_a_name_that_is_no_topics_name_is_refused(log, name):
    assert not log.has_topic(name)
    with pytest.raises(InvalidName):
        log.create_topic(name, "id bigint")
    with pytest.raises(UnknownTopic):
        log.topic(name)


def test_a_topic_is_made_once(log, again):
    log.create_topic("a", "id bigint")
    for other in (log, again()):
        with pytest.raises(TopicExists, match='already has a topic "a"'):
            other.create_topic("a", "id bigint")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"key": "idd"}, 'the key column "idd" is not in the schema'),
        ({"event_time": "att"}, 'the event_time column "att" is not in the schema'),
        ({"event_time": "id"}, 'event_time is "id", a bigint'),
        ({"partitions": 0}, "0 partitions are not possible"),
        ({"partitions": "2"}, "partitions is '2', not a number"),
        ({"key": ["id", "id"]}, "a key column is named twice"),
        ({"cleanup": "compress"}, 'cleanup is "compress"'),
        ({"cleanup": "compact"}, "there is no key"),
    ],
)
def test_a_topic_that_makes_no_sense_is_refused(log, options, expected):
    with pytest.raises(InvalidTopic, match="topic") as error:
        log.create_topic("a", "id bigint, at timestamp", **options)
    assert expected in str(error.value)
    assert log.topics() == []


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("struct<>", "a struct has no fields"),
        ("array<struct< >>", "a struct has no fields"),
        ("struct<a:int,`a`:string>", 'the field "a" of a struct is named twice'),
        ("map<string,struct<b:struct<c:int,c:int>>>", 'the field "c" of a struct is named twice'),
    ],
)
def test_a_struct_has_fields_each_of_its_own_name(log, kind, why):
    with pytest.raises(InvalidSchema, match=why):
        log.create_topic("a", f"id bigint, p {kind}")


EVERYTHING = (
    "i8 tinyint, i16 smallint, i32 int, i64 bigint, f32 float, f64 double, b boolean, s string, bin binary, "
    "d date, ts timestamp, ntz timestamp_ntz, dec decimal(38,10), l array<string>, m map<string,array<int>>, "
    "st struct<a:int,b:struct<c:string>>"
)
ROW = {
    "i8": -128, "i16": 32767, "i32": -(2**31), "i64": 2**63 - 1, "f32": 0.5, "f64": -1e308, "b": True,
    "s": "𝄞 \u202e \x00 é", "bin": b"\x00\xff", "d": date(1, 1, 1), "ts": AT,
    "ntz": AT.replace(year=9999, tzinfo=None),
    "dec": Decimal("-9999999999999999999999999999.9999999999"), "l": ["a", None, ""],
    "m": [("k", [1, None]), ("n", None)],
    "st": {"a": None, "b": {"c": "x"}},
}  # fmt: skip


def test_every_type_comes_back_as_it_went_in(log, again):
    topic = log.create_topic("a", EVERYTHING)
    nothing = dict.fromkeys(ROW)
    topic.append([ROW, nothing, ROW])
    for reader in (topic, again().topic("a")):
        table = reader.read(0, 0, 10)
        assert table.select(list(ROW)).to_pylist() == [ROW, nothing, ROW]
        assert table.select(list(ROW)).schema == reader.schema
        table.validate(full=True)


def test_an_empty_append_gives_nothing(log):
    topic = log.create_topic("a", "id bigint")
    assert topic.append([]) == {}
    assert topic.append(pa.table({"id": pa.array([], pa.int64())})) == {}
    assert topic.end_offsets() == {0: 0}
    assert topic.read(0, 0, 10).num_rows == 0
    assert topic.read(0, 0, 10).column_names == ["id", "_offset", "_time", "_deleted"]
    assert list(topic.batches(0, 0, 0)) == []


def test_reading_gives_offsets_times_and_tombstones(log):
    topic = log.create_topic("a", "id bigint, name string", key="id")
    assert topic.append([{"id": 1, "name": "x"}]) == {0: range(1)}
    rows = [{"id": 2, "name": "y", "_time": AT}, {"id": 1, "name": "dropped", "_deleted": True}]
    assert topic.append(rows) == {0: range(1, 3)}
    assert topic.read(0, 0, 10).to_pylist() == [
        {"id": 1, "name": "x", "_offset": 0, "_time": NOW, "_deleted": False},
        {"id": 2, "name": "y", "_offset": 1, "_time": AT, "_deleted": False},
        {"id": 1, "name": None, "_offset": 2, "_time": NOW, "_deleted": True},
    ]
    assert topic.read(0, 1, 1).column("_offset").to_pylist() == [1]
    assert topic.read(0, 1, 0).num_rows == 0


def test_the_event_time_column_wins_and_its_null_stays(log):
    topic = log.create_topic("a", "id bigint, at timestamp", key="id", event_time="at")
    topic.append([{"id": 1, "at": AT, "_time": NOW}, {"id": 2, "_time": NOW}])
    topic.append([{"id": 1, "_deleted": True, "_time": NOW}, {"id": 2, "_deleted": True}, {"id": 3, "at": AT}])
    assert topic.read(0, 0, 9).column("_time").to_pylist() == [AT, None, NOW, None, AT]


def test_a_delete_in_a_topic_without_a_key_is_refused(log):
    topic = log.create_topic("a", "id bigint")
    with pytest.raises(InvalidRows, match=r"rows\[1\] deletes, but the topic \"a\" has no key"):
        topic.append([{"id": 1}, {"id": 1, "_deleted": True}])


def test_columns_are_given_in_the_order_asked_for(log):
    topic = log.create_topic("a", "id bigint, name string")
    topic.append([{"id": 1, "name": "x", "_headers": {"k": "v"}}, {"id": 2, "name": "y"}])
    topic.append([{"id": 3}])
    names = ["_headers", "name", "_offset", "_time", "_deleted"]
    found = [batch.to_pylist() for batch in topic.batches(0, 1, 3, columns=names)]
    assert found == [
        [{"_headers": None, "name": "y", "_offset": 1, "_time": NOW, "_deleted": False}],
        [{"_headers": None, "name": None, "_offset": 2, "_time": NOW + timedelta(microseconds=1), "_deleted": False}],
    ]
    assert [batch.num_rows for batch in topic.batches(0, 0, 3, columns=[])] == [2, 1]
    assert next(topic.batches(0, 0, 1, columns=["_headers"])).to_pylist() == [{"_headers": [("k", "v")]}]
    with pytest.raises(UnknownColumn, match='"a" has no column "nam"'):
        topic.batches(0, 0, 3, columns=["nam"])


def test_a_range_that_is_not_there_is_refused(log):
    topic = log.create_topic("a", "id bigint")
    topic.append([{"id": 1}])
    for start, end in ((0, 2), (2, 2), (-1, 1), (1, 0)):
        with pytest.raises(OffsetOutOfRange, match='topic "a", partition 0 cannot be read at offset'):
            topic.batches(0, start, end)
    with pytest.raises(OffsetOutOfRange):
        topic.read(0, 2, 1)
    with pytest.raises(InvalidTopic, match="has no partition 1"):
        topic.read(1, 0, 1)
    with pytest.raises(InvalidTopic, match="has no partition -1"):
        topic.append([{"id": 1}], partition=-1)


def test_one_bad_row_and_nothing_is_written(log):
    topic = log.create_topic("a", "id bigint", partitions=4, key="id")
    with pytest.raises(InvalidRows, match=r"rows\[99\]"):
        topic.append([*({"id": i} for i in range(99)), {"id": "x"}])
    assert topic.end_offsets() == {0: 0, 1: 0, 2: 0, 3: 0}


def test_records_of_a_key_meet_in_one_partition_and_keep_their_order(log):
    topic = log.create_topic("a", "k string, n bigint", partitions=5, key="k")
    for n in range(0, 500, 100):
        given = topic.append([{"k": f"k{i % 37}", "n": i} for i in range(n, n + 100)])
        assert sum(map(len, given.values())) == 100
    seen = {}
    for partition, end in topic.end_offsets().items():
        for row in topic.read(partition, 0, end).to_pylist():
            seen.setdefault(row["k"], []).append((partition, row["n"]))
    assert len(seen) == 37
    for rows in seen.values():
        assert len({partition for partition, _ in rows}) == 1
        assert [n for _, n in rows] == sorted(n for _, n in rows)


def test_appends_without_a_key_go_round_the_partitions(log, again):
    topic = log.create_topic("a", "id bigint", partitions=3)
    for _ in range(4):
        topic.append([{"id": 1}, {"id": 2}])
    other = again().topic("a")
    for _ in range(5):
        other.append([{"id": 1}, {"id": 2}])
    assert topic.end_offsets() == {0: 6, 1: 6, 2: 6}
    assert topic.append([{"id": 1}], partition=2) == {2: range(6, 7)}


def test_a_large_append_is_cut_into_frames_and_read_exactly(log):
    topic = log.create_topic("a", "id bigint, blob binary")
    table = pa.table({"id": range(150_000), "blob": [b"x" * 200] * 150_000})
    assert topic.append(table) == {0: range(150_000)}
    batches = list(topic.batches(0, 0, 150_000))
    assert len(batches) > 2
    assert pa.Table.from_batches(batches).column("id").to_pylist() == list(range(150_000))
    for start, end in ((0, 1), (65_000, 66_000), (65_535, 65_537), (149_999, 150_000), (1, 149_999)):
        assert [v for b in topic.batches(0, start, end) for v in b.column("id").to_pylist()] == list(range(start, end))


def test_batches_rest_on_the_mapped_file_without_a_copy(log):
    topic = log.create_topic("a", "id bigint")
    topic.append([{"id": i} for i in range(1000)])
    before = pa.total_allocated_bytes()
    batches = list(topic.batches(0, 0, 1000))
    assert pa.total_allocated_bytes() == before
    assert batches[0].column(0).buffers()[1].address % 8 == 0


def test_segments_roll_and_reading_crosses_them(log, again):
    small = again(segment_bytes=4_000)
    topic = small.create_topic("a", "id bigint, text string")
    for n in range(60):
        topic.append([{"id": n * 3 + i, "text": "x" * 50} for i in range(3)])
    assert len(list((small.path / "topics" / "a" / "0").glob("*.segment"))) > 5
    for reader in (topic, log.topic("a"), again().topic("a")):
        assert values(reader) == list(range(180))
        for start in range(0, 180, 7):
            found = [v for b in reader.batches(0, start, min(start + 20, 180)) for v in b.column("id").to_pylist()]
            assert found == list(range(start, min(start + 20, 180)))


def test_many_small_appends_roll_too(again, monkeypatch):
    monkeypatch.setattr(writer, "SEGMENT_FRAMES", 10)
    topic = again().create_topic("a", "id bigint")
    for n in range(35):
        topic.append([{"id": n}])
    assert len(list((again().path / "topics" / "a" / "0").glob("*.segment"))) == 4
    assert values(again().topic("a")) == list(range(35))


def test_a_closed_log_says_so_and_batches_stay_valid(log):
    topic = log.create_topic("a", "id bigint")
    topic.append([{"id": 1}])
    batch = next(topic.batches(0, 0, 1))
    log.close()
    for call in (log.topics, topic.end_offsets, lambda: topic.append([{"id": 1}]), lambda: topic.read(0, 0, 1)):
        with pytest.raises(LogClosed, match="is closed"):
            call()
    assert batch.to_pylist() == [{"id": 1}]


def test_a_deleted_topic_is_read_to_the_end_and_then_gone(log, again):
    topic = log.create_topic("a", "id bigint")
    topic.append([{"id": 1}])
    topic.append([{"id": 2}])
    other = again().topic("a")
    reading = other.batches(0, 0, 2)
    assert next(reading).to_pylist() == [{"id": 1}]
    log.delete_topic("a")
    assert next(reading).to_pylist() == [{"id": 2}]
    for call in (lambda: other.read(0, 0, 1), other.end_offsets, lambda: other.append([{"id": 1}]), topic.end_offsets):
        with pytest.raises(TopicDeleted, match='the topic "a" was deleted'):
            call()
    assert log.topics() == []
    with pytest.raises(UnknownTopic):
        log.delete_topic("a")
    log.create_topic("a", "other string").append([{"other": "x"}])
    with pytest.raises(TopicDeleted, match="was deleted"):
        other.read(0, 0, 1)
    assert again().topic("a").read(0, 0, 1).column("other").to_pylist() == ["x"]


def test_an_append_that_waited_while_the_topic_was_made_anew_is_refused(log, again):
    """Rows meant for the old topic never land in the new one."""
    topic = log.create_topic("a", "id bigint")
    topic.append([{"id": 1}])
    other = again()
    other.delete_topic("a")
    other.create_topic("a", "id bigint")
    topic.opened.file.current = lambda: topic.opened.first
    with pytest.raises(TopicDeleted):
        topic.append([{"id": 2}])
    assert other.topic("a").end_offsets() == {0: 0}


def test_a_full_disk_refuses_the_append_and_harms_nothing(log, monkeypatch):
    topic = log.create_topic("a", "id bigint")
    topic.append([{"id": 1}])

    def full(fd, buffers, position, **_):
        written(fd, buffers[:2], position)
        raise OSError(28, "No space left on device")

    written = writer.write_at
    monkeypatch.setattr(writer, "write_at", full)
    with pytest.raises(AppendFailed, match='append to topic "a", partition 0 failed: No space left on device'):
        topic.append([{"id": 2}])
    assert values(topic) == [1]
    monkeypatch.undo()
    assert topic.append([{"id": 3}]) == {0: range(1, 2)}
    assert values(topic) == [1, 3]


def test_reading_creates_and_repairs_nothing(log, again, tmp_path):
    topic = log.create_topic("a", "id bigint")
    topic.append([{"id": 1}])
    before = sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*"))
    reader = again().topic("a")
    assert values(reader) == [1]
    assert reader.max_time(0, 0, 1) is not None
    assert sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*")) == before


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    appends=st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), max_size=12),
    cut=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    size=st.sampled_from([600, 2_000, 1 << 27]),
)
def test_any_range_after_any_appends_is_what_went_in(tmp_path_factory, appends, cut, size):
    with Log(tmp_path_factory.mktemp("log"), fsync=False, segment_bytes=size) as log:
        topic = log.create_topic("a", "n int")
        for rows in appends:
            topic.append([{"n": n} for n in rows])
        everything = [n for rows in appends for n in rows]
        start, end = sorted(min(at, len(everything)) for at in cut)
        with Log(log.path) as other:
            reader = other.topic("a")
            found = pa.Table.from_batches(
                reader.batches(0, start, end, columns=["n", "_offset"]),
                schema=pa.schema([("n", pa.int32()), ("_offset", pa.int64())]),
            )
            assert found.column("n").to_pylist() == everything[start:end]
            assert found.column("_offset").to_pylist() == list(range(start, end))


def test_threads_that_ask_at_once_for_a_topic_that_was_created_again_get_the_new_one(tmp_path):
    with Log(tmp_path, fsync=False) as log, Log(tmp_path, fsync=False) as other, ThreadPoolExecutor(4) as threads:
        begin = threading.Barrier(4)

        def found(_):
            begin.wait()
            return log.topic("t").id

        other.create_topic("t", "id int")
        for _ in range(50):
            log.topic("t")
            other.delete_topic("t")
            new = other.create_topic("t", "id int").id
            assert {*threads.map(found, range(4))} == {new}
