"""A longer grace keeps the state: open windows wait longer, and what was closed stays closed."""

from __future__ import annotations

import pytest

import headrace as hr
from budget import matrix
from headrace.testing import Driver

ROWS = "k string, v int, at timestamp"
WINDOWS = {
    "tumbling": lambda grace: hr.tumbling("10 s", grace=grace),
    "hopping": lambda grace: hr.hopping("10 s", "5 s", grace=grace),
    "session": lambda grace: hr.session("5 s", grace=grace),
    "sliding": lambda grace: hr.sliding("5 s", grace=grace),
}


def app_of(window, grace, emit):
    app = hr.App("grace")
    rows = app.stream("t", ROWS, event_time="at")
    rows.group_by("k").window(WINDOWS[window](grace), emit=emit).agg(n="count(*)", s="sum(v)").named("w").to_view("out")
    return app


def row(second, value=1):
    return {"k": "a", "v": value, "at": second * 1000}


@pytest.mark.parametrize(("window", "emit"), matrix(WINDOWS, ["changes", "final"], depth=1))
def test_a_longer_grace_gives_what_it_would_have_given_from_the_start(tmp_path, window, emit):
    """Nothing was late before the change, so nobody can tell when the grace grew."""
    before = [[row(1), row(12)], [row(61)], [row(125), row(127)]]
    after = [[row(123, 5), row(128)], [row(140)], [row(126, 7)], [row(260)], [row(263, 9)]]

    def run(storage, graces):
        with Driver(app_of(window, graces[0], emit), storage=storage) as driver:
            for rows in before:
                driver.send("t", *rows)
                driver.step()
        with Driver(app_of(window, graces[1], emit), storage=storage) as driver:
            for rows in after:
                driver.send("t", *rows)
                driver.step()
            driver.finish()
            return driver.view("out")

    assert run(tmp_path / "grown", ("5 s", "60 s")) == run(tmp_path / "long", ("60 s", "60 s"))


@pytest.mark.parametrize("emit", ["changes", "final"])
@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_that_was_closed_stays_closed(tmp_path, window, emit):
    """Its rows are gone: a row that the longer grace would still take would make a window of itself alone."""
    with Driver(app_of(window, "1 s", emit), storage=tmp_path) as driver:
        for second in (1, 2, 100, 130):
            driver.send("t", row(second))
            driver.step()
        driver.run()
        closed = [
            each for each in driver.view("out") if each["window_end"].minute == 0 and each["window_end"].hour == 0
        ]
    with Driver(app_of(window, "500 s", emit), storage=tmp_path) as driver:
        assert "waits longer for late rows" in driver.changes.lines()[0]
        driver.send("t", row(3, 1000))
        driver.run()
        driver.send("t", row(131))
        driver.run()
        assert [each["v"] for each in driver.late("w")] == [1000]
        assert [each for each in driver.view("out") if each in closed] == closed
        assert not any(each["s"] >= 1000 for each in driver.view("out"))


def test_the_longer_grace_holds_for_what_is_open(tmp_path):
    with Driver(app_of("tumbling", "1 s", "changes"), storage=tmp_path) as driver:
        driver.send("t", row(1), row(12))
        driver.run()
    with Driver(app_of("tumbling", "30 s", "changes"), storage=tmp_path) as driver:
        driver.send("t", row(35))
        driver.run()
        driver.send("t", row(13), row(2))
        driver.run()
        assert [(each["window_start"].second, each["n"]) for each in driver.view("out")] == [(0, 1), (10, 2), (30, 1)]
        assert [each["at"].second for each in driver.late("w")] == [2]
