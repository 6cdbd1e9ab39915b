"""Joins of a stream with a table keep values of any type as they are."""

from __future__ import annotations

import headrace as hr
from headrace.testing import Driver


def test_rows_of_any_types_wait_and_meet():
    """Lists, maps, structs, decimals and times, on both sides; what waited stands beside what just came."""
    kinds = (
        "tags array<string>, facts map<string, int>, place struct<x: int, y: string>, price decimal(12, 3), day date"
    )
    app = hr.App("types", shards=2)
    orders = app.stream("orders", f"id int, k int, at timestamp, {kinds}", event_time="at")
    names = {"tags_r": "tags", "facts_r": "facts", "place_r": "place", "price_r": "price", "day_r": "day"}
    table = app.table("t", f"k int, since timestamp, {kinds}", key="k", event_time="since").rename(**names)
    orders.join(table, on="k", as_of="at", grace="5 s", how="left").named("dated").to_topic("dated")
    orders.join(table, on="k", how="left").named("now").to_topic("now")
    orders.join(table.drop("k"), on={"price": "price_r"}).named("bag").to_topic("bag")
    full = {"tags": ["a", None], "facts": {"x": 1}, "place": {"x": 1, "y": None}, "price": "1.250", "day": "2026-01-01"}
    empty = dict.fromkeys(full)
    with Driver(app) as driver:
        driver.send("t", {"k": 1, "since": 0, **full}, {"k": 2, "since": 0, **empty})
        driver.step()
        for nr, second in enumerate((1, 2, 30, 31)):
            driver.send("orders", {"id": nr, "k": 1 + nr % 2, "at": second * 1000, **(full if nr < 2 else empty)})
            driver.send("t", {"k": 3, "since": second * 1000, **full})
            driver.step()
        driver.finish()
        got = {topic: sorted(driver.read(topic), key=lambda row: row["id"]) for topic in ("dated", "now", "bag")}
    for topic in ("dated", "now"):
        assert [row["id"] for row in got[topic]] == [0, 1, 2, 3]
        assert [row["tags"] for row in got[topic]] == [["a", None], ["a", None], None, None]
        assert [row["facts_r"] for row in got[topic]] == [{"x": 1}, None, {"x": 1}, None]
        assert [row["place_r"] for row in got[topic]] == [{"x": 1, "y": None}, None, {"x": 1, "y": None}, None]
    assert [row["id"] for row in got["bag"]] == [0, 1, 1]  # the row of 1, and, from the second order on, that of 3
    assert all(row["facts_r"] == {"x": 1} and row["tags_r"] == ["a", None] for row in got["bag"])
