"""Rows that are kept by the places of their columns: a program that has these in another order is another one."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.base.errors import PlanChanged
from headrace.testing import Driver

MINUTE = hr.sliding("1 minute", grace="0 seconds")

KEPT = {
    "rows before rows": lambda s, _: s.group_by("k").over(rows=3).agg(before="lag(v)"),
    "rows that match a pattern": lambda s, _: s.group_by("k").match("a b", within="1 hour").agg(w="last(a.w)"),
    "streams": lambda s, _: s.join(s.select(k2="k", v2="v"), on={"k": "k2"}, within="1 hour"),
    "versions": lambda s, t: s.join(t, on="k", as_of="at", grace="1 hour"),
    "rows of a lookup's table": lambda s, t: s.select("at", q="k").join(t, on={"q": "k"}),
    "a bag and a table": lambda s, t: s.as_table().join(t, on="k"),
    "rows that wait for a sliding window": lambda s, _: s.group_by("k").window(MINUTE).agg(n="sum(v)"),
}


def app_of(kept, *, turned=False):
    """A program, or the same one over columns in another order."""
    app = hr.App("kept")
    stream = app.stream("s", "k int, v int, w int, at timestamp", event_time="at")
    table = app.table("t", "k int, x int, y int, at2 timestamp", key="k", event_time="at2")
    table.select("k").to_view("all")
    stream.select("k").to_topic("seen")
    if turned:
        stream, table = stream.select("w", "k", "v", "at"), table.select("y", "k", "x", "at2")
    out = kept(stream, table).named("kept")
    out.select(*sorted(out.columns)).to_view("out")
    return app


def send(driver, minute):
    driver.send("s", {"k": 1, "v": 2, "w": 3, "at": f"2026-01-01 10:{minute:02}"})
    driver.send("s", {"k": 4, "v": 5, "w": 6, "at": f"2026-01-01 10:{minute:02}:30"})
    driver.send("t", {"k": 1, "x": 7, "y": 8, "at2": f"2026-01-01 10:{minute:02}"})


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_columns_in_another_order_never_change_places_in_kept_rows(tmp_path, kept):
    with Driver(app_of(kept), storage=tmp_path) as driver:
        send(driver, 1)
        driver.step()
    with pytest.raises(PlanChanged, match="kept in order: was"):
        Driver(app_of(kept, turned=True), storage=tmp_path)
    with Driver(app_of(kept), storage=tmp_path) as driver:
        send(driver, 2)
        driver.run()


def test_a_join_of_tables_is_computed_anew(tmp_path):
    """What it is made of is kept, so nothing has to be refused."""

    def kept(_, table):
        return table.join(table.group_by("x").agg(n="count(*)"), on="x")

    with Driver(app_of(kept), storage=tmp_path) as driver:
        send(driver, 1)
        driver.step()
    with Driver(app_of(kept, turned=True), storage=tmp_path) as driver:
        send(driver, 2)
        driver.run()
        assert [(row["x"], row["y"], row["n"]) for row in driver.view("out")] == [(7, 8, 1)]


def test_a_column_more_does_not_meet_rows_that_wait_for_a_sliding_window(tmp_path):
    """Late rows come out whole, so they wait with columns that no aggregate reads."""

    def kept(rows, _):
        return rows.group_by("k").window(MINUTE).agg(n="sum(v)")

    with Driver(app_of(kept), storage=tmp_path) as driver:
        send(driver, 1)
        driver.step()
    with pytest.raises(PlanChanged, match="z int"):
        Driver(app_of(lambda rows, table: kept(rows.with_columns(z="v + 1"), table)), storage=tmp_path)


def by_keys(rows, *keys):
    """Groups by keys of which one spreads the rows already, so that they stay where they are in whatever order."""
    counted = rows.group_by(*keys).agg(n="count(*)").named("groups")
    return counted.group_by().agg(told=f"sum({keys[0]} * {keys[1]} + k)")


def test_keys_in_another_order_never_change_places_in_groups_that_are_kept(tmp_path):
    with Driver(app_of(lambda s, _: by_keys(s.dedupe("k", within="1 hour"), "k", "v")), storage=tmp_path) as driver:
        send(driver, 1)
        driver.step()
    with pytest.raises(PlanChanged, match="keys in order: was"):
        Driver(app_of(lambda s, _: by_keys(s.dedupe("k", within="1 hour"), "v", "k")), storage=tmp_path)


def test_groups_of_a_table_by_keys_in_another_order_are_computed_anew(tmp_path):
    with Driver(app_of(lambda _, t: by_keys(t, "k", "x")), storage=tmp_path) as driver:
        send(driver, 1)
        driver.step()
    with Driver(app_of(lambda _, t: by_keys(t, "x", "k")), storage=tmp_path) as driver:
        driver.send("t", {"k": 2, "x": 5, "y": 8, "at2": "2026-01-01 10:02"})
        driver.run()
        assert driver.view("out") == [{"told": (1 * 7 + 1) + (2 * 5 + 2)}]


def test_what_was_stored_without_an_order_goes_on(tmp_path, monkeypatch):
    kept = KEPT["streams"]
    with monkeypatch.context() as older:
        older.setattr("headrace.engine.program.identity._in_order", lambda _: {})
        with Driver(app_of(kept), storage=tmp_path) as driver:
            send(driver, 1)
            driver.step()
    with Driver(app_of(kept), storage=tmp_path) as driver:
        send(driver, 2)
        driver.run()
        assert len(driver.view("out")) == 8
    with pytest.raises(PlanChanged, match="kept in order: was"):
        Driver(app_of(kept, turned=True), storage=tmp_path)
