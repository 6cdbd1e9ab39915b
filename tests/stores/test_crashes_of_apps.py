"""Apps that write to several stores and crash at every point of an epoch; stores that come later are filled."""

from __future__ import annotations

import duckdb
import pytest

import headrace as hr
from headrace.connect import duckdb as files
from headrace.connect import parquet
from headrace.testing import POINTS, Driver

SINK_POINTS = ("after_commit", "after_journal", "before_sink", "after_sink", "before_acknowledge")
OTHERS = sorted({*POINTS} - {*SINK_POINTS, "between_topics", "before_mark", "before_views", "during_snapshot"})
"""The app has no topics and views to write, and keeps too little for a snapshot."""


def program(path, *, late=False):
    app = hr.App("shop")
    orders = app.stream("orders", "id int, city string, price int, at timestamp", event_time="at")
    totals = orders.group_by("city").agg(n="count(*)", sold="sum(price)")
    orders.to(files.table(path / "x.duckdb", "orders"))
    totals.to(files.table(path / "x.duckdb", "totals"))
    orders.to(parquet.folder(path / "orders"))
    totals.to(parquet.folder(path / "totals"))
    if late:
        totals.to(files.table(path / "late.duckdb", "totals"))
        totals.to(parquet.folder(path / "late"))
    return app


def orders(start, count=20):
    return [
        {"id": i, "city": None if i % 5 == 0 else f"c{i % 4}", "price": i, "at": i} for i in range(start, start + count)
    ]


def stored(path, *, late=False):
    with duckdb.connect(path / "x.duckdb", read_only=True) as sql:
        found = {name: sorted(sql.execute(f"FROM {name}").fetchall(), key=str) for name in ("orders", "totals")}
    for name in ("orders", "totals", *(["late"] if late else [])):
        rows = sorted(duckdb.sql(parquet.sql(path / name)).fetchall(), key=str)
        assert len(rows) == len(found[name.replace("late", "totals")])
        assert [row[0] for row in rows] == [row[0] for row in found[name.replace("late", "totals")]]
        found[f"folder_{name}"] = rows
    if late:
        with duckdb.connect(path / "late.duckdb", read_only=True) as sql:
            assert sorted(sql.execute("FROM totals").fetchall(), key=str) == found["totals"]
    return found


def run(path, points):
    """Send three batches of orders; crash at each point in turn."""
    with Driver(program(path), storage=path / "storage") as driver:
        driver.send("orders", *orders(0))
        driver.run()
    for number, point in enumerate(points):
        with Driver(program(path), storage=path / "storage") as driver:
            driver.send("orders", *orders(20 * (number + 1)))
            driver.crash(at=point)
            driver.restart()
            driver.run()
    return stored(path)


@pytest.mark.parametrize("points", [SINK_POINTS, *[pytest.param((p,), marks=pytest.mark.prove, id=p) for p in OTHERS]])
def test_stores_are_as_if_there_had_been_no_crash(tmp_path, points):
    found = run(tmp_path, points)
    everything = [row for number in range(len(points) + 1) for row in orders(20 * number)]
    assert sorted(row[0] for row in found["orders"]) == [row["id"] for row in everything]
    sold = {}
    for row in everything:
        sold[row["city"]] = sold.get(row["city"], 0) + row["price"]
    assert {city: total for city, _, total in found["totals"]} == sold
    assert {city: total for city, _, total in found["folder_totals"]} == sold


def test_a_store_that_comes_later_is_filled_from_the_table_and_goes_on(tmp_path):
    with Driver(program(tmp_path), storage=tmp_path / "storage") as driver:
        driver.send("orders", *orders(0))
        driver.run()
    with Driver(program(tmp_path, late=True), storage=tmp_path / "storage") as driver:
        driver.send("orders", *orders(20))
        driver.run()
        stored(tmp_path, late=True)
        driver.send("orders", *orders(40))
        driver.run()
    assert len(stored(tmp_path, late=True)["orders"]) == 60
