"""Random programs over tables that are changed on one storage are refused, or have what plain Python makes of all rows.

`python scripts/random_upgrades.py` plays many.
"""

import pytest
from random_upgrades import play


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(1_000, 1_040), marks=pytest.mark.prove)],
                         ids=["few", "many"])  # fmt: skip
def test_a_changed_program_is_refused_or_right_for_all_rows(seeds):
    answers = 0
    for seed in seeds:
        played = play(seed, starts=3)
        assert not played.wrong, "\n".join(played.wrong)
        answers += played.answers
    assert answers > 5 * len(seeds)
