"""Zones: the wall clock of a region and the instants of UTC, as `java.time` has them."""

from __future__ import annotations

import re
from zoneinfo import available_timezones

from headrace.base.names import literal
from headrace.expressions import kinds as k
from headrace.expressions.functions import Function, built
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value

_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d))?(?::?(\d\d))?")
_MOST_HOURS = 18


def _zone(value: Value) -> str | int:
    """Return a region's name, or an offset in seconds.

    Raises:
        Mismatch: it is not a constant, or names no zone.

    """
    name = value.constant
    if not isinstance(name, str):
        raise Mismatch("the zone must be a constant text", hint="For example 'Europe/Berlin' or '+02:00'.")
    if name in ("UTC", "GMT", "Z", "UT"):
        return 0
    found = _OFFSET.fullmatch(name)
    if found:
        hours, minutes, seconds = (int(found[i] or 0) for i in (2, 3, 4))
        if hours <= _MOST_HOURS and minutes < 60 and seconds < 60:  # noqa: PLR2004
            return (1 if found[1] == "+" else -1) * ((hours * 60 + minutes) * 60 + seconds)
    if "/" in name and not name.startswith("Etc/") and name in available_timezones():
        return name
    raise Mismatch(f"{name!r} is no zone that is supported", hint="For example 'Europe/Berlin', 'UTC' or '+02:00'.")


def wall_clock(at: Value, zone: Value) -> Value:
    """Return what the clocks of a zone show at an instant."""
    place = _zone(zone)
    if isinstance(place, int):
        return at.to(f"({at.sql} + to_microseconds(CAST({place * 10**6} AS BIGINT)))", at.type, raises=True)
    return at.to(f"timezone({literal(place)}, timezone('UTC', {at.sql}))", at.type, raises=True)


def instant(wall: Value, zone: Value) -> Value:
    """Return the instant at which the clocks of a zone show a time.

    Of two it is the earlier; a time that is skipped counts from before the clocks are set forward.
    """
    place = _zone(zone)
    if isinstance(place, int):
        return wall.to(f"({wall.sql} - to_microseconds(CAST({place * 10**6} AS BIGINT)))", wall.type, raises=True)
    name, x = literal(place), wall.sql
    late = f"timezone('UTC', timezone({name}, {x}))"
    early = f"(timezone('UTC', timezone({name}, {x} - INTERVAL 1 DAY)) + INTERVAL 1 DAY)"
    # DuckDB takes the later of two: the offset of the day before is that of the earlier one, if there is one
    sql = f"(CASE WHEN timezone({name}, timezone('UTC', {early})) = {x} THEN {early} ELSE {late} END)"
    return wall.to(sql, wall.type, raises=True)


def _from_utc(values: list[Value]) -> Value:
    return wall_clock(values[0], values[1])


def _to_utc(values: list[Value]) -> Value:
    return instant(values[0], values[1])


def _converted(values: list[Value]) -> Value:
    *source, target, at = values
    local = wall_clock(instant(at, source[0]) if source else at, target)
    return Value("", local.sql, k.TIMESTAMP_NTZ, raises=True)


_NOTE = (
    "the zone is a constant: a region such as 'Europe/Berlin', 'UTC', or an offset; rules as in DuckDB's time zone data"
)
ENTRIES: tuple[Function, ...] = (
    built(
        "from_utc_timestamp",
        "timestamp, string",
        _from_utc,
        "from_utc_timestamp(at, 'Europe/Berlin')",
        "from_utc_timestamp(day, '+05:30')",
        "from_utc_timestamp(at, 'America/New_York')",
        notes=_NOTE,
    ),
    built(
        "to_utc_timestamp",
        "timestamp, string",
        _to_utc,
        "to_utc_timestamp(at, 'Europe/Berlin')",
        "to_utc_timestamp(at, 'America/New_York')",
        "to_utc_timestamp(day, 'GMT-03:00')",
        notes=_NOTE,
    ),
    built(
        "convert_timezone",
        "string, string, timestamp_ntz",
        _converted,
        "convert_timezone('Europe/Berlin', 'America/New_York', ntz)",
        "convert_timezone('UTC', 'Asia/Kolkata', ntz)",
        notes=_NOTE,
    ),
    built("convert_timezone", "string, timestamp_ntz", _converted, "convert_timezone('Asia/Tokyo', ntz)", notes=_NOTE),
)
