"""Steps that only choose columns hand on what is computed already; the app is the same where SQL copies it."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

import headrace as hr
from headrace.kernels.query import Query
from headrace.testing import Driver

ROWS = [{"k": n % 4, "x": f"x{n}", "n": n, "at": n * 1000} for n in range(12)]


def looked_up(app, rows):
    side = app.table("side", "k int, name string", key="k", values=[{"k": k, "name": f"n{k}"} for k in range(3)])
    joined = rows.join(side, on="k", how="left").select("at", "n", who="name", again="name")
    joined.to_topic("out")
    joined.as_table().group_by("who").agg(n="sum(n)").to_view("view")


def ranked(_, rows):
    best = rows.as_table().group_by("k").top(2, by="n desc").select("x", number="n", k="k")
    best.to_view("view")
    rows.select("n").to_topic("out")


def summed(_, rows):
    sums = rows.as_table().group_by("k").agg(n="sum(n)", most="max(x)").select(total="n", key="k")
    sums.to_view("view")
    sums.group_by().agg(n="sum(total)").select(all="n").to_view("all")
    rows.select("k", "x").select(y="x").to_topic("out")


def joined(_, rows):
    left, right = rows.as_table(), rows.where("n > 3").select("k", other="n").as_table()
    pairs = left.join(right, on="k", how="left").select("x", "other")
    pairs.to_view("view")
    rows.to_topic("out")


def added(app, rows):
    app.function("twice", lambda n: pc.multiply(n, 2), returns="int")
    more = rows.with_columns(y="upper(x)", n="n + 1", two="twice(n)")
    more.to_topic("out")
    more.select("two", "k", again="k", z="concat(x, y)").as_table().to_view("view")
    rows.select(only="n * n").to_topic("computed")


def with_withdrawals(_, rows):
    changes = rows.as_table().group_by("k").agg(n="sum(n)").changes()
    changes.with_columns(half="n / 2").to_topic("out")
    changes.select("n", kind="_change_type").as_table().to_view("view")


def failing(_, rows):
    rows.with_columns(inverse="1 / (n - 3)").drop("x").to_topic("out")
    rows.select("x", n="n").as_table().to_view("view")


def outputs(make):
    app = hr.App("passed", on_error="dead_letter")
    make(app, app.stream("rows", "k int, x string, n int, at timestamp", event_time="at"))
    with Driver(app, shards=2) as driver:
        for at in range(0, 12, 5):
            driver.send("rows", *ROWS[at : at + 5])
            driver.step()
        driver.run()
        views = [driver.view(sink.view) for sink in app.plan().sinks if sink.view]
        return driver.read("out"), [sorted(map(str, rows)) for rows in views]


@pytest.mark.parametrize("make", [looked_up, ranked, summed, joined, added, with_withdrawals, failing])
def test_an_app_computes_the_same_where_columns_are_handed_on_and_where_sql_copies_them(make, monkeypatch):
    handed_on, passed = [], Query.passed

    def spy(op, inputs):
        rows = passed(op, inputs)
        handed_on.extend(rows)
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(Query, "passed", spy)
        found = outputs(make)
    assert handed_on
    monkeypatch.setattr(Query, "passed", lambda *_: [])
    assert outputs(make) == found
    assert all(found)
