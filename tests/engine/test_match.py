"""`match`: what comes out and when, what stays bounded, crashes, changed programs, and what is refused."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import disturbed
import pytest

import headrace as hr
from headrace.base.errors import (
    InvalidArgument,
    InvalidPlan,
    InvalidTime,
    PlanChanged,
    SealedColumn,
    UnknownColumn,
    WrongType,
)
from headrace.dsl.stream_table import Stream
from headrace.testing import Driver

LOGINS = "user string, ok boolean, country string, at timestamp"
DEFINE = {"fail": "not ok", "success": "ok and country <> prev(country)"}
SCHEMA = "k string, v int, at timestamp"


def login(user, second, *, ok, country="FR"):
    return {"user": user, "ok": ok, "country": country, "at": second * 1000}


def row(k, v, second):
    return {"k": k, "v": v, "at": second * 1000}


def alerts_of(pattern="fail{3,} success", **how):
    app = hr.App("logins", shards=2)
    logins = app.stream("logins", LOGINS, event_time="at")
    found = logins.group_by("user").match(pattern, **{"within": "10 minutes", "define": DEFINE} | how)
    alerts = found.agg(fails="count(fail)", first_at="min(fail.at)", where_from="last(success.country)", n="count(*)")
    alerts.named("alerts").to_topic("alerts")
    alerts.late.to_topic("late")
    return app


def seconds(rows):
    return [(row["user"], row["match_start"].timestamp(), row["match_end"].timestamp()) for row in rows]


@pytest.mark.on_spark
def test_a_match_comes_out_as_soon_as_it_is_final(drive):
    """One row a match: its key, when it began and ended, and the measures of its rows by symbol."""
    driver = drive(alerts_of())
    driver.send("logins", *(login("ann", second, ok=False) for second in (1, 2, 4)))
    driver.send("logins", login("bob", 3, ok=True), login("ann", 5, ok=True, country="NO"))
    driver.run()
    assert driver.read("alerts") == []
    driver.send("logins", login("bob", 6, ok=False))
    driver.run()
    (alert,) = driver.read("alerts")
    assert seconds([alert]) == [("ann", 1, 5)]
    assert (alert["fails"], alert["first_at"].timestamp(), alert["where_from"], alert["n"]) == (3, 1, "NO", 4)


def test_what_is_greedy_waits_until_no_longer_match_can_come():
    app = hr.App("greedy", shards=2)
    logins = app.stream("logins", LOGINS, event_time="at")
    two = logins.group_by("user").match("fail{2,}", within="5 seconds", define={"fail": "not ok"}).agg(n="count(*)")
    two.named("two").to_topic("two")
    with Driver(app, shards=2) as driver:
        driver.send("logins", login("ann", 1, ok=False), login("ann", 2, ok=False), login("bob", 3, ok=True))
        driver.run()
        assert driver.read("two") == [], "a third failure may come"
        driver.send("logins", login("bob", 6, ok=True))
        driver.run()
        assert driver.read("two") == [], "one of the sixth second may come"
        driver.send("logins", login("bob", 7, ok=True))
        driver.run()
        assert seconds(driver.read("two")) == [("ann", 1, 2)]
        assert driver.watermark("two").timestamp() == 7


def test_rows_leave_the_state_when_they_are_decided():
    app = hr.App("bounded", shards=1)
    rows = app.stream("t", SCHEMA, event_time="at")
    grouped = rows.group_by("k")
    grouped.match("a b", within="1 hour", define={"a": "v = 1", "b": "v = 2"}).agg(n="count(*)").named("short").to_view(
        "x"
    )
    lagged = grouped.match("a+ b", within="30 seconds", define={"a": "v >= prev(v)", "b": "v = 2"}).agg(n="count(*)")
    lagged.named("long").to_view("y")
    with Driver(app, shards=1) as driver:
        for start in range(0, 200, 20):
            driver.send("t", *(row("ab"[n % 2], 0, n) for n in range(start, start + 20)))
            driver.run()
        kept = {step: driver.counts(step)["state_rows"] for step in ("short", "long")}
    assert kept["short"] == 1, "the last row, which the watermark has not passed"
    assert kept["long"] <= 1 + 2 + 2 * 31, (
        "that, the last one of each key, and those of half a minute with their starts"
    )


def test_a_match_holds_the_watermark_back_while_it_is_not_decided():
    """Windows below count each match in time."""
    app = hr.App("held", shards=2)
    rows = app.stream("t", SCHEMA, event_time="at")
    found = rows.group_by("k").match(
        "a (b* c)?", within="30 seconds", define={"a": "v = 1", "b": "v = 0", "c": "v = 2"}
    )
    matches = found.agg(n="count(*)").named("matches")
    windows = matches.group_by().window(hr.tumbling("10 seconds", grace="0 seconds"), emit="final").agg(n="sum(n)")
    windows.named("windows").to_view("windows")
    windows.late.to_view("late")
    with Driver(app, shards=2) as driver:
        for start in range(1, 100, 5):
            for second in range(start, start + 5):
                driver.send("t", row("x", int(second == 5), second), row("y", int(second % 20 == 0), second))
            driver.step()
        driver.finish()
        assert driver.view("late") == []
        assert sum(window["n"] for window in driver.view("windows")) == 6


def app_of(after):
    app = hr.App("crashing", shards=2)
    rows = app.stream("t", SCHEMA, event_time="at", out_of_order="9 seconds")
    define = {"low": "v < 2", "up": "v > prev(v)"}
    found = rows.group_by("k").match("low up+ any??", within="8 seconds", define=define, after=after)
    found.agg(n="count(*)", ups="count(up)", s="sum(v)").named("found").to_view("found")
    return app


@pytest.mark.parametrize(
    ("after", "point"),
    [
        ("next row", "after_commit"),
        *(pytest.param("next row", point, marks=pytest.mark.prove) for point in ("during_commit", "before_views")),
        *(
            pytest.param("past last row", point, marks=pytest.mark.prove)
            for point in ("after_staging", "during_snapshot")
        ),
    ],
)
def test_a_crash_leaves_no_trace(after, point):
    """A run with crashes gives what one without gives, and so does one that starts again after each epoch."""
    epochs = disturbed.disorder(lambda k, second, v: row(k, v, max(second, 0)))
    steps = (disturbed.quietly, disturbed.crashing(point, (1, 3)), disturbed.restarting)
    seen = [disturbed.played(app_of(after), epochs, step, lambda driver: driver.view("found")) for step in steps]
    assert seen[0] == seen[1] == seen[2] != []


def test_matches_without_keys_are_of_all_rows():
    app = hr.App("all", shards=2)
    rows = app.stream("t", SCHEMA, event_time="at")
    rows.group_by().match("x y", within="1 minute", define={"y": "k > prev(k)"}).agg(a="x.k", b="y.k").to_topic("out")
    with Driver(app, shards=2) as driver:
        driver.send("t", *(row(k, 1, second) for second, k in enumerate("ahbzc")))
        driver.finish()
        assert [(found["a"], found["b"]) for found in driver.read("out")] == [("a", "h"), ("b", "z")]


@pytest.mark.parametrize(
    "change",
    [{"pattern": "fail{2,} success"}, {"within": "1 hour"}, {"define": {"fail": "not ok"}}, {"after": "next row"}],
)
def test_a_changed_pattern_is_refused(tmp_path, change):
    """What is kept is what the old one has not decided."""
    with Driver(alerts_of(), storage=tmp_path, shards=2) as driver:
        driver.send("logins", login("ann", 1, ok=False))
        driver.run()
    with Driver(alerts_of("fail{3,}  success"), storage=tmp_path, shards=2):
        pass  # the same pattern, written in another way
    with pytest.raises(PlanChanged, match="alerts"), Driver(alerts_of(**change), storage=tmp_path, shards=2):
        pass


def test_a_row_on_which_a_condition_fails_is_a_dead_letter():
    app = hr.App("dead", shards=2, on_error="dead_letter")
    rows = app.stream("t", SCHEMA, event_time="at")
    rows.group_by("k").match("a", within="1 second", define={"a": "10 / v > 1"}).agg(v="a.v").to_topic("out")
    with Driver(app, shards=2) as driver:
        driver.send("t", row("x", 5, 1), row("x", 0, 2), row("x", 2, 3))
        driver.finish()
        assert [found["v"] for found in driver.read("out")] == [5, 2]


def test_a_private_value_is_passed_on_and_not_computed_with():
    app = hr.App("private")
    people = app.stream("people", "id int, mail string, at timestamp", event_time="at", private={"mail": "id"})
    matches = people.group_by("id").match("a b", within="1 hour").agg(mail="first(a.mail)", n="count(*)")
    assert matches.node.sealed == {"mail"}
    with pytest.raises(SealedColumn):
        people.group_by("id").match("a", within="1 hour", define={"a": "mail like 'x%'"})


def test_the_example_prints_what_its_page_says():
    house = Path(__file__).parents[2]
    printed = "\n".join(runpy.run_path(str(house / "examples/logins.py"))["main"]())
    assert f"$ python examples/logins.py\n{printed}\n```" in (house / "docs/patterns.md").read_text(encoding="utf-8")


def test_matches_are_a_stream():
    rows = hr.App("a").stream("s", SCHEMA, event_time="at")
    matches = rows.group_by("k").match("a", within="1 second").agg(n="count(*)")
    assert isinstance(matches, Stream)
    assert matches.columns == ["k", "match_start", "match_end", "n"]


def match(on, pattern="a b", *, within="1 hour", **how):
    return on.group_by("k").match(pattern, within=within, **how)


REFUSED = {
    "a table": (lambda on: match(on.table), InvalidPlan, ".changes()"),
    "a window": (
        lambda on: on.stream.group_by("k").window(hr.session("1 s", grace="0 s")).match("a", within="1 s"),
        InvalidPlan,
        "no windows",
    ),
    "no duration": (lambda on: match(on.stream, within="soon"), InvalidTime, "soon"),
    "below zero": (lambda on: match(on.stream, within="-1 hour"), InvalidPlan, "below zero"),
    "another place": (lambda on: match(on.stream, after="first row"), InvalidPlan, "past last row"),
    "too many": (lambda on: match(on.stream, "a{1,1000000}"), InvalidPlan, "too large"),
    "another symbol": (lambda on: match(on.stream, "aa b", define={"a": "v > 1"}), InvalidPlan, 'Did you mean "aa"'),
    "a column": (lambda on: match(on.stream, "k v"), InvalidPlan, "the name of a column"),
    "no mapping": (lambda on: match(on.stream, define=("a", "v > 1")), InvalidArgument, "no mapping"),
    "no condition": (lambda on: match(on.stream, define={"a": "v + 1"}), WrongType, "not boolean"),
    "an unknown column": (lambda on: match(on.stream, define={"a": "w > 1"}), UnknownColumn, '"w"'),
    "the match so far": (
        lambda on: match(on.stream, define={"b": "v > a.v"}),
        InvalidPlan,
        "not what was matched so far",
    ),
    "rows to come": (lambda on: match(on.stream, define={"b": "v > lead(v)"}), hr.HeadraceError, "prev(x)"),
    "a sum so far": (lambda on: match(on.stream, define={"b": "sum(v) > 1"}), hr.HeadraceError, "prev(x)"),
    "two symbols": (lambda on: match(on.stream).agg(n="sum(a.v + b.v)"), InvalidPlan, "rows of a and b"),
    "a name": (lambda on: match(on.stream).agg(match_end="count(*)"), InvalidPlan, "twice"),
    "an unknown measure": (lambda on: match(on.stream).agg(n="sum(a.w)"), UnknownColumn, '"w"'),
    "a bare column": (lambda on: match(on.stream).agg(n="v"), hr.HeadraceError, "outside of an aggregate"),
    "a sketch": (lambda on: match(on.stream).agg(n="approx_count_distinct(v)"), InvalidPlan, "exact"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused(case):
    verb, error, message = REFUSED[case]
    app = hr.App("a")
    on = SimpleNamespace(
        stream=app.stream("s", SCHEMA, event_time="at"), table=app.table("t", SCHEMA, key="k", event_time="at")
    )
    with pytest.raises(error) as raised:
        verb(on)
    assert message in str(raised.value)
