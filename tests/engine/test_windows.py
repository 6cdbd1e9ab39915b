"""The vectors of the rules on windows, grace, final results and late rows; on both carriers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import headrace as hr
from budget import matrix
from headrace.testing import Driver


def at(ms):
    return datetime.fromtimestamp(ms / 1000, tz=UTC)


def clock(text):
    return datetime.fromisoformat(f"2026-01-05T{text}:00+00:00")


def spans(rows):
    return [(row["window_start"], row["window_end"], row["n"]) for row in rows]


def counting(window, emit="changes", **options):
    """An app that counts all rows in windows; everything it says is at `counts`."""
    app = hr.App("windows")
    table = (
        app.stream("t", "k string, at timestamp", event_time="at", **options)
        .group_by()
        .window(window, emit=emit)
        .agg(n="count(*)")
        .named("counts")
    )
    table.to_view("counts")
    table.to_topic("counts")
    table.late.to_topic("late")
    return app


def test_hopping_windows_align_to_the_epoch(drive):
    """Size 5000 every 3000 gives [0,5000) [3000,8000) …, wherever the first record is."""
    driver = drive(counting(hr.hopping("5000 ms", "3000 ms", grace="0 s")))
    driver.send("t", {"at": 1452}, {"at": 3500})
    driver.run()
    assert spans(driver.view("counts")) == [
        (at(-3000), at(2000), 1),
        (at(0), at(5000), 2),
        (at(3000), at(8000), 1),
    ]


def test_a_window_is_closed_at_its_start_and_open_at_its_end(drive):
    driver = drive(counting(hr.tumbling("5 s", grace="0 s")))
    driver.send("t", {"at": 5000}, {"at": 9999}, {"at": 10000})
    driver.run()
    assert spans(driver.view("counts")) == [(at(5000), at(10000), 2), (at(10000), at(15000), 1)]


def test_windows_before_1970_align_too(drive):
    driver = drive(counting(hr.tumbling("5 s", grace="0 s")))
    driver.send("t", {"at": -1}, {"at": -5000}, {"at": -5001})
    driver.run()
    assert spans(driver.view("counts")) == [(at(-10000), at(-5000), 1), (at(-5000), at(0), 2)]


def test_grace_takes_rows_until_the_watermark_reaches_end_and_grace(drive):
    """A 09:00 to 10:00 window with 10 minutes of grace takes records until the watermark reaches 10:10."""
    driver = drive(counting(hr.tumbling("1 hour", grace="10 minutes")))
    driver.send("t", {"at": clock("09:30")}, {"at": clock("10:09")})
    driver.step()
    driver.send("t", {"at": clock("09:59")})
    driver.step()
    assert spans(driver.view("counts"))[0] == (clock("09:00"), clock("10:00"), 2)
    assert driver.late("counts") == []
    driver.send("t", {"at": clock("10:10")})
    driver.step()
    driver.send("t", {"k": "too late", "at": clock("09:58")})
    driver.step()
    assert spans(driver.view("counts"))[0] == (clock("09:00"), clock("10:00"), 2)
    assert driver.late("counts") == [{"k": "too late", "at": clock("09:58")}]
    driver.run()
    assert driver.read("late") == [{"k": "too late", "at": clock("09:58")}]


@pytest.mark.on_spark
def test_a_correction_withdraws_and_emits_again(drive):
    driver = drive(counting(hr.tumbling("1 hour", grace="10 minutes")))
    driver.send("t", {"at": clock("09:30")})
    driver.step()
    driver.send("t", {"at": clock("09:10")})
    driver.step()
    assert [row["n"] for row in driver.read("counts")] == [1, 2]


@pytest.mark.on_spark
def test_final_gives_one_result_a_window_at_end_and_grace(drive):
    """The case to keep: "alert when count < 3 in an hour" is wrong on every early result."""
    driver = drive(counting(hr.tumbling("1 hour", grace="10 minutes"), emit="final"))
    for minute in ("09:05", "09:30", "09:55", "10:09"):
        driver.send("t", {"at": clock(minute)})
        driver.step()
        assert driver.read("counts") == []
    driver.send("t", {"at": clock("10:10")})
    driver.step()
    assert driver.read("counts") == []
    driver.step()
    assert spans(driver.read("counts")) == [(clock("09:00"), clock("10:00"), 3)]
    driver.finish()
    assert spans(driver.read("counts")) == [(clock("10:00"), clock("11:00"), 2)]


def test_final_of_hopping_windows_gives_each_window_once(drive):
    """Quiet stretches, windows that share panes, and windows that close in one epoch."""
    driver = drive(counting(hr.hopping("6 s", "2 s", grace="1 s"), emit="final"))
    got = []
    for ms in (1000, 3000, 3500, 20000, 21000, 40000):
        driver.send("t", {"at": ms})
        driver.step()
        got += spans(driver.read("counts"))
    driver.finish()
    got += spans(driver.read("counts"))
    expected = {}
    for ms in (1000, 3000, 3500, 20000, 21000, 40000):
        for start in range(-6000, 42000, 2000):
            if start <= ms < start + 6000:
                expected[start] = expected.get(start, 0) + 1
    assert got == [(at(start), at(start + 6000), n) for start, n in sorted(expected.items())]


def test_cumulating_windows_grow_by_steps_within_their_period(drive):
    """A row is in every window of its period that ends after it; the next period begins anew."""
    driver = drive(counting(hr.cumulating("6 s", "2 s", grace="0 s")))
    driver.send("t", {"at": 0}, {"at": 3999}, {"at": 4000}, {"at": 6000})
    driver.run()
    assert spans(driver.view("counts")) == [
        (at(0), at(2000), 1),
        (at(0), at(4000), 2),
        (at(0), at(6000), 3),
        (at(6000), at(8000), 1),
        (at(6000), at(10000), 1),
        (at(6000), at(12000), 1),
    ]


@pytest.mark.parametrize("offset", [0, 1000, 5000])
def test_final_of_cumulating_windows_gives_each_window_once(drive, offset):
    """Closed ones stay as they were while the rest of their period grows; a row late for all of them is late."""
    driver = drive(counting(hr.cumulating("6 s", "2 s", grace="1 s", offset=f"{offset} ms"), emit="final"))
    sent, expected, watermark, got, late = (1000, 3000, 8500, 500, 3500, 20000, 21000, 16000, 40000), {}, 0, [], []
    for ms in sent:
        start = (ms - offset) // 6000 * 6000 + offset
        opened = [end for end in range(start + 2000, start + 6001, 2000) if ms < end and end + 1000 > watermark]
        for end in opened:
            expected[start, end] = expected.get((start, end), 0) + 1
        late += [] if opened else [{"k": None, "at": at(ms)}]
        driver.send("t", {"at": ms})
        driver.step()
        got += spans(driver.read("counts"))
        watermark = max(watermark, ms)
    driver.finish()
    got += spans(driver.read("counts"))
    assert late
    assert driver.late("counts") == sorted(late, key=lambda row: row["at"])
    assert got == [(at(start), at(end), n) for (start, end), n in sorted(expected.items(), key=lambda each: each[0][1])]


def test_a_row_that_is_late_for_some_windows_enters_the_others(drive):
    """It goes to `.late` only when none is open; a closed window stays as it was."""
    driver = drive(counting(hr.hopping("10 s", "5 s", grace="0 s"), emit="final"))
    driver.send("t", {"at": 7000}, {"at": 12000})
    driver.step()
    driver.step()
    assert spans(driver.read("counts")) == [(at(0), at(10000), 1)]
    driver.send("t", {"at": 8000}, {"k": "gone", "at": 4000})
    driver.step()
    assert driver.late("counts") == [{"k": "gone", "at": at(4000)}]
    driver.finish()
    assert spans(driver.read("counts")) == [(at(5000), at(15000), 3), (at(10000), at(20000), 1)]


@pytest.mark.parametrize("emit", ["changes", "final"])
@pytest.mark.parametrize("window", [hr.hopping("10 s", "5 s", grace="0 s"), hr.cumulating("20 s", "10 s", grace="0 s")])
def test_a_window_that_closes_takes_no_row_of_the_epoch_that_finds_it_closed(window, emit):
    """Final results are those that corrections would have come to: the watermark is older than the rows."""
    with Driver(counting(window, emit=emit)) as driver:
        driver.send("t", {"at": 1000}, {"at": 10_000})
        driver.step()
        driver.send("t", {"at": 7000})
        driver.step()
        driver.finish()
        closed = [(end, n) for _, end, n in spans(driver.view("counts")) if end == at(10_000)]
        assert closed == [(at(10_000), 1)]
        totals = driver.counts("counts")
        assert (totals["late"], totals["partly_late"]) == (0, 1)


def test_the_watermark_delay_and_grace_are_two_numbers(drive):
    driver = drive(counting(hr.tumbling("10 s", grace="2 s"), out_of_order="5 s"))
    driver.send("t", {"at": 1000}, {"at": 16999})
    driver.step()
    assert driver.watermark("t") == at(11999)
    driver.send("t", {"at": 2000})
    driver.step()
    assert driver.late("counts") == []
    driver.send("t", {"at": 17000})
    driver.step()
    driver.send("t", {"at": 3000})
    driver.step()
    assert driver.late("counts") == [{"k": None, "at": at(3000)}]


@pytest.mark.on_spark
def test_rows_in_order_are_never_late_however_unevenly_partitions_are_read(drive):
    """The watermark is the least over the partitions, and an epoch is judged by the one before it."""
    driver = drive(counting(hr.tumbling("1 s", grace="0 s"), partitions=2))
    driver.send("t", *({"at": ms} for ms in range(0, 50_000, 100)), partition=0)
    driver.send("t", *({"at": ms} for ms in range(0, 50_000, 2500)), partition=1)
    while driver.status()["lag"]:
        driver.step(limit=90)
    driver.finish()
    assert driver.late("counts") == []
    assert sum(row["n"] for row in driver.view("counts")) == 520


def test_a_chain_of_windows_loses_nothing_that_came_in_order(drive):
    """A step holds its results back by its grace, so that those below do not find them late."""
    app = hr.App("chain")
    first = (
        app.stream("t", "k string, at timestamp", event_time="at")
        .group_by("k")
        .window(hr.tumbling("1 s", grace="3 s"), emit="final")
        .agg(n="count(*)")
    )
    second = first.group_by().window(hr.tumbling("10 s", grace="0 s"), emit="final").agg(n="sum(n)").named("tens")
    second.to_topic("tens")
    driver = drive(app)
    for ms in range(0, 60_000, 250):
        driver.send("t", {"k": str(ms % 3), "at": ms})
        if ms % 4000 == 0:
            driver.step()
    driver.run()
    driver.finish()
    assert driver.late("tens") == []
    assert spans(driver.read("tens")) == [(at(s), at(s + 10_000), 40) for s in range(0, 60_000, 10_000)]


def test_an_idle_partition_holds_the_watermark_no_longer_than_idle_after():
    app = counting(hr.tumbling("1 s", grace="0 s"), partitions=2, idle_after="30 s")
    with Driver(app) as driver:
        driver.send("t", {"at": 1000}, partition=0)
        driver.send("t", {"at": 90_000}, partition=1)
        driver.step()
        assert driver.watermark("t") == at(1000)
        driver.advance(29)
        driver.send("t", {"at": 91_000}, partition=1)
        driver.step()
        assert driver.watermark("t") == at(1000)
        driver.advance(1)
        driver.run()
        assert driver.watermark("t") == at(91_000)
        driver.send("t", {"at": 2000}, partition=0)
        driver.step()
        assert driver.watermark("t") == at(91_000), "a watermark never goes back"
        assert driver.late("counts") == [{"k": None, "at": at(2000)}]


def test_a_source_without_any_row_holds_the_watermark_of_a_union():
    app = hr.App("union")
    one = app.stream("one", "at timestamp", event_time="at")
    two = app.stream("two", "at timestamp", event_time="at")
    one.union(two).group_by().window(hr.tumbling("1 s", grace="0 s")).agg(n="count(*)").named("n").to_view("n")
    with Driver(app) as driver:
        driver.send("one", {"at": 5000})
        driver.run()
        assert driver.watermark("n") is None
        driver.send("two", {"at": 3000})
        driver.run()
        assert driver.watermark("n") == at(3000)


def test_a_filter_never_holds_the_watermark_back():
    app = hr.App("filter")
    rows = app.stream("t", "k string, at timestamp", event_time="at").where("k = 'rare'")
    rows.group_by().window(hr.tumbling("1 s", grace="0 s"), emit="final").agg(n="count(*)").named("n").to_topic("n")
    with Driver(app) as driver:
        driver.send("t", {"k": "rare", "at": 500})
        driver.send("t", {"k": "common", "at": 9000})
        driver.run()
        assert [row["n"] for row in driver.read("n")] == [1]


@pytest.mark.parametrize(
    ("window", "emit"),
    matrix(
        [hr.hopping("10 s", "5 s", grace="1 s"), hr.cumulating("10 s", "5 s", grace="1 s")],
        ["changes", "final"],
        depth=1,
    ),
)
def test_state_of_closed_windows_is_dropped(window, emit):
    with Driver(counting(window, emit=emit)) as driver:
        sizes = []
        for second in range(0, 200, 5):
            driver.send("t", {"at": second * 1000})
            driver.run()
            sizes.append(driver.counts("counts")["state_rows"])
        assert max(sizes[10:]) <= 5
