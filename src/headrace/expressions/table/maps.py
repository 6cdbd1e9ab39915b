"""Maps from arrays, entries and text; concatenation, and access by key. A key is unique and not null."""

from __future__ import annotations

import re

import pyarrow as pa

from headrace.expressions import kinds as k
from headrace.expressions.binding import bound
from headrace.expressions.casts import cast, raising
from headrace.expressions.coercion import comparable, unify
from headrace.expressions.functions import Function, built
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.table.arrays import one_zero
from headrace.expressions.values import Value

_NO_NULL = raising("NULL_MAP_KEY", "a map's key cannot be null")
_TWICE = raising("DUPLICATED_MAP_KEY", "a key stands twice in a map")


def checked(entries: str) -> str:
    """Return SQL for a map of the entries, which are structs of `key` and `value`; wrong keys raise."""
    keys = "list_transform(__e, lambda __k: __k.key)"
    checked_map = (
        f"CASE WHEN __e IS NULL THEN NULL WHEN list_count({keys}) < len(__e) THEN {_NO_NULL}"
        f" WHEN len(list_distinct({keys})) < len(__e) THEN {_TWICE} ELSE map_from_entries(__e) END"
    )
    return bound("__e", entries, checked_map)


def entries_of(value: Value) -> str:
    """Return SQL for the entries of a map."""
    return f"map_entries({value.sql})"


def _raises(values: list[Value]) -> bool:
    return any(value.raises for value in values)


def _concat(values: list[Value]) -> Value:
    maps = unify(values, what="map_concat")
    if not maps or not k.is_map(maps[0].type):
        raise Mismatch("map_concat takes maps")
    # as in Spark, all are computed before one is found to be null
    none_null = f"NOT list_contains([{', '.join(f'{value.sql} IS NULL' for value in maps)}], true)"
    joined = f"list_concat({', '.join(map(entries_of, maps))})" if len(maps) > 1 else entries_of(maps[0])
    return Value("", f"(CASE WHEN {none_null} THEN {checked(joined)} END)", maps[0].type, raises=True)


def _contains(values: list[Value]) -> Value:
    container, key = values
    wanted = unify([key, Value("", "NULL", container.type.key_type)], strings=False, what="map_contains_key")[0]
    if wanted.type != container.type.key_type:
        raise Mismatch(f"the map's keys are {k.shown(container.type.key_type)}, not {k.shown(key.type)}")
    contains = f"map_contains({container.sql}, {wanted.sql})"
    sql = f"(CASE WHEN {container.sql} IS NOT NULL AND {wanted.sql} IS NOT NULL THEN {contains} END)"
    return Value("", sql, k.BOOLEAN, raises=_raises(values))


def _entries(values: list[Value]) -> Value:
    kind = values[0].type
    entries_type = pa.list_(pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)]))
    return Value(
        "", f"CAST({entries_of(values[0])} AS {k.sql_type(entries_type)})", entries_type, raises=values[0].raises
    )


def _from_arrays(values: list[Value]) -> Value:
    keys, items = values
    comparable(cast(keys, keys.type), "map_from_arrays")
    fail = raising("INVALID_PARAMETER_VALUE", "the arrays of keys and values differ in length")
    pair = f"struct_pack(key := {keys.sql}[__i], value := {items.sql}[__i])"
    entries = f"list_transform(range(1, len({keys.sql}) + 1), lambda __i: {pair})"
    sql = (
        f"(CASE WHEN {keys.sql} IS NULL OR {items.sql} IS NULL THEN NULL"
        f" WHEN len({keys.sql}) <> len({items.sql}) THEN {fail} ELSE {checked(entries)} END)"
    )
    return Value("", sql, pa.map_(keys.type.value_type, items.type.value_type), raises=True)


def _from_entries(values: list[Value]) -> Value:
    kind = values[0].type.value_type
    if not k.is_struct(kind) or kind.num_fields != 2:  # noqa: PLR2004
        raise Mismatch(f"map_from_entries takes an array of structs of two fields, not {k.shown(values[0].type)}")
    names = [field.name.replace("'", "''") for field in kind]
    key, item = (f"struct_extract(__s, '{name}')" for name in names)
    key = one_zero(key, kind.field(0).type)
    entries = f"list_transform({values[0].sql}, lambda __s: struct_pack(key := {key}, value := {item}))"
    sql = f"(CASE WHEN list_count({values[0].sql}) = len({values[0].sql}) THEN {checked(entries)} END)"
    return Value("", sql, pa.map_(kind.field(0).type, kind.field(1).type), raises=True)


def _from_text(values: list[Value]) -> Value:
    marks = []
    for value, usual in zip([*values[1:], None, None], (",", ":"), strict=False):
        mark = value.constant if value is not None else usual
        if not isinstance(mark, str) or not mark or re.search(r"[.+*?()|\[\]{}^$\\]", mark):
            raise Mismatch("the delimiters of str_to_map are constant texts without signs of patterns")
        marks.append(value.sql if value is not None else f"'{usual}'")
    pairs, inside = marks
    key = f"string_split(__p, {inside})[1]"
    item = f"CASE WHEN contains(__p, {inside}) THEN substring(__p, strpos(__p, {inside}) + length({inside})) END"
    entry_sql = f"struct_pack(key := {key}, value := {item})"
    sql = checked(f"list_transform(string_split({values[0].sql}, {pairs}), lambda __p: {entry_sql})")
    return Value("", sql, pa.map_(k.STRING, k.STRING), raises=True)


ENTRIES: tuple[Function, ...] = (
    built("map_concat", "map...", _concat, "map_concat(counts, map('z', i))", "map_concat(counts, counts)",
          "map_concat(counts)", order="all"),
    built("map_contains_key", "map, any", _contains, "map_contains_key(counts, 'a')", "map_contains_key(counts, s)"),
    built("map_entries", "map", _entries, "map_entries(counts)"),
    built("map_from_arrays", "array, array", _from_arrays, "map_from_arrays(texts, ints)",
          "map_from_arrays(texts, texts)", "map_from_arrays(array(i, j), array(s, t))", "map_from_arrays(ints, texts)"),
    built("map_from_entries", "array", _from_entries, "map_from_entries(array(struct(i, s), struct(i, s)))",
          "map_from_entries(map_entries(counts))",
          "map_from_entries(array(struct(d, s)))", "map_from_entries(array(pair))"),
    built("str_to_map", "=string, [=string], [=string]", _from_text, "str_to_map(s)", "str_to_map('a:1,b:2,c')",
          "str_to_map(concat('x=', s, '&y=', t), '&', '=')", notes="delimiters are constants, not patterns"),
)  # fmt: skip
