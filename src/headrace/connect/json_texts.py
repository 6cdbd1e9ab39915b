"""DuckDB's SQL for the JSON of a nested value, for stores that keep one as a text."""

from __future__ import annotations

import pyarrow as pa

from headrace.base.names import quote


def json_of(kind: pa.DataType, value: str) -> str:
    """Return the SQL of a value's JSON: numbers keep their digits; what JSON lacks is a text, binary is base64."""
    return _json(kind, value, 0)


def _json(kind: pa.DataType, value: str, depth: int) -> str:
    return f"coalesce({_json_of(kind, value, depth)}, 'null')"


def _json_of(kind: pa.DataType, value: str, depth: int) -> str:
    plain = f"CAST({value} AS VARCHAR)"
    if pa.types.is_struct(kind):
        fields = [f"{_text(_json_name(f.name))} || {_json(f.type, f'{value}.{quote(f.name)}', depth)}" for f in kind]
        inner = " || ',' || ".join(fields)
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE '{{' || {inner} || '}}' END"
    name = f"e{depth}"
    if pa.types.is_list(kind):
        return _joined(value, name, _json(kind.value_type, name, depth + 1), "[]")
    if pa.types.is_map(kind):
        key, item = f"{name}.key", _json(kind.item_type, f"{name}.value", depth + 1)
        if pa.types.is_string(kind.key_type):
            return _joined(f"map_entries({value})", name, f"CAST(to_json({key}) AS VARCHAR) || ':' || {item}", "{}")
        pair = f"'[' || {_json(kind.key_type, key, depth + 1)} || ',' || {item} || ']'"
        return _joined(f"map_entries({value})", name, pair, "[]")
    if pa.types.is_floating(kind):
        return f"CASE WHEN isfinite({value}) THEN {plain} ELSE '\"' || {plain} || '\"' END"
    if pa.types.is_decimal(kind) and kind.precision == kind.scale:  # .5, which JSON does not know
        return f"regexp_replace({plain}, '^(-?)[.]', '\\10.')"
    if pa.types.is_binary(kind):
        return f"'\"' || base64({value}) || '\"'"
    if pa.types.is_string(kind):
        return f"CAST(to_json({value}) AS VARCHAR)"
    return f"'\"' || {plain} || '\"'" if pa.types.is_temporal(kind) else plain


def _joined(values: str, name: str, item: str, ends: str) -> str:
    return f"'{ends[0]}' || array_to_string(list_transform({values}, lambda {name}: {item}), ',') || '{ends[1]}'"


def _json_name(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}":'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
