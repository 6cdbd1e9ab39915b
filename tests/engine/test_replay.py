"""A step that was reset is computed again: from the state of the steps above, or from the topics."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from functools import cache

import pytest
from disturbed import AROUND_THE_COMMIT, points
from test_fill import armed_at

import headrace as hr
from budget import fast
from headrace.base.time import ManualClock
from headrace.engine.program.reset import reset
from headrace.log import Log
from headrace.testing import Driver
from headrace.testing.faults import Crash

ROWS = "id int, user string, n int, at timestamp"
MINUTE = hr.tumbling("1 minute", grace="0 seconds")
SECONDS = hr.tumbling("2 seconds", grace="0 seconds")

STEPS = {
    "a group": lambda rows, _: rows.group_by("user").agg(n="count(*)", s="sum(n)"),
    "windows": lambda rows, _: rows.group_by("user").window(MINUTE).agg(n="count(*)", d="count(distinct n)"),
    "final windows": lambda rows, _: rows.group_by("user").window(MINUTE, emit="final").agg(n="count(*)"),
    "sessions": lambda rows, _: (
        rows.group_by("user").window(hr.session("5 seconds", grace="0 seconds")).agg(n="count(*)")
    ),
    "first rows": lambda rows, _: rows.group_by("user").top(2, by="n", rank="place"),
    "first of each key": lambda rows, _: rows.dedupe("id", within="1 hour"),
    "a lookup": lambda rows, users: rows.join(users, on="user", how="left"),
    "as of a time": lambda rows, users: rows.join(users, on="user", as_of="at", grace="0 seconds", how="left"),
}

WAITING = STEPS | {
    "windows every so often": lambda rows, _: (
        rows.group_by("user").window(MINUTE, emit="every 20 seconds").agg(n="count(*)")
    ),
    "windows of windows": lambda rows, _: (
        rows.group_by("user")
        .window(MINUTE, emit="final")
        .agg(n="count(*)")
        .group_by()
        .window(hr.tumbling("2 minutes", grace="0 seconds"), emit="final")
        .agg(n="sum(n)")
    ),
}


def app_of(build):
    app = hr.App("replayed", shards=2)
    rows = app.stream("rows", ROWS, event_time="at")
    users = app.table("users", "user string, city string, since timestamp", key="user", event_time="since")
    users.to_view("users")
    step = build(rows, users).named("mine")
    step.to_view("mine")
    step.to_topic("out")
    rows.group_by().agg(n="count(*)").named("beside").to_view("beside")
    return app


def first_part(driver, *, cut=True):
    driver.send("users", {"user": "u0", "city": "a", "since": 0}, {"user": "u1", "city": "b", "since": 0})
    driver.send("users", {"user": "u9", "city": "z", "since": 90_000})
    for i in range(10):
        driver.send("rows", {"id": i % 7, "user": f"u{i % 3}", "n": i, "at": 10_000 * i})
        if cut:
            driver.step(limit=3)
    driver.send("rows", {"id": 99, "user": "u0", "n": 99, "at": 1})  # too late for windows
    driver.run()


def second_part(driver):
    driver.send("users", {"user": "u0", "city": "c", "since": 100_000})
    driver.send("rows", *({"id": 20 + i, "user": f"u{i}", "n": i, "at": 130_000 + i} for i in range(4)))
    driver.run()


def latest_of(topic):
    """Return the rows of a topic with a table's changelog, by their keys."""
    rows = {}
    for partition, end in topic.end_offsets().items():
        for batch in topic.batches(partition, 0, end, columns=[*topic.schema.names, "_deleted"]):
            rows |= {tuple(row[name] for name in topic.key): row for row in batch.to_pylist()}
    return {key: row for key, row in rows.items() if not row["_deleted"]}


@cache
def from_the_start(build, *parts):
    """Return the view after a run over all of the input at once: what is late follows from how it is cut."""
    with Driver(app_of(build)) as driver:
        first_part(driver, cut=False)
        for part in parts:
            part(driver)
        return driver.view("mine")


@pytest.mark.parametrize("name", fast("a group", "windows", "first rows", "a lookup", "as of a time", of=STEPS))
def test_a_step_that_was_reset_is_what_a_run_from_the_start_gives(tmp_path, name):
    build = STEPS[name]
    with Driver(app_of(build), storage=tmp_path) as driver:
        first_part(driver)
        published = driver.read("out")
    reset(app_of(build).plan(), tmp_path, "mine", sync=False)
    with Driver(app_of(build), storage=tmp_path) as driver:
        assert driver.view("mine") == from_the_start(build) != []
        again = driver.read("out")
        added = Counter(map(repr, again)) - Counter(map(repr, published))
        assert len(again) == len(published) + added.total(), "what a topic has stays"
        if "compact" in driver.log.topic("out").cleanup:  # a table's changelog is brought level with it
            assert len(latest_of(driver.log.topic("out"))) == len(driver.view("mine"))
        else:
            assert not added
        assert driver.view("beside") == [{"n": 11}]
        second_part(driver)
        assert driver.view("mine") == from_the_start(build, second_part)
    assert not (tmp_path / "replay").exists()


@pytest.mark.parametrize("name", fast("final windows", "sessions", "as of a time", "windows of windows", of=WAITING))
def test_what_waits_for_the_next_epoch_before_a_reset_comes_out_after_it(tmp_path, name):
    """The app stops after one epoch: the watermark that its rows reach is known, and no step has worked with it."""
    build = WAITING[name]
    published = []
    for what in ("as it is", "mine", None):  # a step, and all with the outputs that are there
        storage = tmp_path / str(what)
        with Driver(app_of(build), storage=storage) as driver:
            driver.send("users", *({"user": f"u{i}", "city": "a", "since": 0} for i in (0, 1, 9)))
            driver.send("rows", *({"id": i, "user": f"u{i % 3}", "n": i, "at": 10_000 * i} for i in range(10)))
            driver.step()
        if what != "as it is":
            reset(app_of(build).plan(), storage, what, outputs="keep", sync=False)
        with Driver(app_of(build), storage=storage) as driver:
            driver.run()
            second_part(driver)
            published.append(sorted(map(repr, driver.read("out"))))
    assert published[0] == published[1] == published[2]


def test_rows_that_arrive_between_a_reset_and_the_start_are_counted_once(tmp_path):
    build = STEPS["a group"]
    with Driver(app_of(build), storage=tmp_path) as driver:
        first_part(driver)
    reset(app_of(build).plan(), tmp_path, "mine", sync=False)
    with Log(tmp_path / "log", fsync=False) as log:
        log.topic("rows").append([{"id": 50, "user": "u5", "n": 1, "at": 140_000}])
    with Driver(app_of(build), storage=tmp_path) as driver:
        driver.run()
        assert [row["n"] for row in driver.view("mine") if row["user"] == "u5"] == [1]
        assert driver.view("beside") == [{"n": 12}]


@pytest.mark.parametrize("point", points(*AROUND_THE_COMMIT))
def test_a_replay_that_crashes_at_any_point_begins_again(tmp_path, point, monkeypatch):
    app = app_of(STEPS["windows"])
    with Driver(app, storage=tmp_path) as driver:
        first_part(driver)
    reset(app.plan(), tmp_path, "mine", sync=False)
    with monkeypatch.context() as armed:
        armed.setattr("headrace.testing.driver.Faults", lambda: armed_at(point))
        with nullcontext() if point in ("between_topics", "before_mark") else pytest.raises(Crash, match=point):
            Driver(app, storage=tmp_path).close()
    with Driver(app, storage=tmp_path) as driver:
        assert driver.view("mine") == from_the_start(STEPS["windows"])


def test_a_step_below_a_table_is_filled_from_its_rows(tmp_path):
    def counted():
        app = hr.App("counted")
        users = app.table("users", "user string, city string", key="user")
        users.to_view("users")
        users.group_by("city").agg(n="count(*)").named("cities").to_view("cities")
        return app

    with Driver(counted(), storage=tmp_path) as driver:
        driver.send("users", *({"user": f"u{i}", "city": f"c{i % 2}"} for i in range(5)))
        driver.run()
        driver.delete("users", user="u0")
        driver.run()
    reset(counted().plan(), tmp_path, "cities", sync=False)
    with Driver(counted(), storage=tmp_path) as driver:
        assert [tuple(row.values()) for row in driver.view("cities")] == [("c0", 2), ("c1", 2)]
        driver.delete("users", user="u1")
        driver.run()
        assert [tuple(row.values()) for row in driver.view("cities")] == [("c0", 2), ("c1", 1)]


def test_a_step_is_filled_with_first_rows_that_have_no_time(tmp_path):
    """Their time is 0, which was a number of 32 bits and not of 64; seed 24007035."""

    def ranked():
        app = hr.App("ranked")
        users = app.table("users", "user string, n int, at timestamp", key="user", event_time="at")
        first = users.group_by().top(2, by="user", rank="place").named("first")
        first.select("n").group_by("n").agg(times="count(*)").named("counted").to_view("counted")
        return app

    with Driver(ranked(), storage=tmp_path) as driver:
        driver.send("users", *({"user": f"u{i}", "n": 7, "at": i} for i in range(3)))
        driver.step()
    reset(ranked().plan(), tmp_path, "counted", sync=False)
    with Driver(ranked(), storage=tmp_path) as driver:
        assert driver.view("counted") == [{"n": 7, "times": 2}]
        driver.delete("users", user="u0")
        driver.delete("users", user="u1")
        driver.run()
        assert driver.view("counted") == [{"n": 7, "times": 1}]


def changes_app(*, least=0, size=None):
    app = hr.App("levelled", shards=1)
    people = app.table("people", "id int, n int", key="id")
    kept = people.where(f"n >= {least}")
    step = kept.suppress(size=size).named("mine") if size else kept.group_by("id").agg(n="sum(n)").named("mine")
    step.to_view("mine")
    step.to_topic("out")
    return app


def test_a_topic_has_what_its_table_has_after_a_reset_of_the_step(tmp_path):
    """Of two changes the older one has come out; computed again in one epoch, the other one comes first."""

    def shown(driver):
        published = {key for (key,) in latest_of(driver.log.topic("out"))}
        assert published == {row["id"] for row in driver.view("mine")}
        return published

    with Driver(changes_app(size=1), storage=tmp_path) as driver:
        for number in (5, 2):
            driver.send("people", {"id": number, "n": 1})
            driver.step()
        assert shown(driver) == {5}
    reset(changes_app(size=1).plan(), tmp_path, "mine", sync=False)
    with Driver(changes_app(size=1), storage=tmp_path) as driver:
        driver.run()
        assert len(shown(driver)) == 1
        driver.send("people", {"id": 3, "n": 1})
        driver.run()
        assert len(shown(driver)) == 2


def test_a_topic_has_what_a_changed_step_gives_after_its_reset(tmp_path):
    with Driver(changes_app(), storage=tmp_path) as driver:
        driver.send("people", *({"id": number, "n": number} for number in range(4)))
        driver.run()
        published = len(driver.read("out"))
    reset(changes_app(least=2).plan(), tmp_path, "mine", sync=False)
    with Driver(changes_app(least=2), storage=tmp_path) as driver:
        driver.run()
        assert {row["id"] for row in driver.view("mine")} == {2, 3}
        assert {key for (key,) in latest_of(driver.log.topic("out"))} == {2, 3}
        assert len(driver.read("out")) == published + 2, "two tombstones, and no row again"


def test_a_view_keeps_the_rows_of_a_stream_beside_a_step_that_was_reset(tmp_path):
    def app():
        app = hr.App("beside", shards=1)
        rows = app.stream("rows", "id int, n int")
        people = app.table("people", "id int, n int", key="id")
        sums = people.group_by("id").agg(n="CAST(sum(n) AS int)").named("mine")
        sums.union(rows).to_view("both")
        return app

    with Driver(app(), storage=tmp_path) as driver:
        driver.send("rows", {"id": 1, "n": 1})
        driver.send("people", {"id": 2, "n": 2})
        driver.run()
    reset(app().plan(), tmp_path, "mine", sync=False)
    with Driver(app(), storage=tmp_path) as driver:
        driver.run()
        assert sorted(row["id"] for row in driver.view("both")) == [1, 2]


IDLE = {
    "final windows": lambda rows: rows.group_by("user").window(SECONDS, emit="final").agg(n="count(*)"),
    "sessions": lambda rows: (
        rows.group_by("user").window(hr.session("1 second", grace="0 seconds"), emit="final").agg(n="count(*)")
    ),
    "a running count": lambda rows: rows.group_by("user").over(rows=3).agg(c="count(*)"),
    "rows without a pair": lambda rows: rows.join(
        rows.where("false").select("user", other="id"), on="user", within="1 second", how="left"
    ).with_columns(n="1"),
}


@pytest.mark.parametrize("name", fast("final windows", "a running count", of=IDLE))
@pytest.mark.parametrize("by", ["the clock", "rows that were in order"])
def test_a_replay_goes_as_far_as_the_app_did(tmp_path, name, by):
    """Records alone do not bring it there; what it would leave open came out before, and would come out again."""
    idle_after = "3 seconds" if by == "the clock" else None

    def app(out_of_order="0 seconds"):
        app = hr.App("far", shards=2)
        rows = app.stream("rows", ROWS, event_time="at", out_of_order=out_of_order, idle_after=idle_after)
        step = IDLE[name](rows).named("mine")
        step.to_view("mine")
        step.to_topic("out")
        below = step.group_by("user").agg(n="count(*)").named("below")
        below.to_view("below")
        below.to_topic("changes")
        return app

    def shown(driver):
        return sorted(map(repr, driver.view("mine"))), driver.view("below")

    clock, seen = ManualClock(), []
    for what in ("as it is", "below", "mine", None):
        storage = tmp_path / str(what)
        with Driver(app(), storage=storage, clock=clock) as driver:
            for id_ in (1, 5, 8, 20):
                driver.send("rows", {"id": id_, "user": "a", "n": id_, "at": 1_000 * id_})
                driver.run()
            for _ in range(12):
                clock.advance(1)
                driver.run()
            before = shown(driver)
        later = app() if by == "the clock" else app("15 seconds")
        with Driver(later, storage=storage, clock=clock) as driver:
            driver.run()
        if what != "as it is":
            reset(later.plan(), storage, what, outputs="keep", sync=False)
        with Driver(later, storage=storage, clock=clock) as driver:
            driver.run()
            assert shown(driver) == before
            driver.send("rows", {"id": 30, "user": "a", "n": 30, "at": 60_000})
            driver.finish()
            seen.append((*shown(driver), *(sorted(map(repr, driver.read(topic))) for topic in ("out", "changes"))))
    assert all(each == seen[0] for each in seen)


@pytest.mark.parametrize("what", ["mine", "rows_latest", None])
def test_changes_that_had_come_out_are_there_after_a_replay(tmp_path, what):
    def app():
        app = hr.App("waiting", shards=2)
        rows = app.stream("rows", ROWS, event_time="at")
        step = rows.latest("user").named("rows_latest").suppress("4 seconds").named("mine")
        step.to_view("mine")
        step.to_topic("out")
        return app

    with Driver(app(), storage=tmp_path) as driver:
        for id_ in (1, 6, 11, 12):
            driver.send("rows", {"id": id_, "user": f"u{id_ % 2}", "n": id_, "at": 1_000 * id_})
            driver.run()
        before, published = driver.view("mine"), driver.read("out")
        assert len(before) == 2
    reset(app().plan(), tmp_path, what, outputs="keep", sync=False)
    with Driver(app(), storage=tmp_path) as driver:
        driver.run()
        assert (driver.view("mine"), driver.read("out")) == (before, published)
        driver.send("rows", {"id": 13, "user": "u1", "n": 13, "at": 13_000})
        driver.run()
        assert driver.view("mine") == before, "it waits for the end of its period"
        driver.finish()
        assert sorted(row["id"] for row in driver.view("mine")) == [12, 13]
