"""How many rows an epoch may read follows what epochs cost."""

import pyarrow as pa
import pytest

from headrace.engine.pace import LEAST_ROWS, TARGET_SECONDS, Took, first_rows, most_rows, next_limit

MOST = 4_000_000


def played(cost, epochs=60, limit=MOST):
    """Return the sizes and times of epochs that read as much as they may."""
    took, before = [], Took(0, 0.0)
    for number in range(epochs):
        last = Took(limit, cost(limit, number))
        limit = next_limit(limit, last, before=before, most=MOST)
        took.append(last)
        before = last
    return took


@pytest.mark.parametrize("rate", [20_000, 200_000, 1_000_000])
def test_epochs_take_about_the_target_where_rows_are_what_they_cost(rate):
    seconds = [each.seconds for each in played(lambda rows, _: 0.1 + rows / rate)[20:]]
    assert min(seconds) > 0.5 * TARGET_SECONDS
    assert max(seconds) < 1.5 * TARGET_SECONDS


@pytest.mark.parametrize("fixed", [3.5, 5.0, 30.0])
def test_epochs_do_not_shrink_where_fewer_rows_cost_as_much(fixed):
    """Each epoch of a step looks through its state: 100,000 rows a second are read beside that, or none at all."""
    took = played(lambda rows, _: fixed + rows / 100_000)[20:]
    useful = sum(each.rows for each in took) / 100_000
    assert useful > 0.4 * sum(each.seconds for each in took), "two fifths of the time goes into rows"


def test_a_cost_that_grows_with_the_state_leads_to_no_smaller_epochs():
    state = 0

    def cost(rows, _):
        nonlocal state
        state += rows
        return rows / 100_000 + state / 2_000_000

    took = played(cost, epochs=40, limit=200_000)
    assert sum(each.rows for each in took) / sum(each.seconds for each in took) > 40_000


def test_one_slow_epoch_slows_no_others():
    took = played(lambda rows, number: rows / 100_000 + (60 if number == 30 else 0))
    assert [each.rows for each in took[36:]] == pytest.approx([300_000] * 24, rel=0.4)


def test_an_epoch_of_few_rows_says_little():
    assert next_limit(100_000, Took(10, 0.2), before=Took(100_000, 2.5), most=MOST) == 100_000
    assert next_limit(100_000, Took(0, 9.0), before=Took(0, 0.0), most=MOST) == 100_000
    assert next_limit(LEAST_ROWS, Took(LEAST_ROWS, 60.0), before=Took(0, 0.0), most=MOST) == LEAST_ROWS


def test_rows_that_take_little_time_are_read_together_up_to_a_width():
    """40 M rows of three numbers, 10 M a second: the first epoch is careful, later ones grow."""
    schema = pa.schema([(name, pa.int64()) for name in "kvt"])
    first, most = first_rows([schema]), most_rows([schema])
    sizes, limit, before = [], first, Took(0, 0.0)
    while sum(sizes) < 40_000_000:
        sizes.append(limit)
        limit = next_limit(limit, Took(limit, 0.3 + limit / 10_000_000), before=before, most=most)
        before = Took(sizes[-1], 0.3 + sizes[-1] / 10_000_000)
    assert sizes == [8_000_000, most, most]
    assert 8 * 3 * most <= 384 * 1024 * 1024
    assert first_rows([pa.schema([(str(at), pa.string()) for at in range(100)])]) < 75_000
