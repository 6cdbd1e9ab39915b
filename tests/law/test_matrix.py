"""The matrix of aggregates, windows, withdrawals and kinds of results, on fixed seeds."""

from __future__ import annotations

from datetime import timedelta

import pytest
from matrix import CASES, COMBINATIONS, CUTS, check, input_of, is_late, left


def case(number):
    """One of the three cuts each, so that every window meets all of them."""
    return {"cut": list(CUTS)[number % len(CUTS)], "seed": number, "count": 18}


@pytest.mark.spark
@pytest.mark.parametrize(("window", "table", "emit"), CASES)
def test_every_aggregate_is_that_of_the_batch(spark, window, table, emit):
    combination = (window, table, emit)
    check(spark, combination, **case(COMBINATIONS.index(combination)))


def test_rows_lie_on_both_bounds_of_sliding_windows():
    """A bound that were outside would not pass: two rows of a group are just the size of a window apart."""
    for number, combination in enumerate(COMBINATIONS):
        window, table, _ = combination
        if window == "sliding":
            rows = [row for row in left(input_of(combination, **case(number))[0], table=table) if not is_late(row)]
            times = {(row["k"], row["at"]) for row in rows}
            assert any((k, at + timedelta(minutes=6)) in times for k, at in times), combination
