"""Changes that come out less often, early results of windows, and the latest window that closed."""

from __future__ import annotations

import disturbed
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples
from headrace.base.errors import InvalidPlan, InvalidTime
from headrace.testing import Driver, check_deltas

SCHEMA = "k string, v int, at timestamp"
MINUTE = hr.tumbling("1 minute", grace="0 seconds")


def row(k, v, second):
    return {"k": k, "v": v, "at": second * 1000}


def sums(app):
    return app.stream("t", SCHEMA, event_time="at").group_by("k").agg(n="count(*)", total="sum(v)")


def test_only_the_last_change_of_a_period_comes_out():
    app = hr.App("limited")
    changes = check_deltas(sums(app).suppress("10 seconds"))
    with Driver(app) as driver:
        driver.send("t", row("a", 1, 1), row("b", 1, 2))
        driver.run()
        driver.send("t", row("a", 2, 3))
        driver.run()
        assert changes.read() == []
        driver.send("t", row("a", 4, 10))
        driver.run()
        read = [(each["k"], each["total"], each["_weight"]) for each in changes.read()]
        assert sorted(read) == [("a", 7, 1), ("b", 1, 1)], "the last change that had arrived, each once"
        driver.send("t", row("a", 8, 20))
        driver.run()
        assert [(each["total"], each["_weight"]) for each in changes.read()] == [(7, -1), (15, 1)]
        driver.finish()
        assert changes.read() == []


def test_a_row_that_comes_and_goes_in_one_period_is_never_seen():
    app = hr.App("gone")
    table = app.table("t", SCHEMA, key="k", event_time="at")
    changes = check_deltas(table.suppress("10 seconds"))
    with Driver(app) as driver:
        driver.send("t", row("a", 1, 1), row("b", 1, 1))
        driver.run()
        driver.delete("t", k="a", at=2000)
        driver.finish()
        assert [each["k"] for each in changes.rows] == ["b"]
        assert [each["k"] for each in changes.read()] == ["b"]


def test_no_more_keys_wait_than_was_said():
    app = hr.App("few")
    changes = check_deltas(sums(app).suppress(size=2))
    with Driver(app, shards=1) as driver:
        driver.send("t", *(row(k, 1, second) for second, k in enumerate("abcd")))
        driver.run()
        assert len(changes.rows) == 2
        driver.finish()
        assert len(changes.rows) == 4


def test_a_key_that_comes_out_twice_in_an_epoch_changes_once():
    """Its period ends, and then too many wait: what the first inserts the second does not withdraw."""
    app = hr.App("twice", shards=1)
    table = sums(app)
    plain, limited = check_deltas(table), check_deltas(table.suppress("10 seconds", size=1))
    with Driver(app, shards=1) as driver:
        for part in ([("a", 0, 0)], [("a", 0, 10)], [], [("a", 0, 0), ("b", 0, 0)]):
            driver.send("t", *(row(*each) for each in part))
            driver.step()
        driver.finish()
        assert limited.rows == plain.rows


ROWS = st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 3), st.integers(0, 60))


@settings(max_examples=examples(5))
@given(parts=st.lists(st.lists(ROWS, max_size=5), max_size=7), size=st.sampled_from([None, 0, 1]), gone=st.booleans())
def test_in_the_end_it_is_the_table_and_each_period_has_one_change_of_a_key(parts, size, gone):
    """Over sums, and over a join that rows leave again."""
    app = hr.App("law", shards=2)
    table = sums(app)
    if gone:
        table = table.where("total % 2 = 0")
    plain, limited = check_deltas(table), check_deltas(table.suppress("10 seconds", size=size).named("limited"))
    with Driver(app, shards=2) as driver:
        for number, part in enumerate(parts):
            driver.send("t", *(row(*each) for each in part))
            driver.step()
            if number % 3 == 2:
                driver.restart()
        driver.finish()
        assert limited.rows == plain.rows
    if size is None:
        watermarks = [[each["k"] for each in rows if each["_weight"] > 0] for rows in limited.epochs.values()]
        assert all(len(keys) == len(set(keys)) for keys in watermarks)


def test_early_results_of_a_window_come_every_so_often():
    app = hr.App("early")
    windows = app.stream("t", SCHEMA, event_time="at").group_by("k").window(MINUTE, emit="every 20 seconds")
    counts = windows.agg(n="count(*)").named("counts")
    early = check_deltas(counts)
    counts.late.to_view("late")
    assert [step["name"] for step in app.explain().data["steps"]][1:3] == ["counts_changes", "counts"]
    with Driver(app) as driver:
        for second in (1, 5, 21, 25, 41, 59, 61, 81):
            driver.send("t", row("a", 1, second))
            driver.run()
        inserted = sorted(each["n"] for each in early.read() if each["_weight"] > 0)
        assert inserted == [1, 2, 3, 5, 6], "what had arrived when each 20 seconds were over"
        driver.send("t", row("a", 1, 2))
        driver.run()
        assert len(driver.view("late")) == 1


def test_an_app_has_not_caught_up_before_early_results_are_out():
    """What waits below a window is out when the watermark, which comes through it, has entered another period."""
    app = hr.App("early")
    windows = app.stream("t", SCHEMA, event_time="at").group_by("k").window(MINUTE, emit="every 10 seconds")
    windows.agg(n="count(*)").to_view("counts")
    with Driver(app) as driver:
        for number, second in enumerate((1, 11, 21, 22)):
            driver.send("t", row("a", 1, second))
            while not driver.caught_up:
                driver.step()
            assert [each["n"] for each in driver.view("counts")] == ([], [2], [3], [3])[number]


@pytest.mark.parametrize("early", [True, False])
def test_what_waits_comes_out_by_the_clock_where_a_source_is_idle(early):
    """Also when the window itself has closed: no step below it keeps anything but what waits."""
    app = hr.App("idle")
    rows = app.stream("t", SCHEMA, event_time="at", idle_after="3 seconds").group_by("k")
    if early:
        counts = rows.window(hr.tumbling("5 seconds", grace="0 seconds"), emit="every 30 seconds").agg(n="count(*)")
    else:
        counts = rows.agg(n="count(*)").suppress("30 seconds")
    counts.to_view("counts")
    with Driver(app) as driver:
        driver.send("t", row("a", 1, 1))
        driver.run()
        for _ in range(60):
            driver.advance(1)
            driver.run()
        assert [each["n"] for each in driver.view("counts")] == [1]
        epochs = driver.status()["epoch"]
        driver.advance(600)
        driver.run()
        assert driver.status()["epoch"] <= epochs + 1, "then there is nothing to wait for"


def test_what_waits_for_more_keys_needs_no_clock():
    app = hr.App("sized")
    rows = app.stream("t", SCHEMA, event_time="at", idle_after="3 seconds")
    rows.group_by("k").agg(n="count(*)").suppress(size=5).to_view("counts")
    with Driver(app) as driver:
        driver.send("t", row("a", 1, 1))
        driver.run()
        for _ in range(10):
            driver.advance(3)
            driver.run()
        assert driver.view("counts") == []
        assert driver.status()["epoch"] < 6


def test_the_latest_closed_window_is_a_row_of_each_key():
    app = hr.App("latest", shards=2)
    windows = app.stream("t", SCHEMA, event_time="at").group_by("k").window(MINUTE, emit="final")
    windows.agg(n="count(*)").latest().to_view("now")
    with Driver(app, shards=2) as driver:
        driver.send("t", row("a", 1, 1), row("a", 1, 2), row("b", 1, 61), row("a", 1, 62))
        driver.run()
        assert [(each["k"], each["n"]) for each in driver.view("now")] == [("a", 2)]
        driver.send("t", row("c", 1, 190))
        driver.run()
        assert [(each["k"], each["n"]) for each in driver.view("now")] == [("a", 1), ("b", 1)]


def app_of():
    app = hr.App("crashing", shards=2)
    sums(app).suppress("10 seconds", size=1).named("limited").to_view("limited")
    return app


@pytest.mark.parametrize("point", disturbed.points("after_commit", without=disturbed.TOPICS))
def test_a_crash_leaves_no_trace(point):
    epochs = disturbed.disorder(lambda k, second, v: row(k, v, max(second, 0)))
    seen = [
        disturbed.played(app_of(), epochs, step, lambda driver: driver.view("limited"))
        for step in (disturbed.quietly, disturbed.crashing(point, (1, 3)))
    ]
    assert seen[0] == seen[1] != []


def test_a_step_below_is_filled_with_what_has_come_out(tmp_path):
    def app_with(*, more):
        app = hr.App("fills", shards=2)
        limited = sums(app).suppress("10 seconds").named("limited")
        limited.to_view("limited")
        if more:
            limited.agg(keys="count(*)", total="sum(total)").named("all").to_view("all")
        return app

    with Driver(app_with(more=False), storage=tmp_path) as driver:
        driver.send("t", row("a", 1, 1), row("b", 2, 2))
        driver.run()
        driver.send("t", row("a", 4, 12))
        driver.run()
        driver.send("t", row("a", 8, 13))
        driver.run()
    with Driver(app_with(more=True), storage=tmp_path) as driver:
        driver.run()
        assert driver.view("all") == [{"keys": 2, "total": 7}]
        driver.send("t", row("c", 16, 30))
        driver.run()
        assert driver.view("all") == [{"keys": 3, "total": 31}]


@pytest.mark.parametrize(
    ("verb", "error"),
    [
        (lambda table: table.suppress(), InvalidPlan),
        (lambda table: table.suppress("0 seconds"), InvalidPlan),
        (lambda table: table.suppress("often"), InvalidTime),
        (lambda table: table.suppress(size=-1), InvalidPlan),
        (lambda table: table.select("n").suppress("1 second"), InvalidPlan),
        (lambda table: table.latest("k"), InvalidPlan),
        (lambda table: table.group_by("k").window(MINUTE, emit="every now and then"), InvalidTime),
        (lambda table: table.group_by("k").window(MINUTE, emit="often"), InvalidPlan),
    ],
)
def test_what_makes_no_sense_is_refused(verb, error):
    app = hr.App("a")
    table = app.table("t", "k string, n int, at timestamp", key="k", event_time="at")
    with pytest.raises(error):
        verb(table).agg(n="count(*)")
