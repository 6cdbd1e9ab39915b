"""Keys of floating point numbers, as in Spark: -0.0 is 0.0 and comes out as 0.0, and all kinds of NaN are one key."""

from __future__ import annotations

import math

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
