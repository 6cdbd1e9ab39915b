"""Arrow columns ⇄ what SQLite stores: every value is read as it was written, and plain SQL can read and sort it.

| type | stored as |
|---|---|
| integers, boolean | integer |
| float, double | real; NaN as the text `NaN`, which sorts last, as in Spark |
| string, binary | text, blob |
| decimal | text with all digits of its scale: `-12.50` |
| date, timestamp | ISO text with microseconds: `2026-01-31 10:00:00.000000Z`, without the Z where there is no zone |
| array, map, struct | JSON text; a map with text keys is an object, any other map an array of pairs |
"""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import InvalidRows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Change = Callable[[Any], Any]

NAN = "NaN"
_FIRST = {"date": date(1, 1, 1), "instant": datetime(1, 1, 1)}  # noqa: DTZ001 - compared with times in UTC
_LAST = {"date": date(9999, 12, 31), "instant": datetime(9999, 12, 31, 23, 59, 59, 999_999)}  # noqa: DTZ001


def affinity(kind: pa.DataType) -> str:
    """Return the SQLite column type for an Arrow type; an empty one stores values exactly as they are bound."""
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return ""  # a column of type REAL stores -0.0 as 0
    return "BLOB" if pa.types.is_binary(kind) else "TEXT"


def to_sqlite(column: pa.Array, *, name: str) -> list[Any]:
    """Return a column's values as SQLite takes them; `name` is the column's, for the error.

    Raises:
        InvalidRows: a date or time is outside the years 1 to 9999, which text cannot sort.

    """
    kind = column.type
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_decimal(kind):
        return _decimals(column)
    if pa.types.is_temporal(kind):
        check_years(column, name=name)
        return column.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_nested(kind):
        change = _to_json(kind)
        return [None if value is None else _dumps(change(value)) for value in column.to_pylist()]
    return column.to_pylist()  # type: ignore[no-any-return]


def to_arrow(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return what SQLite stored as a column of type `kind`."""
    if pa.types.is_floating(kind):
        if NAN in values:
            values = [math.nan if value == NAN else value for value in values]
        return pa.array(values, pa.float64()).cast(kind)
    if pa.types.is_boolean(kind):
        return pa.array(values, pa.int8()).cast(kind)
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return pa.array(values, pa.string()).cast(kind)
    if pa.types.is_nested(kind):
        return from_json(values, kind)
    return pa.array(values, kind)


def from_json(texts: Sequence[str | None], kind: pa.DataType) -> pa.Array:
    """Return JSON texts as a column of a nested type: those of `to_sqlite`, or those of PostgreSQL."""
    change = _from_json(kind)
    return pa.array([None if text is None else change(json.loads(text, parse_float=Decimal)) for text in texts], kind)


def order_terms(column: str, kind: pa.DataType) -> list[str]:
    """Return the terms of an ORDER BY that sort a stored column as its type sorts, nulls first."""
    if not pa.types.is_decimal(kind):
        return [column]
    # digits of one scale sort by length and text; negative ones in reverse order of both
    below = f"{column} < '0'"
    return [
        f"CASE WHEN {below} THEN -length({column}) ELSE length({column}) END",
        f"CASE WHEN {below} THEN NULL ELSE {column} END",
        f"{column} DESC",
    ]


def _floats(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if pc.any(pc.is_nan(column)).as_py():  # SQLite would store it as NULL
        return [NAN if value is not None and math.isnan(value) else value for value in values]
    return values


def _decimals(column: pa.Array) -> list[Any]:
    texts = column.cast(pa.string())
    if pc.any(pc.match_substring(texts, "E")).as_py():  # Arrow writes 0.0000001 as 1E-7
        return [None if value is None else f"{value:f}" for value in column.to_pylist()]
    return texts.to_pylist()  # type: ignore[no-any-return]


def check_years(column: pa.Array | pa.ChunkedArray, *, name: str) -> None:
    """Refuse dates and times outside the years 1 to 9999.

    Raises:
        InvalidRows: there is one; it names the column.

    """
    kind = "date" if pa.types.is_date(column.type) else "instant"
    raw = pa.date32() if kind == "date" else pa.timestamp("us")
    first, last = pa.scalar(_FIRST[kind], raw), pa.scalar(_LAST[kind], raw)
    plain = column if kind == "date" else column.cast(raw)
    outside = pc.or_(pc.less(plain, first), pc.greater(plain, last))
    if pc.any(outside).as_py():
        raise InvalidRows(f'the column "{name}" has a time outside the years 1 to 9999, which a view cannot store')


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# ---- nested values: one function a type, created once a column ----------------------------------------------


def _same(value: object) -> object:
    return value


def _bytes(text: str) -> bytes:
    """Return what base64 says, or PostgreSQL in its own form."""
    return bytes.fromhex(text[2:]) if text.startswith("\\x") else base64.b64decode(text)


# of the types that JSON lacks: how a value is written, and read
_LEAVES: tuple[tuple[Callable[[pa.DataType], bool], Change, Change], ...] = (
    (pa.types.is_floating, lambda value: value if math.isfinite(value) else str(value), float),
    (pa.types.is_decimal, "{:f}".format, Decimal),
    (pa.types.is_binary, lambda value: base64.b64encode(value).decode(), _bytes),
    (pa.types.is_date, str, date.fromisoformat),
    (pa.types.is_timestamp, str, datetime.fromisoformat),
)


def _to_json(kind: pa.DataType) -> Change:
    """Return the function that turns a value of `to_pylist` into one that JSON has."""
    if pa.types.is_list(kind):
        return _each(_to_json(kind.value_type))
    if pa.types.is_map(kind):
        return _map_to_json(_to_json(kind.key_type), _to_json(kind.item_type), pa.types.is_string(kind.key_type))
    if pa.types.is_struct(kind):
        changes = {field.name: _to_json(field.type) for field in kind}
        return lambda value: {name: None if value[name] is None else change(value[name])
                              for name, change in changes.items()}  # fmt: skip
    return next((change for has_kind, change, _ in _LEAVES if has_kind(kind)), _same)


def _from_json(kind: pa.DataType) -> Change:
    """Return the function that turns a value of JSON into one that `pa.array` takes for `kind`."""
    if pa.types.is_list(kind):
        return _each(_from_json(kind.value_type))
    if pa.types.is_map(kind):
        return _map_from_json(_from_json(kind.key_type), _from_json(kind.item_type))
    if pa.types.is_struct(kind):
        changes = {field.name: _from_json(field.type) for field in kind}
        return lambda value: {name: None if value[name] is None else change(value[name])
                              for name, change in changes.items()}  # fmt: skip
    return next((change for has_kind, _, change in _LEAVES if has_kind(kind)), _same)


def _each(change: Change) -> Change:
    return lambda values: [None if value is None else change(value) for value in values]


def _map_to_json(key: Change, item: Change, text_keys: bool) -> Change:  # noqa: FBT001 - private, one caller
    def convert(pairs: list[tuple[Any, Any]]) -> object:
        converted = [[key(name), None if value is None else item(value)] for name, value in pairs]
        as_object = dict(converted) if text_keys else {}
        return as_object if text_keys and len(as_object) == len(converted) else converted

    return convert


def _map_from_json(key: Change, item: Change) -> Change:
    def convert(stored: dict[str, Any] | list[Any]) -> object:
        pairs = stored.items() if isinstance(stored, dict) else stored
        return [(key(name), None if value is None else item(value)) for name, value in pairs]

    return convert
