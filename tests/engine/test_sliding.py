"""Sliding windows: which there are, what a row changes, what closes and what is late; on both carriers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import disturbed
import pytest

import headrace as hr
from budget import fast
from headrace.testing import Driver

SECOND = timedelta(seconds=1)
MICRO = 0.000001


def at(second):
    return datetime(2026, 1, 5, 9, tzinfo=UTC) + second * SECOND


def row(key, second, number=0):
    return {"k": key, "v": number, "at": at(second)}


def windows_of(rows):
    """Return (key, bounds, count, values) of result rows; bounds in seconds, `8+` being a microsecond after 8."""
    return [
        (each["k"], f"{moment(each['window_start'])} to {moment(each['window_end'])}", each["n"], each["kinds"])
        for each in rows
    ]


def moment(time):
    micros = (time - at(0)) // timedelta(microseconds=1)
    return f"{micros // 1000 / 1000:g}{'+' * (micros % 1000)}"


def sliding(size=5, grace=10, emit="changes"):
    app = hr.App("sliding")
    window = hr.sliding(f"{size} seconds", grace=f"{grace} seconds")
    rows = app.stream("t", "k string, v int, at timestamp", event_time="at")
    table = rows.group_by("k").window(window, emit=emit).agg(n="count(*)", kinds="collect_set(v)").named("slides")
    table.to_view("slides")
    table.to_topic("out")
    table.changes().to_topic("changes")
    table.late.to_topic("late")
    rows.to_topic("plain")
    return app


# the rows and windows of Kafka's own documentation: a time difference of 5000 ms, records at 8000, 9200 and 12400
THREE = [row("A", 8, 1), row("A", 9.2, 2), row("A", 12.4, 3)]
FIVE = [
    ("A", "3 to 8", 1, [1]),
    ("A", "4.2 to 9.2", 2, [1, 2]),
    ("A", "7.4 to 12.4", 3, [1, 2, 3]),
    ("A", "8+ to 13+", 2, [2, 3]),
    ("A", "9.2+ to 14.2+", 1, [3]),
]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("at_once", [True, False])
def test_three_rows_make_five_windows(drive, order, at_once):
    """Each set of rows that an interval can hold is in one window, in whatever order and epochs they come."""
    driver = drive(sliding(), shards=2)
    rows = [THREE[i] for i in order]
    for sent in [rows] if at_once else [[each] for each in rows]:
        driver.send("t", *sent)
        driver.step()
    assert windows_of(driver.view("slides")) == FIVE
    driver.finish()
    assert windows_of(driver.view("slides")) == FIVE
    assert driver.late("slides") == []


@pytest.mark.parametrize("at_once", [True, False])
def test_final_gives_each_window_once(drive, at_once):
    driver = drive(sliding(emit="final"), shards=2)
    for sent in [THREE] if at_once else [[each] for each in THREE]:
        driver.send("t", *sent)
        driver.step()
    driver.run()
    assert driver.read("out") == []
    driver.finish()
    assert windows_of(driver.read("out")) == FIVE


def test_both_bounds_are_inside():
    """Rows share a window if they are no more than the size apart; a microsecond more, and they do not."""
    with Driver(sliding(), shards=2) as driver:
        driver.send("t", row("in", 0, 1), row("in", 5, 2), row("out", 0, 1), row("out", 5 + MICRO, 2))
        driver.step()
        assert windows_of(driver.view("slides")) == [
            ("in", "-5 to 0", 1, [1]),
            ("in", "0 to 5", 2, [1, 2]),
            ("in", "0+ to 5+", 1, [2]),
            ("out", "-5 to 0", 1, [1]),
            ("out", "0+ to 5+", 1, [2]),
        ]


def test_rows_of_one_time_are_in_the_same_windows():
    with Driver(sliding(), shards=2) as driver:
        driver.send("t", row("a", 0, 1), row("a", 0, 2))
        driver.step()
        driver.send("t", row("a", 0, 3))
        driver.step()
        assert windows_of(driver.view("slides")) == [("a", "-5 to 0", 3, [1, 2, 3])]


@pytest.mark.on_spark
def test_a_row_opens_its_window_and_changes_those_that_have_it(drive):
    """What it leaves as it was is not given out again."""
    driver = drive(sliding(grace=100), shards=2)
    driver.send("t", row("A", 0, 1), row("A", 4, 2), row("A", 30, 4), row("B", 2, 1))
    driver.step()
    driver.read("changes")
    driver.send("t", row("A", 2, 3))
    driver.step()
    changed = driver.read("changes")
    kinds = [each["_change_type"] for each in changed]
    assert sorted(zip(kinds, windows_of(changed), strict=True)) == [
        ("insert", ("A", "-3 to 2", 2, [1, 3])),
        ("insert", ("A", "2+ to 7+", 1, [2])),
        ("update_postimage", ("A", "-1 to 4", 3, [1, 2, 3])),
        ("update_postimage", ("A", "0+ to 5+", 2, [2, 3])),
        ("update_preimage", ("A", "-1 to 4", 2, [1, 2])),
        ("update_preimage", ("A", "0+ to 5+", 1, [2])),
    ]


def test_changes_far_apart_touch_what_is_near_each(drive):
    """Much lies between them, none of it is given out; and it comes to what all rows at once come to."""
    many, few = [row("A", second, 7) for second in range(0, 200, 2)], [row("A", second) for second in (1, 101, 199)]
    driver = drive(sliding(size=1, grace=1000), shards=1)
    driver.send("t", *many)
    driver.step()
    driver.read("changes")
    driver.send("t", *few)
    driver.step()
    touched = {bounds.split(" to ")[1] for _, bounds, _, _ in windows_of(driver.read("changes"))}
    assert touched == {"1", "1+", "2", "2+", "101", "101+", "102", "102+", "199", "199+"}
    at_once = drive(sliding(size=1, grace=1000), shards=1)
    at_once.send("t", *many, *few)
    at_once.step()
    assert at_once.view("slides") == driver.view("slides")


# ---- what closes, and what is late ----


def clock(second):
    return row("Z", second)


def of_a(rows):
    return [each for each in windows_of(rows) if each[0] == "A"]


def test_a_window_closes_when_its_last_moment_and_the_grace_have_passed(drive):
    """Its end is inside: at W = end + grace it is still corrected, a microsecond later it is not."""
    driver = drive(sliding(size=5, grace=10), shards=2)
    driver.send("t", row("A", 8, 1), clock(18))
    driver.step()
    driver.send("t", row("A", 6, 2), clock(18 + MICRO))
    driver.step()
    assert of_a(driver.view("slides")) == [("A", "3 to 8", 2, [1, 2]), ("A", "6+ to 11+", 1, [1])]
    driver.send("t", row("A", 7, 3))
    driver.step()
    assert of_a(driver.view("slides")) == [
        ("A", "3 to 8", 2, [1, 2]),
        ("A", "6+ to 11+", 2, [1, 3]),
        ("A", "7+ to 12+", 1, [1]),
    ]
    assert driver.late("slides") == []


@pytest.mark.parametrize("emit", ["changes", "final"])
def test_a_row_is_late_once_no_window_could_hold_it_and_be_open(drive, emit):
    """At W = time + size + grace a window that ends `size` after it would still be open."""
    driver = drive(sliding(size=5, grace=2, emit=emit), shards=2)
    driver.send("t", clock(20))
    driver.step()
    driver.send("t", row("A", 13 - MICRO, 1), row("A", 13, 2))
    driver.step()
    assert driver.late("slides") == [row("A", 13 - MICRO, 1)]
    assert of_a(driver.view("slides")) == []
    driver.send("t", row("A", 18, 3))
    driver.step()
    driver.finish()
    expected = [("A", "13 to 18", 2, [2, 3]), ("A", "13+ to 18+", 1, [3])]
    assert of_a(driver.view("slides")) == expected
    assert driver.late("slides") == [row("A", 13 - MICRO, 1)]
    totals = driver.counts("slides")
    assert (totals["rows_in"], totals["late"], totals["partly_late"]) == (4, 1, 1)


@pytest.mark.parametrize("emit", ["changes", "final"])
def test_a_row_that_ends_up_in_no_window_is_late(drive, emit):
    """Its own window was closed when it came, and none that could have had it opened while it could."""
    driver = drive(sliding(size=3, grace=5, emit=emit), shards=2)
    driver.send("t", clock(12))
    driver.step()
    driver.send("t", row("A", 5.5, 1), row("A", 5.5, 1), row("B", 5.5, 2), row("C", 5.5, 3))
    driver.step()
    driver.send("t", row("B", 8, 4), row("C", 4.5, 5))
    driver.step()
    assert driver.late("slides") == []
    driver.restart()
    driver.send("t", clock(20))
    driver.run()
    late = driver.late("slides")
    assert sorted((each["k"], each["v"]) for each in late) == [("A", 1), ("A", 1), ("C", 5)]
    assert sorted(driver.read("late"), key=repr) == sorted(late, key=repr)
    driver.finish()
    totals = driver.counts("slides")
    assert (totals["late"], totals["partly_late"]) == (3, 2)
    assert driver.counts("slides")["state_rows"] == 0


@pytest.mark.on_spark
def test_late_rows_make_no_windows(drive):
    """The window behind a late row is not there either: it is what is left when the row drops out."""
    driver = drive(sliding(size=5, grace=0), shards=2)
    driver.send("t", row("A", 16, 1), clock(20))
    driver.step()
    driver.send("t", row("A", 14, 2))
    driver.step()
    assert of_a(driver.view("slides")) == [("A", "11 to 16", 1, [1])]
    assert driver.late("slides") == [row("A", 14, 2)]


@pytest.mark.parametrize("emit", fast("final", of=["changes", "final"]))
def test_state_that_no_open_window_reaches_is_dropped(emit):
    with Driver(sliding(size=5, grace=1, emit=emit), shards=2) as driver:
        sizes = []
        for second in range(0, 90, 2):
            driver.send("t", row("A", second, second % 7), row("B", second, second % 5))
            driver.run()
            sizes.append(driver.counts("slides")["state_rows"])
        assert max(sizes) <= 20
        assert max(sizes[:20]) == max(sizes[20:])
        driver.finish()
        assert driver.counts("slides")["state_rows"] == 0


def test_a_result_carries_its_end_as_event_time_and_is_not_late_below(drive):
    """The end is inside, so it is the event time itself; a step holds its results back by its grace."""
    app = hr.App("chain")
    rows = app.stream("t", "k string, v int, at timestamp", event_time="at")
    first = rows.group_by("k").window(hr.sliding("3 s", grace="2 s"), emit="final").agg(n="count(*)")
    first.to_topic("first")
    second = first.group_by().window(hr.tumbling("4 s", grace="0 s"), emit="final").agg(n="count(*)").named("by_end")
    second.to_view("by_end")
    driver = drive(app, shards=2)
    for second_ in range(24):
        driver.send("t", row("ab"[second_ % 2], second_))
        driver.step()
    driver.run()
    driver.finish()
    assert driver.late("by_end") == []
    ends = [(each["window_end"] - at(0)) // (4 * SECOND) for each in driver.read("first")]
    assert [each["n"] for each in driver.view("by_end")] == [ends.count(n) for n in sorted(set(ends))]


# ---- crashes and restarts ----


def outputs(driver):
    return [driver.view("slides"), *(driver.read(name) for name in ("out", "changes", "late", "plain"))]


def played(emit, step=disturbed.quietly):
    return disturbed.played(sliding(size=4, grace=1, emit=emit), disturbed.disorder(row), step, outputs)


@pytest.fixture(scope="module")
def undisturbed():
    made = {emit: played(emit) for emit in ("changes", "final")}
    for topics in made.values():
        assert topics[3] != [], "some rows are late"
        assert len(topics[0]) > 50
    return made


@pytest.mark.parametrize(("emit", "point"), disturbed.windowed_points("between_topics", "after_commit"))
def test_a_crash_leaves_no_trace_in_sliding_windows(undisturbed, emit, point):
    """Byte for byte: the epochs are cut alike, so every row stands at its offset."""
    assert played(emit, disturbed.crashing(point, (0, 3, 5))) == undisturbed[emit]


@pytest.mark.parametrize("emit", fast("changes", of=["changes", "final"]))
def test_sliding_windows_are_rebuilt_from_their_files(undisturbed, emit):
    assert played(emit, disturbed.restarting) == undisturbed[emit]


# ---- what is said and refused ----


def test_the_plan_says_what_sliding_windows_keep():
    text = str(sliding(size=5, grace=10).explain())
    assert "sliding 5 seconds, grace 10 seconds" in text
    assert "a row per (k, event time), dropped when no open window reaches it" in text


@pytest.mark.parametrize(
    ("size", "grace", "said"),
    [
        ("0 seconds", "1 s", "a sliding window needs a size above zero"),
        ("-1 minute", "1 s", "a sliding window needs a size above zero"),
        ("soon", "1 s", "'soon' is not a window size"),
        ("1 month", "1 s", "'1 month' is not a window size"),
        (5, "1 s", "5 is not a window size"),
        ("1 s", "-1 s", "grace is below zero"),
        ("1 s", None, "None is not a grace"),
    ],
)
def test_a_size_or_grace_that_makes_no_window_is_refused(size, grace, said):
    with pytest.raises(hr.HeadraceError, match=said):
        hr.sliding(size, grace=grace)


def test_grace_has_no_default():
    with pytest.raises(TypeError, match="grace"):
        hr.sliding("1 second")


def test_a_row_that_a_table_replaces_leaves_its_windows(drive):
    """Whenever the change comes, it goes from the windows of its own time, and they with it."""
    app = hr.App("replaced")
    table = app.table("t", "id int, k string, v int, at timestamp", key="id", event_time="at")
    slides = table.group_by("k").window(hr.sliding("5 seconds", grace="100 seconds"))
    slides.agg(n="count(*)", kinds="collect_set(v)").named("slides").to_view("slides")
    driver = drive(app, shards=2)
    driver.send("t", *({"id": number, **row("A", second, number)} for number, second in enumerate((8, 9.2, 12.4), 1)))
    driver.step()
    assert windows_of(driver.view("slides")) == FIVE
    driver.send("t", {"id": 2, **row("A", 30, 4)})
    driver.step()
    assert windows_of(driver.view("slides")) == [
        ("A", "3 to 8", 1, [1]),
        ("A", "7.4 to 12.4", 2, [1, 3]),
        ("A", "8+ to 13+", 1, [3]),
        ("A", "25 to 30", 1, [4]),
    ]
    driver.delete("t", id=2)
    driver.delete("t", id=1)
    driver.step()
    assert windows_of(driver.view("slides")) == [("A", "7.4 to 12.4", 1, [3])]


@pytest.mark.parametrize("emit", ["changes", "final"])
def test_an_app_has_not_caught_up_before_a_row_that_no_window_took_is_late(emit):
    app = hr.App("slides")
    rows = app.stream("t", "k string, v int, at timestamp", event_time="at").group_by("k")
    table = rows.window(hr.sliding("10 seconds", grace="0 seconds"), emit=emit).agg(n="count(*)").named("w")
    table.late.to_view("late")
    with Driver(app) as driver:
        for key, second in (("b", 100), ("a", 95), ("b", 200)):
            driver.send("t", row(key, second))
            while not driver.caught_up:
                driver.step()
        assert [each["at"] for each in driver.view("late")] == [at(95)]
        assert driver.counts("w")["late"] == 1
