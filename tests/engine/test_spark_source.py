"""How an epoch's records are dealt out to the tasks that read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connect.source import OffsetRange

source = pytest.importorskip("headrace.engine.spark.source")


@given(rows=st.lists(st.integers(1, 50), min_size=1, max_size=9), tasks=st.integers(1, 6))
def test_tasks_get_all_records_in_order_and_like_numbers_of_them(rows, tasks):
    slices = [OffsetRange(source="s", partition=str(p), start=100 * p, end=100 * p + n) for p, n in enumerate(rows)]
    made = source.packed(slices, tasks)
    dealt = [(piece.partition, offset) for task in made for piece in task for offset in range(piece.start, piece.end)]
    assert dealt == [(piece.partition, offset) for piece in slices for offset in range(piece.start, piece.end)]
    assert len(made) <= tasks
    assert all(sum(piece.rows for piece in task) <= -(-sum(rows) // tasks) for task in made)
