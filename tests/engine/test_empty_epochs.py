"""An epoch without rows runs on Spark where time alone changes what comes out, and nowhere else."""

import pytest

import headrace as hr
from headrace.testing import Driver

SCHEMA = "k string, v int, at timestamp"
WINDOW = hr.tumbling("10 seconds", grace="0 seconds")


def catch_up(driver):
    """Run epochs as Spark's planner does."""
    while not driver.caught_up:
        driver.step()


def epochs(app, *, views=("out",)):
    """Play three rows a minute apart, each until the app is settled; return the epochs and what the views have."""
    with Driver(app) as driver:
        for minute in range(3):
            driver.send("t", {"k": "a", "v": minute, "at": f"2026-01-01 00:0{minute}:00"})
            catch_up(driver)
        return driver.status()["epoch"] + 1, {name: driver.view(name) for name in views}


def stream(app):
    return app.stream("t", SCHEMA, event_time="at", partitions=1)


def test_tables_and_their_joins_need_none():
    app = hr.App("tables")
    table = app.table("t", SCHEMA, key="k", partitions=1)
    counts = table.group_by("v").agg(n="count(*)")
    table.join(counts, on="v").group_by("k").agg(n="sum(n)").to_view("out")
    assert epochs(app) == (3, {"out": [{"k": "a", "n": 1}]})


def test_corrected_windows_need_none_and_forget_with_the_next_rows():
    app = hr.App("windows")
    stream(app).group_by("k").window(WINDOW).agg(n="count(*)").to_view("out")
    made, views = epochs(app)
    assert made == 3
    assert [row["n"] for row in views["out"]] == [1, 1, 1]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_join_of_streams_needs_one_where_rows_come_out_alone(how):
    app = hr.App("join")
    left, right = stream(app), app.stream("u", SCHEMA, event_time="at", partitions=1)
    left.join(right.rename(w="v"), on="k", within="1 second", grace="0 seconds", how=how).to_view("out")
    with Driver(app) as driver:
        for minute in range(3):
            for topic in "tu":
                second = 0 if topic == "t" else 30
                driver.send(topic, {"k": "a", "v": minute, "at": f"2026-01-01 00:0{minute}:{second:02}"})
            catch_up(driver)
        assert driver.status()["epoch"] + 1 == (3 if how == "inner" else 6)
        assert len(driver.view("out")) == (0 if how == "inner" else 2)


def test_final_windows_come_out_without_another_row():
    app = hr.App("final")
    stream(app).group_by("k").window(WINDOW, emit="final").agg(n="count(*)").to_view("out")
    made, views = epochs(app)
    assert len(views["out"]) == 2
    assert made > 3


def test_what_is_below_another_step_meets_its_watermark_at_once():
    """Whether its rows are late must not depend on when the next rows come."""
    app = hr.App("chain")
    table = stream(app).group_by("k").window(WINDOW).agg(n="count(*)", at="max(at)")
    windows = table.group_by("k").window(hr.tumbling("1 minute", grace="0 seconds")).agg(n="sum(n)").named("below")
    windows.to_view("out")
    with Driver(app) as driver:
        driver.send("t", {"k": "a", "v": 1, "at": "2026-01-01 00:05:00"})
        catch_up(driver)
        assert f"{driver.watermark('below'):%H:%M:%S}" == "00:05:00"


def test_at_the_end_of_time_all_is_forgotten():
    app = hr.App("end")
    stream(app).group_by("k").window(WINDOW).agg(n="count(*)").named("counts").to_view("out")
    with Driver(app) as driver:
        driver.send("t", {"k": "a", "v": 1, "at": "2026-01-01 00:05:00"})
        driver.step(ended=True)
        catch_up(driver)
        assert driver.state("counts")["rows"] == 0
