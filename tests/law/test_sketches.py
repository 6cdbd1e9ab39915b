"""Sketches: what they promise of their error, and that it does not matter where rows meet."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples, fast
from headrace.testing import Driver

SCHEMA = "k string, v int, s string, d decimal(8,2), at timestamp"
START = datetime(2026, 1, 1, tzinfo=UTC)
PAIRS = {
    "users": "approx_count_distinct(s)",
    "numbers": "approx_count_distinct(v, 0.02) filter (where v > 2)",
    "ends": "approx_percentile(v, array(0.0, 0.5, 1.0))",
    "typical": "percentile_approx(d, 0.5, 100)",
    "most": "approx_top_k(s, 2)",
}
WINDOWS = {
    "none": None,
    "tumbling": hr.tumbling("20 seconds", grace="10 minutes"),
    "hopping": hr.hopping("30 seconds", "10 seconds", grace="10 minutes"),
    "cumulating": hr.cumulating("1 minute", "10 seconds", grace="10 minutes"),
    "session": hr.session("3 seconds", grace="10 minutes"),
    "sliding": hr.sliding("5 seconds", grace="10 minutes"),
}
row = st.fixed_dictionaries({
    "k": st.sampled_from("ab"),
    "v": st.none() | st.integers(-3, 9),
    "s": st.sampled_from([None, "x", "y", "z", ""]),
    "d": st.sampled_from([None, "1.50", "-2.25", "7.00"]),
    "at": st.integers(0, 60).map(lambda s: START + timedelta(seconds=s)),
})  # fmt: skip
few = settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))


def lower(values, at):
    """Return the least value of which so many of all are no greater."""
    ordered = sorted(values)
    return ordered[max(int(np.ceil(at * len(ordered))) - 1, 0)]


def exact(rows):
    """Return what is right: so few values are kept as they are."""
    of = {name: [each[name] for each in rows if each[name] is not None] for name in ("v", "s", "d")}
    counted = sorted(
        Counter(each["s"] for each in rows).items(), key=lambda pair: (-pair[1], pair[0] or "", pair[0] is not None)
    )
    return {
        "users": len(set(of["s"])),
        "numbers": len({v for v in of["v"] if v > 2}),
        "ends": [lower(of["v"], at) for at in (0.0, 0.5, 1.0)] if of["v"] else None,
        "typical": lower([Decimal(d) for d in of["d"]], 0.5) if of["d"] else None,
        "most": [{"item": item, "count": count} for item, count in counted[:2]],
    }


def app_of(window, emit, aggregates=PAIRS, schema=SCHEMA):
    app = hr.App("sketches")
    grouped = app.stream("rows", schema, event_time="at", partitions=2).group_by("k")
    if WINDOWS[window] is not None:
        grouped = grouped.window(WINDOWS[window], emit=emit)
    grouped.agg(n="count(*)", **aggregates).named("made").to_view("made")
    return app


def within(rows, shown):
    """Return the rows of a result's group and window; a sliding window has both of its ends."""
    start, end = shown.get("window_start", START), shown.get("window_end", START + timedelta(days=1))
    return [each for each in rows if each["k"] == shown["k"] and start <= each["at"] <= end]


@pytest.mark.parametrize("window", WINDOWS)
@few
@given(rows=st.lists(row, min_size=1, max_size=30), ends=st.lists(st.integers(0, 30), max_size=4), data=st.data())
def test_few_values_are_answered_exactly_however_rows_are_cut_and_windowed(window, rows, ends, data):
    emit = "changes" if window == "none" else data.draw(st.sampled_from(["changes", "final"]))
    with Driver(app_of(window, emit), shards=2) as driver:
        bounds = [0, *sorted(min(end, len(rows)) for end in ends), len(rows)]
        for nr, (first, last) in enumerate(pairwise(bounds)):
            driver.send("rows", *rows[first:last], partition=nr % 2)
            driver.step()
            if nr == 1:
                driver.restart()
        driver.run()
        driver.finish()
        shown = driver.view("made")
        assert sum(each["k"] in "ab" for each in shown) >= len({each["k"] for each in rows})
        for each in shown:
            mine = within(rows, each)
            if window in ("tumbling", "hopping", "cumulating"):
                mine = [one for one in mine if one["at"] < each["window_end"]]
            assert len(mine) == each["n"]
            assert {name: each[name] for name in PAIRS} == exact(mine)


MANY = {
    "users": "approx_count_distinct(v, 0.05)",
    "middle": "approx_percentile(v, array(0.1, 0.5), 20)",
    "most": "approx_top_k(s, 3, 6)",
}


@pytest.mark.parametrize("window", fast("none", "hopping", of=["none", *list(WINDOWS)[1:5]]))
def test_corrections_of_sketches_that_have_lost_values_take_back_what_was_said(window):
    """Chance and order are inside these sketches: a row that is withdrawn must be the row that was given out."""
    random, rows = np.random.default_rng(5), []
    with Driver(app_of(window, "changes", MANY), shards=2) as driver:
        for epoch in range(8):
            for partition in range(2):
                part = [
                    {"k": "a", "v": int(random.integers(0, 5000)), "s": f"s{int(random.random() ** 3 * 60)}",
                     "at": START + timedelta(seconds=int(random.integers(0, 60)))} for _ in range(150)
                ]  # fmt: skip
                driver.send("rows", *part, partition=partition)
                rows += part
            driver.step()
            if epoch == 4:
                driver.restart()
            shown = driver.view("made")  # a row that is withdrawn and not there would have stopped the epoch
            assert len({(each.get("window_start"), each.get("window_end")) for each in shown}) == len(shown)
        for each in shown:
            values = sorted(one["v"] for one in within(rows, each))
            if window in ("tumbling", "hopping", "cumulating"):
                values = sorted(one["v"] for one in within(rows, each) if one["at"] < each["window_end"])
            assert each["n"] == len(values)
            assert each["users"] == pytest.approx(len(set(values)), rel=0.25)
            ranks = np.searchsorted(values, each["middle"]) / len(values)
            assert ranks == pytest.approx([0.1, 0.5], abs=0.05 + 2 / len(values))


def test_the_stated_errors_hold_on_a_million_rows_in_several_epochs_shards_and_partitions():
    random, count = np.random.default_rng(3), 1_000_000
    v, tail = random.normal(0, 1, count), random.zipf(1.3, count) % 200_000
    app = hr.App("million")
    rows = app.stream("rows", "g int, v double, item bigint", partitions=2)
    rows.group_by("g").agg(
        loose="approx_count_distinct(v)",
        tight="approx_count_distinct(v, 0.005)",
        at="approx_percentile(v, array(0.01, 0.5, 0.99), 1000)",
        most="approx_top_k(item, 10, 2000)",
    ).to_view("made")
    g = np.arange(count) % 2
    with Driver(app, shards=2) as driver:
        topic = driver.log.topic("rows")
        for number, first in enumerate(range(0, count, 125_000)):
            part = slice(first, first + 125_000)
            topic.append(
                pa.table({"g": pa.array(g[part], pa.int32()), "v": v[part], "item": tail[part]}), partition=number % 2
            )
            if number % 3 == 2:
                driver.step()
        driver.run()
        for made in driver.view("made"):
            mine, items = np.sort(v[g == made["g"]]), Counter(tail[g == made["g"]].tolist())
            assert made["loose"] == pytest.approx(len(mine), rel=3 * 0.05)
            assert made["tight"] == pytest.approx(len(mine), rel=3 * 0.005)
            ranks = np.searchsorted(mine, made["at"], side="right") / len(mine)
            assert ranks == pytest.approx([0.01, 0.5, 0.99], abs=0.001)
            most = items.most_common(10)
            assert [each["item"] for each in made["most"]] == [item for item, _ in most]
            for each in made["most"]:
                assert each["count"] == pytest.approx(items[each["item"]], abs=len(mine) * 3.5 / 4096)


def distinct_of(values, ends):
    """Return what is counted of values that come in epochs which end at `ends`."""
    app = hr.App("distinct")
    app.stream("rows", "v bigint", partitions=2).group_by().agg(n="approx_count_distinct(v, 0.03)").to_view("n")
    with Driver(app, shards=2) as driver:
        topic = driver.log.topic("rows")
        for nr, (first, last) in enumerate(pairwise([0, *sorted(ends), len(values)])):
            if last > first:
                topic.append(pa.table({"v": values[first:last]}), partition=nr % 2)
            driver.step()
        return driver.view("n")


@pytest.fixture(scope="module")
def in_one_epoch():
    return distinct_of(np.arange(3000), [])


@few
@given(seed=st.integers(0, 10_000), ends=st.lists(st.integers(1, 3000), max_size=5))
def test_a_distinct_count_is_the_same_however_its_rows_are_ordered_and_cut(in_one_epoch, seed, ends):
    assert distinct_of(np.random.default_rng(seed).permutation(3000), ends) == in_one_epoch
    assert in_one_epoch[0]["n"] == pytest.approx(3000, rel=0.09)


def test_what_counts_as_equal_and_what_order_is_are_those_of_sql():
    """NaN is one value and the greatest, -0.0 is 0.0; days, instants and booleans can be counted."""
    app = hr.App("kinds")
    rows = app.stream("rows", "x double, day date, flag boolean, at timestamp", event_time="at")
    rows.group_by().agg(
        n="approx_count_distinct(x)",
        days="approx_top_k(day)",
        flags="approx_top_k(flag, 1)",
        times="approx_count_distinct(at)",
        ends="approx_percentile(x, array(0.0, 0.5, 1.0))",
    ).to_view("made")
    with Driver(app) as driver:
        for nr, x in enumerate([float("nan"), float("nan"), -0.0, 0.0, float("inf"), 1.0, None]):
            driver.send("rows", {"x": x, "day": "2026-01-01", "flag": nr > 1, "at": START + timedelta(seconds=nr)})
        driver.run()
        (made,) = driver.view("made")
    assert (made["n"], made["times"]) == (4, 7)
    assert [each["item"].isoformat() for each in made["days"]] == ["2026-01-01"]
    assert made["flags"] == [{"item": True, "count": 5}]
    assert made["ends"][:2] == [0.0, 1.0]
    assert np.isnan(made["ends"][2])


@pytest.mark.spark
def test_few_values_are_answered_as_spark_answers_them(spark):
    """One batch, nulls in it, and a group that has nothing else: the three functions under Spark's names."""
    rows = [{"k": "a", "x": i % 7, "d": Decimal(i), "s": "u" * (i % 4) if i % 5 else None} for i in range(31)]
    rows += [{"k": "b", "x": None, "d": None, "s": None}]
    asked = {
        "n": "approx_count_distinct(x)",
        "m": "approx_count_distinct(s, 0.1)",
        "p": "approx_percentile(x, 0.3)",
        "q": "approx_percentile(d, array(0.0, 0.25, 1.0), 100)",
        "r": "percentile_approx(x, 0.99, 1000)",
        "t": "approx_top_k(x, 1)",
        "u": "approx_top_k(s, 9, 100)",
    }
    app = hr.App("held_against_spark")
    source = app.stream("rows", "k string, x int, d decimal(5,0), s string", partitions=2)
    source.group_by("k").agg(**asked).to_view("made")
    with Driver(app, shards=2) as driver:
        for nr, first in enumerate(range(0, len(rows), 10)):
            driver.send("rows", *rows[first : first + 10], partition=nr % 2)
            driver.step()
        ours = driver.view("made")
    columns = ", ".join(f"{text} AS {name}" for name, text in asked.items())
    spark.createDataFrame(rows, "k string, x int, d decimal(5,0), s string").createOrReplaceTempView("sketched")
    theirs = spark.sql(f"SELECT k, {columns} FROM sketched GROUP BY k ORDER BY k").toArrow().to_pylist()
    assert [ordered(row) for row in ours] == [ordered(row) for row in theirs]


def ordered(shown):
    """Return a row whose lists of items stand in one order: of equal counts Spark's comes as it likes."""
    listed = {name: sorted(shown[name], key=repr) for name in ("t", "u")}
    return {**shown, **listed}
