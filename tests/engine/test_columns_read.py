"""Columns that no step reads are not read of a topic; the app computes the same as if they were."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.engine.lowering.walk import Lowering
from headrace.log.segments import column_sums
from headrace.testing import Driver

BIDS = "auction int, bidder int, price int, url string, at timestamp"


def bids_of(app, **more):
    return app.stream("bids", BIDS, **({"event_time": "at", "out_of_order": "2 seconds"} | more))


def filtered(app):
    bids_of(app).where("price > 20").select("auction", dear="price * 2").to_view("out")


def counted(app):
    bids_of(app, event_time=None).as_table().group_by().agg(n="count(*)").to_view("out")


def constant(app):
    bids_of(app, event_time=None).select(one="1").as_table().group_by("one").agg(n="count(*)").to_view("out")


def windowed(app):
    windows = hr.tumbling("2 seconds", grace="0 seconds")
    bids_of(app).where("price > 0").group_by("bidder").window(windows).agg(n="count(*)").to_view("out")


def with_late_rows(app):
    windows = hr.tumbling("2 seconds", grace="0 seconds")
    counts = bids_of(app).group_by("bidder").window(windows).agg(n="count(*)")
    counts.to_view("out")
    counts.late.to_topic("late")


def sessions(app):
    windows = hr.session("1 second", grace="0 seconds")
    bids_of(app).group_by("bidder").window(windows).agg(n="count(*)", p="max(price)").to_view("out")


def sliding(app):
    windows = hr.sliding("3 seconds", grace="1 second")
    bids_of(app).group_by("bidder").window(windows).agg(n="count(*)", urls="count(distinct url)").to_view("out")


def by_days(app):
    windows = hr.tumbling("1 day", grace="0 seconds", timezone="Europe/Berlin")
    bids_of(app).group_by("auction").window(windows).agg(p="sum(price)").to_view("out")


def read_by_several(app):
    bids = bids_of(app)
    bids.as_table().group_by("bidder").agg(n="count(*) filter (where price > 30)").to_view("out")
    bids.select("auction").as_table().group_by("auction").agg(n="count(*)").to_view("more")


def with_functions(app):
    app.function("same", lambda x: x, returns="int")
    bids = bids_of(app)
    bids.where("same(price) > 0").select("auction").to_view("out")
    by_function = bids.as_table().group_by("bidder").agg(p="sum(same(price))").named("by_function")
    by_function.to_view("more")


def drawn_from_few(app):
    app.function("same", lambda x: x, returns="int")
    bids_of(app).select("bidder", p="same(price)").to_view("out")


def united(app):
    bids = bids_of(app)
    bids.union(bids.where("price > 30")).select("bidder").as_table().group_by("bidder").agg(n="count(*)").to_view("out")


def deduped(app):
    bids_of(app).dedupe("auction", within="1 hour").select("auction").to_topic("out")


def by_expression(app):
    bids = app.stream("bids", BIDS, event_time="at + interval 1 second", out_of_order="0 seconds")
    windows = hr.tumbling("2 seconds", grace="0 seconds")
    bids.group_by().window(windows).agg(n="count(*)").to_view("out")


def of_sql(app):
    bids_of(app)
    app.sql("select bidder, sum(price) as total from bids where auction < 3 group by bidder").to_view("out")


def looked_up(app):
    sides = app.table("sides", "auction int, name string", key="auction", values=[{"auction": 1, "name": "one"}])
    found = bids_of(app).join(sides, on="auction")
    found.where("price > 0").select("name", "bidder").to_view("out")


def looked_up_and_counted(app):
    sides = app.table("sides", "auction int, name string", key="auction", values=[{"auction": 1, "name": "one"}])
    found = bids_of(app).join(sides, on="auction", how="left").as_table()
    found.group_by().agg(n="count(*)").to_view("out")


def keyed_by_expression(app):
    counts = bids_of(app).as_table().group_by("auction", day="date_format(at, 'yyyy-MM-dd')").agg(p="sum(price)")
    counts.to_view("out")


def added_to(app):
    dear = bids_of(app).with_columns(price="price * 2", half="price / 2").where("price > 20").drop("at")
    dear.rename(who="bidder").select("who", "price").to_view("out")


def counted_after_adding(app):
    bids_of(app, event_time=None).with_columns(one="1").as_table().group_by().agg(n="count(*)").to_view("out")


def late_after_adding(app):
    windows = hr.tumbling("2 seconds", grace="0 seconds")
    counts = bids_of(app).with_columns(dear="price > 20").group_by("dear").window(windows).agg(n="count(*)")
    counts.to_view("out")
    counts.late.to_topic("late")


def added_by_functions(app):
    app.function("same", lambda x: x, returns="int")
    added = bids_of(app).with_columns(same="same(price)", other="bidder + 1")
    added.where("other > 1").select("auction", "other").to_view("out")
    added.where("same(price) > 7").select("same").to_topic("copied")


def added_and_joined(app):
    sides = app.table("sides", "auction int, name string", key="auction", values=[{"auction": 1, "name": "one"}])
    bids_of(app).with_columns(half="price / 2").join(sides, on="auction").select("name", "half").to_view("out")


def added_and_united(app):
    bids = bids_of(app).with_columns(half="price / 2")
    both = bids.union(bids.where("half > 15")).select("half").as_table()
    both.group_by("half").agg(n="count(*)").to_view("out")


APPS = [
    keyed_by_expression,
    added_to,
    counted_after_adding,
    late_after_adding,
    added_by_functions,
    added_and_joined,
    added_and_united,
    looked_up,
    looked_up_and_counted,
    filtered,
    counted,
    constant,
    windowed,
    with_late_rows,
    sessions,
    sliding,
    by_days,
    read_by_several,
    united,
]
APPS += [deduped, by_expression, of_sql, with_functions, drawn_from_few]
ROWS = [
    {"auction": n % 4, "bidder": n % 3, "price": None if n == 5 else 7 * n, "url": f"u{n}", "at": at}
    for n, at in enumerate(
        [
            "2026-01-01 00:00:01",
            "2026-01-01 00:00:04",
            None,
            "2026-01-01 00:00:00",
            "2026-01-01 00:00:09",
            "2026-01-01 00:00:05",
            "2026-01-01 00:00:02",
            "2026-01-01 00:01:00",
        ]
    )
]


def played(make, storage):
    """Return what an app gives, the late and the dead included, for rows in three epochs."""
    app = hr.App("bids", storage=storage)
    make(app)
    with Driver(app) as driver:
        for first in (0, 3, 6):
            driver.send("bids", *ROWS[first : first + 3])
            driver.run()
        views = {sink.view: driver.view(sink.view) for sink in app.plan().sinks if sink.view}
        topics = ["late"] if make in (with_late_rows, late_after_adding) else ["out"] if make is deduped else []
        topics += [] if make in (counted, constant, counted_after_adding) else ["bids.dead"]
        return views, {name: driver.read(name) for name in topics}


@pytest.mark.parametrize("make", APPS)
def test_an_app_computes_the_same_where_only_columns_that_are_read_are_read(make, tmp_path, monkeypatch):
    """Damage in a column that nobody reads goes unnoticed, so batches have a checksum for each column here."""
    monkeypatch.setattr(column_sums, "LARGE", 0)
    found = played(make, tmp_path / "some")
    monkeypatch.setattr(Lowering, "columns_read", lambda _, node: tuple(node.schema.names))
    assert played(make, tmp_path / "all") == found


def test_a_dead_letter_has_all_columns(tmp_path):
    dead = played(windowed, tmp_path)[1]["bids.dead"]
    assert len(dead) == 1
    assert '"url":"u2"' in str(dead[0]).replace(" ", "")


@pytest.mark.parametrize(
    ("make", "reads"),
    [
        (filtered, "2 of 5 columns: auction, price"),
        (counted, "0 of 5 columns"),
        (windowed, "2 of 5 columns: bidder, price"),
        (with_late_rows, None),
        (sliding, None),
        (keyed_by_expression, "3 of 5 columns: auction, price, at"),
        (added_to, "2 of 5 columns: bidder, price"),
        (counted_after_adding, "0 of 5 columns"),
        (late_after_adding, None),
        (added_by_functions, None),
        (added_and_joined, "2 of 5 columns: auction, price"),
        (sessions, "2 of 5 columns: bidder, price"),
        (read_by_several, "3 of 5 columns: auction, bidder, price"),
        (deduped, None),
        (with_functions, None),
        (drawn_from_few, "2 of 5 columns: bidder, price"),
        (of_sql, "3 of 5 columns: auction, bidder, price"),
    ],
)
def test_explain_says_which_columns_are_read(make, reads):
    app = hr.App("bids")
    make(app)
    (source,) = [step for step in app.explain().data["steps"] if step["verb"] == "source"]
    assert source["reads"] == reads
    assert ("reads" in str(app.explain())) == (reads is not None)
