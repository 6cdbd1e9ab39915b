"""Rows as JSON text, in columns: each column is made text, then the texts are joined."""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.compiled import worth_compiling
from headrace.connect.formats.calendar_text import DAY_MICROS, date_text, days_since_1970, time_text

if TYPE_CHECKING:
    from collections.abc import Callable

# plain texts: where pandas is installed, the first `pa.scalar` of a process imports it
_NULL = "null"
_QUOTE = '"'
_NOTHING = ""
_NEEDS_ESCAPES = r'[\x00-\x1f"\\]'
_FIRST_DAY, _LAST_DAY = days_since_1970(1, 1, 1), days_since_1970(9999, 12, 31)


def encode(rows: pa.RecordBatch) -> pa.Array:
    """Return each row as a JSON object with all columns, nulls included, in their order.

    Times are ISO 8601 with `T`, and `Z` where they are instants; numbers that are not finite are text ("NaN",
    "Infinity", "-Infinity"), binary is base64, maps are objects.
    """
    if not rows.num_columns:
        return pa.array(["{}"] * rows.num_rows, pa.string())
    parts: list[Any] = []
    for at, (name, column) in enumerate(zip(rows.schema.names, rows.columns, strict=True)):
        parts += [pa.scalar(f"{',' if at else '{'}{json.dumps(name, ensure_ascii=False)}:"), json_of(column)]
    return pc.binary_join_element_wise(*parts, pa.scalar("}"), _NOTHING)


def json_of(column: pa.Array) -> pa.Array:
    """Return the values of a column as JSON, none of them null."""
    return pc.fill_null(_written(column), _NULL)


def text_of(column: pa.Array) -> pa.Array:
    """Return the values of a column as text, as JSON has it but without its quotes and escapes; null stays null."""
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _times(column)
    if pa.types.is_binary(kind):
        return pa.array([None if each is None else _base64(each) for each in column.to_pylist()], pa.string())
    if pa.types.is_floating(kind):
        return _floats(column)
    return _written(column)


def _written(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind):
        return _quoted(column)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_binary(kind):
        return pc.binary_join_element_wise(_QUOTE, text_of(column), _QUOTE, _NOTHING)
    if pa.types.is_floating(kind):
        texts = _floats(column)
        odd = pc.invert(pc.is_finite(column))
        return pc.if_else(odd, pc.binary_join_element_wise(_QUOTE, texts, _QUOTE, _NOTHING), texts)
    if pa.types.is_nested(kind):
        write = _writer(kind)
        return pa.array([None if each is None else write(each) for each in plain(column)], pa.string())
    return pc.cast(column, pa.string())


def _quoted(column: pa.Array) -> pa.Array:
    odd = pc.fill_null(pc.match_substring_regex(column, _NEEDS_ESCAPES), fill_value=False)
    quoted = pc.binary_join_element_wise(_QUOTE, column, _QUOTE, _NOTHING)
    if not pc.any(odd).as_py():
        return quoted
    texts = [json.dumps(each, ensure_ascii=False) for each in column.filter(odd).to_pylist()]
    return pc.replace_with_mask(quoted, odd, pa.array(texts, pa.string()))


def _floats(column: pa.Array) -> pa.Array:
    texts = pc.cast(column, pa.string())
    for found, written in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        texts = pc.if_else(pc.equal(texts, found), pa.scalar(written), texts)
    return texts


def _times(column: pa.Array) -> pa.Array:
    kind = column.type
    is_date = pa.types.is_date(kind)
    ticks = column.view(pa.int32() if is_date else pa.int64())
    span = pc.min_max(ticks).as_py()
    unit = 1 if is_date else DAY_MICROS
    if span["min"] is None or (span["min"] >= _FIRST_DAY * unit and span["max"] < (_LAST_DAY + 1) * unit):
        if not is_date and kind.unit == "us" and worth_compiling(len(column)):
            from headrace.connect.formats.time_digits import written

            return written(column)
        texts = pc.cast(column, pa.string())
        if is_date:
            return texts
        texts = pc.binary_replace_slice(texts, 10, 11, "T")
        return pc.cast(texts, pa.string())
    zone = "Z" if not is_date and kind.tz else ""
    found = ticks.to_pylist()
    if is_date:
        return pa.array([None if each is None else date_text(each) for each in found], pa.string())
    return pa.array([None if each is None else time_text(each, zone) for each in found], pa.string())


def plain(column: pa.Array) -> list[Any]:
    """Return nested values as Python's, times and dates as numbers: Python's own end in the year 9999."""
    return column.cast(_with_numbers(column.type)).to_pylist()  # type: ignore[no-any-return]


def _with_numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(_with_numbers(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_with_numbers(kind.key_type), _with_numbers(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _with_numbers(field.type)) for field in kind])
    return kind


def _writer(kind: pa.DataType) -> Callable[[Any], str]:
    """Return a function from a value of `plain` to JSON."""
    write = _writer_of(kind)
    return lambda value: "null" if value is None else write(value)


def _writer_of(kind: pa.DataType) -> Callable[[Any], str]:
    if pa.types.is_list(kind):
        inner = _writer(kind.value_type)
        return lambda value: f"[{','.join(map(inner, value))}]"
    if pa.types.is_struct(kind):
        fields = [(field.name, json.dumps(field.name, ensure_ascii=False), _writer(field.type)) for field in kind]
        return lambda value: f"{{{','.join(f'{shown}:{of(value[name])}' for name, shown, of in fields)}}}"
    if pa.types.is_map(kind):
        key, item = _writer(kind.key_type), _writer(kind.item_type)
        return lambda value: f"{{{','.join(f'{_as_name(key(name))}:{item(of)}' for name, of in value)}}}"
    if pa.types.is_timestamp(kind):
        return lambda value: f'"{time_text(value, "Z" if kind.tz else "")}"'
    if pa.types.is_date(kind):
        return lambda value: f'"{date_text(value)}"'
    if pa.types.is_binary(kind):
        return lambda value: f'"{_base64(value)}"'
    if pa.types.is_float32(kind):
        return lambda value: _float(np.float32(value))
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_decimal(kind):
        return str
    return lambda value: json.dumps(value, ensure_ascii=False)


def _as_name(written: str) -> str:
    return written if written.startswith('"') else json.dumps(written, ensure_ascii=False)


def _float(value: Any) -> str:
    if math.isfinite(value):
        return str(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
