"""`to_json`: structs, arrays and maps as text, as Spark writes them."""

from __future__ import annotations

import pyarrow as pa

from headrace.base.names import literal
from headrace.expressions import kinds as k
from headrace.expressions.casts import cast
from headrace.expressions.functions import Function, built
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value

_PLAIN_SCALE = 6
"""Digits behind the point up to which Java writes each decimal without an exponent."""


def _text(sql: str, kind: pa.DataType, depth: int = 0) -> str:
    """Return SQL for the JSON of a value; null where it is null."""
    if k.is_struct(kind):
        return _object(sql, kind, depth)
    element = f"_headrace_j{depth}"
    if k.is_array(kind):
        inner = f"coalesce({_text(element, kind.value_type, depth + 1)}, 'null')"
        return f"'[' || {_joined(f'list_transform({sql}, lambda {element}: {inner})')} || ']'"
    if k.is_map(kind):
        value = f"coalesce({_text(f'{element}.value', kind.item_type, depth + 1)}, 'null')"
        pair = f"{_quoted(_key(f'{element}.key', kind.key_type))} || ':' || {value}"
        return f"'{{' || {_joined(f'list_transform(map_entries({sql}), lambda {element}: {pair})')} || '}}'"
    return _atom(sql, kind)


def _joined(texts: str) -> str:
    return f"array_to_string({texts}, ',')"


def _quoted(sql: str) -> str:
    return f"CAST(to_json({sql}) AS VARCHAR)"


def _object(sql: str, kind: pa.DataType, depth: int) -> str:
    """Fields that are null are left out."""
    names = [field.name for field in kind]
    fields = [f"struct_extract({sql}, {literal(name)})" for name in names]
    texts = [_text(field, kind.field(i).type, depth) for i, field in enumerate(fields)]
    pairs = [f"{_quoted(literal(name))} || ':' || {text}" for name, text in zip(names, texts, strict=True)]
    return f"(CASE WHEN ({sql}) IS NOT NULL THEN '{{' || concat_ws(',', {', '.join(pairs)}) || '}}' END)"


def _key(sql: str, kind: pa.DataType) -> str:
    if kind == k.STRING:
        return sql
    if k.is_integral(kind) or kind == k.BOOLEAN:
        return f"CAST({sql} AS VARCHAR)"
    raise Mismatch(f"a map with keys of type {k.shown(kind)} is not written as JSON", hint="Cast its keys to string.")


def _atom(sql: str, kind: pa.DataType) -> str:
    if kind == k.STRING:
        return _quoted(sql)
    if kind == k.BINARY:
        return f"'\"' || base64({sql}) || '\"'"
    if k.is_integral(kind) or kind == k.BOOLEAN:
        return f"CAST({sql} AS VARCHAR)"
    if k.is_decimal(kind) and kind.scale <= _PLAIN_SCALE:
        return f"CAST({sql} AS VARCHAR)"
    written = cast(Value("", sql, kind), k.STRING).sql if k.is_fraction(kind) or pa.types.is_date(kind) else ""
    if k.is_fraction(kind) and not k.is_decimal(kind):
        return f"(CASE WHEN isfinite({sql}) THEN {written} ELSE '\"' || {written} || '\"' END)"
    if pa.types.is_date(kind):
        return f"'\"' || {written} || '\"'"
    if pa.types.is_timestamp(kind):
        day = cast(Value("", f"CAST({sql} AS DATE)", k.DATE), k.STRING).sql
        zone = "" if kind.tz is None else "Z"
        return f"'\"' || {day} || 'T' || strftime({sql}, '%H:%M:%S.%g') || '{zone}\"'"
    raise Mismatch(f"values of type {k.shown(kind)} are not written as JSON", hint="Cast them to string first.")


def _to_json(values: list[Value]) -> Value:
    value = values[0]
    if not (k.is_struct(value.type) or k.is_array(value.type) or k.is_map(value.type)):
        raise Mismatch(
            f"to_json takes a struct, an array or a map, not {k.shown(value.type)}",
            hint="For example to_json(named_struct('id', id, 'name', name)).",
        )
    return Value("", _text(value.sql, value.type), k.STRING, raises=value.raises)


_CALL = "to_json(named_struct({}))"
ENTRIES: tuple[Function, ...] = (
    built(
        "to_json",
        "any",
        _to_json,
        "to_json(pair)",
        "to_json(ints)",
        "to_json(texts)",
        "to_json(counts)",
        _CALL.format("'f', round(f, 2), 'd', round(d, 3), 'm', m, 'p', p"),
        _CALL.format("'b', b, 'l', l, 'bin', bin, 's', s"),
        _CALL.format("'day', day"),
        _CALL.format("'at', at, 'ntz', ntz"),
        _CALL.format("'in', named_struct('x', i, 'y', reals), 'all', array(pair)"),
        notes="without options; null fields are left out; decimals of up to 6 digits behind the point; keys of maps "
        "are texts or whole numbers",
    ),
)
