"""Windows of a zone's calendar: days of 23 and 25 hours, months, and what closes when; on both carriers."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples
from headrace.testing import Driver

PARIS = ZoneInfo("Europe/Paris")


def paris(text):
    """Return the instant at which the clocks of Paris show something."""
    return datetime.fromisoformat(text).replace(tzinfo=PARIS).astimezone(UTC)


def spans(rows):
    return [(row["window_start"], row["window_end"], row["n"]) for row in rows]


def counting(window, emit="changes", **options):
    app = hr.App("calendar")
    table = (
        app.stream("t", "k string, at timestamp", event_time="at", **options)
        .group_by("k")
        .window(window, emit=emit)
        .agg(n="count(*)", kinds="count(distinct at)")
        .named("counts")
    )
    table.to_view("counts")
    table.to_topic("counts")
    table.late.to_topic("late")
    return app


def test_a_day_of_paris_has_25_hours_in_october_and_23_in_march(drive):
    driver = drive(counting(hr.tumbling("1 day", grace="0 s", timezone="Europe/Paris")))
    for day in ("2026-03-29", "2026-10-25"):
        first = paris(f"{day}T00:00")
        driver.send("t", *({"k": "a", "at": first + timedelta(hours=hour)} for hour in range(-1, 26)))
        driver.step()
    assert spans(driver.view("counts")) == [
        (paris("2026-03-28"), paris("2026-03-29"), 1),
        (paris("2026-03-29"), paris("2026-03-30"), 23),
        (paris("2026-03-30"), paris("2026-03-31"), 3),
        (paris("2026-10-24"), paris("2026-10-25"), 1),
        (paris("2026-10-25"), paris("2026-10-26"), 25),
        (paris("2026-10-26"), paris("2026-10-27"), 1),
    ]


def test_a_month_closes_at_its_end_and_grace_in_its_zone(drive):
    """23:30 UTC on the 31st is another month in Paris; late rows come out as they came, corrections withdraw."""
    driver = drive(counting(hr.tumbling("1 month", grace="1 hour", timezone="Europe/Paris")))
    driver.send("t", {"k": "a", "at": "2026-01-31 22:59:59"}, {"k": "a", "at": "2026-01-31 23:30"})
    driver.step()
    driver.send("t", {"k": "a", "at": "2026-01-10"}, {"k": "a", "at": "2026-01-31 23:59:59"})
    driver.step()
    assert spans(driver.view("counts")) == [
        (paris("2026-01-01"), paris("2026-02-01"), 2),
        (paris("2026-02-01"), paris("2026-03-01"), 2),
    ]
    driver.send("t", {"k": "b", "at": "2026-02-01 00:00"})  # the watermark comes to the end and an hour
    driver.step()
    driver.send("t", {"k": "late", "at": "2026-01-31 22:59:59"}, {"k": "a", "at": "2026-01-31 23:00:00"})
    driver.step()
    late = {"k": "late", "at": datetime(2026, 1, 31, 22, 59, 59, tzinfo=UTC)}
    assert driver.late("counts") == [late]
    assert driver.read("late") == [late]
    assert spans(driver.view("counts"))[0] == (paris("2026-01-01"), paris("2026-02-01"), 2)
    driver.run()
    assert driver.counts("counts")["state_rows"] <= 6, "January is forgotten"


def test_final_of_a_month_comes_once_when_it_closes(drive):
    driver = drive(counting(hr.tumbling("1 month", grace="2 hours", timezone="Europe/Paris"), emit="final"))
    got = []
    for text in ("2026-03-01T10:00", "2026-03-31T23:59", "2026-04-01T01:59", "2026-04-01T02:00", "2026-05-03T00:00"):
        driver.send("t", {"k": "a", "at": paris(text)})
        driver.step()
        got.append(spans(driver.read("counts")))
    march = (paris("2026-03-01"), paris("2026-04-01"), 2)
    assert got == [[], [], [], [], [march]]
    driver.finish()
    assert spans(driver.read("counts")) == [
        (paris("2026-04-01"), paris("2026-05-01"), 2),
        (paris("2026-05-01"), paris("2026-06-01"), 1),
    ]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (hr.tumbling("1 week", grace="0 s", timezone="Europe/Paris"), [("2026-03-23", "2026-03-30")]),
        (
            hr.tumbling("1 week", grace="0 s", offset="-1 day", timezone="Europe/Paris"),
            [("2026-03-29", "2026-04-05")],
        ),
        (hr.tumbling("3 months", grace="0 s", timezone="Europe/Paris"), [("2026-01-01", "2026-04-01")]),
        (hr.tumbling("1 quarter", grace="0 s", timezone="Europe/Paris"), [("2026-01-01", "2026-04-01")]),
        (
            hr.tumbling("1 year", grace="0 s", offset="3 months", timezone="Europe/Paris"),
            [("2025-04-01", "2026-04-01")],
        ),
        (
            hr.tumbling("1 month", grace="0 s", offset="27 days", timezone="Europe/Paris"),
            [("2026-03-28", "2026-04-28")],
        ),
        (
            hr.tumbling("12 hours", grace="0 s", offset="6 hours", timezone="Europe/Paris"),
            [("2026-03-29T06:00", "2026-03-29T18:00")],
        ),
        (hr.tumbling("8 hours", grace="0 s", timezone="Europe/Paris"), [("2026-03-29T08:00", "2026-03-29T16:00")]),
        (
            hr.hopping("2 months", "1 month", grace="0 s", timezone="Europe/Paris"),
            [("2026-02-01", "2026-04-01"), ("2026-03-01", "2026-05-01")],
        ),
        (
            hr.hopping("1 week", "3 days", grace="0 s", timezone="Europe/Paris"),
            [("2026-03-23", "2026-03-30"), ("2026-03-26", "2026-04-02"), ("2026-03-29", "2026-04-05")],
        ),
        (
            hr.cumulating("1 year", "1 quarter", grace="0 s", timezone="Europe/Paris"),
            [("2026-01-01", f"{month}-01") for month in ("2026-04", "2026-07", "2026-10", "2027-01")],
        ),
        (
            hr.cumulating("1 day", "6 hours", grace="0 s", timezone="Europe/Paris"),
            [("2026-03-29", "2026-03-29T12:00"), ("2026-03-29", "2026-03-29T18:00"), ("2026-03-29", "2026-03-30")],
        ),
        (
            hr.cumulating("1 week", "1 day", grace="0 s", timezone="Europe/Paris"),
            [("2026-03-23", "2026-03-30")],
        ),
    ],
    ids=lambda each: str(each) if isinstance(each, hr.Window) else "",
)
def test_windows_stand_where_the_calendar_says(window, expected):
    """Sunday, March 29, 2026, 11:30 in Paris, the day on which clocks were set forward."""
    with Driver(counting(window)) as driver:
        driver.send("t", {"k": "a", "at": paris("2026-03-29T11:30")})
        driver.run()
        assert spans(driver.view("counts")) == [(paris(start), paris(end), 1) for start, end in expected]


@pytest.mark.on_spark
def test_an_hour_that_the_clock_shows_twice_is_one_window(drive):
    driver = drive(counting(hr.tumbling("1 hour", grace="0 s", timezone="Europe/Paris")))
    driver.send("t", *({"k": "a", "at": f"2026-10-25 0{hour}:30"} for hour in range(3)))
    driver.run()
    two, three = datetime(2026, 10, 25, 0, tzinfo=UTC), datetime(2026, 10, 25, 2, tzinfo=UTC)
    assert spans(driver.view("counts")) == [(two, three, 2), (three, three + timedelta(hours=1), 1)]


def test_rows_of_other_centuries_have_windows_too():
    """Local mean time in Paris was 9 minutes and 21 seconds ahead of Greenwich."""
    app = counting(hr.tumbling("1 day", grace="0 s", timezone="Europe/Paris"), out_of_order="999999 days")
    with Driver(app) as driver:
        driver.send("t", *({"k": "a", "at": at} for at in ("0900-06-01 12:00", "1850-06-01 23:55", "2999-12-31 12:00")))
        driver.run()
        mean, day = timedelta(minutes=9, seconds=21), timedelta(days=1)
        starts = [datetime(900, 6, 1, tzinfo=UTC) - mean, datetime(1850, 6, 2, tzinfo=UTC) - mean]
        starts.append(datetime(2999, 12, 30, 23, tzinfo=UTC))
        assert spans(driver.view("counts")) == [(start, start + day, 1) for start in starts]


DAYS = {"2018-11-03": "America/Sao_Paulo", "2025-11-01": "America/Havana", "2026-10-24": "Europe/Paris"}


@pytest.mark.parametrize("emit", ["changes", "final"])
@settings(max_examples=examples(4))
@given(
    day=st.sampled_from(sorted(DAYS)),
    epochs=st.lists(st.lists(st.integers(0, 80), max_size=6), min_size=1, max_size=8),
    grace=st.sampled_from([0, 1, 5]),
    restart=st.booleans(),
)
def test_every_row_is_in_its_day_or_late_after_every_epoch(emit, day, epochs, grace, restart):
    """Against a day told by the clock's own date, and a watermark kept by hand; hours around a change of the clock."""
    zone = ZoneInfo(DAYS[day])
    began = datetime.fromisoformat(day).replace(tzinfo=UTC)
    open_, closed, late, watermark, most = Counter(), Counter(), [], None, None

    with Driver(counting(hr.tumbling("1 day", grace=f"{grace} hours", timezone=zone.key), emit=emit)) as driver:
        for epoch in epochs:
            hours = [began + timedelta(hours=hour, minutes=hour * 7) for hour in epoch]
            driver.send("t", *({"k": "a", "at": hour} for hour in hours))
            driver.step()
            if restart:
                driver.restart()
            for date in [each for each in open_ if _over(each, zone, watermark, grace)]:
                closed[date] = open_.pop(date)
            for hour in hours:
                date = hour.astimezone(zone).date()
                if _over(date, zone, watermark, grace):
                    late.append(hour)
                else:
                    open_[date] += 1
            most = max([*hours, *([most] if most else [])], default=None)
            watermark = most
            expected = closed if emit == "final" else closed + open_
            assert {row["window_start"].astimezone(zone).date(): row["n"] for row in driver.view("counts")} == expected
            assert [row["at"] for row in driver.late("counts")] == late


def _over(date, zone, watermark, grace):
    """Return whether a day is closed: its clock shows the next one, `grace` hours before the watermark."""
    if watermark is None:
        return False
    return (watermark - timedelta(hours=grace)).astimezone(zone).date() > date
