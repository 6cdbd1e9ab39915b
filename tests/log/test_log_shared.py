"""Columns that are shared by reads: correct, bounded, and never those of another frame."""

import threading

from headrace.log.segments import shared
from headrace.log.segments.shared import ArrayCache


def test_equal_columns_are_one_and_others_are_made_anew():
    assert shared.ascending(5, 9).to_pylist() == [5, 6, 7, 8]
    assert shared.ascending(5, 5_009) is shared.ascending(5, 5_009)
    assert shared.ascending(5, 5_008).to_pylist() == list(range(5, 5_008))
    assert shared.instants(7, 2).cast("int64").to_pylist() == [7, 7]
    assert shared.instants(7, 2_000) is shared.instants(7, 2_000)
    assert [len(shared.falses(n)) for n in (0, 1, 65_536, 70_001)] == [0, 1, 65_536, 70_001]
    assert not any(shared.falses(70_001).to_pylist())


def test_what_was_used_longest_ago_goes_first_when_there_is_no_room():
    computed = []

    def make(base, following):
        computed.append(base)
        return shared._ascending(base, following)

    small = ArrayCache(limit=8 * 30)
    for base in (0, 10, 20, 0, 30, 0, 20, 10):
        assert small.get(("x", base, base + 10), make).to_pylist() == list(range(base, base + 10))
    assert computed == [0, 10, 20, 30, 10]
    assert small._size == 8 * 30


def test_small_records_leave_nothing_in_memory():
    """An app that reads a record at a time would keep an object for each: a hundred times what the limit counts."""
    held = len(shared._CACHE._arrays)
    for number in range(1_000):
        shared.instants(number, 3)
        shared.ascending(number, number + 3)
    assert len(shared._CACHE._arrays) == held


def test_threads_get_what_they_asked_for():
    small, wrong = ArrayCache(limit=8 * 25), []

    def look(start):
        for base in [*range(start, start + 40), *range(start, start + 40)]:
            got = small.get(("x", base, base + 10), shared._ascending)
            if got.to_pylist() != list(range(base, base + 10)):
                wrong.append(base)

    threads = [threading.Thread(target=look, args=(n * 7,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert small._size <= 8 * 25
