"""The types of columns in PostgreSQL, and DuckDB's SQL that turns values into texts which PostgreSQL reads.

| column | PostgreSQL |
|---|---|
| tinyint, smallint, int, bigint | smallint, smallint, integer, bigint |
| float, double, boolean | real, double precision, boolean |
| decimal(p, s) | numeric(p, s) |
| date, timestamp, timestamp_ntz, binary | date, timestamptz, timestamp, bytea |
| string | text |
| array of these | array |
| struct, map, array of arrays, structs or maps | jsonb |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.errors import InvalidPlan
from headrace.connect.json_texts import json_of

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "smallint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_float32, "real"),
    (pa.types.is_float64, "double precision"),
    (pa.types.is_date, "date"),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), "bytea"),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), "text"),
)
_WIDER = {
    "smallint": {"integer", "bigint", "numeric"},
    "integer": {"bigint", "numeric"},
    "bigint": {"numeric"},
    "real": {"double precision"},
    "jsonb": {"json"},
}
_READ_TEXT = "SEUI"
"""Categories of types that read a text as it is: texts, enums, others (uuid, json, citext), addresses."""
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
_CUT = re.compile(r'name|"char"|character\(\d+\)|bpchar')
"""Types that store a text with blanks at its end, or without what is too long."""
NESTED_TEXT = "jsonb"


def declared(kind: pa.DataType) -> str:
    """Return the type of PostgreSQL for a column.

    Raises:
        InvalidPlan: there is none.

    """
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return f"timestamp {'with' if kind.tz else 'without'} time zone"
    if pa.types.is_list(kind):
        element = kind.value_type
        return NESTED_TEXT if pa.types.is_nested(element) else f"{declared(element)}[]"
    if pa.types.is_nested(kind):
        return NESTED_TEXT
    found = next((name for fits, name in _PLAIN if fits(kind)), None)
    if found is None:
        raise InvalidPlan(f"PostgreSQL has no type for {kind}", hint="Cast the column: .select('CAST(x AS string)').")
    return found


def holds(found: str, category: str, kind: pa.DataType) -> bool:
    """Whether a column of a type of PostgreSQL (of a category) can store all values of a column, unchanged."""
    wanted = declared(kind)
    if found == wanted or found in _WIDER.get(wanted, ()):
        return True
    if wanted == "text":
        return category in _READ_TEXT and found != "bytea" and _CUT.fullmatch(found) is None
    if pa.types.is_decimal(kind):
        sizes = _NUMERIC.fullmatch(found)
        if sizes is None:
            return found == "numeric"
        precision, scale = int(sizes[1]), int(sizes[2])
        return bool(scale >= kind.scale and precision - scale >= kind.precision - kind.scale)
    return False


def needs_text(kind: pa.DataType) -> bool:
    """Whether values of a type are turned into texts by `as_text` before they are written."""
    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def as_text(kind: pa.DataType, value: str) -> str:
    """Return DuckDB's SQL for the text of a value that PostgreSQL reads."""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return f"'\\x' || lower(hex({value}))"
    if declared(kind) == NESTED_TEXT:
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE {json_of(kind, value)} END"
    items = f"list_transform({value}, lambda e: coalesce({_element(kind.value_type)}, 'NULL'))"
    return f"'{{' || array_to_string({items}, ',') || '}}'"


def _element(kind: pa.DataType) -> str:
    if pa.types.is_binary(kind):
        return "'\"\\\\x' || lower(hex(e)) || '\"'"
    if pa.types.is_string(kind):
        return "'\"' || replace(replace(e, '\\', '\\\\'), '\"', '\\\"') || '\"'"
    return "'\"' || CAST(e AS VARCHAR) || '\"'" if pa.types.is_temporal(kind) else "CAST(e AS VARCHAR)"
