"""State does not grow where time bounds it: a fast selection of `python scripts/flat_state.py`, which plots it."""

import pytest
from scripts import flat_state

from headrace.kernels.state.state import MIN_FULL_BYTES

pytestmark = pytest.mark.xdist_group("flat state")  # its day is simulated once


@pytest.fixture(scope="module")
def day():
    """A day of events by epochs of an hour."""
    return flat_state.simulate(24, 3600, seed=1, rate=0.05)


def test_a_day_of_windows_sessions_and_dedupe_keeps_no_more_late_than_early(day):
    assert set(day) == {
        "tumbling", "final", "hopping", "cumulating", "calendar", "top", "session", "dedupe", flat_state.GROWS,
    }  # fmt: skip
    for step, points in day.items():
        if step != flat_state.GROWS:
            assert max(kept for _, kept, _ in points) > 0, step
            assert flat_state.grown(points) <= flat_state.SLACK, step
            assert max(size for _, _, size in points) < 2 * MIN_FULL_BYTES, step


def test_what_nothing_bounds_grows(day):
    """The simulation can fail: users come all day, and a plain count keeps them all."""
    assert flat_state.grown(day[flat_state.GROWS]) > 4


def test_the_plot_has_a_line_for_each_step(day):
    drawn = flat_state.plot(day)
    assert drawn.count("<polyline") == len(day) + 1
    assert all(f">{step}</text>" in drawn for step in day)
