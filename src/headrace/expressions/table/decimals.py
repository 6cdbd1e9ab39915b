"""Decimal arithmetic with Spark's precision and scale, exact: what 38 digits cannot compute is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.expressions import kinds as k
from headrace.expressions.casts import cast, raising
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value

if TYPE_CHECKING:
    import pyarrow as pa

_BY_ZERO = raising("DIVIDE_BY_ZERO", "division by zero; use try_divide, or nullif(divisor, 0), to get null instead")
_MIN_QUOTIENT_SCALE = 6
_SHORT = 18  # digits of a decimal that is a 64-bit integer inside


def exact(value: Value, beside_type: pa.DataType) -> Value:
    """Return an operand as a decimal; a whole literal takes only the digits that it needs, as in Spark."""
    if k.is_decimal(value.type):
        return value
    if value.type == k.NULL:
        return cast(value, k.as_decimal(beside_type))
    if isinstance(value.constant, int) and not isinstance(value.constant, bool):
        digits = cast(value, k.decimal(len(str(abs(value.constant))), 0))
        return Value(digits.text, digits.sql, digits.type, digits.columns, constant=value.constant)
    return cast(value, k.as_decimal(value.type))


def sum_of(left: Value, right: Value, sign: str) -> Value:
    """Return a sum or difference."""
    scale = max(left.type.scale, right.type.scale)
    whole = max(left.type.precision - left.type.scale, right.type.precision - right.type.scale)
    kind = k.adjusted(whole + scale + 1, scale)
    if kind.scale != scale:
        raise _too_wide(left, right, sign)
    sql = f"(CAST({left.sql} AS {k.sql_type(kind)}) {sign} CAST({right.sql} AS {k.sql_type(kind)}))"
    return _computed(
        left, right, f"CAST({sql} AS {k.sql_type(kind)})", kind, raises=whole + scale + 1 > k.MAX_PRECISION
    )


def product(left: Value, right: Value) -> Value:
    """Return a product."""
    digits = left.type.precision + right.type.precision
    if digits > k.MAX_PRECISION:
        raise _too_wide(left, right, "*")
    kind = k.adjusted(digits + 1, left.type.scale + right.type.scale)
    # DuckDB keeps a product of two short decimals in 18 digits, and raises beyond
    wide = (
        f"CAST({left.sql} AS DECIMAL({max(left.type.precision, _SHORT + 1)},{left.type.scale}))"
        if digits > _SHORT
        else left.sql
    )
    return _computed(left, right, f"CAST(({wide} * {right.sql}) AS {k.sql_type(kind)})", kind, raises=False)


def quotient(left: Value, right: Value, *, safe: bool) -> Value:
    """Return a quotient, rounded half up from exact integers."""
    a, b = left.type, right.type
    scale = max(_MIN_QUOTIENT_SCALE, a.scale + b.precision + 1)
    kind = k.adjusted(a.precision - a.scale + b.scale + scale, scale)
    shift = kind.scale - a.scale + b.scale
    if a.precision + shift > k.MAX_PRECISION or shift < 0:
        raise _too_wide(left, right, "/")
    top = f"({_unscaled(left)} * {10**shift}::HUGEINT)"
    bottom = _unscaled(right)
    # 2 * remainder may pass the type, remainder >= bottom - remainder may not
    rest = f"abs({top} % {bottom})"
    half = f"(CASE WHEN {rest} >= abs({bottom}) - {rest} THEN sign({top}) * sign({bottom}) ELSE 0 END)"
    sql = _rescaled(f"({top} // {bottom} + {half})", kind)
    if not safe:
        sql = f"(CASE WHEN {right.sql} = 0 AND {left.sql} IS NOT NULL THEN {_BY_ZERO} ELSE {sql} END)"
    return _computed(left, right, sql, kind, raises=True)


def whole_quotient(left: Value, right: Value) -> Value:
    """Return `div`: the whole part of a quotient, as bigint."""
    a, b = _aligned(left, right, "div")
    sql = f"CAST({_unscaled(a)} // {_unscaled(b)} AS BIGINT)"
    return _computed(left, right, _checked(left, right, sql), k.BIGINT, raises=True)


def remainder(left: Value, right: Value) -> Value:
    """Return `%`, with the sign of the dividend."""
    kind = _remainder_type(left, right)
    a, b = _aligned(left, right, "%")
    sql = f"CAST(({a.sql} % {b.sql}) AS {k.sql_type(kind)})"
    return _computed(left, right, _checked(left, right, sql), kind, raises=True)


def positive_remainder(left: Value, right: Value) -> Value:
    """Return `pmod`."""
    kind = _remainder_type(left, right)
    a, b = _aligned(left, right, "pmod")
    r = f"({a.sql} % {b.sql})"
    sql = f"CAST((CASE WHEN {r} < 0 THEN ({r} + {b.sql}) % {b.sql} ELSE {r} END) AS {k.sql_type(kind)})"
    return _computed(left, right, _checked(left, right, sql), kind, raises=True)


def _remainder_type(left: Value, right: Value) -> pa.DataType:
    a, b = left.type, right.type
    scale = max(a.scale, b.scale)
    return k.adjusted(min(a.precision - a.scale, b.precision - b.scale) + scale, scale)


def _aligned(left: Value, right: Value, sign: str) -> tuple[Value, Value]:
    kind = k.wider_decimal(left.type, right.type)
    if kind.scale != max(left.type.scale, right.type.scale):
        raise _too_wide(left, right, sign)
    return cast(left, kind), cast(right, kind)


def _checked(left: Value, right: Value, sql: str) -> str:
    return f"(CASE WHEN {right.sql} = 0 AND {left.sql} IS NOT NULL THEN {_BY_ZERO} ELSE {sql} END)"


def _computed(left: Value, right: Value, sql: str, kind: pa.DataType, *, raises: bool) -> Value:
    return Value("", sql, kind, raises=raises or left.raises or right.raises)


def _unscaled(value: Value) -> str:
    """Return SQL for the integer that the digits of a decimal make without its point."""
    scale = value.type.scale
    if scale == 0:
        return f"CAST({value.sql} AS HUGEINT)"
    if value.type.precision + scale <= k.MAX_PRECISION:
        widened = f"CAST({value.sql} AS DECIMAL({k.MAX_PRECISION},{scale}))"
        return f"CAST({widened} * {10**scale}::DECIMAL({k.MAX_PRECISION},0) AS HUGEINT)"
    return f"CAST(replace(CAST({value.sql} AS VARCHAR), '.', '') AS HUGEINT)"


def _rescaled(sql: str, kind: pa.DataType) -> str:
    """Return SQL for the decimal that has the digits of an integer."""
    if kind.scale == 0:
        return f"CAST({sql} AS {k.sql_type(kind)})"
    step = f"'{10**-kind.scale:.{kind.scale}f}'::DECIMAL({kind.scale},{kind.scale})"
    return f"CAST(CAST({sql} AS DECIMAL({k.MAX_PRECISION},0)) * {step} AS {k.sql_type(kind)})"


def _too_wide(left: Value, right: Value, sign: str) -> Mismatch:
    return Mismatch(
        f"{k.shown(left.type)} {sign} {k.shown(right.type)} needs more than {k.MAX_PRECISION} digits",
        hint="Cast the operands to fewer digits, for example cast(x as decimal(18,4)).",
    )
