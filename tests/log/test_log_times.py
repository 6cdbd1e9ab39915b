"""The time index: exact event times of any range of offsets, and offsets by time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import OffsetOutOfRange
from headrace.base.time import as_datetime
from headrace.log import Log


def test_the_greatest_and_least_time_of_a_range_are_exact(log):
    topic = log.create_topic("a", "at timestamp", event_time="at")
    topic.append([{"at": t} for t in (5, 9, None, 1)])
    topic.append([{"at": None}])
    topic.append([{"at": t} for t in (7, 3)])
    assert topic.max_time(0, 0, 7) == 9_000
    assert topic.min_time(0, 0, 7) == 1_000
    assert topic.max_time(0, 2, 7) == 7_000
    assert topic.min_time(0, 0, 2) == 5_000
    assert topic.max_time(0, 4, 5) is topic.min_time(0, 2, 3) is topic.max_time(0, 3, 3) is None
    with pytest.raises(OffsetOutOfRange):
        topic.max_time(0, 0, 8)


def test_without_a_column_the_time_is_that_of_the_append(log, clock):
    topic = log.create_topic("a", "n bigint")
    topic.append([{"n": 1}, {"n": 2}])
    first = clock.now()
    clock.advance(10)
    topic.append([{"n": 3}])
    assert (topic.min_time(0, 0, 3), topic.max_time(0, 0, 3)) == (first, first + 10_000_000)
    assert topic.max_time(0, 0, 1) == first
    assert topic.offsets_at(as_datetime(first + 1)) == {0: 2}


def test_the_first_offset_at_a_time_is_found_though_times_do_not_ascend(log):
    topic = log.create_topic("a", "at timestamp", event_time="at", partitions=2)
    topic.append([{"at": t} for t in (10, 30, 20)], partition=0)
    topic.append([{"at": t} for t in (50, 40)], partition=0)
    assert topic.offsets_at(0) == {0: 0, 1: 0}
    assert topic.offsets_at(15) == {0: 1, 1: 0}
    assert topic.offsets_at(31) == {0: 3, 1: 0}
    assert topic.offsets_at(51) == {0: 5, 1: 0}
    assert topic.offsets_at("1970-01-01 00:00:00.020") == {0: 1, 1: 0}


def test_only_batches_that_the_bounds_cut_are_looked_into(log, monkeypatch):
    topic = log.create_topic("a", "at timestamp", event_time="at")
    for t in range(0, 30, 3):
        topic.append([{"at": t}, {"at": t + 1}, {"at": t + 2}])
    looked = []
    opened = topic.opened
    decoded = opened.decoded
    monkeypatch.setattr(opened, "decoded", lambda segment, number: looked.append(number) or decoded(segment, number))
    assert topic.max_time(0, 0, 30) == 29_000
    assert topic.max_time(0, 3, 27) == 26_000
    assert not looked
    assert topic.max_time(0, 4, 28) == 27_000
    assert sorted(looked) == [1, 9]


TIMES = st.none() | st.integers(-(10**9), 10**9)


@settings(max_examples=60, deadline=None)
@given(
    appends=st.lists(st.lists(TIMES, min_size=1, max_size=6), max_size=8),
    cut=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    time=st.integers(-(10**9), 10**9),
    size=st.sampled_from([500, 1 << 27]),
)
def test_times_are_those_of_a_pass_over_the_rows(tmp_path_factory, **case):
    appends, cut, time, size = case["appends"], case["cut"], case["time"], case["size"]
    with Log(tmp_path_factory.mktemp("log"), fsync=False, segment_bytes=size) as log:
        topic = log.create_topic("a", "at timestamp", event_time="at")
        for times in appends:
            topic.append([{"at": t} for t in times])
        everything = [t for times in appends for t in times]
        start, end = sorted(min(at, len(everything)) for at in cut)
        inside = [t * 1000 for t in everything[start:end] if t is not None]
        assert topic.max_time(0, start, end) == max(inside, default=None)
        assert topic.min_time(0, start, end) == min(inside, default=None)
        late = [i for i, t in enumerate(everything) if t is not None and t >= time]
        assert topic.offsets_at(time) == {0: late[0] if late else len(everything)}
