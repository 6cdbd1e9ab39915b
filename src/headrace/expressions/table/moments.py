"""Dates and timestamps from parts, named days, and the functions that give null where others raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.names import literal
from headrace.expressions import kinds as k
from headrace.expressions.casts import cast, raising
from headrace.expressions.formats import parsed
from headrace.expressions.functions import Function, built, entry
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.table import times, zones
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY = 86_400_000_000
_PARTS = ("year", "month", "day", "hour", "minute")


def _next_day(values: list[Value]) -> Value:
    name = values[1].constant
    short = {day[:length]: i for i, day in enumerate(_DAYS, 1) for length in (2, 3, len(day))}
    if not isinstance(name, str) or name.strip().lower() not in short:
        raise Mismatch(f"{values[1].text} is no constant name of a day", hint="For example 'Mon' or 'Sunday'.")
    wanted, d = short[name.strip().lower()], values[0].sql
    sql = f"({d} + CAST(({wanted} - isodow({d}) + 6) % 7 + 1 AS INTEGER))"
    return Value("", sql, k.DATE, raises=True)


def _made_timestamp(kind: object, *, lenient: bool) -> Callable[[list[Value]], Value]:
    """Return the rule of make_timestamp and its variants: six parts and perhaps a zone."""

    def build(values: list[Value]) -> Value:
        if lenient and any(value.raises for value in values):  # Spark returns null for these errors too
            raise Mismatch(
                "parts that may raise are not supported here",
                hint="Use try_cast, try_add and the other try_ functions.",
            )
        parts, seconds = values[:5], cast(values[5], k.decimal(16, 6), lenient=lenient)
        fail = raising("DATETIME_FIELD_OUT_OF_BOUNDS", "these parts make no timestamp", lenient=lenient)
        texts = [f"CAST({part.sql} AS BIGINT)" for part in parts]
        micros = f"CAST(CAST({seconds.sql} AS DECIMAL(38,6)) * 1000000 AS BIGINT)"
        year, month, day, hour, minute = texts
        good = " AND ".join(
            f"{sql} BETWEEN {low} AND {high}"
            for sql, low, high in (
                (year, -290_000, 290_000), (month, 1, 12), (hour, 0, 23), (minute, 0, 59), (micros, 0, 60_000_000),
            )
        )  # fmt: skip
        last = f"date_part('day', last_day(make_date({year}, {month}, 1)))"
        midnight = f"epoch_us(CAST(make_date({year}, {month}, {day}) AS TIMESTAMP))"
        timestamp = f"make_timestamp({midnight} + ({hour} * 60 + {minute}) * 60000000 + {micros})"
        known = " AND ".join(f"{value.sql} IS NOT NULL" for value in values)
        sql = (
            f"(CASE WHEN NOT ({known}) THEN NULL WHEN NOT ({good}) THEN {fail}"
            f" WHEN {day} NOT BETWEEN 1 AND {last} THEN {fail} ELSE {timestamp} END)"
        )
        value = Value("", sql, kind, raises=not lenient or any(v.raises for v in values))
        return zones.instant(value, values[6]) if len(values) > 6 else value  # noqa: PLR2004

    return build


def _read(kind: object, *, lenient: bool) -> Callable[[list[Value]], Value]:
    """Return the rule of to_timestamp and its variants."""

    def build(values: list[Value]) -> Value:
        if len(values) > 1 and values[0].type == k.STRING:
            if not isinstance(values[1].constant, str):
                raise Mismatch("the format must be a constant text")
            zoned = kind != k.TIMESTAMP_NTZ
            timestamp = parsed(values[0], values[1].constant, lenient=lenient, zoned=zoned)
            timestamp = cast(timestamp, k.DATE) if kind == k.DATE else timestamp
            return Value("", timestamp.sql, kind, raises=timestamp.raises)
        if lenient and k.is_number(values[0].type):
            raise Mismatch("a number is not taken here", hint="Use timestamp_seconds(x), or date_from_unix_date(x).")
        return cast(values[0], kind, lenient=lenient)

    return build


def _interval(names: tuple[str, ...], kind: object) -> Callable[[list[Value]], Value]:
    def build(values: list[Value]) -> Value:
        sizes = {"years": 12, "months": 1, "days": _DAY, "hours": 3_600_000_000, "mins": 60_000_000}
        terms = []
        for name, value in zip(names, values, strict=False):
            if name == "secs":
                terms.append(f"CAST(CAST({cast(value, k.decimal(18, 6)).sql} AS DECIMAL(38,6)) * 1000000 AS HUGEINT)")
            else:
                terms.append(f"CAST({value.sql} AS HUGEINT) * {sizes[name]}")
        wide = "INTEGER" if kind == k.MONTHS else "BIGINT"
        return Value("", f"CAST({' + '.join(terms) or '0'} AS {wide})", kind, raises=bool(values))

    return build


_SHORT_DAYS = ", ".join(literal(day[:3].title()) for day in _DAYS)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SHORT_MONTHS = ", ".join(map(literal, _MONTHS))
_ZONED = "int, int, int, int, int, any, [string]"

ENTRIES: tuple[Function, ...] = (
    entry("dayname", "date", "string", f"([{_SHORT_DAYS}])[isodow($1)]", "dayname(day)", "dayname(at)"),
    entry("monthname", "date", "string", f"([{_SHORT_MONTHS}])[month($1)]", "monthname(day)", "monthname(at)"),
    built("next_day", "date, string", _next_day, "next_day(day, 'Mon')", "next_day(at, 'sunday')",
          "next_day(day, 'TU')"),
    built("make_timestamp", _ZONED, _made_timestamp(k.TIMESTAMP, lenient=False),
          "make_timestamp(2024, 2, 29, b, 30, 1.5)", "make_timestamp(h, b, b, 1, 2, m)",
          "make_timestamp(2024, 3, 31, 2, b, 0, 'Europe/Berlin')"),
    built("make_timestamp_ltz", _ZONED, _made_timestamp(k.TIMESTAMP, lenient=False),
          "make_timestamp_ltz(2024, 2, 29, b, 30, 60)"),
    built("make_timestamp_ntz", "int, int, int, int, int, any", _made_timestamp(k.TIMESTAMP_NTZ, lenient=False),
          "make_timestamp_ntz(2024, 2, b, 1, 30, 59.999999)"),
    built("try_make_timestamp", _ZONED, _made_timestamp(k.TIMESTAMP, lenient=True),
          "try_make_timestamp(h, b, b, 1, 2, m)"),
    built("try_make_timestamp_ntz", "int, int, int, int, int, any", _made_timestamp(k.TIMESTAMP_NTZ, lenient=True),
          "try_make_timestamp_ntz(2024, b, 29, b, 2, 3)"),
    built("to_timestamp_ntz", "any, [string]", _read(k.TIMESTAMP_NTZ, lenient=False), "to_timestamp_ntz(s)",
          "to_timestamp_ntz(at)", "to_timestamp_ntz('2024-02-29 10', 'yyyy-MM-dd HH')"),
    built("to_timestamp_ltz", "any, [string]", _read(k.TIMESTAMP, lenient=False), "to_timestamp_ltz(s)",
          "to_timestamp_ltz(ntz)"),
    built("try_to_timestamp", "any, [string]", _read(k.TIMESTAMP, lenient=True), "try_to_timestamp(s)",
          "try_to_timestamp(s, 'yyyy-MM-dd')"),
    built("try_to_date", "any, [string]", _read(k.DATE, lenient=True), "try_to_date(s)",
          "try_to_date(s, 'yyyy-MM-dd')"),
    built("datediff date_diff", "word, any, any", times.difference, "datediff(hour, at, at2)",
          "date_diff(month, day, at)", notes="with a unit: as timestampdiff"),
    built("dateadd date_add", "word, int, any", times.added, "dateadd(hour, b, at)", "date_add(month, b, at)",
          notes="with a unit: as timestampadd"),
    built("make_dt_interval", "[int], [int], [int], [any]", _interval(("days", "hours", "mins", "secs"), k.INTERVAL),
          "at + make_dt_interval(b, h)", "at2 - make_dt_interval(1, 2, 3, 4.5)"),
    built("make_ym_interval", "[int], [int]", _interval(("years", "months"), k.MONTHS), "day + make_ym_interval(b, 1)",
          "at + make_ym_interval(1)"),
)  # fmt: skip
