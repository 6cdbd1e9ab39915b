"""Types as expressions see them: Arrow's, plus null and intervals, with Spark's rules for decimals.

Intervals exist only inside expressions: a day-time interval is microseconds in a BIGINT, a year-month interval is
months in an INTEGER. No column can have such a type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types as is_

from headrace.base.errors import InvalidSchema
from headrace.base.schema import MAX_PRECISION, TIMESTAMP, TIMESTAMP_NTZ, duckdb_type, parse_type, type_name

if TYPE_CHECKING:
    from collections.abc import Callable

STRING, BINARY, BOOLEAN, NULL = pa.string(), pa.binary(), pa.bool_(), pa.null()
TINYINT, SMALLINT, INT, BIGINT = pa.int8(), pa.int16(), pa.int32(), pa.int64()
FLOAT, DOUBLE, DATE = pa.float32(), pa.float64(), pa.date32()
INTERVAL = pa.duration("us")  # day to second
DAYS = pa.duration("s")  # whole days: added to a date it leaves a date
MONTHS = pa.month_day_nano_interval()  # year to month
INTEGRALS = (TINYINT, SMALLINT, INT, BIGINT)
MIN_ADJUSTED_SCALE = 6  # digits behind the point that Spark keeps when a decimal's precision is cut to 38
_DIGITS = {TINYINT: 3, SMALLINT: 5, INT: 10, BIGINT: 20}
_INTERVALS = {INTERVAL: "interval day to second", DAYS: "interval day", MONTHS: "interval year to month"}

__all__ = ["MAX_PRECISION", "TIMESTAMP", "TIMESTAMP_NTZ", "parse_type"]


def is_decimal(kind: pa.DataType) -> bool:
    """Whether it is a decimal."""
    return bool(is_.is_decimal(kind))


def is_integral(kind: pa.DataType) -> bool:
    """Whether it is one of tinyint, smallint, int, bigint."""
    return kind in INTEGRALS


def is_fraction(kind: pa.DataType) -> bool:
    """Whether it is float or double."""
    return kind in (FLOAT, DOUBLE)


def is_number(kind: pa.DataType) -> bool:
    """Whether it is any number."""
    return is_integral(kind) or is_fraction(kind) or is_decimal(kind)


def is_timestamp(kind: pa.DataType) -> bool:
    """Whether it is a timestamp, of either sort."""
    return kind in (TIMESTAMP, TIMESTAMP_NTZ)


def is_day_time(kind: pa.DataType) -> bool:
    """Whether it is a day-time interval."""
    return kind in (INTERVAL, DAYS)


def is_interval(kind: pa.DataType) -> bool:
    """Whether it is an interval of either sort."""
    return kind in _INTERVALS


def is_array(kind: pa.DataType) -> bool:
    """Whether it is an array."""
    return bool(is_.is_list(kind))


def is_map(kind: pa.DataType) -> bool:
    """Whether it is a map."""
    return bool(is_.is_map(kind))


def is_struct(kind: pa.DataType) -> bool:
    """Whether it is a struct."""
    return bool(is_.is_struct(kind))


def is_nested(kind: pa.DataType) -> bool:
    """Whether it is an array, a map or a struct."""
    return is_array(kind) or is_map(kind) or is_struct(kind)


def is_atomic(kind: pa.DataType) -> bool:
    """Whether it is neither nested, nor null, nor an interval."""
    return not (is_nested(kind) or is_interval(kind) or kind == NULL)


def contains(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    """Whether the type or one nested in it is `wanted`."""
    if wanted(kind):
        return True
    return is_nested(kind) and any(contains(kind.field(i).type, wanted) for i in range(kind.num_fields))


def shown(kind: pa.DataType) -> str:
    """Return the type's name for people; intervals, null and types that contain null included."""
    if kind == NULL:
        return "void"
    if kind in _INTERVALS:
        return _INTERVALS[kind]
    if is_array(kind):
        return f"array<{shown(kind.value_type)}>"
    if is_map(kind):
        return f"map<{shown(kind.key_type)},{shown(kind.item_type)}>"
    try:
        return type_name(kind)
    except InvalidSchema:
        return str(kind)


def sql_type(kind: pa.DataType) -> str:
    """Return DuckDB's type; intervals are integers, and null may be anything."""
    if kind == NULL:
        return "INTEGER"
    if is_day_time(kind):
        return "BIGINT"
    if kind == MONTHS:
        return "INTEGER"
    if is_array(kind):
        return f"{sql_type(kind.value_type)}[]"
    return duckdb_type(kind)


def decimal(precision: int, scale: int) -> pa.DataType:
    """Return a decimal, cut to what 38 digits can hold (the digits before the point go first)."""
    return pa.decimal128(min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))


def adjusted(precision: int, scale: int) -> pa.DataType:
    """Return a decimal for arithmetic: beyond 38 digits Spark gives up digits behind the point, but keeps six."""
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    return pa.decimal128(MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, MIN_ADJUSTED_SCALE)))


def as_decimal(kind: pa.DataType) -> pa.DataType:
    """Return the decimal that holds every value of an integral type, or a decimal itself."""
    return pa.decimal128(_DIGITS[kind], 0) if kind in _DIGITS else kind


def wider_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the decimal that holds both; beyond 38 digits, those behind the point are given up."""
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    if whole + scale > MAX_PRECISION:
        scale = max(0, MAX_PRECISION - whole)
    return decimal(whole + scale, scale)
