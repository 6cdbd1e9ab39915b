"""Months, days and hours of a time zone: the periods of its calendar, numbered without gaps.

A period begins when the zone's clock first shows its start, and ends when the clock first shows its end. So a day in
March may have 23 hours and one in October 25. If the clock skips midnight, the day begins at the skip; if it shows
midnight twice, the first counts. A day that a zone left out (Samoa, 2011-12-30) is a period of length 0. Instants and
lengths are in microseconds; a local time is what the zone's clock shows, counted as if the zone were UTC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, available_timezones

import numpy as np

from headrace.base.errors import InvalidTime
from headrace.base.time import END_OF_TIME, MICROS, duration, show_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

HOUR, DAY, WEEK = 3_600 * MICROS, 86_400 * MICROS, 7 * 86_400 * MICROS
MONDAY = -3 * DAY
"""The Monday before 1970-01-01, a Thursday: weeks begin there."""

_START_OF_TIME = -62_135_596_800 * MICROS  # 0001-01-01, the first instant of Python's calendar and of Spark's
_LAST_DAY = END_OF_TIME - DAY  # a zone's clock must not show the year 10000, nor the year 0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_IN_MONTHS = re.compile(r"(?<![\d.])([+-]?\d+)\s*(month|quarter|year)s?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Length:
    """A number of months and of microseconds; `weekly` if it was written in weeks, which begin on Mondays."""

    months: int
    micros: int
    weekly: bool = False


def length(value: str | timedelta, *, what: str = "length") -> Length:
    """Return a length that may have months, quarters and years: `"1 month"`, `"1 year 6 months"`, `"2 weeks"`.

    Raises:
        InvalidTime: the value is not a length; `what` names it in the error.

    """
    if not isinstance(value, str):
        return Length(0, duration(value, what=what))
    months = sum(int(count) * _MONTHS[unit.lower()] for count, unit in _IN_MONTHS.findall(value))
    rest = _IN_MONTHS.sub(" ", value)
    micros = 0 if rest != value and not rest.strip() else duration(rest if rest != value else value, what=what)
    weekly = "week" in rest.lower() and micros % WEEK == 0
    return Length(months, micros, weekly)


def show_length(value: Length) -> str:
    """Return a length as people write it: `1 year 6 months`, `7 days`."""
    years, months = divmod(value.months, 12) if value.months >= 0 else (0, value.months)
    parts = [
        f"{count} {unit}{'s' if abs(count) != 1 else ''}"
        for count, unit in ((years, "year"), (months, "month"))
        if count
    ]
    if value.micros % DAY == 0 and value.micros and not value.weekly:
        days = value.micros // DAY
        parts.append(f"{days} day{'s' if abs(days) != 1 else ''}")
    elif value.micros or not parts:
        parts.append(show_duration(value.micros))
    return " ".join(parts)


def check_zone(name: str) -> str:
    """Return the name of a time zone if this machine knows it.

    Raises:
        InvalidTime: it does not.

    """
    if isinstance(name, str) and name in available_timezones():
        return name
    raise InvalidTime(f"{name!r} is not a known time zone", hint='For example "Europe/Paris" or "UTC".')


@dataclass(frozen=True, slots=True)
class Calendar:
    """Periods of `months` months or, if that is 0, of `micros`; period 0 begins when the clock shows `anchor`.

    The rules of zones are those of the machine's time zone database.
    """

    zone: str
    months: int
    micros: int
    anchor: int

    def start(self, number: int) -> int:
        """Return the instant at which a period begins; the one before it ends there."""
        return _start(self, number)

    def starts(self, numbers: Iterable[int]) -> list[int]:
        """Return the instants at which periods begin."""
        return [_start(self, number) for number in numbers]

    def number(self, instant: int) -> int:
        """Return the period that an instant is in."""
        found = self._period_of(instant + _offset(self.zone, instant))
        while _start(self, found + 1) <= instant:
            found += 1
        while _start(self, found) > instant:
            found -= 1
        return found

    def local_start(self, number: int) -> int:
        """Return the local time at which a period begins."""
        if not self.months:
            return number * self.micros + self.anchor
        return int(np.datetime64(number * self.months, "M").astype("datetime64[us]").astype(np.int64)) + self.anchor

    def _period_of(self, local: int) -> int:
        """Return the period of a local time."""
        if not self.months:
            return (local - self.anchor) // self.micros
        month = np.datetime64(local - self.anchor, "us").astype("datetime64[M]").astype(np.int64)
        return int(month) // self.months


@lru_cache(maxsize=1 << 16)
def _start(calendar: Calendar, number: int) -> int:
    return _first(calendar.zone, calendar.local_start(number))


def _first(zone: str, local: int) -> int:
    """Return the first instant at which a zone's clock shows a local time, or jumps past it."""
    if not _START_OF_TIME + DAY <= local <= _LAST_DAY:
        return local - _offset(zone, local)
    shown = datetime(1970, 1, 1) + timedelta(microseconds=local)  # noqa: DTZ001 -- what a clock shows
    before, after = (_micros(shown.replace(tzinfo=ZoneInfo(zone), fold=fold).utcoffset()) for fold in (0, 1))
    found = local - before
    if _offset(zone, found) == before:
        return found
    return _jump(zone, local - after, found)  # the clock skips this local time


def _jump(zone: str, low: int, high: int) -> int:
    """Return the instant in (low, high], a whole second, at which the zone's clock is set forward."""
    before, least, most = _offset(zone, low), low // MICROS, -(-high // MICROS)
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if _offset(zone, middle * MICROS) == before else (least, middle)
    return most * MICROS


def _offset(zone: str, instant: int) -> int:
    """Return how far a zone's clock is ahead of UTC."""
    within = min(max(instant, _START_OF_TIME + DAY), _LAST_DAY)
    return _micros((_EPOCH + timedelta(microseconds=within)).astimezone(ZoneInfo(zone)).utcoffset())


def _micros(offset: Any) -> int:
    micros: int = offset // timedelta(microseconds=1)
    return micros


def common(lengths: Iterable[Length]) -> Length | None:
    """Return the longest length of which all are multiples, or None if some have months and others days."""
    listed = list(lengths)
    months, micros = gcd(*(length.months for length in listed)), gcd(*(length.micros for length in listed))
    return None if months and micros else Length(months, micros)
