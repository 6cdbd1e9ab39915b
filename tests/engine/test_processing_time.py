"""Windows on processing time: by when the log stored a record, closed by the clock, the same again in a replay."""

from __future__ import annotations

from datetime import UTC, datetime

import headrace as hr
from headrace.engine.program.reset import reset
from headrace.testing import Driver

SCHEMA = "k string, at timestamp"


def windows_of(app, *, event_time=None):
    rows = app.stream("t", SCHEMA, event_time=event_time, idle_after="5 seconds", partitions=1)
    minute = hr.tumbling("1 minute", grace="0 seconds")
    return rows.group_by("k").window(minute, emit="final").agg(n="count(*)")


def app_of():
    """By append time, although the rows say when they happened; next to it by event time, from the same topic."""
    app = hr.App("processing", shards=2)
    windows_of(app).named("processed").to_view("processed")
    windows_of(app, event_time="at").named("happened").to_view("happened")
    return app


def shown(driver, view):
    return [(row["k"], row["n"], row["window_end"] - row["window_start"]) for row in driver.view(view)]


def test_rows_of_long_ago_count_when_they_are_stored_and_the_clock_closes_the_window():
    with Driver(app_of()) as driver:
        old = datetime(2001, 1, 1, tzinfo=UTC)
        driver.send("t", {"k": "a", "at": old}, {"k": "a", "at": old.replace(year=2002)})
        driver.advance(61)
        driver.send("t", {"k": "a", "at": old.replace(year=1999)})
        driver.run()
        minute = hr.tumbling("1 minute", grace="0 seconds").size
        processed = shown(driver, "processed")
        assert [(k, n) for k, n, _ in processed] == [("a", 2)], "the minute of the first two is over"
        assert all(length.total_seconds() * 1_000_000 == minute for _, _, length in processed)
        driver.advance(120)
        driver.run()
        assert [(k, n) for k, n, _ in shown(driver, "processed")] == [("a", 2), ("a", 1)], "no row came: the clock"
        assert driver.counts("processed")["late"] == 0
        driver.finish()
        assert len(driver.view("happened")) == 3, "by event time they are years apart"


def test_a_replay_gives_the_windows_of_the_first_run(tmp_path):
    """Append times are in the log: whenever it is read again, a row is in the window in which it was stored."""
    with Driver(app_of(), storage=tmp_path) as driver:
        for _ in range(4):
            driver.send("t", {"k": "a", "at": 0}, {"k": "b", "at": 0})
            driver.advance(25)
            driver.run()
        driver.finish()
        first = driver.view("processed")
    reset(app_of().plan(), tmp_path)
    with Driver(app_of(), storage=tmp_path) as driver:
        driver.advance(10_000)
        driver.run()
        driver.finish()
        assert driver.view("processed") == first != []


def test_several_records_come_of_one():
    """An array of structs, made of the columns of the record, becomes rows; their keys are expressions."""
    app = hr.App("several")
    moves = app.stream("moves", "source string, target string, amount int")
    one = "named_struct('account', source, 'change', -amount)"
    other = "named_struct('account', target, 'change', amount)"
    legs = moves.explode(f"array({one}, {other})", "leg").select(account="upper(leg.account)", change="leg.change")
    legs.group_by("account").agg(balance="sum(change)").to_view("balances")
    with Driver(app) as driver:
        driver.send("moves", {"source": "a", "target": "b", "amount": 5}, {"source": "b", "target": "c", "amount": 2})
        driver.run()
        assert driver.view("balances") == [
            {"account": "A", "balance": -5},
            {"account": "B", "balance": 3},
            {"account": "C", "balance": 2},
        ]


def test_the_key_of_latest_may_be_an_expression():
    app = hr.App("keyed")
    visits = app.stream("visits", "user string, page string, at timestamp", event_time="at")
    table = visits.latest(who="lower(user)")
    assert table.key == ("who",)
    table.select("who", "page").to_view("pages")
    with Driver(app) as driver:
        driver.send("visits", {"user": "Ann", "page": "a", "at": 1}, {"user": "ANN", "page": "b", "at": 2})
        driver.run()
        assert driver.view("pages") == [{"who": "ann", "page": "b"}]
