"""Earthquakes in the order of their last revision: 90 % out of order, up to 25 days late."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replaying import DAY, batch, counted, current, cuts, late, replay, same, send, shown, shuffled, tumbling_end

import headrace as hr
from budget import examples
from headrace.testing import Driver

pytestmark = pytest.mark.spark

SCHEMA = "nr bigint, id string, net string, mag double, at timestamp"
FACTS = {
    "n": "count(*)",
    "measured": "count(mag)",
    "most": "max(mag)",
    "least": "min(mag)",
    "strongest": "max_by(id, struct(mag, nr))",
    "strong": "count_if(mag >= 4.5)",
    "first": "min(at)",
}
few = settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))
SUBSET = 400


def app_of(window, emit, *, out_of_order=None):
    app = hr.App("quakes")
    rows = app.stream("quakes", SCHEMA, event_time="at", out_of_order=out_of_order)
    table = rows.group_by("net").window(window, emit=emit).agg(**FACTS).named("daily")
    table.to_view("daily")
    table.late.to_topic("late")
    return app


def query(window, source):
    columns = ", ".join(f"{text} AS {name}" for name, text in FACTS.items())
    return (
        f"SELECT net, w.start AS window_start, w.end AS window_end, {columns} "
        f"FROM (SELECT *, window(at, {window}) AS w FROM {source}) GROUP BY net, w"
    )


@pytest.fixture(scope="module")
def by_day(spark, quakes):
    return batch(spark, "quakes", quakes, query("'1 day'", "quakes"))


@pytest.fixture(scope="module")
def hopping(spark, quakes):
    return batch(spark, "few", quakes.slice(0, SUBSET), query("'1 day', '6 hours', '1 hour'", "few"))


@few
@given(ends=cuts(9703), emit=st.sampled_from(["changes", "final"]))
def test_days_equal_the_batch_however_the_input_is_cut(quakes, by_day, ends, emit):
    with Driver(app_of(hr.tumbling("1 day", grace="26 days"), emit), shards=2) as driver:
        replay(driver, "quakes", quakes, ends)
        assert driver.late("daily") == []
        same(driver.view("daily"), by_day)


@pytest.mark.parametrize("emit", ["changes", "final"])
def test_days_equal_the_batch_on_both_carriers(drive, quakes, by_day, emit):
    driver = drive(app_of(hr.tumbling("1 day", grace="6 days"), emit, out_of_order="20 days"))
    replay(driver, "quakes", quakes, [5000])
    assert driver.late("daily") == []
    same(driver.view("daily"), by_day)


@settings(few, max_examples=examples(3))
@given(order=st.permutations(range(SUBSET)), ends=cuts(SUBSET, most=8), emit=st.sampled_from(["changes", "final"]))
def test_hopping_days_equal_the_batch_in_any_order_of_arrival(quakes, hopping, order, ends, emit):
    window = hr.hopping("1 day", "6 hours", grace="40 days", offset="1 hour")
    with Driver(app_of(window, emit), shards=2) as driver:
        replay(driver, "quakes", quakes.take(pa.array(order)), ends)
        assert driver.late("daily") == []
        same(driver.view("daily"), hopping)


def check_late(driver, quakes, ends):
    replay(driver, "quakes", quakes, ends)
    gone = late(quakes, ends, out_of_order=DAY, grace=DAY // 2, end_of_last_window=tumbling_end(DAY))
    assert driver.late("daily") == quakes.filter(gone).to_pylist()
    assert driver.read("late") == driver.late("daily")
    assert shown(driver.view("daily"), "net") == counted(quakes, gone, DAY, "net")
    return gone


@few
@given(seed=st.integers(0, 1_000_000), ends=cuts(9703, most=8), emit=st.sampled_from(["changes", "final"]))
def test_every_quake_is_counted_or_late_in_any_order_of_arrival(quakes, seed, ends, emit):
    with Driver(app_of(hr.tumbling("1 day", grace="12 hours"), emit, out_of_order="1 day"), shards=2) as driver:
        check_late(driver, shuffled(quakes, seed), ends)


@pytest.mark.parametrize("emit", ["changes", "final"])
def test_every_quake_is_counted_or_late_on_both_carriers(drive, spark, quakes, emit):
    driver = drive(app_of(hr.tumbling("1 day", grace="12 hours"), emit, out_of_order="1 day"))
    gone = check_late(driver, quakes, [4000, 7000])
    assert gone.sum() > 500
    taken = quakes.filter(pc.invert(gone))
    same(driver.view("daily"), batch(spark, "taken", taken, query("'1 day'", "taken")))


REPORTS = "id string, net string, revised boolean, mag double, at timestamp"
BY_NET = {
    "n": "count(*)",
    "revised": "count_if(revised)",
    "mean": "avg(mag)",
    "strongest": "max_by(id, struct(coalesce(mag, -9), id))",
    "last": "max(at)",
}


def catalogue_app():
    """Build the catalogue as it is known: a revision takes the place of the first report, and moves no event time."""
    app = hr.App("catalogue")
    quakes = app.table("reports", REPORTS, key="id", event_time="at", partitions=2)
    by_net = quakes.group_by("net").agg(**BY_NET).named("nets")
    by_net.to_view("nets")
    quakes.where("mag >= 5").group_by("net").top(3, "mag DESC, id ASC").named("strong").to_view("strong")
    return app


def check_catalogue(spark, driver, now):
    columns = ", ".join(f"{text} AS {name}" for name, text in BY_NET.items())
    nets = {row["net"]: row for row in batch(spark, "now", now, f"SELECT net, {columns} FROM now GROUP BY net")}
    ours = {row["net"]: row for row in driver.view("nets")}
    assert {net: {**row, "mean": None} for net, row in ours.items()} == {
        n: {**r, "mean": None} for n, r in nets.items()
    }
    assert {net: row["mean"] for net, row in ours.items()} == pytest.approx({n: r["mean"] for n, r in nets.items()})
    place = "row_number() OVER (PARTITION BY net ORDER BY mag DESC, id)"
    ranked = f"SELECT *, {place} AS place FROM now WHERE mag >= 5"
    same(
        driver.view("strong"),
        spark.sql(f"SELECT * EXCEPT (place) FROM ({ranked}) WHERE place <= 3").toArrow().to_pylist(),
    )


@settings(few, max_examples=examples(2))
@given(ends=cuts(19_406, most=2))
def test_the_catalogue_with_its_revisions_equals_the_batch_after_every_epoch(spark, reports, ends):
    with Driver(catalogue_app(), shards=2) as driver:
        for first, last in zip([0, *ends], [*ends, reports.num_rows], strict=True):
            if last > first:
                send(driver, "reports", reports.slice(first, last - first))
            driver.step()
            check_catalogue(spark, driver, current(reports, last, key="id"))


def test_the_catalogue_with_its_revisions_on_both_carriers(drive, spark, reports):
    driver = drive(catalogue_app())
    replay(driver, "reports", reports, [9000, 15_000])
    assert sum(row["revised"] for row in driver.view("nets")) == 9703
    check_catalogue(spark, driver, current(reports, reports.num_rows, key="id"))
