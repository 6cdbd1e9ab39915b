"""Arrays, maps and structs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.names import quote
from headrace.expressions import kinds as k
from headrace.expressions.casts import cast, raising
from headrace.expressions.coercion import comparable, unify
from headrace.expressions.functions import Function, built, entry
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.table.arrays import once, one_zero, ordered
from headrace.expressions.table.strings import joined
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Sequence


def _raises(values: Sequence[Value]) -> bool:
    return any(value.raises for value in values)


def _array(values: list[Value]) -> Value:
    unified = unify(values, what="array")
    inner = unified[0].type if unified else k.NULL
    kind = pa.list_(inner)
    sql = f"[{', '.join(value.sql for value in unified)}]"
    return Value("", f"CAST({sql} AS {k.sql_type(kind)})", kind, raises=_raises(unified))


def _element_fits(array: Value, element: Value, what: str) -> tuple[Value, Value]:
    inner = Value("", "NULL", array.type.value_type)
    unified = unify([inner, element], strings=False, what=what)
    comparable(unified[0], what)
    return cast(array, pa.list_(unified[0].type)), unified[1]


def _array_contains(values: list[Value]) -> Value:
    array, element = _element_fits(values[0], values[1], "array_contains")
    # null when the element is not found among known ones and one is not known
    a, e = array.sql, element.sql
    sql = (
        f"(CASE WHEN {a} IS NULL OR {e} IS NULL THEN NULL WHEN list_contains({a}, {e}) THEN true"
        f" WHEN len({a}) > list_count({a}) THEN NULL ELSE false END)"
    )
    return Value("", sql, k.BOOLEAN, raises=array.raises or element.raises)


def _array_position(values: list[Value]) -> Value:
    array, element = _element_fits(values[0], values[1], "array_position")
    a, e = array.sql, element.sql
    sql = (
        f"(CASE WHEN {a} IS NOT NULL AND {e} IS NOT NULL THEN CAST(coalesce(list_position({a}, {e}), 0) AS BIGINT) END)"
    )
    return Value("", sql, k.BIGINT, raises=array.raises or element.raises)


def _element_at(values: list[Value]) -> Value:
    container, key = values
    if k.is_map(container.type):
        unified = unify([key, Value("", "NULL", container.type.key_type)], what="element_at")[0]
        if unified.type != container.type.key_type:
            raise Mismatch(f"the map's keys are {k.shown(container.type.key_type)}, not {k.shown(key.type)}")
        return Value(
            "", f"map_extract_value({container.sql}, {unified.sql})", container.type.item_type, raises=_raises(values)
        )
    if not k.is_array(container.type) or key.type not in (k.INT, k.SMALLINT, k.TINYINT):
        raise Mismatch(f"element_at takes an array and an int, or a map and a key, not {k.shown(key.type)}")
    zero = raising(
        "INVALID_INDEX_OF_ZERO", "the index 0 is invalid: elements are counted from 1, or from -1 at the end"
    )
    outside = raising(
        "INVALID_ARRAY_INDEX_IN_ELEMENT_AT", "the index is out of bounds: ", f"CAST({key.sql} AS VARCHAR)"
    )
    a, i = container.sql, key.sql
    sql = (
        f"(CASE WHEN {a} IS NULL OR {i} IS NULL THEN NULL"
        f" WHEN {i} > len({a}) OR -CAST({i} AS BIGINT) > len({a}) THEN {outside}"
        f" WHEN {i} = 0 THEN {zero} ELSE {a}[{i}] END)"
    )
    return Value("", sql, container.type.value_type, raises=True)


def _get(values: list[Value]) -> Value:
    a, i = values[0].sql, values[1].sql
    sql = f"(CASE WHEN {a} IS NULL THEN NULL WHEN {i} >= 0 THEN {a}[CAST({i} AS BIGINT) + 1] END)"
    return Value("", sql, values[0].type.value_type, raises=_raises(values))


def _distinct(values: list[Value]) -> Value:
    a = values[0]
    comparable(a, "array_distinct")
    return Value("", once(a.sql, a.type), a.type, raises=a.raises)


def _sorted(values: list[Value]) -> Value:
    a = values[0]
    comparable(a, "sort_array")
    up = values[1].constant if len(values) > 1 else True
    if not isinstance(up, bool):
        raise Mismatch("the second argument of sort_array is true or false")
    return Value("", ordered(a, up=up, nulls_first=up), a.type, raises=a.raises)


def _join(values: list[Value]) -> Value:
    array = cast(values[0], pa.list_(k.STRING))
    a = array.sql
    if len(values) > 2:  # noqa: PLR2004 what replaces null
        a = f"list_transform({a}, lambda __x: coalesce(__x, {values[2].sql}))"
    else:
        a = f"list_filter({a}, lambda __x: __x IS NOT NULL)"
    nulls = " OR ".join(f"{value.sql} IS NULL" for value in [array, *values[1:]])
    sql = f"(CASE WHEN NOT ({nulls}) THEN {joined(a, values[1])} END)"
    return Value("", sql, k.STRING, raises=_raises([array, *values[1:]]))


def _extreme(name: str) -> Function:
    def build(values: list[Value]) -> Value:
        comparable(values[0], f"array_{name}")
        return Value("", f"list_{name}({values[0].sql})", values[0].type.value_type, raises=values[0].raises)

    return built(f"array_{name}", "array", build, f"array_{name}(ints)", f"array_{name}(texts)")


def _map(values: list[Value]) -> Value:
    if len(values) % 2:
        raise Mismatch("map takes pairs of a key and a value")
    keys, items = unify(values[::2], what="map"), unify(values[1::2], what="map")
    if not keys:
        raise Mismatch("map takes at least one pair")
    if keys[0].type == k.NULL:
        raise Mismatch("a map's key cannot be null")
    comparable(keys[0], "map")
    no_null = raising("NULL_MAP_KEY", "a map's key cannot be null")
    twice = raising("DUPLICATED_MAP_KEY", "a key stands twice in a map")
    keys = [replace(key, sql=one_zero(key.sql, key.type)) for key in keys]
    names, things = (", ".join(value.sql for value in part) for part in (keys, items))
    checks = []
    if any(not key.is_constant or key.constant is None for key in keys):
        checks.append(f"WHEN {' OR '.join(f'{key.sql} IS NULL' for key in keys)} THEN {no_null}")
    if len(keys) > 1:
        checks.append(f"WHEN len(list_distinct([{names}])) < {len(keys)} THEN {twice}")
    kind = pa.map_(keys[0].type, items[0].type)
    built_map = (
        f"CAST(map([{names}], [{things}]) AS {k.sql_type(kind)})"
        if items[0].type != k.NULL
        else f"map([{names}], [{things}])"
    )
    sql = f"(CASE {' '.join(checks)} ELSE {built_map} END)" if checks else built_map
    return Value("", sql, kind, raises=bool(checks) or _raises(values))


def _struct(values: list[Value]) -> Value:
    names = [
        value.text.rpartition(".")[2].strip("`") if _names_column(value) else f"col{i + 1}"
        for i, value in enumerate(values)
    ]
    return _packed(names, values)


def _names_column(value: Value) -> bool:
    if value.sql.startswith("__x") and value.sql.isidentifier():  # a parameter of a function
        return True
    return value.sql.startswith(('"', "struct_extract(")) and value.sql.count('"') <= 2  # noqa: PLR2004 the quotes of one name


def _named_struct(values: list[Value]) -> Value:
    if len(values) % 2 or not all(isinstance(name.constant, str) for name in values[::2]):
        raise Mismatch("named_struct takes pairs of a constant name and a value")
    return _packed([str(name.constant) for name in values[::2]], values[1::2])


def _packed(names: list[str], values: list[Value]) -> Value:
    if len({name.lower() for name in names}) < len(names):
        raise Mismatch("two fields of a struct have the same name", hint="Name them with named_struct('a', x, 'b', y).")
    kind = pa.struct([pa.field(name, value.type) for name, value in zip(names, values, strict=True)])
    packed = ", ".join(f"{quote(name)} := {value.sql}" for name, value in zip(names, values, strict=True))
    return Value("", f"struct_pack({packed})", kind, raises=_raises(values))


ENTRIES: tuple[Function, ...] = (
    entry("size cardinality", "array", "int", "CAST(len($1) AS INTEGER)", "size(ints)", "cardinality(texts)"),
    entry("size cardinality", "map", "int", "CAST(cardinality($1) AS INTEGER)", "size(counts)"),
    entry("array_size", "array", "int", "CAST(len($1) AS INTEGER)", "array_size(ints)"),
    built("array", "[any...]", _array, "array(i, j)", "array(i, l, null)", "array(s, t)", "array(d)", order="all"),
    built(
        "array_contains",
        "array, any",
        _array_contains,
        "array_contains(ints, 1)",
        "array_contains(ints, i)",
        "array_contains(texts, s)",
    ),
    built("array_position", "array, any", _array_position, "array_position(ints, 1)", "array_position(texts, s)"),
    built(
        "element_at",
        "any, any",
        _element_at,
        "element_at(ints, 1)",
        "element_at(ints, i)",
        "element_at(counts, 'a')",
        "element_at(counts, s)",
        "ints[0]",
        "ints[i]",
        "counts['a']",
        "counts[s]",
        notes="a[i] counts from 0; m[k] is the same as element_at",
    ),
    built("get", "array, int", _get, "get(ints, i)", "get(ints, -1)", notes="null outside the array"),
    built("array_distinct", "array", _distinct, "array_distinct(ints)", "array_distinct(texts)"),
    built(
        "sort_array",
        "array, [any]",
        _sorted,
        "sort_array(ints)",
        "sort_array(texts, false)",
        "sort_array(reals)",
        "sort_array(reals, false)",
    ),
    built(
        "array_join",
        "array, =string, [=string]",
        _join,
        "array_join(texts, ',')",
        "array_join(texts, '-', 'none')",
        "array_join(ints, s)",
    ),
    _extreme("min"),
    _extreme("max"),
    built(
        "map",
        "any...",
        _map,
        "map('a', i)",
        "map(s, i)",
        "map('a', i, 'b', l)",
        "map(s, i, t, j)",
        "map(d, i)",
        "map_keys(map(f, i, f + 1, j))",
        order="all",
    ),
    entry("map_keys", "map", lambda v: pa.list_(v[0].type.key_type), "map_keys($1)", "map_keys(counts)"),
    entry("map_values", "map", lambda v: pa.list_(v[0].type.item_type), "map_values($1)", "map_values(counts)"),
    built(
        "struct",
        "any...",
        _struct,
        "struct(i, s)",
        "struct(i + 1, s)",
        "struct(i, s).s",
        "named_struct('a', d).a",
        order="all",
    ),
    built("named_struct", "any...", _named_struct, "named_struct('a', i, 'b', s)", "pair.a", "pair.b", order="all"),
)
