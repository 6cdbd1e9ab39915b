"""Dates and times of the usual form, from bytes, in compiled code; other forms are for `calendar_text`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.connect.compiled import inlined

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@inlined
def _two(data: Array, at: int) -> int:
    """Return the number of two digits, or -1000."""
    tens, ones = int(data[at]) - 48, int(data[at + 1]) - 48
    return tens * 10 + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else -1000


@inlined
def day_of(data: Array, at: int, end: int) -> Any:
    """Read `2026-01-31` at a place: whether it is a date, and the number of its day."""
    if end - at < 10 or data[at + 4] != 45 or data[at + 7] != 45:
        return False, 0
    year, month, day = _two(data, at) * 100 + _two(data, at + 2), _two(data, at + 5), _two(data, at + 8)
    if year < 0 or not 1 <= month <= 12 or day < 1:
        return False, 0
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    length = 30 + ((month + (month > 7)) & 1) if month != 2 else 28 + leap
    if day > length:
        return False, 0
    if month <= 2:
        year -= 1
    era = year // 400
    in_era, of_year = year - era * 400, (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return True, era * 146097 + in_era * 365 + in_era // 4 - in_era // 100 + of_year - 719468


@inlined
def micros_of(data: Array, at: int, end: int, local: bool) -> Any:  # noqa: FBT001 -- numba has no keywords alone
    """Read `2026-01-31T10:00:00.5+02:00`: whether it is a time of this form, and its microseconds since 1970."""
    read, day = day_of(data, at, end)
    if not read or end - at < 19 or (data[at + 10] != 84 and data[at + 10] != 32):
        return False, 0
    hour, minute, second = _two(data, at + 11), _two(data, at + 14), _two(data, at + 17)
    if data[at + 13] != 58 or data[at + 16] != 58 or min(hour, minute, second) < 0:
        return False, 0
    if hour > 23 or minute > 59 or second > 59:
        return False, 0
    at += 19
    fraction = 0
    if at < end and data[at] == 46:
        begun, unit = at + 1, 100_000
        at += 1
        while at < end and 48 <= data[at] <= 57:
            fraction += (int(data[at]) - 48) * unit
            unit //= 10
            at += 1
        if at == begun:
            return False, 0
    seconds = hour * 3600 + minute * 60 + second
    if at < end:
        if data[at] == 90 and at + 1 == end:
            at = end
        elif (data[at] == 43 or data[at] == 45) and at + 6 == end and data[at + 3] == 58:
            hours, minutes = _two(data, at + 1), _two(data, at + 4)
            if hours < 0 or not 0 <= minutes <= 59:
                return False, 0
            offset = 0 if local else hours * 3600 + minutes * 60
            seconds += offset if data[at] == 45 else -offset
        else:
            return False, 0
    return True, (day * 86_400 + seconds) * 1_000_000 + fraction
