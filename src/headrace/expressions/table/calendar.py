"""Dates, timestamps and intervals under the operators + - *."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.expressions import kinds as k
from headrace.expressions.casts import cast
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value

if TYPE_CHECKING:
    import pyarrow as pa

_DAY = 86_400_000_000


def moved(one: Value, other: Value, sign: str) -> Value | None:
    """Return a date or timestamp moved by an interval, a difference, or a sum of intervals; None if it is neither."""
    if k.is_interval(one.type) and sign == "+" and not k.is_interval(other.type):
        one, other = other, one
    if k.is_integral(one.type) and other.type == k.DATE and sign == "+":
        one, other = other, one
    if k.is_interval(one.type) and k.is_interval(other.type):
        return _sum(one, other, sign)
    if k.is_interval(other.type):
        return _moved(one, other, sign)
    if one.type == k.DATE and k.is_integral(other.type):
        if other.type == k.BIGINT:
            raise Mismatch("a date takes days as an int, not as a bigint", hint="Use cast(days as int).")
        return _made(one, other, f"({one.sql} {sign} CAST({other.sql} AS INTEGER))", k.DATE)
    if sign == "-" and all(k.is_timestamp(v.type) or v.type == k.DATE for v in (one, other)):
        return _difference(one, other)
    return None


def scaled(one: Value, other: Value) -> Value | None:
    """Return an interval times a whole number; None if it is neither."""
    if k.is_interval(other.type):
        one, other = other, one
    if not k.is_interval(one.type):
        return None
    if not k.is_integral(other.type):
        raise Mismatch("an interval can be multiplied by a whole number only")
    kind = k.INTERVAL if one.type == k.DAYS else one.type
    wide = k.sql_type(one.type)
    return _made(one, other, f"({one.sql} * CAST({other.sql} AS {wide}))", kind)


def _made(one: Value, other: Value, sql: str, kind: pa.DataType, *, raises: bool = True) -> Value:
    return Value("", sql, kind, raises=raises or one.raises or other.raises)


def _sum(one: Value, other: Value, sign: str) -> Value:
    if k.is_day_time(one.type) != k.is_day_time(other.type):
        raise Mismatch("months and days cannot be added up")
    kind = one.type if one.type == other.type else k.INTERVAL
    constant = one.is_constant and other.is_constant
    if constant and isinstance(one.constant, int) and isinstance(other.constant, int):
        total = one.constant + other.constant if sign == "+" else one.constant - other.constant
        return Value("", f"CAST({total} AS {k.sql_type(kind)})", kind, constant=total)
    return _made(one, other, f"({one.sql} {sign} {other.sql})", kind)


def _moved(one: Value, other: Value, sign: str) -> Value | None:
    if one.type == k.STRING and other.type == k.MONTHS:
        raise Mismatch("a text cannot be moved by months", hint="Cast it: cast(x as timestamp).")
    if one.type == k.STRING:  # Spark gives text back
        moved = _moved(cast(one, k.TIMESTAMP), other, sign)
        return cast(moved, k.STRING) if moved is not None else None
    if one.type == k.NULL:
        one = cast(one, k.TIMESTAMP)
    if one.type == k.DATE and other.type == k.DAYS:
        return _made(one, other, f"({one.sql} {sign} CAST({other.sql} // {_DAY} AS INTEGER))", k.DATE)
    if one.type == k.DATE and other.type == k.MONTHS:
        return _made(one, other, f"CAST(({one.sql} {sign} to_months({other.sql})) AS DATE)", k.DATE)
    if one.type == k.DATE:
        one = cast(one, k.TIMESTAMP)
    if not k.is_timestamp(one.type):
        return None
    step = f"to_months({other.sql})" if other.type == k.MONTHS else f"to_microseconds({other.sql})"
    return _made(one, other, f"({one.sql} {sign} {step})", one.type)


def _difference(one: Value, other: Value) -> Value:
    if one.type == other.type == k.DATE:
        sql = f"(CAST(date_diff('day', {other.sql}, {one.sql}) AS BIGINT) * {_DAY})"
        return _made(one, other, sql, k.DAYS, raises=False)
    a, b = cast(one, k.TIMESTAMP), cast(other, k.TIMESTAMP)
    return _made(one, other, f"(epoch_us({a.sql}) - epoch_us({b.sql}))", k.INTERVAL, raises=False)
