"""What is new over history is filled: a view, topic or step that an app has more than before."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from functools import cache

import pytest
from disturbed import AROUND_THE_COMMIT, points

import headrace as hr
from budget import fast
from headrace.engine.program.fill import history
from headrace.testing import Driver
from headrace.testing.faults import Crash, Faults

PEOPLE = "id int, city string, score double, at timestamp"
MINUTE = hr.tumbling("1 minute", grace="0 seconds")
HOP = hr.hopping("2 minutes", "30 seconds", grace="0 seconds")


class Inputs:
    """A table, a second table and a stream of one app."""

    def __init__(self):
        self.app = hr.App("filled", shards=2)
        self.people = self.app.table("people", PEOPLE, key="id", event_time="at")
        self.cities = self.app.table("cities", "city string, country string", key="city")
        self.visits = self.app.stream("visits", "id int, city string, n int, at timestamp", event_time="at")


def by_city(inputs):
    return inputs.people.group_by("city")


def joined(how, where=None):
    return lambda i: i.people.join(i.cities, on="city", how=how, where=where)


STEPS = {
    "a table": lambda i: i.people,
    "a part of a table": lambda i: i.people.where("score > 2").select("id", twice="score * 2"),
    "a bag": lambda i: i.people.select("city"),
    "a group of a stream": lambda i: i.visits.group_by("city").agg(n="count(*)", s="sum(n)", most="max(n)"),
    "one group": lambda i: i.people.group_by().agg(n="count(*)", s="sum(score)"),
    "sums of a table": lambda i: by_city(i).agg(n="count(*)", s="sum(score)", mean="avg(score)"),
    "all values of a table": lambda i: by_city(i).agg(
        all="array_sort(collect_list(score))", d="count(distinct score)", low="min(score)", half="median(score)"
    ),
    "first rows of a stream": lambda i: i.visits.group_by("city").top(2, by="n", rank="place"),
    "first rows of a table": lambda i: by_city(i).top(2, by="score", rank="place"),
    "first rows without places": lambda i: by_city(i).top(2, by="score"),
    "first rows of all": lambda i: i.people.group_by().top(3, by="score", rank="place"),
    "the last row of each key": lambda i: i.visits.latest("id"),
    **{f"a join, {how}": joined(how) for how in ("inner", "left", "right", "full", "semi", "anti")},
    **{
        f"a join, {how}, with a condition": joined(how, "score > 2")
        for how in ("inner", "left", "full", "semi", "anti")
    },
    "a join of bags": lambda i: i.people.select("city").join(i.cities, on="city", how="left"),
    "groups of groups": lambda i: by_city(i).agg(n="count(*)").group_by("n").agg(k="count(*)"),
    "a join of groups": lambda i: by_city(i).agg(n="count(*)").join(i.cities, on="city", how="left"),
    "changes of a table": lambda i: i.people.changes().group_by("city").agg(n="count(*)"),
}
OPEN = {
    "windows": lambda i: i.visits.group_by("city").window(MINUTE).agg(n="count(*)", s="sum(n)"),
    "windows with all values": lambda i: i.visits.group_by("city").window(MINUTE).agg(d="count(distinct n)"),
    "hopping windows": lambda i: i.visits.group_by("city").window(HOP).agg(n="count(*)", s="sum(n)"),
    "sessions": lambda i: (
        i.visits.group_by("city").window(hr.session("20 seconds", grace="0 seconds")).agg(n="count(*)", d="max(n)")
    ),
    "sessions with all values": lambda i: (
        i.visits.group_by("city").window(hr.session("20 seconds", grace="0 seconds")).agg(d="count(distinct n)")
    ),
    "sliding windows": lambda i: (
        i.visits.group_by("city").window(hr.sliding("30 seconds", grace="0 seconds")).agg(n="count(*)", s="sum(n)")
    ),
    "sliding windows with all values": lambda i: (
        i.visits.group_by("city").window(hr.sliding("30 seconds", grace="0 seconds")).agg(d="count(distinct n)")
    ),
    "months": lambda i: i.visits.group_by("city").window(hr.tumbling("1 month", grace="0 seconds")).agg(n="count(*)"),
    "first rows of windows": lambda i: i.visits.group_by("city").window(MINUTE).top(2, by="n", rank="place"),
}


def program(build, *, known=True, new=True):
    """Return an app of three inputs, in which a step is `known`, and has a `new` view."""
    inputs = Inputs()
    inputs.people.to_view("people")
    inputs.cities.to_view("cities")
    inputs.visits.to_topic("visited")
    step = build(inputs)
    if known:
        step.to_view("old")
    if new:
        step.to_view("new")
    return inputs.app


def first_part(driver):
    for i in range(12):
        driver.send("people", {"id": i, "city": f"c{i % 4}" if i % 5 else None, "score": i * 0.7, "at": 1000 * i})
        driver.send("visits", {"id": i % 3, "city": f"c{i % 2}", "n": i % 4, "at": 9000 * i})
    driver.send("cities", *({"city": f"c{i}", "country": "x"} for i in (0, 1, 9)))
    driver.step()
    driver.send("people", {"id": 3, "city": "c0", "score": 0.1, "at": 20_000})
    driver.send("people", {"id": 4, "city": "c2", "score": 9.5, "at": 20_001})
    driver.send("visits", {"id": 4, "city": "c1", "n": 7, "at": 100_000})
    driver.delete("people", id=5)
    driver.delete("cities", city="c1")
    driver.run()


def second_part(driver):
    driver.send("people", {"id": 3, "city": "c1", "score": 7.5, "at": 30_000})
    driver.send("people", {"id": 40, "city": "c0", "score": 1.5, "at": 30_001})
    driver.delete("people", id=4)
    driver.delete("people", id=7)
    driver.delete("cities", city="c0")
    driver.send("cities", {"city": "c2", "country": "w"})
    driver.send(
        "visits", {"id": 2, "city": "c1", "n": 9, "at": 101_000}, {"id": 7, "city": "c1", "n": 1, "at": 103_000}
    )
    driver.run()


@cache
def from_the_start(build, *parts):
    with Driver(program(build, known=False)) as driver:
        for part in parts:
            part(driver)
        return driver.view("new")


def values(rows):
    return sorted(map(repr, rows))


@pytest.mark.parametrize(
    "name",
    fast(
        "one group", "all values of a table", "first rows of a stream", "a join, anti, with a condition",
        "changes of a table", of=STEPS,
    ),
)  # fmt: skip
def test_a_new_view_of_a_step_with_history_is_complete_at_once_and_stays_right(tmp_path, name):
    build = STEPS[name]
    with Driver(program(build, new=False), storage=tmp_path) as driver:
        first_part(driver)
        old = driver.view("old")
    with Driver(program(build), storage=tmp_path) as driver:
        assert driver.view("new") == old != []
        second_part(driver)
        assert driver.view("new") == driver.view("old") == from_the_start(build, first_part, second_part)


OVER_TABLES = [name for name in STEPS if not any(word in name for word in ("stream", "last", "changes"))]


@pytest.mark.parametrize(
    "name", fast("a bag", "first rows of a table", "a join, full, with a condition", of=OVER_TABLES)
)
def test_a_new_step_over_tables_with_history_is_complete_at_once_and_stays_right(tmp_path, name):
    build = STEPS[name]
    with Driver(program(build, known=False, new=False), storage=tmp_path) as driver:
        first_part(driver)
    with Driver(program(build, known=False), storage=tmp_path) as driver:
        assert driver.view("new") == from_the_start(build, first_part)
        second_part(driver)
        assert driver.view("new") == from_the_start(build, first_part, second_part)


@pytest.mark.parametrize("name", fast("windows with all values", "hopping windows", "sessions", "months", of=OPEN))
def test_a_new_view_of_windows_has_those_that_are_open(tmp_path, name):
    """Closed ones are gone from the state."""
    build = OPEN[name]
    with Driver(program(build, new=False), storage=tmp_path) as driver:
        first_part(driver)
        old, watermark = driver.view("old"), driver.watermark("visits")
    with Driver(program(build), storage=tmp_path) as driver:
        new = driver.view("new")
        last = watermark - timedelta(microseconds=1 if "sliding" in name else 0)  # its end is inside
        assert values(new) == values(row for row in old if row["window_end"] > last) != []
        second_part(driver)
        gone = {repr(row) for row in old if row not in new}
        assert values(driver.view("new")) == [row for row in values(driver.view("old")) if row not in gone]


def test_a_new_step_over_the_changes_of_a_table_begins_with_its_rows_as_inserts(tmp_path):
    def changed(inputs):
        return inputs.people.changes().group_by("_change_type").agg(n="count(*)")

    with Driver(program(changed, known=False, new=False), storage=tmp_path) as driver:
        first_part(driver)
    with Driver(program(changed, known=False), storage=tmp_path) as driver:
        assert driver.view("new") == [{"_change_type": "insert", "n": 11}]


def test_windows_over_a_table_are_filled_with_all_of_its_rows_and_close_as_always(tmp_path):
    def windows(inputs):
        return inputs.people.group_by().window(MINUTE, emit="final").agg(n="count(*)")

    with Driver(program(windows, known=False, new=False), storage=tmp_path) as driver:
        first_part(driver)
        driver.send("people", {"id": 50, "city": "c0", "score": 1.0, "at": 200_000})
        driver.run()
    with Driver(program(windows, known=False), storage=tmp_path) as driver:
        assert driver.view("new") == []
        driver.run()
        assert [row["n"] for row in driver.view("new")] == [11], "closed by a watermark that is past them"
        driver.finish()
        assert [row["n"] for row in driver.view("new")] == [11, 1]


def test_what_is_new_over_a_stream_begins_with_the_rows_from_now_on(tmp_path):
    def counted(inputs):
        return inputs.visits.group_by("city").agg(n="count(*)")

    with Driver(program(counted, known=False, new=False), storage=tmp_path) as driver:
        first_part(driver)
    with Driver(program(counted, known=False), storage=tmp_path) as driver:
        assert driver.view("new") == []
        second_part(driver)
        assert driver.view("new") == [{"city": "c1", "n": 2}]


def test_a_view_that_was_left_out_for_a_while_is_filled_anew(tmp_path):
    """It was not told what changed meanwhile."""

    def table(inputs):
        return inputs.people

    with Driver(program(table, known=False), storage=tmp_path) as driver:
        first_part(driver)
    with Driver(program(table, known=False, new=False), storage=tmp_path) as driver:
        second_part(driver)
    with Driver(program(table, known=False), storage=tmp_path) as driver:
        assert driver.view("new") == driver.view("people")
        driver.delete("people", id=3)
        driver.run()
        assert driver.view("new") == driver.view("people")


def test_a_fill_moves_neither_offsets_nor_the_watermarks_of_old_steps(tmp_path):
    build = OPEN["windows"]
    with Driver(program(build, new=False), storage=tmp_path) as driver:
        first_part(driver)
        before = driver.status()
    with Driver(program(build), storage=tmp_path) as driver:
        after = driver.status()
        assert after["epoch"] == before["epoch"] + 1
        assert {name: (s["rows"], s["watermark"]) for name, s in after["sources"].items()} == {
            name: (s["rows"], s["watermark"]) for name, s in before["sources"].items()
        }
        assert after["steps"] == before["steps"]
    with Driver(program(build), storage=tmp_path) as driver:
        assert driver.status()["epoch"] == after["epoch"], "it is done once"


@pytest.mark.parametrize("point", points(*AROUND_THE_COMMIT))
def test_a_fill_that_crashes_at_any_point_is_done_by_the_next_start(tmp_path, point, monkeypatch):
    build = STEPS["a join of groups"]
    with Driver(program(build, known=False, new=False), storage=tmp_path) as driver:
        first_part(driver)
    with monkeypatch.context() as armed:
        armed.setattr("headrace.testing.driver.Faults", lambda: armed_at(point))
        with nullcontext() if point in NOT_IN_A_FILL else pytest.raises(Crash, match=point):
            Driver(program(build, known=False), storage=tmp_path).close()
    with Driver(program(build, known=False), storage=tmp_path) as driver:
        assert driver.view("new") == from_the_start(build, first_part)
        second_part(driver)
        assert driver.view("new") == from_the_start(build, first_part, second_part)


NOT_IN_A_FILL = {
    "before_bounds", "after_bounds", "before_read", "after_read",
    "between_topics", "before_mark", "before_acknowledge", "after_acknowledge",
}  # fmt: skip
"""It reads nothing; and here it publishes to a view only."""


def armed_at(point):
    faults = Faults()
    faults.arm(point)
    return faults


def test_the_plan_says_how_much_of_the_history_there_is():
    inputs = Inputs()
    plain = inputs.visits.group_by("city").agg(n="count(*)").named("plain")
    windows = inputs.visits.group_by("city").window(MINUTE).agg(n="count(*)").named("windows")
    final = inputs.visits.group_by("city").window(MINUTE, emit="final").agg(n="count(*)").named("final")
    stream = inputs.visits.dedupe("id", within="1 hour").named("deduped")
    ends = {
        "plain": plain.where("n > 1"),
        "windows": windows,
        "final": final,
        "deduped": stream,
        "visits": inputs.visits.where("n > 1"),
    }
    for name, end in ends.items():
        end.to_view(name)
    joined = plain.join(inputs.cities, on="city").named("joined")
    joined.to_view("joined")
    plan = inputs.app.plan()
    of = {sink.view: history(plan, sink.up, {"joined"}) for sink in plan.sinks}
    assert of == {
        "plain": {"plain": "all"},
        "windows": {"windows": "open windows"},
        "final": {"final": "nothing"},
        "deduped": {"deduped": "nothing"},
        "visits": {"visits": "nothing"},
        "joined": {"plain": "all", "cities_table": "all"},
    }


def test_a_new_lookup_finds_the_rows_that_a_table_has(tmp_path):
    def looked_up(inputs):
        return inputs.visits.join(inputs.people.select(who="id", score="score"), on={"id": "who"}, how="left")

    with Driver(program(looked_up, known=False, new=False), storage=tmp_path) as driver:
        first_part(driver)
    with Driver(program(looked_up, known=False), storage=tmp_path) as driver:
        driver.send("visits", {"id": 4, "city": "c1", "n": 1, "at": 101_000})
        driver.delete("people", id=4)
        driver.step()
        driver.send("visits", {"id": 4, "city": "c1", "n": 2, "at": 101_000})
        driver.run()
        assert [(row["n"], row["score"]) for row in driver.view("new")] == [(1, 9.5), (2, None)]


@pytest.mark.on_spark("groups")
@pytest.mark.parametrize("shape", ["a join of groups", "a table"])
def test_an_app_goes_on_from_a_fill_on_both_carriers(tmp_path, drive, shape):
    build = STEPS[shape]
    first = drive(program(build, known=False, new=False), storage=tmp_path)
    first_part(first)
    first.close()
    second = drive(program(build, known=False), storage=tmp_path)
    assert second.view("new") == from_the_start(build, first_part)
    second_part(second)
    assert second.view("new") == from_the_start(build, first_part, second_part)
