"""A directory of hashes finds what a binary search does, however they are spread."""

import numpy as np
import pyarrow as pa
import pytest

from headrace.base.hashing import hash_columns
from headrace.kernels.state import runs
from headrace.kernels.state.directory import Directory, ends_of
from headrace.kernels.state.runs import Index, TooMany

GREATEST = 2**64 - 1
EVEN = np.random.default_rng(1).integers(0, GREATEST, 5_000, dtype=np.uint64)
HASHES = {
    "one": [7],
    "two ends": [0, GREATEST],
    "all alike": [5] * 300,
    "even": EVEN,
    "in a corner": EVEN >> np.uint64(40),
    "a crowd": np.concatenate([EVEN, np.full(400, 1 << 63, np.uint64), EVEN[:9].repeat(30)]),
    "two crowds far apart": np.concatenate(
        [np.arange(500, dtype=np.uint64), GREATEST - np.arange(500, dtype=np.uint64)]
    ),
}


@pytest.fixture(params=list(HASHES))
def hashes(request):
    return np.sort(np.asarray(HASHES[request.param], dtype=np.uint64))


@pytest.fixture
def probe(hashes):
    """Hashes that are there, those next to them, and both ends; some are there twice."""
    some, one = hashes[:: max(1, len(hashes) // 500)], np.uint64(1)
    return np.sort(np.concatenate([some, some, some + one, some - one, np.array([0, GREATEST], np.uint64)]))


def test_it_finds_the_first_position_that_is_not_before_a_hash(hashes, probe):
    found = Directory.of(hashes).first_at(hashes, probe)
    assert found.tolist() == np.searchsorted(hashes, probe).tolist()


def test_the_hashes_that_are_alike_end_where_others_begin(hashes):
    first, ends = np.searchsorted(hashes, hashes), np.searchsorted(hashes, hashes, side="right")
    assert ends_of(hashes, first, np.flatnonzero(ends > first + 1)).tolist() == ends.tolist()


@pytest.mark.parametrize("fewest", [0, 1 << 60])
def test_an_index_finds_every_pair_with_a_directory_and_without(hashes, probe, monkeypatch, fewest):
    monkeypatch.setattr(runs, "FEWEST", fewest)
    rows = np.random.default_rng(2).permutation(hashes)
    which, positions = Index.of(rows).pairs(probe)
    expected = [(number, int(at)) for number, each in enumerate(probe) for at in np.flatnonzero(rows == each)]
    assert sorted(zip(which.tolist(), positions.tolist(), strict=True)) == expected


@pytest.mark.parametrize("fewest", [0, 1 << 60])
def test_more_pairs_than_there_is_room_for_are_refused(monkeypatch, fewest):
    monkeypatch.setattr(runs, "FEWEST", fewest)
    index, probe = Index.of(np.full(300, 5, np.uint64)), np.array([5, 5], np.uint64)
    assert len(index.pairs(probe, 600)[0]) == 600
    with pytest.raises(TooMany):
        index.pairs(probe, 599)


def test_large_indexes_have_a_directory_once_a_probe_is_worth_it():
    rows = hash_columns([pa.array(range(runs.FEWEST))], runs.FEWEST)
    index = Index.of(rows)
    assert sorted(index.find(np.sort(rows[:10])).tolist()) == list(range(10))
    assert "directory" not in vars(index)
    assert sorted(index.find(np.sort(rows[:1000])).tolist()) == list(range(1000))
    assert "directory" in vars(index)
