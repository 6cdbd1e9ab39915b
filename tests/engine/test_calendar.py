"""Periods of a zone's calendar against their definition: a clock that is read minute by minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.calendar import DAY, HOUR, MONDAY, Calendar, Length, check_zone, length, show_length
from headrace.base.errors import InvalidTime

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICRO = timedelta(microseconds=1)
CHANGES = [
    ("Europe/Paris", "2026-03-29"),  # 02:00 to 03:00
    ("Europe/Paris", "2026-10-25"),  # 03:00 to 02:00
    ("America/Sao_Paulo", "2018-11-04"),  # midnight to 01:00
    ("America/Sao_Paulo", "2019-02-17"),  # midnight to 23:00
    ("Asia/Beirut", "2023-03-30"),  # midnight to 01:00, with four days' notice
    ("America/Havana", "2025-11-02"),  # 01:00 to midnight: two midnights
    ("America/St_Johns", "2010-11-07"),  # 00:01 to 23:01 of the day before
    ("America/Toronto", "1919-03-31"),  # 23:30 to 00:30: midnight is in the gap
    ("Pacific/Apia", "2011-12-30"),  # a day that never was
    ("Pacific/Kwajalein", "1993-08-21"),  # the same
    ("Australia/Lord_Howe", "2026-04-05"),  # half an hour
    ("Asia/Kathmandu", "1986-01-01"),  # +05:30 to +05:45
    ("UTC", "2026-03-29"),
]
UNITS = {"day": (0, DAY), "6 hours": (0, 6 * HOUR), "hour": (0, HOUR), "month": (1, 0), "quarter": (3, 0)}


def micros(moment):
    return (moment - EPOCH) // MICRO


def named(shown, unit):
    """Return the period that a clock's reading is in, told by its name."""
    months = shown.year * 12 + shown.month - 1
    hours = (shown.date().toordinal() * 24) + shown.hour
    return {"day": shown.date(), "6 hours": hours // 6, "hour": hours, "month": months, "quarter": months // 3}[unit]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_a_period_begins_when_the_clock_first_shows_its_start(zone, day, unit):
    """The greatest reading so far says which period it is; minute by minute, four days around a change of the clock."""
    calendar, where = Calendar(zone, *UNITS[unit], 0), ZoneInfo(zone)
    began = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(days=2)
    moments = [began + timedelta(minutes=minute) for minute in range(4 * 1440)]
    most, before = datetime.min, None  # noqa: DTZ901 -- what a clock shows
    for moment in moments:
        most = max(most, moment.astimezone(where).replace(tzinfo=None))
        number, name = calendar.number(micros(moment)), named(most, unit)
        if before is not None and before[1] != name:
            assert number > before[0]
            assert calendar.start(number) == micros(moment)
            assert all(calendar.start(n) == micros(moment) for n in range(before[0] + 1, number)), "skipped ones"
        elif before is not None:
            assert number == before[0], moment
        before = (number, name)


@given(
    zone=st.sampled_from([zone for zone, _ in CHANGES]),
    unit=st.sampled_from([*UNITS.values(), (0, 7 * DAY), (12, 0)]),
    anchor=st.sampled_from([0, MONDAY, 6 * HOUR, -DAY]),
    instant=st.one_of(
        st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59)),  # noqa: DTZ001
        st.datetimes(datetime(1900, 1, 1), datetime(2040, 1, 1)),  # noqa: DTZ001
    ),
)
def test_every_instant_is_in_the_period_that_its_number_says(zone, unit, anchor, instant):
    calendar, at = Calendar(zone, *unit, anchor), micros(instant.replace(tzinfo=UTC))
    number = calendar.number(at)
    assert calendar.start(number) <= at < calendar.start(number + 1)


def test_a_day_has_23_hours_in_march_and_25_in_october():
    days = Calendar("Europe/Paris", 0, DAY, 0)
    hours = {}
    for day in ("2026-03-28", "2026-03-29", "2026-10-25"):
        number = days.number(micros(datetime.fromisoformat(f"{day}T12:00+00:00")))
        hours[day] = (days.start(number + 1) - days.start(number)) // HOUR
    assert hours == {"2026-03-28": 24, "2026-03-29": 23, "2026-10-25": 25}


@pytest.mark.parametrize(
    ("text", "expected", "shown"),
    [
        ("1 month", Length(1, 0), "1 month"),
        ("1 quarter", Length(3, 0), "3 months"),
        ("1 year 6 months", Length(18, 0), "1 year 6 months"),
        ("2 weeks", Length(0, 14 * DAY, weekly=True), "2 weeks"),
        ("7 days", Length(0, 7 * DAY), "7 days"),
        ("6 hours", Length(0, 6 * HOUR), "6 hours"),
        ("3 months 5 days", Length(3, 5 * DAY), "3 months 5 days"),
        ("-1 day", Length(0, -DAY), "-1 day"),
        ("-1 month", Length(-1, 0), "-1 month"),
        ("0 seconds", Length(0, 0), "0 seconds"),
        (timedelta(hours=1), Length(0, HOUR), "1 hour"),
    ],
)
def test_lengths_are_read_and_shown(text, expected, shown):
    assert length(text) == expected
    assert show_length(expected) == shown


@pytest.mark.parametrize("text", ["", "month", "1.5 months", "1 month and a bit", "1 fortnight", 3, None])
def test_what_is_no_length_is_refused(text):
    with pytest.raises(InvalidTime):
        length(text)


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "", None, "+02:00", "../Paris"])
def test_what_is_no_zone_is_refused(zone):
    with pytest.raises(InvalidTime, match="not a known time zone"):
        check_zone(zone)
