"""An integer that becomes wider keeps the state: stored rows are read in the new type, by the same hashes."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.base.errors import PlanChanged
from headrace.testing import Driver

LARGE = 3_000_000_000


def groups(kind):
    app = hr.App("wider")
    rows = app.stream("t", f"k {kind}, v {kind}, at timestamp", event_time="at")
    rows.group_by("k").agg(n="count(*)", s="sum(v)", most="max(v)", mean="avg(v)").named("x").to_view("out")
    return app


def windows(kind):
    app = hr.App("wider")
    rows = app.stream("t", f"k {kind}, v {kind}, at timestamp", event_time="at").group_by("k")
    rows.window(hr.tumbling("1 hour", grace="1 s")).agg(n="count(*)", s="sum(v)", most="max(v)").named("x").to_view(
        "out"
    )
    return app


def tops(kind):
    app = hr.App("wider")
    rows = app.stream("t", f"k {kind}, v {kind}, at timestamp", event_time="at")
    rows.group_by("k").top(2, by="v desc", rank="place").named("x").to_view("out")
    return app


def latest(kind):
    app = hr.App("wider")
    rows = app.stream("t", f"k {kind}, v {kind}, at timestamp", event_time="at").latest("k").named("x")
    rows.to_view("out")
    rows.group_by().agg(n="count(*)", s="sum(v)").named("all").to_view("all")
    return app


def joined(kind):
    app = hr.App("wider")
    left = app.stream("t", f"k {kind}, v {kind}, at timestamp", event_time="at").latest("k").named("left")
    right = app.stream("u", f"k {kind}, w {kind}, at timestamp", event_time="at").latest("k").named("right")
    left.join(right, on="k", how="full").named("x").to_view("out")
    return app


def play(app, storage, *epochs, shards=3):
    for topic in hr.Log(storage / "log").topics() if storage.is_dir() else ():
        with hr.Log(storage / "log") as log:
            log.topic(topic).evolve(next(node.schema for node in app.plan().sources() if node.topic == topic))
    with Driver(app, storage=storage, shards=shards) as driver:
        for rows in epochs:
            for topic in ("t", "u") if "u" in driver.log.topics() else ("t",):
                found = [row for row in rows if ("w" in row) == (topic == "u")]
                driver.send(topic, *found)
            driver.step()
        driver.run()
        return {name: driver.view(name) for name in driver.views()}


def row(k, v, at):
    return {"k": k, "v": v, "at": at}


FIRST = [[row(k, k * v, 1000 * v) for k in range(1, 6) for v in (1, 2)], [row(2, 7, 3000)]]
SECOND = [[row(1, LARGE, 4000), row(LARGE, 1, 4000), row(2, 1, 5000)], [row(2, 9, 6000)]]
RIGHT = [[{"k": k, "w": k * 10, "at": 1000} for k in (1, 2, 9)]]
RIGHT2 = [[{"k": 2, "w": LARGE, "at": 2000}, {"k": LARGE, "w": 1, "at": 2000}]]


@pytest.mark.parametrize("program", [groups, windows, tops, latest])
def test_wider_integers_give_what_they_would_have_given_from_the_start(tmp_path, program):
    play(program("int"), tmp_path / "grown", *FIRST)
    grown = play(program("bigint"), tmp_path / "grown", *SECOND)
    wide = play(program("bigint"), tmp_path / "wide", *FIRST, *SECOND)
    assert grown == wide
    assert any(LARGE in each.values() for each in grown["out"])


def test_a_join_of_tables_finds_its_kept_rows_by_wider_keys(tmp_path):
    play(joined("int"), tmp_path / "grown", *FIRST, *RIGHT)
    grown = play(joined("bigint"), tmp_path / "grown", *SECOND, *RIGHT2)
    assert grown == play(joined("bigint"), tmp_path / "wide", *FIRST, *RIGHT, *SECOND, *RIGHT2)


def test_a_narrower_type_is_refused(tmp_path):
    play(groups("bigint"), tmp_path, *FIRST)
    with pytest.raises(PlanChanged):
        Driver(groups("int"), storage=tmp_path, shards=3)


def test_a_wider_type_under_an_aggregate_that_stores_the_values_otherwise_is_refused(tmp_path):
    def sketched(kind):
        app = hr.App("wider")
        rows = app.stream("t", f"k {kind}, v {kind}, at timestamp", event_time="at")
        rows.group_by("k").agg(n="approx_count_distinct(v)").named("x").to_view("out")
        return app

    play(sketched("int"), tmp_path, *FIRST)
    with pytest.raises(PlanChanged):
        Driver(sketched("bigint"), storage=tmp_path, shards=3)


NAMED_AS_TYPES = {
    "an argument": lambda rows, a: rows.group_by("k").agg(s=f"sum({a})"),
    "a text in a filter": lambda rows, a: rows.group_by("k").agg(s=f"count(*) filter (where u = '{a}')"),
    "an order": lambda rows, a: rows.group_by("k").top(1, by=a),
    "a key": lambda rows, a: rows.group_by(a).agg(s="count(*)"),
    "a column that is kept": lambda rows, a: rows.select("k", n=a).rename(**{a: "n"}).latest("k"),
    "the name of a place": lambda rows, a: rows.select("k", "u").group_by("k").top(1, by="u", rank=a),
}


@pytest.mark.parametrize("build", NAMED_AS_TYPES.values(), ids=NAMED_AS_TYPES)
def test_a_column_or_a_text_that_is_named_as_a_type_is_another_one(tmp_path, build):
    """A sum of a column "int" went on as one of a column "bigint"."""

    def app(name):
        app = hr.App("wider")
        build(app.stream("t", "k int, u string, int int, bigint int"), name).named("x").to_view("out")
        return app

    with Driver(app("int"), storage=tmp_path) as driver:
        driver.send("t", {"k": 1, "u": "int", "int": 1, "bigint": 10})
        driver.run()
    with pytest.raises(PlanChanged, match='the stateful step "x" is not the one whose state is kept'):
        Driver(app("bigint"), storage=tmp_path)
