"""Chunks by whole columns are those that windows in SQL make."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.names import quote
from headrace.kernels.duck import Duck
from headrace.kernels.groups.chunks import chunked, islands
from headrace.kernels.groups.gaps import CHUNK, SessionSql
from headrace.kernels.groups.windows import Session

KEYS = {
    "number": (pa.int64(), [None, 0, -1, 2**62]),
    "text": (pa.string(), [None, "", "a", "ä"]),
    "flag": (pa.bool_(), [None, True, False]),
    "day": (pa.date32(), [None, date(1969, 12, 31), date(2026, 1, 1)]),
    "price": (pa.decimal128(10, 2), [None, Decimal("1.00"), Decimal("-1.00")]),
    "ratio": (pa.float64(), [None, 0.0, -0.0, float("nan")]),
    "pair": (pa.struct([("a", pa.int64())]), [None, {"a": 1}, {"a": None}]),
}
SESSION = Session(gap=10, grace=0)


def rows_of(drawn, names):
    columns = {name: pa.array([row[i] for row in drawn], KEYS[name][0]) for i, name in enumerate(names)}
    return pa.table({**columns, "_time": pa.array([row[-1] for row in drawn], pa.int64())})


@settings(max_examples=60, deadline=None)
@given(data=st.data(), names=st.lists(st.sampled_from(sorted(KEYS)), max_size=3, unique=True))
def test_chunks_are_those_of_the_windows_in_sql(data, names):
    times = st.integers(-60, 60) | st.sampled_from([-(2**61), 2**61])
    drawn = data.draw(st.lists(st.tuples(*(st.sampled_from(KEYS[name][1]) for name in names), times), max_size=30))
    duck = Duck()
    rows = duck.register(rows_of(drawn, names))
    ours = duck.rows(f"SELECT * FROM {chunked(duck, SESSION, rows, names)}")
    theirs = duck.rows(f"SELECT * FROM {SessionSql(SESSION).chunked(rows, [quote(name) for name in names])}")
    assert sorted(map(repr, ours)) == sorted(map(repr, theirs))
    duck.close()


@settings(max_examples=60, deadline=None)
@given(data=st.data(), names=st.lists(st.sampled_from(sorted(KEYS)), max_size=2, unique=True))
def test_islands_are_those_of_the_windows_in_sql(data, names):
    """Spans overlap, touch, lie within each other and begin together."""
    times = st.tuples(st.integers(-60, 60) | st.sampled_from([2**61]), st.sampled_from([0, 3, 25, 2**60]))
    drawn = data.draw(st.lists(st.tuples(*(st.sampled_from(KEYS[name][1]) for name in names), times), max_size=30))
    table = rows_of([(*row[:-1], row[-1][0]) for row in drawn], names).rename_columns([*names, "_pane"])
    table = table.append_column("_last", pa.array([sum(row[-1]) for row in drawn], pa.int64()))
    duck = Duck()
    spans, quoted = f"SELECT * FROM {duck.register(table)}", [quote(name) for name in names]
    ours = duck.rows(f"SELECT * FROM {islands(duck, SESSION, duck.arrow(spans), names)}")
    theirs = duck.rows(SessionSql(SESSION).islands(spans, quoted))
    assert sorted(map(repr, ours)) == sorted(map(repr, theirs))
    duck.close()


def test_many_keys_of_several_columns_stay_apart():
    """So many that their numbers become dense, and so far apart that no number holds key and time."""
    count = 70_000
    columns = {"a": range(count), "b": range(count, 0, -1), "_time": [i % 3 * 2**60 for i in range(count)]}
    duck = Duck()
    rows = duck.register(pa.table({name: pa.array(list(values), pa.int64()) for name, values in columns.items()}))
    marked = chunked(duck, SESSION, rows, ["a", "b"])
    assert duck.rows(f"SELECT count(*), count(*) FILTER ({CHUNK} = _time) FROM {marked}") == [(count, count)]
    duck.close()


@pytest.mark.parametrize("names", [[], ["number"]])
def test_no_rows_have_no_chunks(names):
    duck = Duck()
    marked = chunked(duck, SESSION, duck.register(rows_of([], names)), names)
    assert duck.arrow(f"SELECT * FROM {marked}").num_rows == 0
    duck.close()
