"""Quiet sources: one partition, all of them, one that never had a row, rows that come back; clocks that jump."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples
from headrace.base.time import SystemClock
from headrace.testing import Driver


def at(second):
    return datetime.fromtimestamp(second, tz=UTC)


def rows(*seconds):
    return [{"at": at(second)} for second in seconds]


def spans(found):
    return [(row["window_start"], row["n"]) for row in found]


def counting(*topics, emit="final", partitions=1, **options):
    app = hr.App("idle")
    streams = [app.stream(t, "at timestamp", event_time="at", partitions=partitions, **options) for t in topics]
    every = streams[0].union(*streams[1:]) if streams[1:] else streams[0]
    counts = every.group_by().window(hr.tumbling("10 s", grace="0 s"), emit=emit).agg(n="count(*)").named("counts")
    counts.to_topic("counts")
    return app


@pytest.mark.on_spark
def test_windows_close_when_nothing_comes_any_more(drive):
    """Once the source is idle its watermark goes on with the clock, by steps of `idle_after`."""
    driver = drive(counting("t", idle_after="2 s"))
    driver.send("t", *rows(1, 9))
    driver.run()
    assert driver.watermark("t") == at(9)
    driver.advance(1.9)
    driver.run()
    assert (driver.watermark("t"), driver.read("counts")) == (at(9), [])
    driver.advance(2)
    driver.run()
    assert (driver.watermark("t"), driver.read("counts")) == (at(9), []), "idle, and no step further"
    driver.advance(0.1)
    driver.run()
    assert driver.watermark("t") == at(11)
    assert spans(driver.read("counts")) == [(at(0), 2)]
    driver.send("t", *rows(5, 12))
    driver.run()
    assert driver.late("counts") == rows(5), "what was late by the clock is given as late, and counted"
    driver.finish()
    assert spans(driver.read("counts")) == [(at(10), 1)]


def test_without_idle_after_nothing_closes_by_the_clock():
    with Driver(counting("t")) as driver:
        driver.send("t", *rows(1))
        driver.run()
        driver.advance(10**6)
        driver.run()
        driver.step()
        assert driver.watermark("t") == at(1)
        assert driver.read("counts") == []


def test_a_partition_that_comes_back_holds_the_watermark_again_and_its_old_rows_are_late(drive):
    driver = drive(counting("t", partitions=2, emit="changes", idle_after="30 s"), shards=2)
    driver.send("t", *rows(1), partition=0)
    driver.send("t", *rows(20), partition=1)
    driver.step()
    assert driver.watermark("t") == at(1)
    driver.advance(29)
    driver.send("t", *rows(21), partition=1)
    driver.step()
    driver.advance(1)
    driver.run()
    assert driver.watermark("t") == at(21), "partition 0 is quiet for 30 seconds, partition 1 is not"
    driver.send("t", *rows(2, 22), partition=0)
    driver.send("t", *rows(100), partition=1)
    driver.step()
    assert driver.late("counts") == rows(2)
    assert driver.watermark("t") == at(22), "it holds the others back again"


def test_of_partitions_that_are_all_idle_the_furthest_counts():
    with Driver(counting("t", partitions=2, idle_after="30 s")) as driver:
        driver.send("t", *rows(1), partition=0)
        driver.send("t", *rows(25), partition=1)
        driver.run()
        assert driver.watermark("t") == at(1)
        driver.advance(30)
        driver.run()
        assert driver.watermark("t") == at(25)
        driver.advance(30)
        driver.run()
        assert driver.watermark("t") == at(55)
        assert spans(driver.read("counts")) == [(at(0), 1), (at(20), 1)]


@pytest.mark.parametrize("idle_after", [None, "30 s"])
def test_a_source_that_never_had_a_row_holds_others_back_unless_it_is_idle(drive, idle_after):
    driver = drive(counting("one", "two", idle_after=idle_after))
    driver.send("one", *rows(1, 15))
    driver.run()
    assert driver.watermark("counts") is None
    driver.advance(29)
    driver.send("one", *rows(25))
    driver.run()
    assert driver.watermark("counts") is None
    driver.advance(1)
    driver.run()
    assert driver.watermark("counts") == (None if idle_after is None else at(25))
    assert spans(driver.read("counts")) == ([] if idle_after is None else [(at(0), 1), (at(10), 1)])
    driver.advance(60)
    driver.run()
    assert spans(driver.read("counts")) == ([] if idle_after is None else [(at(20), 1)]), "now both of them are idle"
    driver.send("two", *rows(3))
    driver.run()
    assert len(driver.late("counts")) == (0 if idle_after is None else 1)


def test_nobody_is_woken_where_nothing_waits():
    """An idle source costs no epochs once all windows are closed; and none without windows."""
    with Driver(counting("t", idle_after="1 s")) as driver:
        driver.send("t", *rows(1))
        for _ in range(40):
            driver.advance(1)
            driver.run()
        settled = driver.status()["epoch"]
        assert spans(driver.read("counts")) == [(at(0), 1)]
        for _ in range(40):
            driver.advance(1)
            driver.run()
        assert driver.status()["epoch"] == settled


RISING = {"B": "v > lag(v)"}
KEPT_FOR_ROWS = {
    "over": lambda rows, _: rows.group_by("k").over(rows=3).agg(n="count(*)"),
    "over a range": lambda rows, _: rows.group_by("k").over(range="5 s").agg(n="count(*)"),
    "over, corrected": lambda rows, _: (
        rows.group_by("k").over(rows=3, emit="changes").agg(n="count(*)").group_by("v").agg(n="max(n)")
    ),
    "match": lambda rows, _: rows.group_by("k").match("A B", within="5 s", define=RISING).agg(n="count(*)"),
    "as of": lambda rows, app: rows.join(rates_of(app), on="k", as_of="at", grace="2 s", how="left"),
}


def rates_of(app):
    return app.table("rates", "k string, rate int, at timestamp", key="k", event_time="at", idle_after="1 s")


@pytest.mark.parametrize("step", KEPT_FOR_ROWS)
def test_nobody_is_woken_for_what_is_kept_for_rows_to_come(step):
    """The rows before a row, the last ones of a key, versions of a table: no time releases them."""
    app = hr.App("kept", shards=1)
    rows = app.stream("t", "k string, v int, at timestamp", event_time="at", idle_after="1 s")
    KEPT_FOR_ROWS[step](rows, app).named("step").to_topic("out")
    with Driver(app) as driver:
        if step == "as of":
            driver.send("rates", {"k": "a", "rate": 1, "at": at(1)})
        driver.send("t", {"k": "a", "v": 1, "at": at(1)}, {"k": "a", "v": 2, "at": at(3)})
        found = []
        for _ in range(30):
            while not driver.caught_up:
                driver.step()
            found += driver.read("out")
            driver.advance(1)
        settled = driver.status()["epoch"]
        assert len(found) == (1 if step == "match" else 2), "the clock has released what waited"
        for _ in range(30):
            while not driver.caught_up:
                driver.step()
            driver.advance(1)
        assert driver.status()["epoch"] == settled
        driver.send("t", {"k": "a", "v": 3, "at": at(300)})
        driver.finish()
        assert len(driver.read("out")) == (0 if step == "match" else 1)


def test_the_clock_that_is_set_back_times_quiet_partitions_anew():
    with Driver(counting("t", idle_after="30 s")) as driver:
        driver.send("t", *rows(1))
        driver.run()
        driver.advance(-86_400)
        driver.run()
        driver.advance(29)
        driver.run()
        assert driver.watermark("t") == at(1)
        driver.advance(31)
        driver.run()
        assert driver.watermark("t") == at(31), "and not a day later"
        driver.advance(-40)
        driver.run()
        assert driver.watermark("t") == at(31), "a watermark never goes back"
        assert spans(driver.read("counts")) == [(at(0), 1)]


def test_the_clock_that_is_set_forward_makes_quiet_partitions_idle_and_no_others():
    """What is unread is no silence: it is read first, and in time."""
    with Driver(counting("t", idle_after="30 s", emit="changes")) as driver:
        driver.send("t", *rows(1))
        driver.run()
        driver.advance(86_400)
        driver.send("t", *rows(2))
        driver.run()
        assert driver.watermark("t") == at(2)
        assert driver.late("counts") == []
        driver.advance(86_400)
        driver.run()
        assert driver.watermark("t") > at(86_000)


def test_an_idle_source_is_idle_after_a_restart_too():
    with Driver(counting("t", idle_after="30 s")) as driver:
        driver.send("t", *rows(1))
        driver.run()
        driver.advance(31)
        driver.restart()
        driver.run()
        assert driver.watermark("t") == at(1)
        driver.advance(31)
        driver.restart()
        driver.run()
        assert spans(driver.read("counts")) == [(at(0), 1)]


@settings(max_examples=examples(7))
@given(
    steps=st.lists(
        st.tuples(st.sampled_from([0, 1, 7, 31, 90, -50]), st.integers(0, 2), st.integers(0, 3)),
        min_size=1,
        max_size=12,
    )
)
def test_every_row_is_counted_once_or_late_whatever_the_clock_does(steps):
    """Rows that come in order and at once, between silences and jumps of the clock; and the watermark only rises."""
    sent, now, before = 0, 0, None
    with Driver(counting("t", partitions=2, idle_after="30 s", out_of_order="5 s")) as driver:
        for moved, partition, count in steps:
            driver.advance(moved)
            now += max(moved, 0)
            driver.send("t", *rows(*[now] * count), partition=partition % 2)
            sent += count
            driver.run()
            watermark = driver.watermark("t")
            assert before is None or watermark >= before
            before = watermark
        driver.finish()
        assert sum(row["n"] for row in driver.read("counts")) + len(driver.late("counts")) == sent


@pytest.mark.spark
def test_on_spark_windows_close_by_the_machines_clock(spark, tmp_path):
    """The planner of epochs wakes by itself; nothing but two rows is ever sent."""
    app = hr.App("quiet", storage=tmp_path)
    counts = app.stream("t", "at timestamp", event_time="at", idle_after="1 s").group_by()
    counts.window(hr.tumbling("1 s", grace="0 s"), emit="final").agg(n="count(*)").to_view("counts")
    with app.start(spark) as running:
        hr.Log(tmp_path / "log").topic("t").append(rows(1, 1.5))
        running.await_caught_up(timeout=300)
        for _ in range(10_000):
            running.await_caught_up(timeout=300)
            if app.view("counts").num_rows:
                break
            SystemClock().sleep(0.01)
        assert app.view("counts").column("n").to_pylist() == [2]
