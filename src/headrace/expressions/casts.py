"""Casts: `cast` and `try_cast` from every type to every type that Spark's ANSI mode allows, with its errors.

Each pair of types has one way, found by the kind it casts *to*. `lenient` is `try_cast`: null where `cast` raises.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.base.names import literal, quote
from headrace.expressions import kinds as k
from headrace.expressions.binding import Binding
from headrace.expressions.casts_text import (
    date_from_text,
    decimal_from_number,
    decimal_from_text,
    fraction_from_text,
    fraction_to_text,
    integral_from_text,
    time_to_text,
    timestamp_from_text,
)
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import NOT_CONSTANT

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from headrace.expressions.values import Value

_WRITTEN_OUT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{6}|\.[0-9]{3})?)?")
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
    moment = _moment(value.constant, to)
    if moment:
        return replace(value, sql=moment, type=to, raises=False, constant=NOT_CONSTANT)
    binding = Binding([value], outside=lenient)
    result = _cast(binding.values[0].sql, value.type, to, lenient=lenient)
    sql = binding.finish(f"TRY({result.sql})" if lenient and result.raises else result.sql)
    raises = value.raises or (result.raises and not lenient)
    return replace(value, sql=sql, type=to, raises=raises, constant=_constant(value, to))


def _moment(text: object, to: pa.DataType) -> str:
    """Return the SQL of a date or time that is written out, so that no statement is planned with all ways to read one.

    "": `to` is no such type, or the text is not written as most are.
    """
    if not isinstance(text, str) or not (to == k.DATE or k.is_timestamp(to)):
        return ""
    try:
        at = datetime.fromisoformat(text) if _WRITTEN_OUT.fullmatch(text) else None
    except ValueError:
        return ""
    return "" if at is None else f"CAST({literal(at.isoformat(' '))} AS {k.sql_type(to)})"


def _constant(value: Value, to: pa.DataType) -> object:
    """Return the literal's value if the cast leaves it as it is."""
    widened = k.is_number(to) and (k.is_integral(value.type) or (k.is_decimal(value.type) and not k.is_integral(to)))
    return value.constant if widened or value.constant is None else NOT_CONSTANT


def raising(condition: str, message: str, shown: str = "", *, lenient: bool = False) -> str:
    """Return SQL that raises for the row: `[CONDITION] message`, and the value of the SQL `shown`, quoted."""
    if lenient:
        return "NULL"
    tail = f" || '''' || {shown} || ''''" if shown else ""
    return f"error({literal(f'[{condition}] {message}')}{tail})"


def _cast(sql: str, kind: pa.DataType, to: pa.DataType, *, lenient: bool) -> Cast:
    if kind == to:
        return Cast(sql)
    if kind == k.NULL:
        return Cast(f"CAST(NULL AS {k.sql_type(to)})")
    request = _Request(sql, kind, to, lenient)
    for wanted, way in _WAYS:
        if wanted(to):
            return way(request)
    raise _impossible(kind, to)


@dataclass(frozen=True, slots=True)
class _Request:
    """A cast to write: the SQL, its type, the type to cast to, and whether failures become null."""

    sql: str
    kind: pa.DataType
    to: pa.DataType
    lenient: bool

    def plain(self, sql: str = "", *, raises: bool = False) -> Cast:
        """Return DuckDB's own cast."""
        return Cast(f"CAST({sql or self.sql} AS {k.sql_type(self.to)})", raises=raises)

    def bad_text(self) -> str:
        """Return SQL for a text that cannot be read."""
        name = k.shown(self.to).upper()
        return raising("CAST_INVALID_INPUT", f"this text cannot be cast to {name}: ", self.sql, lenient=self.lenient)


def _impossible(kind: pa.DataType, to: pa.DataType) -> Mismatch:
    return Mismatch(f"{k.shown(kind)} cannot be cast to {k.shown(to)}")


def _to_string(request: _Request) -> Cast:
    sql, kind = request.sql, request.kind
    if k.is_decimal(kind) and kind.precision == kind.scale:  # DuckDB writes .05 for 0.05
        text = f"CAST({sql} AS VARCHAR)"
        return Cast(f"(CASE WHEN {sql} < 0 THEN '-0' || substring({text}, 2) ELSE '0' || {text} END)")
    if k.is_timestamp(kind) or kind == k.DATE:
        return Cast(time_to_text(sql))
    if k.is_integral(kind) or k.is_decimal(kind) or kind == k.BOOLEAN:
        return request.plain()
    if k.is_fraction(kind):
        return Cast(fraction_to_text(sql))
    if kind == k.BINARY:
        return Cast(f"decode({sql})", raises=True)
    raise Mismatch(
        f"{k.shown(kind)} to string is not supported",
        hint="Take it apart with array_join, element_at or a.b.",
    )


def _to_integral(request: _Request) -> Cast:
    sql, kind, to = request.sql, request.kind, request.to
    if k.is_integral(kind):
        return request.plain(raises=kind.bit_width > to.bit_width)
    if kind == k.BOOLEAN:
        return request.plain()
    if k.is_decimal(kind):
        return request.plain(f"trunc({sql})", raises=True)
    if k.is_fraction(kind):
        if to != k.BIGINT:
            return request.plain(f"trunc({sql})", raises=True)
        # Spark lets 2^63 pass, since it compares as a double, and returns the largest bigint
        return Cast(
            f"(CASE WHEN {sql} = {_LONG_LIMIT} THEN 9223372036854775807 ELSE CAST(trunc({sql}) AS BIGINT) END)",
            raises=True,
        )
    if kind == k.TIMESTAMP:
        seconds = f"((epoch_us({sql}) - (epoch_us({sql}) % 1000000 + 1000000) % 1000000) // 1000000)"
        return Cast(seconds) if to == k.BIGINT else request.plain(seconds, raises=True)
    if kind == k.STRING:
        return Cast(integral_from_text(sql, k.sql_type(to), fail=request.bad_text()), raises=True)
    raise _impossible(kind, to)


def _to_fraction(request: _Request) -> Cast:
    sql, kind, to = request.sql, request.kind, request.to
    if kind == k.DOUBLE:  # to float: what is too large becomes infinite
        limit = "3.4028235677973366e38::DOUBLE"
        large = f"CASE WHEN {sql} >= {limit} THEN 'inf'::FLOAT WHEN {sql} <= -{limit} THEN '-inf'::FLOAT"
        return Cast(
            f"(CASE WHEN isfinite({sql}) THEN {large} ELSE CAST({sql} AS FLOAT) END ELSE CAST({sql} AS FLOAT) END)"
        )
    if k.is_integral(kind) or kind in (k.FLOAT, k.BOOLEAN):
        return request.plain()
    if k.is_decimal(kind):
        if kind.precision <= _EXACT_DIGITS and to == k.DOUBLE:
            return request.plain()
        return request.plain(f"CAST({sql} AS VARCHAR)")
    if kind == k.TIMESTAMP:
        return request.plain(f"(epoch_us({sql}) / 1000000::DOUBLE)")
    if kind == k.STRING:
        return Cast(fraction_from_text(sql, k.sql_type(to), fail=request.bad_text()), raises=True)
    raise _impossible(kind, to)


def _to_decimal(request: _Request) -> Cast:
    sql, kind, to = request.sql, request.kind, request.to
    if k.is_integral(kind):
        return request.plain(raises=to.precision - to.scale < k.as_decimal(kind).precision)
    if k.is_decimal(kind):
        fits = to.precision - to.scale >= kind.precision - kind.scale and to.scale >= kind.scale
        return request.plain(raises=not fits)
    if kind == k.BOOLEAN:
        return request.plain(f"CAST({sql} AS INTEGER)", raises=to.precision == to.scale)
    if kind == k.TIMESTAMP:
        return request.plain(f"(CAST(epoch_us({sql}) AS DECIMAL(38,0)) * 0.000001::DECIMAL(6,6))", raises=True)
    if k.is_fraction(kind):  # by the digits that are shown, as in the JVM
        number = decimal_from_number(f"CAST(CAST({sql} AS DOUBLE) AS VARCHAR)", k.sql_type(to))
        return Cast(f"(CASE WHEN isfinite({sql}) THEN {number} END)", raises=True)
    if kind == k.STRING:
        return Cast(decimal_from_text(sql, k.sql_type(to), fail=request.bad_text()), raises=True)
    raise _impossible(kind, to)


def _to_boolean(request: _Request) -> Cast:
    sql, kind = request.sql, request.kind
    if k.is_number(kind):
        return Cast(f"({sql} <> 0)")
    if kind == k.STRING:
        word = f"lower(regexp_replace({sql}, '^[\\x00-\\x20\\x7f]+|[\\x00-\\x20\\x7f]+$', '', 'g'))"
        return Cast(
            f"(CASE WHEN {sql} IS NULL THEN NULL WHEN {word} IN ('t', 'true', 'y', 'yes', '1') THEN true"
            f" WHEN {word} IN ('f', 'false', 'n', 'no', '0') THEN false ELSE {request.bad_text()} END)",
            raises=True,
        )
    raise _impossible(kind, k.BOOLEAN)


def _to_timestamp(request: _Request) -> Cast:
    sql, kind, to = request.sql, request.kind, request.to
    if k.is_timestamp(kind):
        return Cast(sql)
    if kind == k.DATE:
        return request.plain()
    if kind == k.STRING:
        zoned = to == k.TIMESTAMP
        return Cast(timestamp_from_text(sql, zoned=zoned, fail=request.bad_text()), raises=True)
    if to == k.TIMESTAMP_NTZ or not k.is_number(kind):
        raise _impossible(kind, to)
    if k.is_integral(kind):
        return Cast(f"make_timestamp(CAST({sql} AS BIGINT) * 1000000)", raises=kind == k.BIGINT)
    if k.is_fraction(kind):
        return Cast(f"make_timestamp(CAST(trunc(CAST({sql} AS DOUBLE) * 1000000) AS BIGINT))", raises=True)
    micros = f"CAST(trunc(CAST({sql} AS DECIMAL(38,{min(kind.scale, 18)})) * 1000000) AS BIGINT)"
    return Cast(f"make_timestamp({micros})", raises=True)


def _nested(request: _Request) -> Cast:
    sql, kind, to = request.sql, request.kind, request.to
    if k.is_array(kind) and k.is_array(to):
        inner = _cast("x", kind.value_type, to.value_type, lenient=request.lenient)
        if inner.sql == f"CAST(x AS {k.sql_type(to.value_type)})" or kind.value_type == k.NULL:
            return request.plain(raises=inner.raises)
        name = f"x{len(sql)}"
        inner = _cast(name, kind.value_type, to.value_type, lenient=request.lenient)
        return Cast(f"CAST(list_transform({sql}, lambda {name}: {inner.sql}) AS {k.sql_type(to)})", inner.raises)
    if k.is_struct(kind) and k.is_struct(to) and kind.num_fields == to.num_fields:
        fields = [
            _cast(f"{sql}.{quote(a.name)}", a.type, b.type, lenient=request.lenient)
            for a, b in zip(kind, to, strict=True)
        ]
        packed = ", ".join(f"{quote(b.name)} := {result.sql}" for b, result in zip(to, fields, strict=True))
        return Cast(f"(CASE WHEN {sql} IS NOT NULL THEN struct_pack({packed}) END)", any(f.raises for f in fields))
    if k.is_map(kind) and k.is_map(to):
        parts = [_cast("x", kind.key_type, to.key_type, lenient=request.lenient)]
        parts.append(_cast("x", kind.item_type, to.item_type, lenient=request.lenient))
        wanted = [f"CAST(x AS {k.sql_type(to.key_type)})", f"CAST(x AS {k.sql_type(to.item_type)})", "x"]
        if all(part.sql in wanted for part in parts):
            return request.plain(raises=any(part.raises for part in parts))
    raise _impossible(kind, to)


def _to_date(request: _Request) -> Cast:
    if request.kind == k.STRING:
        return Cast(date_from_text(request.sql, fail=request.bad_text()), raises=True)
    if k.is_timestamp(request.kind):
        return request.plain()
    raise _impossible(request.kind, request.to)


def _to_binary(request: _Request) -> Cast:
    if request.kind == k.STRING:
        return Cast(f"encode({request.sql})")
    raise _impossible(request.kind, request.to)


def _to_interval(request: _Request) -> Cast:
    if k.is_day_time(request.kind):
        return Cast(request.sql)
    raise _impossible(request.kind, request.to)


_WAYS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[_Request], Cast]], ...] = (
    (k.STRING.equals, _to_string),
    (k.is_nested, _nested),
    (k.is_integral, _to_integral),
    (k.is_fraction, _to_fraction),
    (k.is_decimal, _to_decimal),
    (k.BOOLEAN.equals, _to_boolean),
    (k.DATE.equals, _to_date),
    (k.is_timestamp, _to_timestamp),
    (k.BINARY.equals, _to_binary),
    (k.is_day_time, _to_interval),
)
