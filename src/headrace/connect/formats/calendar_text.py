"""Dates and times as ISO 8601 text, of all years that Arrow has: Python's own types end at 9999."""

from __future__ import annotations

import re

DAY_MICROS = 86_400_000_000
_DATE = r"(?P<year>[+-]?\d{4,7})-(?P<month>\d\d)-(?P<day>\d\d)"
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d+))?)?"
_ZONE = r" ?(?P<zone>z|utc|(?P<sign>[+-])(?P<hours>\d\d)(?::?(?P<minutes>\d\d))?)"
_TIME = re.compile(rf"{_DATE}(?:[t ]{_CLOCK}(?:{_ZONE})?)?", re.ASCII | re.IGNORECASE)
_ONLY_DATE = re.compile(_DATE, re.ASCII)
_MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def days_since_1970(year: int, month: int, day: int) -> int:
    """Return the day's number in the Gregorian calendar, 1970-01-01 being 0 (Hinnant, days_from_civil)."""
    year -= month <= 2
    era, month = year // 400, (month + 9) % 12
    in_era = year - era * 400
    return era * 146097 + in_era * 365 + in_era // 4 - in_era // 100 + (153 * month + 2) // 5 + day - 1 - 719468


def date_of(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a day's number (Hinnant, civil_from_days)."""
    era, of_era = divmod(days + 719468, 146097)
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year + era * 400 + (month <= 2), month, day


def days(text: str) -> int | None:
    """Return the number of the day that a text names, `2026-01-31`; None if it names none."""
    found = _ONLY_DATE.fullmatch(text)
    return None if found is None else _days(found)


def micros(text: str, *, local: bool = False) -> int | None:
    """Return microseconds since 1970 of `2026-01-31T10:00:00.5+02:00`, UTC without a zone; None if it is no time.

    Digits after the sixth of a fraction are cut off. The clock may be left out. `local`: the zone is ignored.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    days = _days(found)
    hour, minute, second, behind = (int(found[part] or 0) for part in ("hour", "minute", "second", "minutes"))
    fraction = int(((found["fraction"] or "") + "000000")[:6])
    ends_day = hour == 24 and not minute + second + fraction
    if days is None or (hour > 23 and not ends_day) or max(minute, second, behind) > 59:
        return None
    seconds = hour * 3600 + minute * 60 + second
    if found["sign"] and not local:
        offset = int(found["hours"]) * 3600 + behind * 60
        seconds += -offset if found["sign"] == "+" else offset
    return days * DAY_MICROS + seconds * 1_000_000 + fraction


def date_text(days: int) -> str:
    """Return a day as ISO text; years beyond 9999 have a sign."""
    year, month, day = date_of(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{month:02}-{day:02}"


def time_text(micros: int, zone: str) -> str:
    """Return a time as ISO text, followed by `zone`."""
    days, of_day = divmod(micros, DAY_MICROS)
    seconds, fraction = divmod(of_day, 1_000_000)
    shown = f".{fraction:06}" if fraction else ""
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{date_text(days)}T{clock}{shown}{zone}"


def _days(found: re.Match[str]) -> int | None:
    year, month, day = int(found["year"]), int(found["month"]), int(found["day"])
    if not 1 <= month <= 12:
        return None
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return days_since_1970(year, month, day) if 1 <= day <= _MONTHS[month - 1] + leap else None
