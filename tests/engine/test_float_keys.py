"""Keys of floating point numbers, as in Spark: -0.0 is 0.0 and comes out as 0.0, and all kinds of NaN are one key."""

from __future__ import annotations

import math
import random

import pytest

import headrace as hr
from headrace.testing import Driver

NAN = float("nan")
KEYS = [-0.0, 0.0, -0.0, NAN, -NAN]


def shown(rows, *columns):
    """Return columns of rows as text: only there is -0.0 something else than 0.0, and NaN equal to itself."""
    return [tuple(str(row[column]) for column in columns) for row in rows]


GROUPED = {
    "all": lambda rows: rows,
    "tumbling": lambda rows: rows.window(hr.tumbling("10 s", grace="1 hour")),
    "sliding": lambda rows: rows.window(hr.sliding("10 s", grace="1 hour")),
    "session": lambda rows: rows.window(hr.session("10 s", grace="1 hour")),
}


@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("together", [False, True])
def test_a_group_has_one_form_of_its_key_whatever_row_came_last(kind, together):
    app = hr.App("floats", shards=3)
    stream = app.stream("t", "k double, at timestamp", event_time="at")
    counts = GROUPED[kind](stream.group_by("k")).agg(n="count(*)").named("counts")
    counts.to_topic("out")
    counts.to_view("view")
    with Driver(app) as driver:
        for key in KEYS:
            driver.send("t", {"k": key, "at": 1000})
            if not together:
                driver.step()
        driver.run()
        assert shown(driver.view("view"), "k", "n") == [("0.0", "3"), ("nan", "2")]
        assert {key for (key,) in shown(driver.read("out"), "k")} == {"0.0", "nan"}


def test_keys_inside_of_lists_and_structs_have_one_form_too():
    app = hr.App("floats", shards=3)
    stream = app.stream("t", "k struct<x: array<float>, y: double, z: string>, l array<array<double>>")
    stream.group_by("k", "l").agg(n="count(*)").changes().to_topic("out")
    with Driver(app) as driver:
        for zero in (-0.0, 0.0, -0.0):
            key = {"x": [zero, None], "y": zero, "z": "a"}
            driver.send("t", {"k": key, "l": [[zero], None]}, {"k": None, "l": None})
            driver.step()
        rows = driver.read("out")
        assert {str(row["k"]) for row in rows} == {"{'x': [0.0, None], 'y': 0.0, 'z': 'a'}", "None"}
        assert {str(row["l"]) for row in rows} == {"[[0.0], None]", "None"}
        assert max(row["n"] for row in rows) == 3


@pytest.mark.parametrize("how", ["table", "latest", "top"])
def test_a_row_that_replaces_another_has_its_key(how):
    """So a delete of one form takes the row of the other away, with a tombstone of the key that was published."""
    app = hr.App("floats", shards=3)
    if how == "table":
        table = app.table("t", "k double, v int", key="k")
    else:
        stream = app.stream("t", "k double, v int")
        table = stream.latest("k") if how == "latest" else stream.group_by("k").top(1, "v", rank="nr")
    table.to_topic("out")
    table.to_view("view")
    with Driver(app) as driver:
        for number, key in enumerate(KEYS):
            driver.send("t", {"k": key, "v": number})
            driver.step()
        assert shown(driver.view("view"), "k", "v") == [("0.0", "2"), ("nan", "4")]
        if how == "table":
            driver.delete("t", k=-0.0)
            driver.delete("t", k=NAN)
            driver.step()
            assert driver.view("view") == []
        gone = [row["k"] for row in driver.read("out") if row.get("_deleted")]
        assert [str(key) for key in sorted(gone, key=math.isnan)] == (["0.0", "nan"] if how == "table" else [])


def test_a_group_that_loses_its_last_row_has_a_tombstone_whatever_form_was_last():
    app = hr.App("floats", shards=3)
    table = app.table("t", "id int, k double", key="id").group_by("k").agg(n="count(*)")
    table.to_topic("out")
    table.to_view("view")
    with Driver(app) as driver:
        driver.send("t", {"id": 1, "k": -0.0}, {"id": 2, "k": 0.0})
        driver.step()
        driver.send("t", {"id": 1, "k": 0.0}, {"id": 2, "k": -0.0})
        driver.step()
        driver.delete("t", id=1)
        driver.step()
        driver.delete("t", id=2)
        driver.step()
        assert driver.view("view") == []
        assert [(str(row["k"]), row["n"]) for row in driver.read("out")] == [("0.0", 2), ("0.0", 1), ("0.0", None)]


def test_dedupe_distinct_and_joins_take_both_forms_for_one_key():
    app = hr.App("floats", shards=3)
    left = app.stream("l", "k double, at timestamp", event_time="at")
    right = app.stream("r", "k double, w int, at timestamp", event_time="at")
    table = app.table("t", "k double, z int", key="k")
    left.dedupe("k", within="1 hour").to_topic("once")
    left.group_by().agg(n="count(distinct k)").to_view("distinct")
    left.join(right, on="k", within="1 hour").named("pairs").to_topic("pairs")
    left.join(table, on="k").named("met").to_topic("met")
    left.latest("k").named("last").join(table, on="k").named("both").to_view("both")
    with Driver(app) as driver:
        driver.send("t", {"k": 0.0, "z": 1}, {"k": -NAN, "z": 2})
        driver.send("l", *({"k": key, "at": 0} for key in KEYS))
        driver.send("r", {"k": 0.0, "w": 1, "at": 0}, {"k": NAN, "w": 2, "at": 0})
        driver.run()
        assert sorted(shown(driver.read("once"), "k")) == [("0.0",), ("nan",)]
        assert driver.view("distinct") == [{"n": 2}]
        assert sorted(shown(driver.read("pairs"), "k", "w")) == [("0.0", "1")] * 3 + [("nan", "2")] * 2
        assert sorted(shown(driver.read("met"), "k", "z")) == [("0.0", "1")] * 3 + [("nan", "2")] * 2
        assert sorted(shown(driver.view("both"), "k", "z")) == [("0.0", "1"), ("nan", "2")]


ZEROS = {
    "where": lambda t, _: t.where("k is not null"),
    "join": lambda t, u: t.select("k", "f").join(u, on="k"),
    "left join": lambda t, u: t.select("k", "f").join(u, on="k", how="left"),
    "right join": lambda t, u: u.join(t.select("k", "f"), on="k", how="right", where="f <= 0D"),
    "full join": lambda t, u: t.select("k", "f").join(u, on="k", how="full"),
    "anti join": lambda t, u: t.select("k", "f").join(u, on="k", how="anti"),
    "top": lambda t, _: t.select("k", "f").group_by("k").top(2, "f desc"),
    "ranks": lambda t, _: t.select("k", "f").group_by("k").top(1, "f desc", ties="rank", rank="place"),
}


@pytest.mark.parametrize("build", ZEROS.values(), ids=ZEROS)
@pytest.mark.parametrize("twice", [False, True])
def test_a_row_is_withdrawn_in_the_form_in_which_it_was_inserted(build, twice):
    """A text below tells 0.0 from -0.0: a row that is withdrawn as the other one stays there for ever."""
    app = hr.App("zeros", shards=2)
    t, u = app.table("t", "id int, k int, f double", key="id"), app.table("u", "k int, w int", key="k")
    u.to_view("u")
    texts = build(t, u).named("made").select("k", s="cast(f as string)")
    texts.group_by("k", "s").agg(n="count(*)").named("counted").to_view("view")
    dice = random.Random(1)  # noqa: S311 -- test data
    with Driver(app) as driver:
        for _ in range(12):
            for id_ in [dice.randint(1, 3) for _ in range(dice.choice((1, 2)))] * (1 + twice):
                driver.send("t", {"id": id_, "k": 1, "f": dice.choice((0.0, -0.0))})
            if dice.random() < 0.5:
                driver.delete("t", id=dice.randint(1, 3))
            if dice.random() < 0.5:
                driver.send("u", {"k": 1, "w": 1})
            else:
                driver.delete("u", k=1)
            driver.step()
        driver.delete("u", k=1)
        for id_ in (1, 2, 3):
            driver.delete("t", id=id_)
        driver.run()
        assert driver.view("view") == []


@pytest.mark.parametrize("zero", ["f", "array(f)", "named_struct('x', f)"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_row_of_a_table_that_becomes_minus_zero_is_another_one(zero, times):
    app = hr.App("zeros")
    read = {"f": "z", "array(f)": "z[0]", "named_struct('x', f)": "z.x"}[zero]
    t = app.stream("t", "id int, f double").with_columns(z=zero).latest("id")
    t.select(s=f"cast({read} as string)").to_view("view")
    with Driver(app) as driver:
        for value in (0.0, -0.0, 0.0):
            driver.send("t", *[{"id": 1, "f": value}] * times)
            driver.run()
            assert driver.view("view") == [{"s": str(value)}]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_condition_on_doubles_of_a_row_that_is_counted_stays(how):
    """Below the join they are 0.0 where a row above it has -0.0, so a text is tested there."""
    app = hr.App("zeros", shards=2)
    t, u = app.table("t", "id int, k int, f double", key="id"), app.table("u", "k int", key="k")
    joined = t.select("k", "f").join(u, on="k", how=how)
    joined.where("cast(f as string) = '0.0'").to_view("view")
    with Driver(app) as driver:
        driver.send("u", {"k": 1})
        driver.send("t", {"id": 0, "k": 1, "f": 0.0}, {"id": 1, "k": 1, "f": -0.0})
        driver.run()
        assert len(driver.view("view")) == 2
