"""Which type two values meet in, and what an argument becomes by itself: Spark's rules in ANSI mode."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.expressions import kinds as k
from headrace.expressions.casts import cast
from headrace.expressions.mismatch import Mismatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expressions.values import Value

_NUMBERS = (k.TINYINT, k.SMALLINT, k.INT, k.BIGINT, k.FLOAT, k.DOUBLE)


def common(one: pa.DataType, other: pa.DataType, *, strings: bool = True) -> pa.DataType | None:
    """Return the type in which two meet, or None; `strings` lets text become the other's type."""
    if k.NULL in (one, other) or one == other:
        return other if one == k.NULL else one
    if k.is_number(one) and k.is_number(other):
        return _common_number(one, other)
    if k.STRING in (one, other):
        return _common_with_text(other if one == k.STRING else one) if strings else None
    if k.is_timestamp(one) and k.is_timestamp(other):
        return k.TIMESTAMP
    if k.DATE in (one, other):
        rest = other if one == k.DATE else one
        return rest if k.is_timestamp(rest) else None
    if k.is_day_time(one) and k.is_day_time(other):
        return k.INTERVAL
    return _common_nested(one, other, strings=strings)


def common_of(values: Sequence[Value], *, strings: bool = True, what: str) -> pa.DataType:
    """Return the type in which all meet.

    Raises:
        Mismatch: there is none; `what` says who needed it.

    """
    found: pa.DataType | None = k.NULL
    for value in values:
        found = common(found, value.type, strings=strings) if found is not None else None
    if found is None:
        kinds = ", ".join(dict.fromkeys(k.shown(value.type) for value in values))
        raise Mismatch(f"{what} cannot bring {kinds} to one type", hint="Cast them to one type.")
    return found


def meet(values: Sequence[Value], *, strings: bool = True, what: str) -> list[Value]:
    """Return all values cast to their common type."""
    kind = common_of(values, strings=strings, what=what)
    return [cast(value, kind) for value in values]


def implicit(value: Value, to: pa.DataType) -> Value | None:
    """Return an argument as a function that expects `to` gets it, or None if Spark would not cast it by itself."""
    kind = value.type
    if kind in (to, k.NULL):
        return cast(value, to)
    allowed = (
        (to == k.STRING and k.is_atomic(kind))
        or (k.is_number(to) and k.is_number(kind))
        or (kind == k.STRING and k.is_atomic(to))
        or (to in (k.DATE, k.TIMESTAMP, k.TIMESTAMP_NTZ) and (kind == k.DATE or k.is_timestamp(kind)))
    )
    return cast(value, to) if allowed else None


def _common_number(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if k.is_decimal(one) or k.is_decimal(other):
        if k.is_fraction(one) or k.is_fraction(other):
            return k.DOUBLE
        return k.wider_decimal(k.as_decimal(one), k.as_decimal(other))
    wider = _NUMBERS[max(_NUMBERS.index(one), _NUMBERS.index(other))]
    return k.DOUBLE if wider == k.FLOAT else wider  # an int and a float meet in double: nothing is lost


def _common_with_text(other: pa.DataType) -> pa.DataType | None:
    if k.is_integral(other):
        return k.BIGINT
    if k.is_number(other):
        return k.DOUBLE
    return other if k.is_atomic(other) else None


def _common_nested(one: pa.DataType, other: pa.DataType, *, strings: bool) -> pa.DataType | None:
    if k.is_array(one) and k.is_array(other):
        inner = common(one.value_type, other.value_type, strings=strings)
        return pa.list_(inner) if inner is not None else None
    if k.is_map(one) and k.is_map(other):
        key = common(one.key_type, other.key_type, strings=strings)
        item = common(one.item_type, other.item_type, strings=strings)
        return pa.map_(key, item) if key is not None and item is not None else None
    same = k.is_struct(one) and k.is_struct(other) and one.num_fields == other.num_fields
    if same and all(a.name.lower() == b.name.lower() for a, b in zip(one, other, strict=True)):
        inner = [common(a.type, b.type, strings=strings) for a, b in zip(one, other, strict=True)]
        if all(kind is not None for kind in inner):
            return pa.struct([pa.field(a.name, kind) for a, kind in zip(one, inner, strict=True)])
    return None


def comparable(value: Value, what: str) -> None:
    """Refuse what has no order and no equality.

    Raises:
        Mismatch: the type is a map, or contains one.

    """
    if k.contains(value.type, k.is_map):
        raise Mismatch(f"{what} cannot compare a map", hint="Compare map_keys or map_values, or one element.")


def widest(kinds: Sequence[pa.DataType]) -> pa.DataType:
    """Return the widest of integral types."""
    return reduce(lambda a, b: a if a.bit_width >= b.bit_width else b, kinds)
