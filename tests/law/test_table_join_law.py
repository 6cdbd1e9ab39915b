"""The law on joins of tables: after every epoch they are what SQL makes of the rows that there are then."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_joins import HOWS, SHAPES, Case, Join, ask_duckdb, ask_spark, wrong

from budget import examples
from headrace.kernels.joins import growing_side, pairs_by_columns

JOINS = Join.every()
COVERED = [join for join in JOINS if join.how != "full" and join.where is None]


@settings(max_examples=examples(7), deadline=None)
@given(seed=st.integers(0, 10**9), join=st.sampled_from(JOINS))
def test_any_join_is_that_of_duckdb_after_every_epoch(seed, join):
    assert not wrong([Case.of(seed, join)], ask_duckdb())


@pytest.mark.spark
def test_joins_of_every_shape_are_those_of_spark_after_every_epoch(spark):
    """A case of each shape, the kinds by turns; all of them, with conditions, in `scripts/random_joins.py`."""
    some = []
    for at, (name, shape) in enumerate(SHAPES.items()):
        some.append(Join(name, HOWS[at % len(HOWS)], None))
        some += [Join(name, HOWS[-1 - at % len(HOWS)], "n > m")] if shape.where and at % 4 == 1 else []
    assert not wrong([Case.of(20240131 + at, join) for at, join in enumerate(some)], ask_spark(spark), shards=1)


@settings(max_examples=examples(3), deadline=None)
@given(seed=st.integers(0, 10**9), join=st.sampled_from(COVERED))
def test_a_join_by_sql_is_the_same(seed, join):
    """`pairs_by_columns` computes all but full joins and further conditions without SQL."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pairs_by_columns, "covers", lambda *_: False)
        assert not wrong([Case.of(seed, join)], ask_duckdb())


@settings(max_examples=examples(4), deadline=None)
@given(seed=st.integers(0, 10**9), join=st.sampled_from(COVERED))
def test_a_join_by_columns_is_that_of_duckdb(seed, join):
    assert not wrong([Case.of(seed, join)], ask_duckdb())


@settings(max_examples=examples(3), deadline=None)
@given(seed=st.integers(0, 10**9), join=st.sampled_from(JOINS))
def test_a_join_is_the_same_where_no_epoch_is_known_to_only_add_rows(seed, join):
    """`growing_side` takes the rows of such epochs as they are; here they are netted and looked up like all others."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(growing_side, "_only_adds", lambda *_: False)
        patched.setattr(pairs_by_columns, "covers", lambda *_: False)
        assert not wrong([Case.of(seed, join)], ask_duckdb())
