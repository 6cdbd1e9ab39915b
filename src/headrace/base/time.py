"""Clocks, durations and instants. This is the only file that reads the machine's clock, or waits.

Inside Headrace an instant is an `int`: microseconds since 1970-01-01 UTC, as Spark and Arrow count.
"""

from __future__ import annotations

import re
import threading
import time
from datetime import UTC, date, datetime, timedelta
from typing import Protocol
from weakref import WeakKeyDictionary

from headrace.base.errors import InvalidTime

MICROS = 1_000_000
END_OF_TIME = 253_402_300_799_999_999  # 9999-12-31 23:59:59.999999, the last instant of Spark's timestamps
_FIRST = -62_135_596_800_000_000  # 0001-01-01, the first instant of a datetime
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": MICROS,
    "minute": 60 * MICROS,
    "hour": 3_600 * MICROS,
    "day": 86_400 * MICROS,
    "week": 7 * 86_400 * MICROS,
}
_SHORT = {"us": "microsecond", "ms": "millisecond", "s": "second", "sec": "second", "min": "minute", "m": "minute",
          "h": "hour", "d": "day"}  # fmt: skip
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")


class Clock(Protocol):
    """A source of time. It is a parameter wherever time matters, so that tests never sleep."""

    def now(self) -> int:
        """Return the instant in microseconds since 1970 UTC; it may jump, also backwards."""
        ...

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        """Return the machine's wall clock."""
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        """Return the machine's monotonic clock, in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        time.sleep(seconds)


class ManualClock:
    """A clock that moves only when a test moves it, or when something sleeps."""

    def __init__(self, start: int = 1_735_689_600 * MICROS) -> None:
        self._now = start
        self._lock = threading.Lock()

    def now(self) -> int:
        """Return the instant that it shows."""
        return self._now

    def monotonic(self) -> float:
        """Return the same instant in seconds."""
        return self._now / MICROS

    def sleep(self, seconds: float) -> None:
        """Move the clock instead of waiting."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move the clock forward by this many seconds."""
        with self._lock:
            self._now += round(seconds * MICROS)


class Stamps:
    """Instants of a clock of which no two are equal in this process, so that they say what came first."""

    def __init__(self) -> None:
        self._last: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def next(self, clock: Clock) -> int:
        """Return the clock's instant, or the one after the last that was returned, where that is later."""
        of = _MACHINE if isinstance(clock, SystemClock) else clock
        with self._lock:
            stamp = max(clock.now(), self._last.get(of, 0) + 1)
            self._last[of] = stamp
        return stamp


_MACHINE = SystemClock()
STAMPS = Stamps()
"""The stamps of this process: of the machine's clock, and of each clock of a test."""


def duration(value: str | timedelta, *, what: str = "duration") -> int:
    """Return a length of time in microseconds: `"10 seconds"`, `"1 hour 30 minutes"`, `"-5 s"` or a timedelta.

    Months and years have no fixed length and are refused.

    Raises:
        InvalidTime: the value is not a duration; `what` names it in the error.

    """
    if isinstance(value, timedelta) and abs(value // timedelta(microseconds=1)) <= END_OF_TIME:
        return value // timedelta(microseconds=1)
    if isinstance(value, str):
        parts = _parts(value)
        if parts is not None:
            return parts
    raise InvalidTime(
        f"{value!r} is not a {what}",
        detail=f"Expected are numbers with a unit: {', '.join(_UNITS)} (also plural); less than 8 000 years in all.",
        hint='For example "10 seconds" or "1 hour 30 minutes".',
    )


def waiting_time(value: str | timedelta, *, what: str) -> int:
    """Return a duration from 0 on, in microseconds.

    Raises:
        InvalidTime: it is none, or below zero.

    """
    micros = duration(value, what=what)
    if micros < 0:
        raise InvalidTime(f"{what}={value!r} is below zero", hint='For example "10 seconds".')
    return micros


def _parts(text: str) -> int | None:
    total, at = 0.0, 0
    while at < len(text):
        found = _PART.match(text, at)
        if not found:
            return None
        unit = found[2].lower()
        unit = _SHORT.get(unit, unit.removesuffix("s") if unit not in _SHORT else unit)
        if unit not in _UNITS:
            return None
        total += float(found[1]) * _UNITS[unit]
        at = found.end()
    return round(total) if at and abs(total) <= END_OF_TIME else None


def instant(value: object) -> int:
    """Return an instant in microseconds: from ISO text, a datetime (naive means UTC), a date, or epoch *milliseconds*.

    Raises:
        InvalidTime: it is none of these.

    """
    if isinstance(value, bool):
        raise InvalidTime(f"{value!r} is not a time")
    if isinstance(value, int):
        return value * 1_000
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (datetime(value.year, value.month, value.day, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, str):
        try:
            return instant(datetime.fromisoformat(value.strip()))
        except ValueError:
            pass
    raise InvalidTime(
        f"{value!r} is not a time",
        hint='Give ISO text ("2026-01-31 10:00:00"), a datetime, or milliseconds since 1970.',
    )


def as_datetime(micros: int) -> datetime:
    """Return an instant as an aware datetime in UTC: the nearest that a datetime can be, of the years 1 to 9999."""
    return _EPOCH + timedelta(microseconds=min(max(micros, _FIRST), END_OF_TIME))


def show_duration(micros: int) -> str:
    """Return a duration as people write it: `1 hour 30 minutes`."""
    if micros == 0:
        return "0 seconds"
    parts, rest = [], abs(micros)
    for unit in reversed(_UNITS):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    return ("-" if micros < 0 else "") + " ".join(parts)
