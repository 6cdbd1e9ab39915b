"""Conditions that move above joins and groupings: what moves, what stays, and that the rows are the same."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples
from headrace.plan import plan as planning
from headrace.testing import Driver

HOWS = ("inner", "left", "right", "full", "semi", "anti")
LEFT, RIGHT = "id int, k int, a string, x double", "k int, a string, b int"


def tables(how="inner", *, key="k"):
    """Two tables with a shared key and a column of the same name, joined."""
    app = hr.App("filters")
    left = app.table("l", LEFT, key="id")
    right = app.table("r", RIGHT, key="k")
    return app, left.join(right, on=key, how=how).named("pairs")


def where_above(app, step="pairs"):
    """Return what is tested between the tables and a step, for each of its inputs."""
    steps = {each["name"]: each for each in app.explain().data["steps"]}

    def tested(name):
        each = steps[name]
        here = [each["detail"]] if each["verb"] == "where" else []
        return here + (tested(each["inputs"][0]) if each["verb"] in ("where", "select") else [])

    return [tested(name) for name in steps[step]["inputs"]]


def where_below(app, step="pairs"):
    steps = app.explain().data["steps"]
    at = next(i for i, each in enumerate(steps) if each["name"] == step)
    return [each["detail"] for each in steps[at + 1 :] if each["verb"] == "where"]


@pytest.mark.parametrize(
    ("how", "condition", "above", "below"),
    [
        ("inner", "x > 1", [["x > 1"], []], []),
        ("inner", "b > 1", [[], ["b > 1"]], []),
        ("inner", "k > 1", [["k > 1"], ["k > 1"]], []),
        ("inner", "a_right = 'z'", [[], ["`a` = 'z'"]], []),
        ("inner", "a = 'z' and b > 1 and x > b", [["a = 'z'"], ["b > 1"]], ["(x > b)"]),
        ("inner", "k > 1 and x > 1", [["x > 1", "k > 1"], ["k > 1"]], []),
        ("inner", "k > 1 or x > 1", [["k > 1 OR x > 1"], []], []),
        ("inner", "k > 1 or b > 1", [[], ["k > 1 OR b > 1"]], []),
        ("left", "x > 1", [["x > 1"], []], []),
        ("left", "b is null", [[], []], ["b is null"]),
        ("left", "k > 1", [["k > 1"], ["k > 1"]], []),
        ("right", "x > 1", [[], []], ["x > 1"]),
        ("right", "b > 1", [[], ["b > 1"]], []),
        ("right", "k is null", [["k IS NULL"], ["k IS NULL"]], []),
        ("full", "x > 1 and k > 1", [["k > 1"], ["k > 1"]], ["(x > 1)"]),
        ("semi", "x > 1", [["x > 1"], []], []),
        ("anti", "k > 1", [["k > 1"], ["k > 1"]], []),
        ("inner", "k + 1 > 1", [[], []], ["k + 1 > 1"]),  # it may overflow, for a row that matches nothing
        ("inner", "true", [[], []], ["true"]),
    ],
)
def test_what_moves_above_a_join(how, condition, above, below):
    app, joined = tables(how)
    joined.where(condition).to_view("v")
    assert [sorted(each, key=str.lower) for each in where_above(app)] == [sorted(a, key=str.lower) for a in above]
    assert where_below(app) == below


def test_a_condition_moves_through_selects_wheres_and_joins():
    """As far up as it goes: here to the first of two joins, under the name that the column has there."""
    app, joined = tables()
    third = app.table("t", "b int, c string", key="b")
    wide = joined.select("id", "b", "a as first", "x + 1 as y").join(third, on="b").named("wide")
    wide.where("y > 2").select("id as i", "first as f").where("f = 'z'").to_view("v")
    assert where_above(app, "wide") == [["y > 2"], []]
    assert where_above(app) == [["`a` = 'z'"], []]
    assert where_below(app, "wide") == []


def test_a_condition_on_keys_moves_above_a_grouping_and_a_top():
    app, joined = tables()
    groups = joined.group_by("k").agg(n="count(*)", b="max(b)").named("groups")
    groups.where("k > 1 and n > 2").to_view("v")
    tops = app.table("r2", RIGHT, key="k").group_by("a").top(2, by="b desc", rank="rank").named("tops")
    tops.where("a = 'z' and rank = 1").to_view("w")
    assert where_above(app) == [["k > 1"], ["k > 1"]]
    assert where_below(app, "tops") == ["(rank = 1)"]
    assert "(n > 2)" in where_below(app, "groups")
    assert where_above(app, "tops") == [["a = 'z'"]]


def test_a_condition_on_no_key_stays_below_a_group_of_all_rows():
    app, joined = tables()
    joined.group_by().agg(n="count(*)").named("all").where("false").to_view("v")
    assert where_below(app, "all") == ["false"]


def of_a_view_too(joined):
    joined.to_view("all")
    return joined.where("x > 1")


def named(joined):
    return joined.where("x > 1").named("big")


@pytest.mark.parametrize("written", [of_a_view_too, named])
def test_a_condition_stays_where_others_need_the_rows_or_it_has_a_name(written):
    app, joined = tables()
    written(joined).to_view("v")
    assert where_above(app) == [[], []]


def test_conditions_of_two_readers_stay():
    app, joined = tables()
    joined.where("x > 1").to_view("v")
    joined.where("x > 2").to_view("w")
    assert where_above(app) == [[], []]


def test_a_condition_stays_below_windows_which_know_late_rows():
    app = hr.App("filters")
    stream = app.stream("s", "k int, at timestamp", event_time="at")
    counted = stream.group_by("k").window(hr.tumbling("1 minute", grace="0 s")).agg(n="count(*)").named("counted")
    counted.where("k > 1").to_view("v")
    assert where_above(app, "counted") == [[]]


def test_what_a_branch_says_of_the_others_stays():
    """Its text is not all of its condition: the rows that another branch takes are not among them."""
    app = hr.App("filters")
    table = app.table("r", RIGHT, key="k")
    found = app.stream("s", LEFT).join(table, on="k").named("pairs")
    found.branch(big="x > 1", others="x <= 1")["others"].to_view("v")
    assert where_above(app) == [[], []]


def test_a_lookup_is_done_for_fewer_rows():
    app = hr.App("filters")
    table = app.table("r", RIGHT, key="k")
    found = app.stream("s", LEFT).join(table, on="k", how="left").named("pairs")
    found.where("k > 1 and (b > 1 or b is null)").to_view("v")
    assert where_above(app) == [["k > 1"], []]


def test_the_state_has_only_rows_that_meet_it(tmp_path):
    app, joined = tables()
    joined.where("x > 1 and b = 2").to_view("v")
    with Driver(app, storage=tmp_path) as driver:
        driver.send("l", *({"id": i, "k": 1, "a": "z", "x": float(i)} for i in range(4)))
        driver.send("r", *({"k": k, "a": "y", "b": k + 1} for k in range(9)))
        driver.step()
        assert [row["id"] for row in driver.view("v")] == [2, 3]
        assert driver.counts("pairs")["state_rows"] == 3


# ---- the same rows ----

CONDITIONS = [
    "x > 1",
    "b >= 1 and x > b",
    "k > 1",
    "k is null",
    "k is null and a is not null or k = 0",
    "a_right = 'z' and a = 'y'",
    "a = 'z' or x > 1",
    "not (k > 1)",
    "coalesce(a, 'z') = 'z' and k in (0, 2)",
    "a like 'z%' and b is null",
    "case when k = 1 then a = 'z' else x < 2 end",
]
FEW = st.one_of(st.none(), st.integers(0, 2))
LETTER = st.sampled_from([None, "y", "z"])
LEFTS = st.builds(
    lambda i, k, a, x, gone: {"id": i, "_deleted": True} if gone else {"id": i, "k": k, "a": a, "x": x},
    st.integers(0, 5),
    FEW,
    LETTER,
    st.sampled_from([None, 0.0, -0.0, 1.5, 2.0, float("nan")]),
    st.sampled_from([False, False, False, True]),
)
RIGHTS = st.builds(
    lambda k, a, b, gone: {"k": k, "_deleted": True} if gone else {"k": k, "a": a, "b": b},
    st.integers(0, 2),
    LETTER,
    FEW,
    st.sampled_from([False, False, False, True]),
)


@settings(deadline=None, max_examples=examples(6))
@given(
    how=st.sampled_from(HOWS),
    condition=st.sampled_from(CONDITIONS),
    grouped=st.booleans(),
    epochs=st.lists(st.tuples(st.lists(LEFTS, max_size=6), st.lists(RIGHTS, max_size=4)), min_size=1, max_size=3),
)
def test_the_rows_are_those_of_conditions_that_stay(how, condition, grouped, epochs):
    """After every epoch, whatever the join, with nulls, equal floats that look different, and deletes."""
    one_sided = how in ("semi", "anti")
    if one_sided and ("b" in condition or "_right" in condition):
        condition = "k > 0 and a = 'z'"
    moved, stayed = (_views(how, condition, epochs, grouped=grouped, moves=moves) for moves in (True, False))
    assert moved == stayed


def _views(how, condition, epochs, *, grouped, moves):
    with pytest.MonkeyPatch.context() as patch:
        if not moves:
            patch.setattr(planning, "filtered_early", lambda _, sinks: tuple(sinks))
        app, joined = tables(how)
        if grouped:
            joined = joined.group_by("k", "a").agg(n="count(*)", x="max(x)")
            condition = "k > 0 and n > 1 or k > 0 and a = 'z'" if "b" in condition else "k > 0 and a = 'z' and n > 0"
        joined.where(condition).to_view("v")
        found = []
        with Driver(app, shards=2) as driver:
            for lefts, rights in epochs:
                driver.send("l", *lefts)
                driver.send("r", *rights)
                driver.step()
                found.append(Counter(repr(sorted(row.items())) for row in driver.view("v")))
        return found


DOUBLE_KEYS = {
    "a group": lambda _, t: t.group_by("w").agg(n="count(*)"),
    "a top": lambda _, t: t.group_by("w").top(1, "id desc"),
    "a join": lambda app, t: t.join(app.table("u", "w double, x int", key="w"), on="w", how="left"),
    "a group of structs": lambda _, t: t.group_by(s="struct(w)").agg(n="count(*)").select("n", w="s.w"),
}


@pytest.mark.parametrize("build", DOUBLE_KEYS.values(), ids=DOUBLE_KEYS)
def test_a_condition_on_a_key_with_doubles_stays(build):
    """Below the step the key is 0.0 where a row above it has -0.0, and a text tells them apart."""

    def rows(condition):
        app = hr.App("zeros", shards=2)
        build(app, app.table("t", "id int, w double", key="id")).where(condition).to_view("v")
        with Driver(app) as driver:
            driver.send("t", {"id": 0, "w": 0.0}, {"id": 1, "w": -0.0})
            driver.run()
            return driver.view("v")

    assert rows("cast(w as string) = '0.0'") == rows("w is not null") != []
