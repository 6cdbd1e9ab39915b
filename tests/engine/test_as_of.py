"""The version of a time, for many rows at once, against a plain search."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels.joins.version_search import latest

KINDS = {
    "text": (pa.string(), st.sampled_from(["", "a", "b", "é😀"])),
    "number": (pa.int16(), st.integers(-2, 2)),
    "day": (pa.date32(), st.integers(0, 3)),
    "exact": (pa.decimal128(9, 2), st.decimals(-2, 2, places=2)),
}
TIMES = {"near": st.integers(-5, 5), "far": st.one_of(st.integers(-(1 << 62), 1 << 62), st.integers(-2, 2))}


def plain(asking, at, keys, since):
    """What `latest` must give."""
    made = []
    for key, time in zip(asking, at, strict=True):
        known = [(since[i], i) for i in range(len(keys)) if keys[i] == key and since[i] <= time and None not in key]
        made.append(max(known)[1] if known else -1)
    return made


@given(data=st.data(), kinds=st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3), far=st.booleans())
def test_each_row_finds_the_last_version_of_its_key_that_is_not_after_it(data, kinds, far):
    key = st.tuples(*(KINDS[kind][1] for kind in kinds))
    times = TIMES["far" if far else "near"]
    versions = data.draw(st.lists(st.tuples(key, times), max_size=12, unique=True))
    asked = data.draw(st.lists(st.tuples(st.one_of(key, st.just((None,) * len(kinds))), times), max_size=12))
    (keys, since), (asking, at) = ([[row[i] for row in rows] for i in (0, 1)] for rows in (versions, asked))
    found = latest(_columns(asking, kinds), np.array(at, np.int64), _columns(keys, kinds), np.array(since, np.int64))
    assert found.tolist() == plain(asking, at, keys, since)


@pytest.mark.parametrize(("left", "right"), [(pa.float64(), pa.float64()), (pa.int32(), pa.int64())])
def test_keys_that_numbers_cannot_tell_apart_as_sql_does_are_left_to_it(left, right):
    one = np.array([1], np.int64)
    columns = [[pa.chunked_array([pa.array([1], kind)])] for kind in (left, right)]
    assert latest(columns[0], one, columns[1], one) is None


def test_very_many_keys_of_several_columns_have_numbers_too():
    """The product of the columns' own numbers is more than any table has rows."""
    random = np.random.default_rng(1)
    keys = [random.integers(0, 3_000, 4_000) for _ in range(3)]
    since, at = random.integers(0, 9, 4_000), random.integers(0, 9, 4_000)
    columns = [pa.chunked_array([pa.array(each)]) for each in keys]
    found = latest(columns, at, columns, since)
    assert found.tolist() == [i if since[i] <= at[i] else -1 for i in range(4_000)]


def _columns(rows, kinds):
    return [pa.chunked_array([pa.array([row[i] for row in rows], KINDS[kind][0])]) for i, kind in enumerate(kinds)]
