"""Timestamps: their parts, cutting, formats, and numbers since 1970."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.expressions import kinds as k
from headrace.expressions.casts import cast
from headrace.expressions.coercion import implicit
from headrace.expressions.formats import formatted, parsed
from headrace.expressions.functions import Function, built, entry
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.scalars import EPOCH_TIME
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable

_TRUNC = {
    "year": "year", "yyyy": "year", "yy": "year", "quarter": "quarter", "month": "month", "mon": "month", "mm": "month",
    "week": "week", "day": "day", "dd": "day", "hour": "hour", "minute": "minute", "second": "second",
    "millisecond": "millisecond", "microsecond": "microsecond",
}  # fmt: skip
_DATE_TRUNC = {name: unit for name, unit in _TRUNC.items() if unit in ("year", "quarter", "month", "week")}
_UNITS = {"microsecond": 1, "millisecond": 1_000, "second": 10**6, "minute": 60 * 10**6, "hour": 3_600 * 10**6,
          "day": 86_400 * 10**6, "week": 7 * 86_400 * 10**6}  # fmt: skip
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_EPOCH = "make_timestamp({})"
_FLOOR = "(({0} - (({0} % {1} + {1}) % {1})) // {1})"


def _unit(value: Value, known: dict[str, str], what: str) -> str:
    if not isinstance(value.constant, str):
        raise Mismatch(f"the unit of {what} must be a constant text")
    unit = known.get(value.constant.lower())
    if unit is None:
        raise Mismatch(f"{what} does not know the unit {value.constant!r}", hint=f"It knows {', '.join(known)}.")
    return unit


def _date_trunc(values: list[Value]) -> Value:
    unit = _unit(values[0], _TRUNC, "date_trunc")
    at = moment(values[1], "date_trunc")
    return Value("", f"date_trunc('{unit}', {at.sql})", at.type, raises=at.raises)


def _trunc(values: list[Value]) -> Value:
    unit = _unit(values[1], _DATE_TRUNC, "trunc")
    return Value("", f"CAST(date_trunc('{unit}', {values[0].sql}) AS DATE)", k.DATE, raises=values[0].raises)


def moment(value: Value, what: str) -> Value:
    """Return a date, a text or a timestamp as a timestamp; a number is none.

    Raises:
        Mismatch: it is something else.

    """
    timestamp = implicit(value, k.TIMESTAMP)
    if timestamp is None:
        raise Mismatch(f"{what} needs a timestamp, not {k.shown(value.type)}")
    return timestamp


def _whole_months(start: str, end: str) -> str:
    """Return the whole months between: a month is over at the same day and time of day, as in java.time."""
    clock = "(epoch_us({0}) - epoch_us(date_trunc('day', {0})))"
    early = f"{end} > {start} AND {clock.format(end)} < {clock.format(start)}"
    late = f"{end} < {start} AND {clock.format(end)} > {clock.format(start)}"
    last = f"(CAST({end} AS DATE) + CASE WHEN {early} THEN -1 WHEN {late} THEN 1 ELSE 0 END)"
    packed = "((year({0}) * 12 + month({0})) * 32 + day({0}))"
    return f"(({packed.format(last)} - {packed.format(start)}) // 32)"


def difference(values: list[Value]) -> Value:
    """Return whole units between two timestamps; `values[0]` names the unit."""
    unit = str(values[0].constant).lower()
    a, b = (moment(value, "timestampdiff") for value in values[1:])
    raises = a.raises or b.raises
    if unit in _UNITS:
        return Value("", f"((epoch_us({b.sql}) - epoch_us({a.sql})) // {_UNITS[unit]})", k.BIGINT, raises=raises)
    if unit in _MONTHS:
        per = _MONTHS[unit]
        return Value("", f"({_whole_months(a.sql, b.sql)} // {per})", k.BIGINT, raises=raises)
    raise Mismatch(
        f"timestampdiff does not know the unit {unit}", hint=f"It knows {', '.join(_UNITS)}, month, quarter, year."
    )


def added(values: list[Value]) -> Value:
    """Return a timestamp moved by units; `values[0]` names the unit."""
    unit, count = str(values[0].constant).lower(), values[1].sql
    at = values[2] if values[2].type == k.TIMESTAMP_NTZ else moment(values[2], "timestampadd")
    if unit in _UNITS:
        step = f"to_microseconds(CAST({count} AS BIGINT) * {_UNITS[unit]})"
    elif unit in _MONTHS:
        step = f"to_months(CAST({count} * {_MONTHS[unit]} AS INTEGER))"
    else:
        raise Mismatch(f"timestampadd does not know the unit {unit}")
    return Value("", f"({at.sql} + {step})", at.type, raises=True)


def _to(kind_name: str) -> Callable[[list[Value]], Value]:
    """Return the rule of to_date and to_timestamp, with and without a format."""

    def build(values: list[Value]) -> Value:
        kind = k.parse_type(kind_name)
        if len(values) == 1 or values[0].type != k.STRING:
            return cast(values[0], kind)
        parsed_value = parsed(values[0], _format(values[1]))
        return cast(parsed_value, kind)

    return build


def _format(value: Value) -> str:
    if not isinstance(value.constant, str):
        raise Mismatch("the format must be a constant text")
    return value.constant


def _date_format(values: list[Value]) -> Value:
    return formatted(cast(values[0], k.TIMESTAMP), _format(values[1]))


def _unix_timestamp(values: list[Value]) -> Value:
    at = values[0]
    if at.type == k.STRING:
        at = parsed(at, _format(values[1]) if len(values) > 1 else "yyyy-MM-dd HH:mm:ss")
    at = moment(at, "unix_timestamp")
    return Value("", f"(epoch_us({at.sql}) // 1000000)", k.BIGINT, raises=at.raises)


def _from_unixtime(values: list[Value]) -> Value:
    at = Value("", f"make_timestamp({values[0].sql} * 1000000)", k.TIMESTAMP, raises=True)
    return formatted(at, _format(values[1]) if len(values) > 1 else "yyyy-MM-dd HH:mm:ss")


def _timestamp_seconds(values: list[Value]) -> Value:
    return cast(values[0], k.TIMESTAMP)


_CLOCK_NOTES = "the time of the epoch: a replay has another; over streams alone, as rows that may be withdrawn need one"

ENTRIES: tuple[Function, ...] = (
    entry(
        "current_timestamp now",
        "",
        "timestamp",
        EPOCH_TIME,
        "current_timestamp() > timestamp '2020-01-01 00:00:00'",
        "now() = current_timestamp()",
        notes=_CLOCK_NOTES,
    ),
    entry(
        "current_date curdate",
        "",
        "date",
        f"CAST({EPOCH_TIME} AS DATE)",
        "datediff(current_date(), cast(now() as date))",
        notes=_CLOCK_NOTES,
    ),
    entry("hour", "timestamp", "int", "CAST(hour($1) AS INTEGER)", "hour(at)", "hour(day)"),
    entry("minute", "timestamp", "int", "CAST(minute($1) AS INTEGER)", "minute(at)"),
    entry("second", "timestamp", "int", "CAST(floor(second($1)) AS INTEGER)", "second(at)"),
    built(
        "date_trunc",
        "string, any",
        _date_trunc,
        "date_trunc('hour', at)",
        "date_trunc('week', at)",
        "date_trunc('MONTH', day)",
        "date_trunc('quarter', ntz)",
        "date_trunc('millisecond', at)",
        "date_trunc('day', s)",
        notes="the unit is a constant",
    ),
    built(
        "trunc",
        "date, string",
        _trunc,
        "trunc(day, 'month')",
        "trunc(at, 'week')",
        "trunc(day, 'YEAR')",
        notes="the unit is a constant",
    ),
    built(
        "timestampdiff timediff",
        "word, any, any",
        difference,
        "timestampdiff(hour, at, at2)",
        "timestampdiff(month, at, at2)",
        "timestampdiff(day, day, at)",
    ),
    built("timestampadd", "word, int, any", added, "timestampadd(hour, b, at)", "timestampadd(month, b, at)"),
    built("to_date", "any, [string]", _to("date"), "to_date(s)", "to_date(at)", "to_date('2024-02-29', 'yyyy-MM-dd')"),
    built("date", "any", _to("date"), "date(at)"),
    built(
        "to_timestamp",
        "any, [string]",
        _to("timestamp"),
        "to_timestamp(s)",
        "to_timestamp(day)",
        "to_timestamp('2024-02-29 10:00', 'yyyy-MM-dd HH:mm')",
    ),
    built("timestamp", "any", _to("timestamp"), "timestamp(day)"),
    built(
        "date_format",
        "timestamp, string",
        _date_format,
        "date_format(at, 'yyyy-MM-dd HH:mm:ss')",
        "date_format(day, 'dd/MM/yyyy')",
        "date_format(at, 'EEE MMM d')",
        "date_format(at, 'HH:mm:ss.SSS')",
    ),
    built(
        "unix_timestamp to_unix_timestamp",
        "any, [string]",
        _unix_timestamp,
        "unix_timestamp(at)",
        "unix_timestamp(day)",
    ),
    entry("unix_seconds", "=timestamp", "bigint", _FLOOR.format("epoch_us($1)", 1_000_000), "unix_seconds(at)"),
    entry("unix_millis", "=timestamp", "bigint", _FLOOR.format("epoch_us($1)", 1_000), "unix_millis(at)"),
    entry("unix_micros", "=timestamp", "bigint", "epoch_us($1)", "unix_micros(at)"),
    built(
        "timestamp_seconds", "=numeric", _timestamp_seconds, "timestamp_seconds(i)", "timestamp_seconds(m)", raises=True
    ),
    entry(
        "timestamp_millis",
        "=integral",
        "timestamp",
        _EPOCH.format("CAST($1 AS BIGINT) * 1000"),
        "timestamp_millis(i)",
        raises=True,
    ),
    entry("timestamp_micros", "=integral", "timestamp", _EPOCH.format("CAST($1 AS BIGINT)"), "timestamp_micros(i)"),
    built("from_unixtime", "bigint, [string]", _from_unixtime, "from_unixtime(i)", "from_unixtime(i, 'yyyy-MM-dd')"),
)
