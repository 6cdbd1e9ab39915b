"""A stream as a table that grows: errors, what explain says, restarts, fills, late rows, lookups."""

from __future__ import annotations

import disturbed
import pytest

import headrace as hr
from headrace.base.errors import InvalidPlan, InvalidTime, PlanChanged
from headrace.testing import Driver

SCHEMA = "k string, v int, at timestamp"


def row(k, v, second):
    return {"k": k, "v": v, "at": second * 1000}


def app_of(keep=None, **more):
    app = hr.App("grows", shards=2)
    rows = app.stream("t", SCHEMA, event_time="at")
    table = rows.as_table(keep=keep)
    table.group_by("k").agg(n="count(*)", total="sum(v)").named("sums").to_view("sums")
    for name, verb in more.items():
        verb(table).to_view(name)
    return app


def sums(driver):
    return [(each["k"], each["n"], each["total"]) for each in driver.view("sums")]


def test_rows_that_leave_are_taken_from_sums():
    with Driver(app_of("10 seconds"), shards=2) as driver:
        driver.send("t", row("a", 1, 0), row("a", 2, 5), row("b", 3, 5))
        driver.run()
        assert sums(driver) == [("a", 2, 3), ("b", 1, 3)]
        driver.send("t", row("a", 4, 11))
        driver.run()
        assert sums(driver) == [("a", 2, 6), ("b", 1, 3)]
        driver.send("t", row("c", 5, 16))
        driver.run()
        assert sums(driver) == [("a", 1, 4), ("c", 1, 5)], "b is gone with its last row"


def test_a_new_step_begins_with_the_rows_that_are_there(tmp_path):
    with Driver(app_of("10 seconds"), storage=tmp_path, shards=2) as driver:
        driver.send("t", row("a", 1, 0), row("a", 2, 8), row("a", 3, 11))
        driver.run()
    more = app_of("10 seconds", most=lambda table: table.group_by("k").agg(most="max(v)").named("most"))
    with Driver(more, storage=tmp_path, shards=2) as driver:
        driver.run()
        assert driver.view("most") == [{"k": "a", "most": 3}]
        driver.send("t", row("a", 0, 30))
        driver.run()
        assert driver.view("most") == [{"k": "a", "most": 0}]


def test_another_keep_is_another_table(tmp_path):
    with Driver(app_of("10 seconds"), storage=tmp_path) as driver:
        driver.send("t", row("a", 1, 0))
        driver.run()
    with pytest.raises(PlanChanged, match="keep"):
        Driver(app_of("20 seconds"), storage=tmp_path).__enter__()


@pytest.mark.parametrize("point", disturbed.points("after_staging", without=disturbed.TOPICS))
def test_a_crash_leaves_no_trace(point):
    """A run with crashes and restarts gives what one without gives."""
    epochs = disturbed.disorder(lambda k, second, v: row(k, v, max(second, 0)))
    seen = [
        disturbed.played(app_of("10 seconds"), epochs, step, sums)
        for step in (disturbed.quietly, disturbed.restarting, disturbed.crashing(point, (1, 3)))
    ]
    assert seen[0] == seen[1] == seen[2] != []


def test_explain_says_what_grows_without_bound():
    app = app_of()
    clicks = app.stream("clicks", "k string, url string").as_table()
    app.stream("t2", SCHEMA).as_table(keep="7 days").join(clicks, on="k").named("pairs").to_view("pairs")
    text = str(app.explain())
    assert "a bag that grows, unbounded" in text
    assert "unbounded: the right side only grows" in text
    assert "withdrawn when the watermark has passed its time by more than 1 week" in text


def test_a_stream_looks_a_growing_table_up():
    app = hr.App("looks")
    seen = app.stream("seen", "k string, v int").as_table()
    app.stream("t", SCHEMA).join(seen, on="k", how="left").select("k", n="v_right").to_topic("out")
    with Driver(app) as driver:
        driver.send("seen", {"k": "a", "v": 1}, {"k": "a", "v": 2})
        driver.send("t", row("a", 0, 0), row("b", 0, 0))
        driver.run()
        assert sorted((each["k"], each["n"] or 0) for each in driver.read("out")) == [("a", 1), ("a", 2), ("b", 0)]


@pytest.mark.parametrize(
    ("verb", "error"),
    [
        (lambda rows: rows.as_table(keep="-1 day"), InvalidPlan),
        (lambda rows: rows.as_table(keep="soon"), InvalidTime),
        (lambda rows: rows.as_table().to_topic("x"), InvalidPlan),
        (lambda rows: rows.as_table(keep="1 day").changes(), InvalidPlan),
        (lambda rows: rows.as_table().late, InvalidPlan),
    ],
)
def test_what_makes_no_sense_is_refused(verb, error):
    with pytest.raises(error):
        verb(hr.App("a").stream("t", SCHEMA, event_time="at"))
