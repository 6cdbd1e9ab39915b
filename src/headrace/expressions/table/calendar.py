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


def moved(left: Value, right: Value, sign: str) -> Value | None:
    """Return a date or timestamp moved by an interval, a difference, or a sum of intervals; None if it is neither."""
    if k.is_interval(left.type) and sign == "+" and not k.is_interval(right.type):
        left, right = right, left
    if k.is_integral(left.type) and right.type == k.DATE and sign == "+":
        left, right = right, left
    if k.is_interval(left.type) and k.is_interval(right.type):
        return _sum(left, right, sign)
    if k.is_interval(right.type):
        return _moved(left, right, sign)
    if left.type == k.DATE and k.is_integral(right.type):
        if right.type == k.BIGINT:
            raise Mismatch("a date takes days as an int, not as a bigint", hint="Use cast(days as int).")
        return _computed(left, right, f"({left.sql} {sign} CAST({right.sql} AS INTEGER))", k.DATE)
    if sign == "-" and all(k.is_timestamp(v.type) or v.type == k.DATE for v in (left, right)):
        return _difference(left, right)
    return None


def scaled(left: Value, right: Value) -> Value | None:
    """Return an interval times a whole number; None if it is neither."""
    if k.is_interval(right.type):
        left, right = right, left
    if not k.is_interval(left.type):
        return None
    if not k.is_integral(right.type):
        raise Mismatch("an interval can be multiplied by a whole number only")
    kind = k.INTERVAL if left.type == k.DAYS else left.type
    wide = k.sql_type(left.type)
    return _computed(left, right, f"({left.sql} * CAST({right.sql} AS {wide}))", kind)


def _computed(left: Value, right: Value, sql: str, kind: pa.DataType, *, raises: bool = True) -> Value:
    return Value("", sql, kind, raises=raises or left.raises or right.raises)


def _sum(left: Value, right: Value, sign: str) -> Value:
    if k.is_day_time(left.type) != k.is_day_time(right.type):
        raise Mismatch("months and days cannot be added up")
    kind = left.type if left.type == right.type else k.INTERVAL
    constant = left.is_constant and right.is_constant
    if constant and isinstance(left.constant, int) and isinstance(right.constant, int):
        total = left.constant + right.constant if sign == "+" else left.constant - right.constant
        return Value("", f"CAST({total} AS {k.sql_type(kind)})", kind, constant=total)
    return _computed(left, right, f"({left.sql} {sign} {right.sql})", kind)


def _moved(left: Value, right: Value, sign: str) -> Value | None:
    if left.type == k.STRING and right.type == k.MONTHS:
        raise Mismatch("a text cannot be moved by months", hint="Cast it: cast(x as timestamp).")
    if left.type == k.STRING:  # Spark returns text
        moved = _moved(cast(left, k.TIMESTAMP), right, sign)
        return cast(moved, k.STRING) if moved is not None else None
    if left.type == k.NULL:
        left = cast(left, k.TIMESTAMP)
    if left.type == k.DATE and right.type == k.DAYS:
        return _computed(left, right, f"({left.sql} {sign} CAST({right.sql} // {_DAY} AS INTEGER))", k.DATE)
    if left.type == k.DATE and right.type == k.MONTHS:
        return _computed(left, right, f"CAST(({left.sql} {sign} to_months({right.sql})) AS DATE)", k.DATE)
    if left.type == k.DATE:
        left = cast(left, k.TIMESTAMP)
    if not k.is_timestamp(left.type):
        return None
    step = f"to_months({right.sql})" if right.type == k.MONTHS else f"to_microseconds({right.sql})"
    return _computed(left, right, f"({left.sql} {sign} {step})", left.type)


def _difference(left: Value, right: Value) -> Value:
    if left.type == right.type == k.DATE:
        sql = f"(CAST(date_diff('day', {right.sql}, {left.sql}) AS BIGINT) * {_DAY})"
        return _computed(left, right, sql, k.DAYS, raises=False)
    a, b = cast(left, k.TIMESTAMP), cast(right, k.TIMESTAMP)
    return _computed(left, right, f"(epoch_us({a.sql}) - epoch_us({b.sql}))", k.INTERVAL, raises=False)
