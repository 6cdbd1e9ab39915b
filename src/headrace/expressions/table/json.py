"""JSON in text: one value out of a document, lengths and keys."""

from __future__ import annotations

import re

import pyarrow as pa

from headrace.base.names import literal
from headrace.expressions import kinds as k
from headrace.expressions.casts_text import fraction_to_text
from headrace.expressions.functions import Function, built
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value

_STEP = re.compile(r"\.([^.\[\]*\s]+)|\[(\d+)\]|\['([^']*)'\]")
_STRINGS = literal(r'"(?:[^"\\]|\\.)*"')
_LOOSE = literal(r"(?i),\s*[}\]]|nan|inf")  # DuckDB reads commas before a closing bracket, NaN and Infinity; Spark not
STRICT_NOTE = (
    "text that is no JSON by the letter gives null; Spark also reads single quotes and what stands before garbage"
)


def _path(text: str) -> str:
    """Return a path in DuckDB's words.

    Raises:
        Mismatch: it is wrong, or has a wildcard.

    """
    path, at = "$", 1
    while text.startswith("$") and at < len(text):
        found = _STEP.match(text, at)
        if not found:
            break
        name = found[1] if found[1] is not None else found[3]
        if name is not None and '"' in name:
            break
        path += f"[{found[2]}]" if name is None else f'."{name}"'
        at = found.end()
    if not text.startswith("$") or at < len(text):
        raise Mismatch(
            f"the path {text!r} is not supported", hint="Supported are $, .name, ['name'] and [0], without wildcards."
        )
    return path


def is_strict(sql: str) -> str:
    """Return SQL that says whether a text is JSON by the letter."""
    loose = f"regexp_matches(regexp_replace({sql}, {_STRINGS}, '0', 'g'), {_LOOSE})"
    return f"json_valid({sql}) AND NOT {loose}"


def number_text(json: str) -> str:
    """Return SQL for the text of a number that is a double to DuckDB, as are whole ones beyond 64 bits."""
    fraction = fraction_to_text(f"CAST({json} AS DOUBLE)")
    text = f"CAST({json} AS VARCHAR)"
    return f"CASE WHEN regexp_full_match({text}, '-?[0-9]+') THEN {text} ELSE {fraction} END"


def _guarded(text: Value, sql: str, kind: pa.DataType) -> Value:
    return Value("", f"(CASE WHEN {is_strict(text.sql)} THEN {sql} END)", kind, raises=text.raises)


def _read(text: Value, call: str) -> str:
    """Return a call that reads JSON: DuckDB computes those of constants early, in branches that are not taken too."""
    return call if text.raises else f"TRY({call})"


def _object(values: list[Value]) -> Value:
    if not isinstance(values[1].constant, str):
        raise Mismatch("the path of get_json_object must be a constant text")
    text, path = values[0].sql, literal(_path(values[1].constant))
    found = _read(values[0], f"json_extract({text}, {path})")
    plain = _read(values[0], f"json_extract_string({text}, {path})")
    nothing = "'null'" if path == literal("$") else "NULL"
    chosen = (
        f"CASE json_type({found}) WHEN 'NULL' THEN {nothing} WHEN 'VARCHAR' THEN {plain}"
        f" WHEN 'DOUBLE' THEN {number_text(found)} ELSE CAST({found} AS VARCHAR) END"
    )
    return _guarded(values[0], chosen, k.STRING)


def _length(values: list[Value]) -> Value:
    text = values[0].sql
    kind, size = (_read(values[0], f"{name}({text})") for name in ("json_type", "json_array_length"))
    size_or_null = f"CASE WHEN {kind} = 'ARRAY' THEN CAST({size} AS INTEGER) END"
    return _guarded(values[0], size_or_null, k.INT)


def _keys(values: list[Value]) -> Value:
    text = values[0].sql
    kind, keys = (_read(values[0], f"{name}({text})") for name in ("json_type", "json_keys"))
    keys_or_null = f"CASE WHEN {kind} = 'OBJECT' THEN {keys} END"
    return _guarded(values[0], keys_or_null, pa.list_(k.STRING))


_CALL = "get_json_object(json, '{}')"
ENTRIES: tuple[Function, ...] = (
    built(
        "get_json_object",
        "=string, string",
        _object,
        _CALL.format("$.a"),
        _CALL.format("$.a.b[1]"),
        "get_json_object(nullif(substr(json, 1, 4), substr(json, 1, 1)), '$')",
        "get_json_object(json, '$[\\'a\\']')",
        _CALL.format("$[0].a"),
        "get_json_object(s, '$.a')",
        notes=(
            f"the path is a constant without wildcards; {STRICT_NOTE}; objects and arrays within come out with DuckDB's"
            " digits of fractions, and with characters beyond the BMP as they are (Spark writes escapes);"
            " a number beyond the doubles is infinite or raises"
        ),
    ),
    built(
        "json_array_length", "=string", _length, "json_array_length(json)", "json_array_length(s)", notes=STRICT_NOTE
    ),
    built("json_object_keys", "=string", _keys, "json_object_keys(json)", notes=STRICT_NOTE),
)
