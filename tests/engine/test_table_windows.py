"""Windows over tables: a row that changes leaves the window that it was in, whenever the change comes."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.base.errors import InvalidPlan
from headrace.testing import Driver

ORDERS = "id int, city string, price double, at timestamp"
FIVE = hr.tumbling("5 minutes", grace="1 hour")


def order(id_, city, price, minute):
    return {"id": id_, "city": city, "price": price, "at": f"2026-01-01T10:{minute:02}:00Z"}


def orders_app():
    app = hr.App("orders")
    return app, app.table("orders", ORDERS, key="id", event_time="at")


def shown(rows, *names):
    return [(row["window_start"].strftime("%H:%M"), *(row[name] for name in names)) for row in rows]


def test_a_row_that_changes_leaves_the_window_that_it_was_in():
    app, table = orders_app()
    table.group_by("city").window(FIVE).agg(n="count(*)", total="sum(price)").to_view("out")
    with Driver(app) as driver:
        driver.send("orders", order(1, "a", 0.1, 0), order(2, "a", 3.0, 1))
        driver.run()
        assert shown(driver.view("out"), "n", "total") == [("10:00", 2, 3.1)]
        driver.send("orders", order(1, "a", 5.0, 7))
        driver.run()
        assert shown(driver.view("out"), "n", "total") == [("10:00", 1, 3.0), ("10:05", 1, 5.0)]
        driver.send("orders", order(2, "b", 3.0, 1))
        driver.run()
        assert shown(driver.view("out"), "city", "n") == [("10:05", "a", 1), ("10:00", "b", 1)]
        driver.delete("orders", id=2)
        driver.delete("orders", id=1)
        driver.run()
        assert driver.view("out") == []


def test_the_time_may_have_another_name_below():
    """Stateless steps and a ranking between carry it; a hopping window takes the row out of all it was in."""
    app, table = orders_app()
    below = table.where("price > 0").rename(happened="at").group_by("city").top(2, "price")
    window = hr.hopping("10 minutes", "5 minutes", grace="1 hour")
    below.group_by().window(window).agg(n="count(*)", hi="max(price)").to_view("out")
    with Driver(app) as driver:
        driver.send("orders", order(1, "a", 1.0, 1), order(2, "a", 3.0, 2))
        driver.run()
        assert shown(driver.view("out"), "n", "hi") == [("09:55", 2, 3.0), ("10:00", 2, 3.0)]
        driver.send("orders", order(3, "a", 2.0, 21))
        driver.run()
        first, last = [("09:55", 1, 3.0), ("10:00", 1, 3.0)], [("10:15", 1, 2.0), ("10:20", 1, 2.0)]
        assert shown(driver.view("out"), "n", "hi") == [*first, *last]


def test_a_ranking_in_windows_lets_a_row_go_from_its_own():
    app, table = orders_app()
    table.group_by("city").window(FIVE).top(1, "price").to_view("out")
    with Driver(app) as driver:
        driver.send("orders", order(1, "a", 9.0, 0), order(2, "a", 3.0, 1))
        driver.run()
        driver.send("orders", order(1, "a", 5.0, 7))
        driver.run()
        assert sorted(shown(driver.view("out"), "id")) == [("10:00", 2), ("10:05", 1)]


def test_a_withdrawal_from_a_closed_window_is_late():
    """The final result stands; that a row went is in `.late` and is counted, the row's new window has it."""
    app, table = orders_app()
    made = table.group_by("city").window(hr.tumbling("5 minutes", grace="0 seconds"), emit="final")
    counted = made.agg(n="count(*)", total="sum(price)").named("counted")
    counted.to_view("out")
    counted.late.to_topic("late")
    counted.late.group_by().agg(n="count(*)").named("of_late").to_view("late")
    with Driver(app) as driver:
        driver.send("orders", order(1, "a", 1.0, 0), order(2, "a", 2.0, 1))
        driver.step()
        driver.send("orders", order(3, "a", 4.0, 6))
        driver.run()
        assert shown(driver.view("out"), "n", "total") == [("10:00", 2, 3.0)]
        driver.send("orders", order(1, "a", 8.0, 8))
        driver.finish()
        assert shown(driver.view("out"), "n", "total") == [("10:00", 2, 3.0), ("10:05", 2, 12.0)]
        assert driver.counts("counted")["late"] == 1
        (late,) = driver.read("late")
        assert (late["id"], late["price"], late["_change_type"]) == (1, 1.0, "delete")
        assert driver.view("late") == [{"n": 1}]


def test_windows_of_windows_take_corrections():
    """The result of a window keeps the window's time, so another window may follow without any column for it."""
    app = hr.App("twice")
    stream = app.stream("t", "k string, v int, at timestamp", event_time="at")
    first = stream.group_by("k").window(FIVE).agg(n="count(*)", hi="max(v)").drop("window_start", "window_end")
    again = first.group_by("n").window(hr.tumbling("10 minutes", grace="1 hour"))
    again.agg(groups="count(*)", hi="max(hi)").named("second").to_view("out")
    with Driver(app) as driver:
        for k, v, minute in (("a", 1, 0), ("b", 2, 1), ("a", 5, 9), ("a", 3, 2)):
            driver.send("t", {"k": k, "v": v, "at": f"2026-01-01T10:{minute:02}:00Z"})
            driver.step()
        driver.run()
        assert shown(driver.view("out"), "n", "groups", "hi") == [("10:00", 1, 2, 5), ("10:00", 2, 1, 3)]


@pytest.mark.parametrize(
    "without",
    [
        lambda table: table.drop("at"),
        lambda table: table.with_columns(at="at + interval 1 day"),
        lambda table: table.group_by("city").agg(n="count(*)"),
    ],
)
def test_a_table_whose_rows_have_lost_their_time_is_refused(without):
    """Nobody knows from which window a row of it goes."""
    grouped = without(orders_app()[1]).group_by("city").window(FIVE)
    for verb in (lambda: grouped.agg(n="count(*)"), lambda: grouped.top(1, "city")):
        with pytest.raises(InvalidPlan, match=r"nobody knows from which window(?s:.*)event_time="):
            verb()
