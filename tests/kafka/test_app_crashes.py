"""An app whose topics are in a cluster, and which dies while it writes an epoch there, writes each row once."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.testing import Driver
from headrace.testing.faults import TRANSACTION_POINTS


def shop(broker):
    """Rows, a window's result, and a changelog, each in a topic."""
    app = hr.App("shop", topics=broker.address)
    orders = app.stream("orders", "id int, who string, price int, at timestamp", event_time="at", key="id")
    orders.where("price > 2").to_topic("plain", key="id")
    totals = orders.group_by("who").agg(n="count(*)", total="sum(price)")
    totals.to_topic("totals")
    totals.to_view("totals")
    return app


def rows(start, end):
    return [
        {"id": n, "who": f"w{n % 3}", "price": n % 7, "at": f"2026-01-01 00:00:{n % 60:02}"} for n in range(start, end)
    ]


def outputs(driver):
    plain = sorted(row["id"] for row in driver.read("plain"))
    return plain, sorted((row["who"], row["n"], row["total"]) for row in driver.view("totals"))


FAST = {"before_transaction_ends", "after_transaction"}
"""A writer alone is tested at every point, in test_writing.py."""


@pytest.mark.parametrize(
    "point", [point if point in FAST else pytest.param(point, marks=pytest.mark.prove) for point in TRANSACTION_POINTS]
)
def test_a_crash_while_an_epoch_is_written_leaves_each_row_once(broker, point):
    expected = [n for n in range(60) if n % 7 > 2]
    with Driver(shop(broker)) as driver:
        driver.send("orders", *rows(0, 30))
        driver.run()
        driver.send("orders", *rows(30, 60))
        driver.crash(at=point)
        driver.restart()
        driver.run()
        plain, totals = outputs(driver)
        assert plain == expected
        assert sum(n for _, n, _ in totals) == 60
        last = {}
        for row in driver.read("totals"):
            last[row["who"]] = row["n"], row["total"]
        assert sorted((who, *row) for who, row in last.items()) == totals
