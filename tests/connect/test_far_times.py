"""An event time at the end of all times is a dead letter: the windows around it would have bounds that are no times."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import headrace as hr
from headrace.testing import Driver


@pytest.mark.parametrize("far", ["9999-12-31 23:59:59.999999", "0001-01-01 00:00:00"])
@pytest.mark.parametrize("kind", ["stream", "table"])
def test_an_event_of_the_end_of_time_stops_nothing(tmp_path, far, kind):
    app = hr.App("far", storage=tmp_path)
    if kind == "stream":
        rows = app.stream("t", "k string, at timestamp", event_time="at")
    else:
        rows = app.table("t", "k string, at timestamp", key="k", event_time="at")
    rows.group_by("k").window(hr.tumbling("1 minute", grace="0 s")).agg(n="count(*)").named("counts").to_view("v")
    with Driver(app, storage=tmp_path) as driver:
        driver.send("t", {"k": "far", "at": far}, {"k": "near", "at": "2026-01-01 10:00"}, {"k": "none", "at": None})
        driver.run()
        assert [row["k"] for row in driver.view("v")] == ["near"]
        reasons = sorted(row["reason"] for row in driver.read("t.dead"))
        assert reasons == ['the event time "at" is not in the years 2 to 9989', 'the event time "at" is null']
    with Driver(app, storage=tmp_path) as driver:
        driver.send("t", {"k": "later", "at": "2026-01-01 10:05"})
        driver.run()
        assert [row["k"] for row in driver.view("v")] == ["later", "near"]


@pytest.mark.parametrize("years", [-5000, -2023, 7976, 9000])
def test_a_computed_time_of_the_end_of_time_is_a_dead_letter_too(years):
    app, computed = hr.App("far"), f"CASE WHEN k = 'far' THEN at + interval '{years}' year ELSE at END"
    rows = app.stream("t", "k string, at timestamp", event_time=computed)
    windows = rows.group_by("k").window(hr.tumbling("1 minute", grace="0 s"), emit="final")
    windows.agg(n="count(*)").named("counts").to_view("v")
    with Driver(app) as driver:
        driver.send("t", {"k": "far", "at": "2024-01-01"}, {"k": "near", "at": "2024-01-01"})
        driver.run()
        driver.send("t", {"k": "later", "at": "2024-01-02"})
        driver.run()
        assert driver.late("counts") == []
        assert driver.status()["sources"]["t"]["watermark"] == datetime(2024, 1, 2, tzinfo=UTC)
        letters = driver.read("t.dead")
        said = f'the event time "{computed}" is not in the years 2 to 9989'
        assert [(row["offset"], row["reason"]) for row in letters] == [(0, said)]
        driver.finish()
        assert [row["k"] for row in driver.view("v")] == ["later", "near"]


def test_a_delete_of_the_end_of_time_is_a_dead_letter_and_moves_no_watermark():
    app = hr.App("far")
    rows = app.table("t", "k string, at timestamp", key="k", event_time="at")
    rows.to_view("rows")
    rows.changes().group_by("k").window(hr.tumbling("1 minute", grace="0 s")).agg(n="count(*)").named("counts")
    with Driver(app) as driver:
        driver.send("t", {"k": "a", "at": "2024-01-01"})
        driver.delete("t", k="a", at="9999-12-31")
        driver.run()
        assert driver.watermark("t") == datetime(2024, 1, 1, tzinfo=UTC)
        assert [row["k"] for row in driver.view("rows")] == ["a"]
        assert [row["offset"] for row in driver.read("t.dead")] == [1]


@pytest.mark.parametrize("far", ["9999-12-31", "0001-01-01"])
def test_a_partition_with_nothing_but_such_records_holds_no_other_back(far):
    app = hr.App("far")
    app.stream("t", "at timestamp", event_time="at", partitions=2).to_topic("out")
    with Driver(app) as driver:
        driver.send("t", {"at": far}, partition=0)
        driver.send("t", {"at": "2024-01-01"}, partition=1)
        driver.run()
        assert driver.watermark("t") == datetime(2024, 1, 1, tzinfo=UTC)


def test_a_watermark_before_the_year_1_is_shown_as_the_first_instant():
    app = hr.App("far")
    app.stream("t", "at timestamp", event_time="at", out_of_order="800 days").to_topic("out")
    with Driver(app) as driver:
        driver.send("t", {"at": "0002-01-01"})
        driver.run()
        first = datetime(1, 1, 1, tzinfo=UTC)
        assert (driver.watermark("t"), driver.status()["sources"]["t"]["watermark"]) == (first, first)


@pytest.mark.parametrize(
    ("window", "years"),
    [
        (hr.tumbling("30000 days", grace="0 s"), "84 to 9916"),
        (hr.tumbling("1200 months", grace="0 s"), "103 to 9897"),
        (hr.sliding("5000 days", grace="0 s"), "15 to 9985"),
        (hr.session("5000 days", grace="100 days"), "15 to 9985"),
        (hr.tumbling("9 days", grace="4000 days"), "12 to 9988"),
        (hr.tumbling("1 day", grace="1 day"), "2 to 9989"),
    ],
)
@pytest.mark.parametrize("emit", ["changes", "final"])
def test_long_windows_reach_into_more_years(window, emit, years):
    """A window that ended after the year 9999, or began before the year 1, ended the app, or never closed."""
    app = hr.App("far", shards=1)
    rows = app.stream("t", "at timestamp", event_time="at")
    rows.group_by().window(window, emit=emit).agg(n="count(*)").named("counts").to_view("v")
    first, last = (int(year) for year in years.split(" to "))
    with Driver(app) as driver:
        driver.send("t", {"at": f"{first:04}-06-30"}, {"at": f"{last}-06-30"})
        driver.send("t", {"at": f"{first - 2:04}-12-31"} if first > 2 else {"at": None}, {"at": f"{last + 2}-01-01"})
        driver.run()
        driver.finish()
        assert sum(row["n"] for row in driver.view("v")) >= 2
        assert driver.late("counts") == []
        assert [row["reason"].endswith(f"is not in the years {years}") for row in driver.read("t.dead")][-1:] == [True]
        assert driver.counts("t")["dead"] == 2


def test_windows_for_all_times_take_the_rows_of_today():
    app = hr.App("far", shards=1)
    rows = app.stream("t", "at timestamp", event_time="at")
    windows = rows.group_by().window(hr.tumbling("2000000 days", grace="0 s"), emit="changes")
    windows.agg(n="count(*)").named("counts").to_view("v")
    with Driver(app) as driver:
        driver.send("t", {"at": "2026-01-01"})
        driver.run()
        assert driver.counts("t")["dead"] == 0
