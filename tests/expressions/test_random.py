"""A few random expressions; scripts/random_expressions.py makes as many as one likes."""

import pytest
from random_comparison import batch

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("seed", ["suite.1", "suite.2"])
def test_random_expressions_give_what_spark_gives(rivals, seed):
    """What differs is printed with its seed; `python scripts/random_expressions.py --only SEED` repeats it."""
    found = batch(rivals, seed)
    assert not found, "\n" + "\n".join(map(str, found))
