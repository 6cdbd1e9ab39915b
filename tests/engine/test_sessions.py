"""The vectors of the rules on sessions: what merges, what closes, what is late; on both carriers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import disturbed
import pytest

import headrace as hr
from budget import fast
from headrace.testing import Driver


def at(minute):
    return datetime(2026, 1, 5, 9, tzinfo=UTC) + timedelta(minutes=minute)


def row(key, minute, number=0):
    return {"k": key, "v": number, "at": at(minute)}


def sessions_of(rows):
    """Return (key, first, last + gap, count) of result rows, in minutes."""
    return [
        (
            each["k"],
            *((each[name] - at(0)) / timedelta(minutes=1) for name in ("window_start", "window_end")),
            each["n"],
        )
        for each in rows
    ]


def counting(gap=3, grace=10, emit="changes"):
    app = hr.App("sessions")
    window = hr.session(f"{gap} minutes", grace=f"{grace} minutes")
    rows = app.stream("t", "k string, v int, at timestamp", event_time="at")
    table = rows.group_by("k").window(window, emit=emit).agg(n="count(*)", kinds="collect_set(v)").named("sessions")
    table.to_view("sessions")
    table.to_topic("out")
    table.changes().to_topic("changes")
    table.late.to_topic("late")
    rows.to_topic("plain")
    rows.where("v > 1").to_topic("some")
    rows.group_by().agg(n="count(*)").named("total").to_view("total")
    return app


@pytest.mark.on_spark
def test_sessions_grow_merge_and_part(drive):
    """Gap 3, grace 10: green 0, 6, blue 2; green 3 merges; blue 5 extends; green 11 is another session."""
    driver = drive(counting(), shards=2)
    driver.send("t", row("green", 0, 1), row("green", 6, 2), row("blue", 2))
    driver.step()
    assert sessions_of(driver.view("sessions")) == [("blue", 2, 5, 1), ("green", 0, 3, 1), ("green", 6, 9, 1)]
    driver.read("changes")
    driver.send("t", row("green", 3, 3))
    driver.step()
    assert sessions_of(driver.view("sessions")) == [("blue", 2, 5, 1), ("green", 0, 9, 3)]
    assert driver.view("sessions")[1]["kinds"] == [1, 2, 3]
    changed = driver.read("changes")
    assert sorted((each["_change_type"], *session[1:]) for each, session in zip(changed, sessions_of(changed))) == [  # noqa: B905
        ("delete", 0, 3, 1),
        ("delete", 6, 9, 1),
        ("insert", 0, 9, 3),
    ]
    driver.send("t", row("blue", 5), row("green", 11))
    driver.step()
    assert sessions_of(driver.view("sessions")) == [("blue", 2, 8, 2), ("green", 0, 9, 3), ("green", 11, 14, 1)]
    driver.finish()
    assert driver.late("sessions") == []


def test_final_gives_each_session_once_when_its_last_moment_and_the_grace_have_passed(drive):
    """A session's end is inside: it closes when the watermark is behind end and grace, not at it."""
    driver = drive(counting(grace=1, emit="final"), shards=2)
    driver.send("t", row("a", 0), row("a", 3))
    driver.step()
    driver.send("t", row("b", 7))  # the watermark stands at 3 + 3 + 1
    driver.step()
    driver.step()
    assert driver.read("out") == []
    driver.send("t", row("a", 2), row("b", 7.5))
    driver.step()
    driver.step()
    assert sessions_of(driver.read("out")) == [("a", 0, 6, 3)]
    driver.finish()
    assert sessions_of(driver.read("out")) == [("b", 7, 10.5, 2)]
    assert driver.late("sessions") == []


@pytest.mark.parametrize("emit", ["changes", "final"])
def test_a_closed_session_is_not_revived_and_an_open_one_takes_old_rows(drive, emit):
    """Whether a row is late is for its session to say, not for the row: grace bounds the window."""
    driver = drive(counting(grace=0, emit=emit), shards=2)
    driver.send("t", *(row("a", minute) for minute in range(10, 31, 3)), row("b", 10))
    driver.step()
    driver.send("t", row("a", 11), row("a", 8), row("a", 5), row("a", 2), row("a", 1), row("b", 10, 7), row("b", 28))
    driver.step()
    assert driver.late("sessions") == [row("b", 10, 7)]
    driver.finish()
    view = sessions_of(driver.view("sessions"))
    assert view == [("a", 1, 31, 12), ("b", 10, 13, 1), ("b", 28, 31, 1)]


def test_what_closed_is_no_part_of_a_later_session(drive):
    """A row that is not late itself begins a session, however near the closed one it is."""
    driver = drive(counting(grace=0), shards=2)
    driver.send("t", row("a", 0), row("b", 4))
    driver.step()
    driver.send("t", row("a", 2))
    driver.step()
    assert sessions_of(driver.view("sessions")) == [("a", 0, 3, 1), ("a", 2, 5, 1), ("b", 4, 7, 1)]


def test_a_session_below_a_session_loses_nothing(drive):
    """A step holds its results back by its grace and the one microsecond that a session's end is inside."""
    app = hr.App("chain")
    rows = app.stream("t", "k string, v int, at timestamp", event_time="at")
    first = rows.group_by("k").window(hr.session("1 minute", grace="2 minutes"), emit="final").agg(n="count(*)")
    second = first.group_by().window(hr.tumbling("1 minute", grace="0 s"), emit="final").agg(n="sum(n)").named("all")
    second.to_view("all")
    third = first.group_by("k").window(hr.session("5 minutes", grace="0 s"), emit="final").agg(n="sum(n)").named("long")
    third.to_view("long")
    driver = drive(app, shards=2)
    for minute in range(24):
        driver.send("t", row("abc"[minute % 3], minute), row("d", minute))
        driver.step()
    driver.run()
    driver.finish()
    assert driver.late("all") == driver.late("long") == []
    assert sum(each["n"] for each in driver.view("all")) == 48
    assert sum(each["n"] for each in driver.view("long")) == 48


def outputs(driver):
    topics = [driver.read(name) for name in ("out", "changes", "late", "plain", "some")]
    return [driver.view("sessions"), *topics, driver.view("total")]


def played(emit, step=disturbed.quietly):
    return disturbed.played(counting(grace=1, emit=emit), disturbed.disorder(row), step, outputs)


@pytest.fixture(scope="module")
def undisturbed():
    made = {emit: played(emit) for emit in ("changes", "final")}
    for topics in made.values():
        assert topics[3] != [], "some rows are late"
        assert len(topics[0]) > 5
    return made


@pytest.mark.parametrize(("emit", "point"), disturbed.windowed_points("during_snapshot", "after_staging"))
def test_a_crash_leaves_no_trace_in_sessions(undisturbed, emit, point):
    """Byte for byte: the epochs are cut alike, so every row stands at its offset."""
    assert played(emit, disturbed.crashing(point, (0, 3, 5))) == undisturbed[emit]


@pytest.mark.parametrize("emit", fast("changes", of=["changes", "final"]))
def test_sessions_are_rebuilt_from_their_files(undisturbed, emit):
    assert played(emit, disturbed.restarting) == undisturbed[emit]


@pytest.mark.parametrize("emit", fast("final", of=["changes", "final"]))
def test_state_of_closed_sessions_is_dropped(emit):
    with Driver(counting(grace=0, emit=emit), shards=2) as driver:
        sizes = []
        for minute in range(0, 100, 5):
            driver.send("t", row("a", minute, minute), row("b", minute, minute))
            driver.run()
            sizes.append(driver.counts("sessions")["state_rows"])
        assert max(sizes) <= 8
        driver.finish()
        assert driver.counts("sessions")["state_rows"] == 0
        assert len(driver.view("sessions")) == 40


def test_the_plan_says_what_a_session_keeps():
    text = str(counting().explain())
    assert "session, gap 3 minutes, grace 10 minutes" in text
    assert "a row per (k, session), dropped when it closes" in text
