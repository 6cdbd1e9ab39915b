"""The matrix of aggregates, windows, withdrawals and kinds of results, on fixed seeds."""

from __future__ import annotations

import pytest
from matrix import COMBINATIONS, CUTS, check

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("number", "combination"), list(enumerate(COMBINATIONS)), ids=map(str, COMBINATIONS))
def test_every_aggregate_is_that_of_the_batch(spark, number, combination):
    """In one of the three cuts each, so that every window meets all of them."""
    check(spark, combination, list(CUTS)[number % len(CUTS)], seed=number, count=18)
