"""Pickups and dropoffs of drivers: mild disorder, 23 seconds at most."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replaying import MICROS, batch, counted, cuts, late, replay, same, shown

import headrace as hr
from budget import examples
from headrace.testing import Driver

pytestmark = pytest.mark.spark

SCHEMA = "nr bigint, driver int, event string, place string, at timestamp"
TRIPS = {
    "n": "count(*)",
    "pickups": "count_if(event = 'p')",
    "places": "count(distinct place)",
    "last": "max_by(place, nr)",
}
few = settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))
SUBSET = 400
MINUTE = 60 * MICROS


def app_of(window, emit, *, out_of_order, keys=("driver",)):
    app = hr.App("cars")
    cars = app.stream("cars", SCHEMA, key="driver", event_time="at", out_of_order=out_of_order)
    table = cars.group_by(*keys).window(window, emit=emit).agg(**TRIPS).named("trips")
    table.to_view("trips")
    table.late.to_topic("late")
    return app


def query(window, source):
    columns = ", ".join(f"{text} AS {name}" for name, text in TRIPS.items())
    return (
        f"SELECT driver, w.start AS window_start, w.end AS window_end, {columns} "
        f"FROM (SELECT *, window(at, {window}) AS w FROM {source}) GROUP BY driver, w"
    )


@pytest.fixture(scope="module")
def by_hour(spark, cars):
    return batch(spark, "cars", cars, query("'1 hour'", "cars"))


@pytest.fixture(scope="module")
def sliding(spark, cars):
    return batch(spark, "few", cars.slice(0, SUBSET), query("'30 minutes', '10 minutes'", "few"))


@few
@given(ends=cuts(7932), emit=st.sampled_from(["changes", "final"]))
def test_in_order_but_for_23_seconds_nothing_is_late(cars, by_hour, ends, emit):
    app = app_of(hr.tumbling("1 hour", grace="0 seconds"), emit, out_of_order="23 seconds")
    with Driver(app, shards=2) as driver:
        replay(driver, "cars", cars, ends)
        assert driver.late("trips") == []
        same(driver.view("trips"), by_hour)


@pytest.mark.on_spark("changes")
@pytest.mark.parametrize("emit", ["changes", "final"])
def test_hours_equal_the_batch_on_both_carriers(drive, cars, by_hour, emit):
    driver = drive(app_of(hr.tumbling("1 hour", grace="10 seconds"), emit, out_of_order="13 seconds"))
    replay(driver, "cars", cars, [3000])
    assert driver.late("trips") == []
    same(driver.view("trips"), by_hour)


@settings(few, max_examples=examples(3))
@given(order=st.permutations(range(SUBSET)), ends=cuts(SUBSET, most=8), emit=st.sampled_from(["changes", "final"]))
def test_hopping_windows_equal_the_batch_in_any_order_of_arrival(cars, sliding, order, ends, emit):
    app = app_of(hr.hopping("30 minutes", "10 minutes", grace="2 days"), emit, out_of_order=None)
    with Driver(app, shards=2) as driver:
        replay(driver, "cars", cars.take(pa.array(order)), ends)
        assert driver.late("trips") == []
        same(driver.view("trips"), sliding)


def check_late(driver, cars, ends, *, hop=MINUTE):
    """Rows are late by their last window; of those that are taken, some windows may be closed already."""
    replay(driver, "cars", cars, ends)
    gone = late(
        cars, ends, out_of_order=MICROS, grace=2 * MICROS, end_of_last_window=lambda times: times // hop * hop + MINUTE
    )
    assert driver.late("trips") == cars.filter(gone).to_pylist()
    assert sorted(driver.read("late"), key=lambda row: row["nr"]) == driver.late("trips")
    if hop == MINUTE:
        assert shown(driver.view("trips"), "driver") == counted(cars, gone, MINUTE, "driver")
    return gone


@few
@given(ends=cuts(7932, most=10), emit=st.sampled_from(["changes", "final"]))
def test_every_row_is_counted_or_late_as_the_rules_say(cars, ends, emit):
    app = app_of(hr.tumbling("1 minute", grace="2 seconds"), emit, out_of_order="1 second")
    with Driver(app, shards=2) as driver:
        check_late(driver, cars, ends)


@pytest.mark.parametrize("emit", ["changes", "final"])
def test_every_row_is_counted_or_late_on_both_carriers(drive, spark, cars, emit):
    """The cuts stand where a row is late: just behind the row that closes its window."""
    driver = drive(app_of(hr.tumbling("1 minute", grace="2 seconds"), emit, out_of_order="1 second"))
    gone = check_late(driver, cars, first_late_cuts(cars))
    assert gone.sum() > 0
    taken = cars.filter(pc.invert(gone))
    same(driver.view("trips"), batch(spark, "taken", taken, query("'1 minute'", "taken")))


def first_late_cuts(cars):
    """Return cuts that make rows late: before the first two rows whose minute had ended three seconds ago."""
    times = cars.column("at").cast("int64").to_numpy()
    found, greatest = [], times[0]
    for nr, time in enumerate(times):
        if time // MINUTE * MINUTE + MINUTE + 3 * MICROS <= greatest and (not found or nr > found[-1] + 500):
            found.append(nr)
        greatest = max(greatest, time)
    return found[:2]


@few
@given(ends=cuts(7932, most=10), emit=st.sampled_from(["changes", "final"]))
def test_a_row_is_late_only_when_the_last_of_its_hopping_windows_is_closed(cars, ends, emit):
    app = app_of(hr.hopping("1 minute", "20 seconds", grace="2 seconds"), emit, out_of_order="1 second")
    with Driver(app, shards=2) as driver:
        check_late(driver, cars, ends, hop=MINUTE // 3)
