"""Joins of two streams within a time: which rows meet, and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from two_streams import HOWS, SCHEMA, at, joined, kept, row, short

import headrace as hr
from headrace.base.errors import InvalidPlan, PlanChanged, UnknownColumn, WrongColumnType, WrongType
from headrace.testing import Driver

# the vectors of the rule: time, side, value, what comes out of an inner join at this epoch
VECTOR = [
    (3, "L", "A", []),
    (4, "R", "a", ["Aa"]),
    (5, "L", "B", ["Ba"]),
    (6, "R", "b", ["Ab", "Bb"]),
    (9, "L", "C", ["Ca", "Cb"]),
    (10, "R", "c", ["Ac", "Bc", "Cc"]),
    (14, "R", "d", ["Ad", "Bd", "Cd"]),
    (15, "L", "D", ["Da", "Db", "Dc", "Dd"]),
    (40, "L", "E", []),
    (60, "L", "F", []),
    (80, "R", "f", []),
    (100, "L", "G", []),
]
# which rows come out alone, and the time of the row after which they do; None: at the end of the input
ALONE = {"E-": 80, "F-": 100, "G-": None, "-f": None}


# ---- the vectors ----


def alone(how, second):
    """Return which rows come out alone after a row of that time."""
    letters = {"inner": "", "left": "EFG", "right": "f", "full": "EFGf"}[how]
    return [pair for pair, when in ALONE.items() if when == second and set(pair) & set(letters)]


@pytest.mark.parametrize("how", HOWS)
def test_the_vectors_row_by_row(how):
    with Driver(joined(how)) as driver:
        for second, side, value, pairs in VECTOR:
            driver.send(side.lower(), row(value, second))
            driver.run()
            assert short(driver.read("out")) == sorted(pairs + alone(how, second)), f"after {value} at {second}"
        driver.finish()
        assert short(driver.read("out")) == sorted(alone(how, None))
        assert driver.late("j") == []
        assert kept(driver) == 0


@pytest.mark.parametrize("how", HOWS)
def test_the_vectors_in_one_epoch(how):
    with Driver(joined(how)) as driver:
        for second, side, value, _ in VECTOR:
            driver.send(side.lower(), row(value, second))
        driver.step()
        pairs = [pair for *_, made in VECTOR for pair in made]
        assert short(driver.read("out")) == sorted(pairs)
        driver.run()
        driver.finish()
        assert short(driver.read("out")) == sorted(pair for when in (80, 100, None) for pair in alone(how, when))


@pytest.mark.on_spark
def test_both_carriers_give_the_same(drive):
    driver = drive(joined("full"))
    for second, side, value, _ in VECTOR[:6]:
        driver.send(side.lower(), row(value, second))
    driver.run()
    for second, side, value, _ in VECTOR[6:]:
        driver.send(side.lower(), row(value, second))
    driver.run()
    driver.finish()
    assert short(driver.read("out")) == sorted([pair for *_, made in VECTOR for pair in made] + list(ALONE))


# ---- which rows meet ----


def test_bounds_are_inside_and_a_pair_has_the_later_time():
    """A joined row can be placed in windows: its event time is the greater of both."""
    app = hr.App("bounds")
    left = app.stream("l", SCHEMA, event_time="at", out_of_order="1 minute")
    right = app.stream("r", SCHEMA, event_time="at", out_of_order="1 minute")
    both = left.join(right, on="k", within=("-10 s", "5 s"))
    both.to_topic("out")
    windows = both.group_by("v", "v_right").window(hr.tumbling("1 s", grace="0 s"), emit="final").agg(n="count(*)")
    windows.to_topic("windows")
    with Driver(app) as driver:
        driver.send("l", row("A", 20))
        driver.send("r", row("a", 9.999), row("b", 10), row("c", 25), row("d", 25.001))
        driver.finish()
        assert short(driver.read("out")) == ["Ab", "Ac"]
        made = {each["v_right"]: each["window_start"] for each in driver.read("windows")}
        assert made == {"b": at(20), "c": at(25)}


@pytest.mark.parametrize(
    ("within", "pairs"),
    [
        (("2 s", "4 s"), ["Af", "Ag", "Ah"]),
        (("-4 s", "-2 s"), ["Ab", "Ac", "Ad"]),
        (("0 s", "0 s"), ["Ae"]),
        ("0 s", ["Ae"]),
        (("3 s", "3 s"), ["Ag"]),
    ],
)
@pytest.mark.parametrize("order", ["lr", "rl", "together"])
def test_a_side_may_lie_wholly_in_the_past_or_the_future(within, pairs, order):
    """And whoever comes first: rows that come after their partners find them."""
    with Driver(joined("full", within=within, grace="10 s")) as driver:
        sides = {
            "l": [row("A", 15)],
            "r": [row(v, second) for v, second in zip("bcdefgh", (11, 12, 13, 15, 17, 18, 19), strict=True)],
        }
        for side in order if order != "together" else "lr":
            driver.send(side, *sides[side])
            if order != "together":
                driver.step()
        driver.step()
        assert short(driver.read("out")) == pairs
        driver.finish()
        met = {pair[1] for pair in pairs}
        assert short(driver.read("out")) == sorted(f"-{v}" for v in "bcdefgh" if v not in met)


def test_several_keys_of_other_names_and_a_condition_over_both_sides():
    """A row that has an equal key and a near time but fails the condition is unmatched."""
    app = hr.App("keys", shards=2)
    left = app.stream("l", "a int, b string, price int, at timestamp", event_time="at")
    right = app.stream("r", "x bigint, y string, price int, at timestamp", event_time="at")
    made = left.join(
        right, on={"a": "x", "b": "y"}, within="10 s", how="full", where="price < price_right", suffix="_right"
    )
    made.to_topic("out")
    with Driver(app, shards=3) as driver:
        driver.send("l", *({"a": n, "b": b, "price": n, "at": 1000} for n in range(4) for b in "pq"))
        driver.send("r", *({"x": n, "y": "p", "price": 2, "at": 2000} for n in range(6)))
        driver.finish()
        rows = driver.read("out")
    made = [(row["a"], row["b"], row["x"], row["y"], row["price"], row["price_right"]) for row in rows]
    met = [(n, "p", n, "p", n, 2) for n in (0, 1)]
    lefts = [(n, "p", None, None, n, None) for n in (2, 3)] + [(n, "q", None, None, n, None) for n in range(4)]
    rights = [(None, None, n, "p", None, 2) for n in (2, 3, 4, 5)]
    assert sorted(made, key=repr) == sorted(met + lefts + rights, key=repr)


@pytest.mark.parametrize("how", HOWS)
def test_null_keys_meet_nothing_and_come_out_alone(how):
    with Driver(joined(how)) as driver:
        driver.send("l", row("A", 1, None), row("B", 1))
        driver.send("r", row("a", 1, None), row("b", 1))
        driver.step()
        assert short(driver.read("out")) == ["Bb"]
        assert kept(driver) == {"inner": 2, "left": 3, "right": 3, "full": 4}[how]
        driver.finish()
        assert short(driver.read("out")) == {"inner": [], "left": ["A-"], "right": ["-a"], "full": ["-a", "A-"]}[how]


def test_equal_rows_are_several_rows():
    with Driver(joined("full")) as driver:
        driver.send("l", row("A", 1), row("A", 1), row("B", 1, "y"), row("B", 1, "y"))
        driver.step()
        driver.send("r", row("a", 1), row("a", 1), row("a", 1))
        driver.step()
        assert short(driver.read("out")) == ["Aa"] * 6
        driver.restart()
        driver.finish()
        assert short(driver.read("out")) == ["B-"] * 2


def test_a_stream_joins_itself():
    app = hr.App("selves", shards=2)
    rows = app.stream("t", SCHEMA, event_time="at").where("v <> 'Z'")
    rows.join(rows, on="k", within=("0 s", "2 s"), where="v <> v_right").to_topic("out")
    with Driver(app) as driver:
        driver.send("t", row("A", 1), row("B", 2), row("Z", 2))
        driver.step()
        driver.send("t", row("C", 3), row("D", 9), row("E", 3, "y"))
        driver.step()
        assert short(driver.read("out")) == ["AB", "AC", "BC"]


def test_values_of_any_type_and_columns_called_as_the_kernel_calls_its_own():
    schema = (
        "k struct<a:int,b:array<string>>, d decimal(20,3), l0 map<string,int>, l_id binary, l_met timestamp, "
        "_met double, at timestamp"
    )
    app = hr.App("types", shards=2)
    sides = [app.stream(name, schema, event_time="at") for name in "lr"]
    sides[0].join(sides[1], on=("k", "d"), within="1 s", how="full").to_topic("out")
    one = {"k": {"a": 1, "b": ["x", None]}, "d": "1.500", "l0": {"m": 1}, "l_id": b"\0", "l_met": 5, "_met": 0.5}
    with Driver(app) as driver:
        driver.send("l", one | {"at": 1000}, one | {"k": {"a": 1, "b": []}, "at": 1000})
        driver.step()
        driver.restart()
        driver.send("r", one | {"l0": {"n": 2}, "at": 1500}, one | {"d": None, "l0": None, "at": 1500})
        driver.step()
        driver.restart()
        driver.finish()
        rows = driver.read("out")
    assert len(rows) == 3
    made = [(row["l0"], row["l0_right"]) for row in rows]
    assert sorted(made, key=repr) == [(None, None), ({"m": 1}, None), ({"m": 1}, {"n": 2})]
    assert {(row["l_id"], row["l_met"]) for row in rows} == {(b"\0", at(0.005)), (None, None)}


@pytest.mark.parametrize("kinds", [("int", "bigint"), ("float", "double"), ("decimal(9,2)", "decimal(20,2)")])
def test_equal_numbers_of_two_types_meet_in_one_shard(kinds):
    app = hr.App("numbers", shards=7)
    sides = [
        app.stream(name, f"k {kind}, v string, at timestamp", event_time="at")
        for name, kind in zip("lr", kinds, strict=True)
    ]
    sides[0].join(sides[1], on="k", within="1 s").to_topic("out")
    with Driver(app) as driver:
        driver.send("l", *(row(f"{n}", 1, n) for n in range(-20, 20)))
        driver.send("r", *(row(f"{n}", 1, n) for n in range(-20, 20)))
        driver.step()
        made = driver.read("out")
        assert sorted(row["k"] for row in made) == list(range(-20, 20))
        assert all(row["v"] == row["v_right"] for row in made)


def test_a_key_with_many_rows_over_a_long_time_meets_its_neighbours_alone():
    """Buckets of time: 20 000 rows a side of one key in one epoch, each with a partner 1 s before and 1 s after it."""
    with Driver(joined(within=("1 s", "1 s"), out_of_order="1 day")) as driver:
        for start in (0, 20_000):
            times = range(start, start + 20_000)
            driver.send("l", *(row("L", second) for second in times))
            driver.send("r", *(row("R", second) for second in times))
            driver.step()
        assert len(driver.read("out")) == 39_999


def test_the_interval_may_be_a_timedelta():
    texts, lengths = joined(within="90 s"), joined(within=timedelta(seconds=90))
    assert str(lengths.explain()) == str(texts.explain())


# ---- bad input ----


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"within": ("5 s", "-5 s")}, InvalidPlan, "low end above its high end"),
        ({"within": None}, InvalidPlan, "needs the argument within"),
        ({"within": 5}, InvalidPlan, "is no interval"),
        ({"grace": "-1 s"}, InvalidPlan, "below zero"),
        ({"how": "outer"}, InvalidPlan, "Say one of inner"),
        ({"on": "kk"}, UnknownColumn, 'Did you mean "k"'),
        ({"on": ()}, InvalidPlan, "names no columns"),
        ({"on": {"k": "at"}}, WrongColumnType, "joined with k"),
        ({"as_of": "at"}, InvalidPlan, "as_of looks a table up"),
        ({"where": "v < w"}, UnknownColumn, '"w"'),
        ({"where": "v"}, WrongType, "not boolean"),
        ({"suffix": ""}, InvalidPlan, "twice"),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_is_said(options, error, said):
    app = hr.App("bad")
    left, right = (app.stream(name, SCHEMA, event_time="at") for name in "lr")
    with pytest.raises(error) as caught:
        left.join(right, **({"on": "k", "within": "1 s"} | options))
    assert said in str(caught.value)


def test_another_interval_grace_or_condition_is_another_step(tmp_path):
    with Driver(joined(), storage=tmp_path) as driver:
        driver.send("l", row("A", 1))
        driver.run()
    for app in (joined(within="12 s"), joined(grace="4 s"), joined("left"), joined(where="v < v_right")):
        with pytest.raises(PlanChanged), Driver(app, storage=tmp_path):
            pass
