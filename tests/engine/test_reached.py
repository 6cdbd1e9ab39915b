"""Rows of a join as of a time come out in the epoch whose own input makes them final, where that is known before."""

from __future__ import annotations

import pytest
from version_apps import ORDERS, RATES, at, order, priced, rate

import headrace as hr
from headrace.engine.watermarks import ahead, reached
from headrace.testing import Driver


def app_of(*, first=None, event_time="at", **options):
    """Orders with the rates of their time, in the step `priced`, by a grace of 10 seconds."""
    app = hr.App("rates", shards=2)
    orders = app.stream("orders", ORDERS, event_time=event_time, **options)
    rates = app.table("rates", RATES, key="currency", event_time="since")
    orders = orders if first is None else first(orders)
    joined = orders.join(rates, on="currency", as_of="at", grace="10 s", how="left").named("priced")
    joined.to_topic("out")
    joined.late.to_topic("late")
    return app


def feed(driver, first):
    """Rates of 1 from `first` on and of 2 from 20 seconds later; orders in between, two of them final with these."""
    rate(driver, 1.0, first)
    rate(driver, 2.0, first + 20)
    for second in (first + 5, first + 9, first + 11, first + 20):
        order(driver, second, second)


def waiting(driver):
    return driver.counts("priced")["state_rows"] - 2  # of the versions, two are left


@pytest.mark.on_spark
def test_a_row_comes_out_in_the_epoch_that_makes_it_final_and_is_never_stored(drive):
    driver = drive(app_of())
    feed(driver, 0)
    driver.step()
    assert priced(driver) == [(5, 1.0), (9, 1.0)]
    assert waiting(driver) == 2
    assert driver.watermark("priced") == at(20)
    driver.step()
    assert priced(driver) == [], "the next epoch has nothing to emit by the watermark that it works with"
    feed(driver, 100)
    order(driver, 300, 12)  # late by the watermark of the epoch before alone: it arrives with what reaches 120
    driver.step()
    assert sorted(priced(driver)) == [(11, 1.0), (20, 2.0), (105, 1.0), (109, 1.0), (300, 1.0)]
    order(driver, 301, 109)
    driver.step()
    assert priced(driver) == [(301, None)], "what came out by the watermark that was reached is late now"
    assert [row["id"] for row in driver.read("late")] == [301]


def test_rows_of_a_shard_without_input_come_out_too():
    with Driver(app_of()) as driver:
        for currency in "abcdefgh":
            rate(driver, 1.0, 0, currency)
            order(driver, ord(currency), 20, currency)
        driver.step()
        assert priced(driver) == []
        order(driver, 1, 31, "a")
        rate(driver, 3.0, 31, "a")
        driver.step()
        assert sorted(priced(driver)) == [(ord(currency), 1.0) for currency in "abcdefgh"]


def test_a_lost_epoch_runs_again_by_the_watermark_that_it_had_reached(tmp_path):
    """What it published is dropped as a repetition; what it kept waiting comes out later, once."""
    with Driver(app_of(), storage=tmp_path) as driver:
        feed(driver, 0)
        driver.step()
        epoch = driver._engine.last.epoch  # noqa: SLF001 -- whose commit gets lost
        assert driver._engine.last.reached == {"priced": 20_000_000}  # noqa: SLF001 -- which knows what was reached
        first = priced(driver)
    (tmp_path / "epochs" / f"{epoch:012d}.json").unlink()
    for state in (tmp_path / "state").rglob("*.*"):
        state.unlink()
    with Driver(app_of(), storage=tmp_path) as driver:
        assert waiting(driver) == 2
        driver.finish()
        assert priced(driver) == [*first, (11, 1.0), (20, 2.0)]


def test_times_that_are_computed_are_known_when_they_are_read():
    with Driver(app_of(event_time="at + interval 0 seconds")) as driver:
        feed(driver, 0)
        driver.step()
        assert priced(driver) == []
        driver.step()
        assert priced(driver) == [(5, 1.0), (9, 1.0)]


def test_an_idle_partition_may_get_a_row_until_the_epoch_is_committed():
    with Driver(app_of(event_time="at", idle_after="1 minute", partitions=2)) as driver:
        rate(driver, 1.0, 20)
        driver.send("orders", {"id": -1, "currency": "none", "at": 0}, partition=1)
        driver.step()
        driver.advance(61)
        for second in (5, 20):
            driver.send("orders", {"id": second, "currency": "EUR", "at": second * 1000}, partition=0)
        driver.step()
        assert priced(driver) == []
        assert driver.watermark("priced") == at(20)
        driver.step()
        assert priced(driver) == [(5, None)]


def test_below_a_step_with_state_it_is_not_known():
    plain, below = app_of(), app_of(first=lambda orders: orders.dedupe("id", within="1 minute"))
    assert ahead(plain.plan()) == {"priced": ("orders", "rates")}
    assert ahead(below.plan()) == {}
    with Driver(below) as driver:
        feed(driver, 0)
        driver.step()
        assert driver._engine.last.reached == {}  # noqa: SLF001 -- what its epochs go by
        driver.finish()
        assert sorted(priced(driver)) == [(5, 1.0), (9, 1.0), (11, 1.0), (20, 2.0)]


def test_what_is_reached_is_the_least_of_all_sources_and_later_than_before():
    steps = {"a": ("x", "y"), "b": ("x",)}
    assert reached(steps, {"x": 5, "y": 3}, {}) == {"a": 3, "b": 5}
    assert reached(steps, {"x": 5, "y": None}, {"b": 5}) == {}
    assert reached(steps, {"x": 5}, {"b": 4}) == {"b": 5}
