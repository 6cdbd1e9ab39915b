"""Random programs of verbs over tables that change hold what plain Python makes of their rows, epoch by epoch."""

import pytest
from random_verbs import play

from headrace.kernels.state import keyed


@pytest.mark.parametrize(
    "seeds", [range(2), pytest.param(range(1_000, 1_060), marks=pytest.mark.prove)], ids=["few", "many"]
)
@pytest.mark.parametrize("fewer", [0, keyed.FEWER], ids=["each row looked up", "small tables read whole"])
def test_random_programs_give_what_plain_python_gives(seeds, fewer, monkeypatch):
    monkeypatch.setattr(keyed, "FEWER", fewer)
    answers = 0
    for seed in seeds:
        played = play(seed, programs=6, epochs=3)
        assert not played.wrong, "\n".join(played.wrong)
        answers += played.answers
    assert answers > 5 * len(seeds)
