"""`from_json`: text as a struct, an array or a map of a schema, read as Spark's permissive mode reads it.

A value of another type than the schema's is null. In an array or a map it makes the whole null, except a field of a
struct. Text that is no JSON gives a struct of nulls, or null instead of an array or a map.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.base.errors import HeadraceError
from headrace.base.names import literal
from headrace.expressions import kinds as k
from headrace.expressions.binding import bound
from headrace.expressions.casts import cast
from headrace.expressions.functions import Function, built
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.table.json import STRICT_NOTE, is_strict, number_text
from headrace.expressions.values import Value

_NUMBERS = "('BIGINT', 'UBIGINT', 'DOUBLE')"
_WHOLE = "('BIGINT', 'UBIGINT')"
_INFINITE = "('Infinity', '+Infinity', '+INF')", "('-Infinity', '-INF')"
_NUMBER = "[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]+)?"


def _value(j: str, kind: pa.DataType, depth: int) -> str:
    """Return SQL that reads a part of JSON, which is neither missing nor null; null where it is of another type."""
    if k.is_struct(kind):
        return f"CASE WHEN json_type({j}) = 'OBJECT' THEN {_struct(j, kind, depth)} END"
    if k.is_array(kind):
        return f"CASE WHEN json_type({j}) = 'ARRAY' THEN {_array(j, kind, depth)} END"
    if k.is_map(kind):
        return f"CASE WHEN json_type({j}) = 'OBJECT' THEN {_map(j, kind, depth)} END"
    return _atom(j, kind)


def _present(j: str, kind: pa.DataType, depth: int) -> str:
    """Return SQL that reads a part of JSON, or null."""
    name = f"_headrace_j{depth}"
    read = f"CASE WHEN json_type({name}) <> 'NULL' THEN {_value(name, kind, depth + 1)} END"
    return bound(name, j, read)


def _entries(j: str, name: str, body: str) -> str:
    """Return SQL with the names and the values of an object as the fields `k` and `v` of `name`."""
    return bound(name, f"struct_pack(k := json_keys({j}), v := json_extract({j}, '$.*'))", body)


def _last(name: str, key: str) -> str:
    """Return SQL for the value of a key; of equal keys the last one counts."""
    return f"{name}.v[len({name}.k) + 1 - list_position(list_reverse({name}.k), {key})]"


def _struct(j: str, kind: pa.DataType, depth: int) -> str:
    name = f"_headrace_o{depth}"
    fields = [
        f"{literal(field.name)}: {_present(_last(name, literal(field.name)), field.type, depth)}" for field in kind
    ]
    return f"CAST({_entries(j, name, '{' + ', '.join(fields) + '}')} AS {k.sql_type(kind)})"


def _array(j: str, kind: pa.DataType, depth: int) -> str:
    """An element of another type makes the whole null."""
    element = f"_headrace_a{depth}"
    elements = f"json_extract({j}, '$[*]')"
    inner = _present(element, kind.value_type, depth + 1)
    wrong = f"json_type({element}) <> 'NULL' AND ({inner}) IS NULL"
    failed = f"list_bool_or(list_transform({elements}, lambda {element}: {wrong}))"
    read = f"list_transform({elements}, lambda {element}: {inner})"
    return f"CASE WHEN NOT coalesce({failed}, false) THEN CAST({read} AS {k.sql_type(kind)}) END"


def _map(j: str, kind: pa.DataType, depth: int) -> str:
    if kind.key_type != k.STRING:
        raise Mismatch(f"from_json reads maps with keys of type string, not {k.shown(kind.key_type)}")
    name, key = f"_headrace_o{depth}", f"_headrace_m{depth}"
    keys = f"CASE WHEN list_unique({name}.k) = len({name}.k) THEN {name}.k ELSE list_distinct({name}.k) END"
    inner = _present(_last(name, key), kind.item_type, depth + 1)
    wrong = f"json_type({_last(name, key)}) <> 'NULL' AND ({inner}) IS NULL"
    failed = f"list_bool_or(list_transform({name}.k, lambda {key}: {wrong}))"
    read = f"CAST(map({keys}, list_transform({keys}, lambda {key}: {inner})) AS {k.sql_type(kind)})"
    return _entries(j, name, f"CASE WHEN NOT coalesce({failed}, false) THEN {read} END")


def _atom(j: str, kind: pa.DataType) -> str:
    of_type, text, sql_type = f"json_type({j})", f"json_extract_string({j}, '$')", k.sql_type(kind)
    if kind == k.STRING:
        number = number_text(j)
        return f"CASE {of_type} WHEN 'VARCHAR' THEN {text} WHEN 'DOUBLE' THEN {number} ELSE CAST({j} AS VARCHAR) END"
    if kind == k.BOOLEAN:
        return f"CASE WHEN {of_type} = 'BOOLEAN' THEN CAST({j} AS VARCHAR) = 'true' END"
    if kind == pa.int8():  # Java's reader takes bytes without a sign, too
        wide = f"TRY_CAST(CAST({j} AS VARCHAR) AS SMALLINT)"
        return (
            f"CASE WHEN {of_type} IN {_WHOLE} AND {wide} BETWEEN -128 AND 255"
            f" THEN CAST({wide} - CASE WHEN {wide} > 127 THEN 256 ELSE 0 END AS TINYINT) END"
        )
    if k.is_integral(kind):
        return f"CASE WHEN {of_type} IN {_WHOLE} THEN TRY_CAST(CAST({j} AS VARCHAR) AS {sql_type}) END"
    if k.is_decimal(kind):
        is_number = f"({of_type} = 'VARCHAR' AND regexp_full_match({text}, '{_NUMBER}')) OR {of_type} IN {_NUMBERS}"
        return f"CASE WHEN {is_number} THEN {cast(Value('', text, k.STRING), kind, lenient=True).sql} END"
    if pa.types.is_floating(kind):
        up, down = _INFINITE
        named = (
            f"CASE WHEN {text} = 'NaN' THEN 'nan' WHEN {text} IN {up} THEN 'inf' WHEN {text} IN {down} THEN '-inf' END"
        )
        number = cast(Value("", f"CAST({j} AS DOUBLE)", k.DOUBLE), kind).sql
        return (
            f"CASE WHEN {of_type} IN {_NUMBERS} THEN {number}"
            f" WHEN {of_type} = 'VARCHAR' THEN CAST({named} AS {sql_type}) END"
        )
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _time(j, kind, of_type, text)
    raise Mismatch(f"from_json does not read {k.shown(kind)}", hint="Read it as string, and cast that.")


def _time(j: str, kind: pa.DataType, of_type: str, text: str) -> str:
    read = f"CASE WHEN {of_type} = 'VARCHAR' THEN {cast(Value('', text, k.STRING), kind, lenient=True).sql}"
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        seconds = f"TRY_CAST(CAST({j} AS VARCHAR) AS BIGINT)"
        read += (
            f" WHEN {of_type} IN {_WHOLE} AND abs({seconds}) < 200000000000 THEN make_timestamp({seconds} * 1000000)"
        )
    return f"{read} END"


def _from_json(values: list[Value]) -> Value:
    text, schema = values[0], values[1].constant
    if not isinstance(schema, str):
        raise Mismatch("the schema of from_json must be a constant text", hint="from_json(body, 'id int, name string')")
    kind = _schema(schema)
    whole, of_type = "_headrace_json", "json_type(_headrace_json)"
    if k.is_struct(kind):
        nothing = "CAST({" + ", ".join(f"{literal(field.name)}: NULL" for field in kind) + f"}} AS {k.sql_type(kind)})"
        read = f"CASE WHEN {of_type} = 'OBJECT' THEN {_struct(whole, kind, 0)} ELSE {nothing} END"
    else:
        nothing, read = "NULL", _present(whole, kind, 0)
        if k.is_array(kind) and k.is_struct(kind.value_type):  # one object is an array of it
            one = f"[{_struct(whole, kind.value_type, 0)}]"
            read = f"CASE WHEN {of_type} = 'OBJECT' THEN {one} ELSE {read} END"
    strict = f"CASE WHEN {is_strict(text.sql)} THEN TRY_CAST({text.sql} AS JSON) END"
    read = f"CASE WHEN {whole} IS NULL THEN {nothing} ELSE {read} END"
    sql = (
        f"(CASE WHEN regexp_full_match({text.sql}, '[\\x00-\\x20]*') OR {text.sql} IS NULL THEN NULL"
        f" ELSE {bound(whole, strict, read)} END)"
    )
    return Value("", sql, kind, raises=text.raises)


def _schema(text: str) -> pa.DataType:
    for ddl in (text, f"struct<{text}>"):
        try:
            kind = k.parse_type(ddl)
        except (HeadraceError, ValueError):
            continue
        if k.is_struct(kind) or k.is_array(kind) or k.is_map(kind):
            return kind
    raise Mismatch(
        f"{text!r} is no schema of a struct, an array or a map",
        hint="For example 'id int, name string', or 'array<int>'.",
    )


_CALL = "from_json(json, '{}')"
ENTRIES: tuple[Function, ...] = (
    built(
        "from_json",
        "=string, string",
        _from_json,
        _CALL.format("a int, b string"),
        "from_json(nullif(json, '{\"a\":NaN}'), 'a string, b array<int>')",
        _CALL.format("a struct<b:int,c:string>, x double"),
        _CALL.format("array<int>"),
        "from_json(to_json(map('k', s, 't', t)), 'map<string,string>')",
        "from_json(s, 'a int')",
        "from_json(to_json(pair), 'a bigint, b string')",
        "from_json(to_json(array(pair)), 'array<struct<a:tinyint,b:string>>')",
        "from_json(to_json(named_struct('f', round(f, 2), 'e', round(e, 3))), 'f float, e double').e",
        "from_json(to_json(named_struct('f', round(f, 2), 'e', round(e, 3))), 'f float, e double').f",
        "from_json(to_json(named_struct('m', m, 'p', p)), 'm decimal(9,1), p boolean')",
        "from_json(to_json(named_struct('day', day)), 'day date')",
        "from_json(to_json(named_struct('l', l % 100000000000)), 'l timestamp').l",
        "from_json(to_json(counts), 'map<string,int>')",
        notes=f"the schema is a constant, without options; {STRICT_NOTE}; a map has a name that comes twice "
        "once; seconds beyond the years of a timestamp are null, where Spark wraps around",
    ),
)
