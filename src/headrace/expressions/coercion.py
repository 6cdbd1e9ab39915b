"""Type coercion: the common type of values, and implicit casts of arguments. Spark's rules in ANSI mode."""

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


def common_type(left: pa.DataType, right: pa.DataType, *, strings: bool = True) -> pa.DataType | None:
    """Return the common type of two, or None; `strings` lets text become the other type."""
    if k.NULL in (left, right) or left == right:
        return right if left == k.NULL else left
    if k.is_number(left) and k.is_number(right):
        return _common_number(left, right)
    if k.STRING in (left, right):
        return _common_with_text(right if left == k.STRING else left) if strings else None
    if k.is_timestamp(left) and k.is_timestamp(right):
        return k.TIMESTAMP
    if k.DATE in (left, right):
        rest = right if left == k.DATE else left
        return rest if k.is_timestamp(rest) else None
    if k.is_day_time(left) and k.is_day_time(right):
        return k.INTERVAL
    return _common_nested(left, right, strings=strings)


def common_type_of(values: Sequence[Value], *, strings: bool = True, what: str) -> pa.DataType:
    """Return the common type of all values.

    Raises:
        Mismatch: there is none; `what` says who needed it.

    """
    kind: pa.DataType | None = k.NULL
    for value in values:
        kind = common_type(kind, value.type, strings=strings) if kind is not None else None
    if kind is None:
        kinds = ", ".join(dict.fromkeys(k.shown(value.type) for value in values))
        raise Mismatch(f"{what} cannot bring {kinds} to one type", hint="Cast them to one type.")
    return kind


def unify(values: Sequence[Value], *, strings: bool = True, what: str) -> list[Value]:
    """Return all values cast to their common type."""
    kind = common_type_of(values, strings=strings, what=what)
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


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if k.is_decimal(left) or k.is_decimal(right):
        if k.is_fraction(left) or k.is_fraction(right):
            return k.DOUBLE
        return k.wider_decimal(k.as_decimal(left), k.as_decimal(right))
    wider = _NUMBERS[max(_NUMBERS.index(left), _NUMBERS.index(right))]
    return k.DOUBLE if wider == k.FLOAT else wider  # of an int and a float it is double: nothing is lost


def _common_with_text(kind: pa.DataType) -> pa.DataType | None:
    if k.is_integral(kind):
        return k.BIGINT
    if k.is_number(kind):
        return k.DOUBLE
    return kind if k.is_atomic(kind) else None


def _common_nested(left: pa.DataType, right: pa.DataType, *, strings: bool) -> pa.DataType | None:
    if k.is_array(left) and k.is_array(right):
        inner = common_type(left.value_type, right.value_type, strings=strings)
        return pa.list_(inner) if inner is not None else None
    if k.is_map(left) and k.is_map(right):
        key = common_type(left.key_type, right.key_type, strings=strings)
        item = common_type(left.item_type, right.item_type, strings=strings)
        return pa.map_(key, item) if key is not None and item is not None else None
    same = k.is_struct(left) and k.is_struct(right) and left.num_fields == right.num_fields
    if same and all(a.name.lower() == b.name.lower() for a, b in zip(left, right, strict=True)):
        inner = [common_type(a.type, b.type, strings=strings) for a, b in zip(left, right, strict=True)]
        if all(kind is not None for kind in inner):
            return pa.struct([pa.field(a.name, kind) for a, kind in zip(left, inner, strict=True)])
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
