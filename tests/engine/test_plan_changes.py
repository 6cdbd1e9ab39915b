"""A changed plan on kept state: what passes, what is refused, and that a restart goes on exactly."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.base.errors import PlanChanged
from headrace.engine.program.reset import reset
from headrace.testing import Driver

ROWS = "k string, g string, v int, at timestamp"


def app_of(build):
    app = hr.App("plan")
    build(app.stream("t", ROWS, event_time="at"))
    return app


def plain(rows):
    rows.group_by("k").agg(n="count(*)", total="sum(v)").to_view("out")


def windowed(rows, window="10 s", grace="5 s", emit="changes"):
    rows.group_by("k").window(hr.tumbling(window, grace=grace), emit=emit).agg(n="count(*)").to_view("out")


FIRST = [{"k": "a", "g": "x", "v": 1, "at": 1000}, {"k": "b", "g": "y", "v": 2, "at": 2000}]
SECOND = [{"k": "a", "g": "x", "v": 3, "at": 3000}, {"k": "c", "g": "x", "v": 4, "at": 4000}]


def play(build, storage, rows, **options):
    with Driver(app_of(build), storage=storage, **options) as driver:
        driver.send("t", *rows)
        driver.run()
        return {name: driver.view(name) for name in driver.views()}


def totals(rows):
    return {row["k"]: (row["n"], row["total"]) for row in rows}


BOTH = {"a": (2, 4), "b": (1, 2), "c": (1, 4)}


def test_a_restart_goes_on_exactly(tmp_path):
    assert totals(play(plain, tmp_path, FIRST)["out"]) == {"a": (1, 1), "b": (1, 2)}
    assert totals(play(plain, tmp_path, [])["out"]) == {"a": (1, 1), "b": (1, 2)}
    assert totals(play(plain, tmp_path, SECOND)["out"]) == BOTH


PASSING = {
    "a where before": lambda rows: plain(rows.where("v <> 100")),
    "a where that lets less in": lambda rows: plain(rows.where("v < 100")),
    "columns before": lambda rows: plain(rows.with_columns(more="v * 2")),
    "a select before": lambda rows: plain(rows.select("k", "v")),
    "another view": lambda rows: (
        plain(rows),
        rows.select("k", "v").to_view("more"),
    ),
    "a new stateful step": lambda rows: (plain(rows), rows.group_by("g").agg(n="count(*)").to_view("more")),
    "a new topic": lambda rows: (plain(rows), rows.to_topic("more")),
    "the order of sinks": lambda rows: (rows.to_topic("more"), plain(rows)),
}


@pytest.mark.parametrize("build", PASSING.values(), ids=list(PASSING))
def test_what_leaves_the_state_as_it_is_passes_and_keeps_it(tmp_path, build):
    play(plain, tmp_path, FIRST)
    assert totals(play(build, tmp_path, SECOND)["out"]) == BOTH
    assert totals(play(plain, tmp_path, [])["out"]) == BOTH, "and back again"


def test_a_new_stateful_step_begins_with_what_comes_from_now_on(tmp_path):
    play(plain, tmp_path, FIRST)
    made = play(PASSING["a new stateful step"], tmp_path, SECOND)
    assert made["more"] == [{"g": "x", "n": 2}]


def test_a_step_that_was_left_out_for_some_epochs_is_refused_until_it_is_reset(tmp_path):
    """Its state misses what came meanwhile."""
    build = PASSING["a new stateful step"]
    play(build, tmp_path, FIRST)
    play(plain, tmp_path, [])
    play(plain, tmp_path, SECOND)
    with pytest.raises(PlanChanged, match='"t_agg_by_g" was not in the app when epoch') as error:
        play(build, tmp_path, [])
    assert "headrace reset FILE --step t_agg_by_g" in str(error.value)
    reset(app_of(build).plan(), tmp_path, "t_agg_by_g")
    made = play(build, tmp_path, SECOND)
    assert made["more"] == [{"g": "x", "n": 5}, {"g": "y", "n": 1}]


def test_a_view_under_another_name_is_filled_from_the_state(tmp_path):
    play(plain, tmp_path, FIRST)
    build = lambda rows: rows.group_by("k").agg(n="count(*)", total="sum(v)").to_view("renamed")  # noqa: E731
    made = play(build, tmp_path, [{"k": "d", "g": "x", "v": 9, "at": 5000}])
    assert totals(made["renamed"]) == {"a": (1, 1), "b": (1, 2), "d": (1, 9)}


REFUSED = {
    "another aggregate": (
        plain,
        lambda rows: rows.group_by("k").agg(n="count(*)", total="max(v)").to_view("out"),
        "t_agg_by_k",
        "aggregates: was ['count()', 'sum(",
    ),
    "an aggregate more": (
        plain,
        lambda rows: rows.group_by("k").agg(n="count(*)", total="sum(v)", most="max(v)").to_view("out"),
        "t_agg_by_k",
        "max(",
    ),
    "another type of a key": (
        plain,
        lambda rows: plain(rows.select(k="length(k)", v="v")),
        "t_agg_by_k",
        "keys: was {'k': 'string'}, is {'k': 'int'}.",
    ),
    "another window": (windowed, lambda rows: windowed(rows, "20 s"), "t_agg_by_k", "window: was tumbling 10 seconds"),
    "a shorter grace": (windowed, lambda rows: windowed(rows, grace="4 s"), "t_agg_by_k", "grace 4 seconds"),
    "another emit": (windowed, lambda rows: windowed(rows, emit="final"), "t_agg_by_k", "emit: was changes, is final."),
    "no window": (
        windowed,
        lambda rows: rows.group_by("k").agg(n="count(*)").to_view("out"),
        "t_agg_by_k",
        "window: was tumbling 10 seconds, grace 5 seconds, is None.",
    ),
    "other keys under one name": (
        lambda rows: rows.group_by("k").agg(n="count(*)").named("mine").to_view("out"),
        lambda rows: rows.group_by("g").agg(n="count(*)").named("mine").to_view("out"),
        "mine",
        "keys: was {'k': 'string'}, is {'g': 'string'}.",
    ),
}


@pytest.mark.parametrize(("was", "becomes", "step", "what"), REFUSED.values(), ids=list(REFUSED))
def test_a_changed_stateful_step_is_refused_and_the_state_stays(tmp_path, was, becomes, step, what):
    before = play(was, tmp_path, FIRST)
    with pytest.raises(PlanChanged) as error:
        Driver(app_of(becomes), storage=tmp_path)
    said = str(error.value)
    assert f'[PLAN_CHANGED] the stateful step "{step}" is not the one whose state is kept' in said
    assert what in said
    assert f"headrace reset FILE --step {step}" in said
    assert play(was, tmp_path, []) == before


def test_other_shards_are_refused(tmp_path):
    play(plain, tmp_path, FIRST, shards=2)
    with pytest.raises(PlanChanged) as error:
        Driver(app_of(plain), storage=tmp_path, shards=3)
    assert "is cut into 2 shards, not 3" in str(error.value)
    assert "Say hr.App(…, shards=2) or leave shards out" in str(error.value)
    assert totals(play(plain, tmp_path, SECOND, shards=2)["out"]) == BOTH


def test_a_view_with_other_columns_is_refused(tmp_path):
    play(plain, tmp_path, FIRST)
    with pytest.raises(PlanChanged) as error:
        play(lambda rows: rows.select("g").to_view("out"), tmp_path, [])
    assert 'the view "out" has other columns, another key or another form than the one that is kept' in str(error.value)
    assert totals(play(plain, tmp_path, SECOND)["out"]) == BOTH


def test_a_named_step_keeps_its_state_whatever_stateless_steps_feed_it(tmp_path):
    def named(rows):
        rows.group_by("k").agg(n="count(*)", total="sum(v)").named("mine").to_view("out")

    play(named, tmp_path, FIRST)
    made = play(lambda rows: named(rows.where("v > 0").with_columns(g="upper(g)").named("up")), tmp_path, SECOND)
    assert totals(made["out"]) == BOTH


def test_a_name_given_later_is_new_state(tmp_path):
    play(plain, tmp_path, FIRST)
    with Driver(
        app_of(lambda rows: rows.group_by("k").agg(n="count(*)").named("mine").to_view("new")), storage=tmp_path
    ) as driver:
        driver.send("t", *SECOND)
        driver.run()
        assert driver.view("new") == [{"k": "a", "n": 1}, {"k": "c", "n": 1}]


def test_a_refused_plan_leaves_no_trace(tmp_path):
    """No topic is created and no view declared by an app that may not start."""
    play(plain, tmp_path, FIRST)

    def changed(rows):
        rows.group_by("k").agg(n="count(*)").to_view("other")
        rows.to_topic("new")

    with pytest.raises(PlanChanged):
        Driver(app_of(changed), storage=tmp_path)
    assert "new" not in hr.Log(tmp_path / "log").topics()
    assert set(play(plain, tmp_path, SECOND)) == {"out"}


def test_windows_go_on_over_a_restart():
    """The watermark, the open windows and what is late are as if nothing had been."""
    rows = [{"k": "a", "v": 1, "at": ms} for ms in (1000, 14_999, 2000, 15_000, 3000, 30_000)]

    def run(restarts):
        app = app_of(lambda rows: windowed(rows, emit="final"))
        with Driver(app) as driver:
            for row in rows:
                driver.send("t", row)
                driver.step()
                if restarts:
                    driver.restart()
            driver.run()
            return driver.view("out"), driver.late("t_agg_by_k")

    made, late = run(restarts=True)
    assert (made, late) == run(restarts=False)
    assert [row["n"] for row in made] == [2, 2]
    assert [row["v"] for row in late] == [1]


def test_an_app_that_feeds_itself_is_refused():
    """A circle of topics would make every epoch the input of the next."""
    app = hr.App("circle")
    rows = app.stream("t", "k string")
    with pytest.raises(hr.HeadraceError, match='reads the topic "t" and writes to it'):
        rows.to_topic("t")
