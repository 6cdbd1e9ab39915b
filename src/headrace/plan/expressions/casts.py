"""Casts: `cast` and `try_cast` from every type to every type that Spark's ANSI mode allows, with its errors.

Each pair of types has one way, found by the kind it casts *to*. `lenient` is `try_cast`: null where `cast` raises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.base.names import literal, quote
from headrace.plan.expressions import kinds as k
from headrace.plan.expressions.binding import Binding
from headrace.plan.expressions.casts_text import (
    date_from_text,
    decimal_from_number,
    decimal_from_text,
    fraction_from_text,
    fraction_to_text,
    integral_from_text,
    timestamp_from_text,
)
from headrace.plan.expressions.mismatch import Mismatch
from headrace.plan.expressions.values import NOT_CONSTANT

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.plan.expressions.values import Value

_EXACT_DIGITS = 15  # a double holds every integer of so many digits, so one division rounds correctly
_LONG_LIMIT = "9223372036854775808::DOUBLE"


@dataclass(frozen=True, slots=True)
class Cast:
    """The SQL of one cast; `raises` if some value makes it fail."""

    sql: str
    raises: bool = False


def cast(value: Value, to: pa.DataType, *, lenient: bool = False) -> Value:
    """Return `value` cast as Spark's `cast` (or `try_cast`) does it.

    Raises:
        Mismatch: Spark has no such cast.

    """
    if value.type == to:
        return value
    binding = Binding([value])
    made = _cast(binding.values[0].sql, value.type, to, lenient=lenient)
    sql = binding.finish(f"TRY({made.sql})" if lenient and made.raises else made.sql)
    raises = value.raises or (made.raises and not lenient)
    return replace(value, sql=sql, type=to, raises=raises, constant=_constant(value, to))


def _constant(value: Value, to: pa.DataType) -> object:
    """Return the literal's value if the cast leaves it as it is."""
    widened = k.is_number(to) and (k.is_integral(value.type) or (k.is_decimal(value.type) and not k.is_integral(to)))
    return value.constant if widened or value.constant is None else NOT_CONSTANT


def can_cast(kind: pa.DataType, to: pa.DataType) -> bool:
    """Whether there is such a cast."""
    try:
        _cast("x", kind, to, lenient=False)
    except Mismatch:
        return False
    return True


def raising(condition: str, message: str, shown: str = "", *, lenient: bool = False) -> str:
    """Return SQL that raises for the row: `[CONDITION] message`, and the text that the SQL `shown` gives, quoted."""
    if lenient:
        return "NULL"
    tail = f" || '''' || {shown} || ''''" if shown else ""
    return f"error({literal(f'[{condition}] {message}')}{tail})"


def _cast(sql: str, kind: pa.DataType, to: pa.DataType, *, lenient: bool) -> Cast:  # noqa: PLR0911 one line a family
    if kind == to:
        return Cast(sql)
    if kind == k.NULL:
        return Cast(f"CAST(NULL AS {k.sql_type(to)})")
    if to == k.STRING:
        return _to_string(sql, kind)
    if k.is_nested(to) or k.is_nested(kind):
        return _nested(sql, kind, to, lenient=lenient)
    if k.is_integral(to):
        return _to_integral(sql, kind, to, lenient=lenient)
    if k.is_fraction(to):
        return _to_fraction(sql, kind, to, lenient=lenient)
    if k.is_decimal(to):
        return _to_decimal(sql, kind, to, lenient=lenient)
    if to == k.BOOLEAN:
        return _to_boolean(sql, kind, lenient=lenient)
    if to == k.DATE and kind == k.STRING:
        return Cast(date_from_text(sql, fail=_bad_text(sql, to, lenient=lenient)), raises=True)
    if k.is_timestamp(to):
        return _to_timestamp(sql, kind, to, lenient=lenient)
    if to == k.DATE and k.is_timestamp(kind):
        return _plain(sql, to)
    if to == k.BINARY and kind == k.STRING:
        return Cast(f"encode({sql})")
    if k.is_day_time(to) and k.is_day_time(kind):
        return Cast(sql)
    raise _impossible(kind, to)


def _impossible(kind: pa.DataType, to: pa.DataType) -> Mismatch:
    return Mismatch(f"{k.shown(kind)} cannot be cast to {k.shown(to)}")


def _plain(sql: str, to: pa.DataType, *, raises: bool = False) -> Cast:
    return Cast(f"CAST({sql} AS {k.sql_type(to)})", raises=raises)


def _bad_text(sql: str, to: pa.DataType, *, lenient: bool) -> str:
    name = k.shown(to).upper()
    return raising("CAST_INVALID_INPUT", f"this text cannot be cast to {name}: ", sql, lenient=lenient)


def _to_string(sql: str, kind: pa.DataType) -> Cast:
    if k.is_integral(kind) or k.is_decimal(kind) or k.is_timestamp(kind) or kind in (k.DATE, k.BOOLEAN):
        return _plain(sql, k.STRING)
    if k.is_fraction(kind):
        return Cast(fraction_to_text(sql))
    if kind == k.BINARY:
        return Cast(f"decode({sql})", raises=True)
    raise Mismatch(
        f"{k.shown(kind)} to string is not supported",
        hint="Take it apart with array_join, element_at or a.b.",
    )


def _to_integral(sql: str, kind: pa.DataType, to: pa.DataType, *, lenient: bool) -> Cast:
    if k.is_integral(kind):
        return _plain(sql, to, raises=kind.bit_width > to.bit_width)
    if kind == k.BOOLEAN:
        return _plain(sql, to)
    if k.is_decimal(kind):
        return _plain(f"trunc({sql})", to, raises=True)
    if k.is_fraction(kind):
        if to != k.BIGINT:
            return _plain(f"trunc({sql})", to, raises=True)
        # Spark lets 2^63 through, since it compares as a double, and gives the largest bigint
        return Cast(
            f"(CASE WHEN {sql} = {_LONG_LIMIT} THEN 9223372036854775807 ELSE CAST(trunc({sql}) AS BIGINT) END)", raises=True
        )
    if kind == k.TIMESTAMP:
        seconds = f"((epoch_us({sql}) - (epoch_us({sql}) % 1000000 + 1000000) % 1000000) // 1000000)"
        return Cast(seconds) if to == k.BIGINT else _plain(seconds, to, raises=True)
    if kind == k.STRING:
        return Cast(integral_from_text(sql, k.sql_type(to), fail=_bad_text(sql, to, lenient=lenient)), raises=True)
    raise _impossible(kind, to)


def _to_fraction(sql: str, kind: pa.DataType, to: pa.DataType, *, lenient: bool) -> Cast:
    if kind == k.DOUBLE:  # to float: what is too large becomes infinite
        limit = "3.4028235677973366e38::DOUBLE"
        large = f"CASE WHEN {sql} >= {limit} THEN 'inf'::FLOAT WHEN {sql} <= -{limit} THEN '-inf'::FLOAT"
        return Cast(f"(CASE WHEN isfinite({sql}) THEN {large} ELSE CAST({sql} AS FLOAT) END ELSE CAST({sql} AS FLOAT) END)")
    if k.is_integral(kind) or kind in (k.FLOAT, k.BOOLEAN):
        return _plain(sql, to)
    if k.is_decimal(kind):
        if kind.precision <= _EXACT_DIGITS and to == k.DOUBLE:
            return _plain(sql, to)
        return _plain(f"CAST({sql} AS VARCHAR)", to)
    if kind == k.TIMESTAMP:
        return _plain(f"(epoch_us({sql}) / 1000000::DOUBLE)", to)
    if kind == k.STRING:
        return Cast(fraction_from_text(sql, k.sql_type(to), fail=_bad_text(sql, to, lenient=lenient)), raises=True)
    raise _impossible(kind, to)


def _to_decimal(sql: str, kind: pa.DataType, to: pa.DataType, *, lenient: bool) -> Cast:
    if k.is_integral(kind):
        return _plain(sql, to, raises=to.precision - to.scale < k.as_decimal(kind).precision)
    if k.is_decimal(kind):
        fits = to.precision - to.scale >= kind.precision - kind.scale and to.scale >= kind.scale
        return _plain(sql, to, raises=not fits)
    if kind == k.BOOLEAN:
        return _plain(f"CAST({sql} AS INTEGER)", to, raises=to.precision == to.scale)
    if kind == k.TIMESTAMP:
        return _plain(f"(CAST(epoch_us({sql}) AS DECIMAL(38,0)) * 0.000001::DECIMAL(6,6))", to, raises=True)
    if k.is_fraction(kind):  # by the digits that are shown, as in the JVM
        number = decimal_from_number(f"CAST(CAST({sql} AS DOUBLE) AS VARCHAR)", k.sql_type(to))
        return Cast(f"(CASE WHEN isfinite({sql}) THEN {number} END)", raises=True)
    if kind == k.STRING:
        return Cast(decimal_from_text(sql, k.sql_type(to), fail=_bad_text(sql, to, lenient=lenient)), raises=True)
    raise _impossible(kind, to)


def _to_boolean(sql: str, kind: pa.DataType, *, lenient: bool) -> Cast:
    if k.is_number(kind):
        return Cast(f"({sql} <> 0)")
    if kind == k.STRING:
        word = f"lower(regexp_replace({sql}, '^[\\x00-\\x20\\x7f]+|[\\x00-\\x20\\x7f]+$', '', 'g'))"
        fail = _bad_text(sql, k.BOOLEAN, lenient=lenient)
        return Cast(
            f"(CASE WHEN {sql} IS NULL THEN NULL WHEN {word} IN ('t', 'true', 'y', 'yes', '1') THEN true"
            f" WHEN {word} IN ('f', 'false', 'n', 'no', '0') THEN false ELSE {fail} END)",
            raises=True,
        )
    raise _impossible(kind, k.BOOLEAN)


def _to_timestamp(sql: str, kind: pa.DataType, to: pa.DataType, *, lenient: bool) -> Cast:
    if k.is_timestamp(kind):
        return Cast(sql)
    if kind == k.DATE:
        return _plain(sql, to)
    if kind == k.STRING:
        zoned = to == k.TIMESTAMP
        return Cast(timestamp_from_text(sql, zoned=zoned, fail=_bad_text(sql, to, lenient=lenient)), raises=True)
    if to == k.TIMESTAMP_NTZ or not k.is_number(kind):
        raise _impossible(kind, to)
    if k.is_integral(kind):
        return Cast(f"make_timestamp(CAST({sql} AS BIGINT) * 1000000)", raises=kind == k.BIGINT)
    if k.is_fraction(kind):
        return Cast(f"make_timestamp(CAST(trunc(CAST({sql} AS DOUBLE) * 1000000) AS BIGINT))", raises=True)
    micros = f"CAST(trunc(CAST({sql} AS DECIMAL(38,{min(kind.scale, 18)})) * 1000000) AS BIGINT)"
    return Cast(f"make_timestamp({micros})", raises=True)


def _nested(sql: str, kind: pa.DataType, to: pa.DataType, *, lenient: bool) -> Cast:
    if k.is_array(kind) and k.is_array(to):
        inner = _cast("x", kind.value_type, to.value_type, lenient=lenient)
        if inner.sql == f"CAST(x AS {k.sql_type(to.value_type)})" or kind.value_type == k.NULL:
            return _plain(sql, to, raises=inner.raises)
        name = f"x{len(sql)}"
        inner = _cast(name, kind.value_type, to.value_type, lenient=lenient)
        return Cast(f"CAST(list_transform({sql}, lambda {name}: {inner.sql}) AS {k.sql_type(to)})", inner.raises)
    if k.is_struct(kind) and k.is_struct(to) and kind.num_fields == to.num_fields:
        fields = [_cast(f"{sql}.{quote(a.name)}", a.type, b.type, lenient=lenient) for a, b in zip(kind, to, strict=True)]
        packed = ", ".join(f"{quote(b.name)} := {made.sql}" for b, made in zip(to, fields, strict=True))
        return Cast(f"(CASE WHEN {sql} IS NOT NULL THEN struct_pack({packed}) END)", any(f.raises for f in fields))
    if k.is_map(kind) and k.is_map(to):
        parts = [_cast("x", kind.key_type, to.key_type, lenient=lenient)]
        parts.append(_cast("x", kind.item_type, to.item_type, lenient=lenient))
        wanted = [f"CAST(x AS {k.sql_type(to.key_type)})", f"CAST(x AS {k.sql_type(to.item_type)})", "x"]
        if all(part.sql in wanted for part in parts):
            return _plain(sql, to, raises=any(part.raises for part in parts))
    raise _impossible(kind, to)
