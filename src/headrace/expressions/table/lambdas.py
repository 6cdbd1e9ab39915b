"""Functions over the elements of arrays and maps: `transform(prices, p -> p * 0.9)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.expressions import kinds as k
from headrace.expressions.binding import bound
from headrace.expressions.casts import cast
from headrace.expressions.coercion import unify
from headrace.expressions.functions import Function, built
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.table.maps import checked
from headrace.expressions.values import Closure, Value

if TYPE_CHECKING:
    from collections.abc import Callable


def _closure(value: Value, name: str, *counts: int) -> Closure:
    closure = value.constant
    assert isinstance(closure, Closure)  # noqa: S101 -- the class "function" takes nothing else
    if len(closure.names) not in counts:
        wanted = " or ".join(map(str, counts))
        raise Mismatch(f"the function in {name} takes {wanted} parameters, not {len(closure.names)}")
    return closure


def _over(function: Closure, array: Value) -> tuple[str, Value]:
    """Return a lambda's parameters and its body, for the elements of an array and perhaps their indexes from 0."""
    element = Value("", function.names[0], array.type.value_type)
    given = [element]
    if len(function.names) > 1:
        given.append(Value("", f"CAST({function.names[1]} - 1 AS INTEGER)", k.INT))
    return ", ".join(function.names), function.body(given)


def _all(values: list[Value], body: Value, sql: str, kind: pa.DataType) -> Value:
    """Return a result that reads what its arguments and the function's body read."""
    raises = body.raises or any(value.raises for value in values)
    return Value("", sql, kind, body.columns, raises)


def _condition(body: Value, name: str) -> str:
    if body.type not in (k.BOOLEAN, k.NULL):
        raise Mismatch(f"the function in {name} returns {k.shown(body.type)}, not boolean")
    return cast(body, k.BOOLEAN).sql


def _transform(values: list[Value]) -> Value:
    array = values[0]
    names, body = _over(_closure(values[1], "transform", 1, 2), array)
    return _all(values, body, f"list_transform({array.sql}, lambda {names}: {body.sql})", pa.list_(body.type))


def _filter(values: list[Value]) -> Value:
    array = values[0]
    names, body = _over(_closure(values[1], "filter", 1, 2), array)
    sql = f"list_filter({array.sql}, lambda {names}: {_condition(body, 'filter')})"
    return _all(values, body, sql, array.type)


def _some(name: str, deciding: str, undecided: str) -> Callable[[list[Value]], Value]:
    """Return the rule of exists and forall: the first element that decides ends the search."""

    def build(values: list[Value]) -> Value:
        array = values[0]
        function = _closure(values[1], name, 1)
        names, body = _over(function, array)
        answer = _condition(body, name)
        if body.raises:  # later elements are not computed
            folded = _folded(array, f"{function.names[0]}f", (k.INT, "0"), lambda a, x: (
                f"CASE WHEN {a} = 2 THEN 2 ELSE (CASE ({_with(function, array, x, name)})"
                f" WHEN {deciding} THEN 2 WHEN {undecided} THEN {a} ELSE 1 END) END"))  # fmt: skip
            sql = f"(CASE {folded} WHEN 2 THEN {deciding} WHEN 0 THEN {undecided} ELSE NULL END)"
            return _all(values, body, sql, k.BOOLEAN)
        answers = f"list_transform({array.sql}, lambda {names}: {answer})"
        verdict = (
            f"CASE WHEN __f IS NULL THEN NULL WHEN list_contains(__f, {deciding}) THEN {deciding}"
            f" WHEN len(__f) > list_count(__f) THEN NULL ELSE {undecided} END"
        )
        return _all(values, body, bound("__f", answers, verdict), k.BOOLEAN)

    return build


def _with(function: Closure, array: Value, sql: str, name: str) -> str:
    return _condition(function.body([Value("", sql, array.type.value_type)]), name)


def _folded(array: Value, name: str, start: tuple[pa.DataType, str], step: Callable[[str, str], str]) -> str:
    """Return SQL that folds an array; `step` returns the next result from the last one and an element."""
    kind, element = k.sql_type(start[0]), k.sql_type(array.type.value_type)
    p, q = f"{name}p", f"{name}q"
    wrapped = f"list_transform({array.sql}, lambda {q}: struct_pack(a := CAST(NULL AS {kind}), x := {q}))"
    next_one = f"struct_pack(a := CAST({step(f'{p}.a', f'{q}.x')} AS {kind}), x := {q}.x)"
    first = f"struct_pack(a := CAST({start[1]} AS {kind}), x := CAST(NULL AS {element}))"
    return f"list_reduce({wrapped}, lambda {p}, {q}: {next_one}, {first}).a"


def _aggregate(values: list[Value]) -> Value:
    array, start = values[:2]
    merge = _closure(values[2], "aggregate", 2)
    bodies: list[Value] = []

    def step(a: str, x: str) -> str:
        body = merge.body([Value("", a, start.type), Value("", x, array.type.value_type)])
        if body.type not in (start.type, k.NULL):
            raise Mismatch(
                f"the function in aggregate returns {k.shown(body.type)}, but it starts with {k.shown(start.type)}",
                hint=f"Cast the start: cast({start.text or 0} as {k.shown(body.type)}).",
            )
        bodies.append(body)
        return body.sql

    if k.is_nested(start.type) and k.contains(start.type, lambda kind: kind == k.NULL):
        raise Mismatch("the start of aggregate has an unknown type", hint="Cast it: cast(array() as array<int>).")
    sql = _folded(array, merge.names[0], (start.type, start.sql), step)
    folded = _all(values, bodies[0], sql, start.type)
    if len(values) > 3:  # noqa: PLR2004
        finish = _closure(values[3], "aggregate", 1)
        name = finish.names[0]
        last = finish.body([Value("", name, start.type)])
        null = f"CASE WHEN {array.sql} IS NULL THEN NULL ELSE {last.sql} END"
        sql = bound(name, sql, null)
        return Value("", sql, last.type, folded.columns | last.columns, folded.raises or last.raises)
    return folded


def _zip_with(values: list[Value]) -> Value:
    left, right = values[:2]
    function = _closure(values[2], "zip_with", 2)
    index = function.names[0]
    given = [Value("", f"{array.sql}[{index}]", array.type.value_type) for array in (left, right)]
    body = function.body(given)
    indexes = f"range(1, greatest(len({left.sql}), len({right.sql})) + 1)"
    zipped = f"list_transform({indexes}, lambda {index}: {body.sql})"
    sql = f"(CASE WHEN {left.sql} IS NOT NULL AND {right.sql} IS NOT NULL THEN {zipped} END)"
    return _all(values, body, sql, pa.list_(body.type))


def _entry(function: Closure, kind: pa.DataType) -> tuple[str, list[Value]]:
    """Return the parameter of a lambda, with the key and value in it."""
    name = function.names[0]
    return name, [Value("", f"{name}.key", kind.key_type), Value("", f"{name}.value", kind.item_type)]


def _map_filter(values: list[Value]) -> Value:
    function = _closure(values[1], "map_filter", 2)
    name, given = _entry(function, values[0].type)
    body = function.body(given)
    kept = f"list_filter(map_entries({values[0].sql}), lambda {name}: {_condition(body, 'map_filter')})"
    return _all(values, body, f"map_from_entries({kept})", values[0].type)


def _transform_values(values: list[Value]) -> Value:
    function = _closure(values[1], "transform_values", 2)
    name, given = _entry(function, values[0].type)
    body = function.body(given)
    entry = f"struct_pack(key := {name}.key, value := {body.sql})"
    sql = f"map_from_entries(list_transform(map_entries({values[0].sql}), lambda {name}: {entry}))"
    return _all(values, body, sql, pa.map_(values[0].type.key_type, body.type))


def _transform_keys(values: list[Value]) -> Value:
    function = _closure(values[1], "transform_keys", 2)
    name, given = _entry(function, values[0].type)
    body = function.body(given)
    entry = f"struct_pack(key := {body.sql}, value := {name}.value)"
    sql = checked(f"list_transform(map_entries({values[0].sql}), lambda {name}: {entry})")
    result = _all(values, body, sql, pa.map_(body.type, values[0].type.item_type))
    return result.to(sql, result.type, raises=True)


def _map_zip_with(values: list[Value]) -> Value:
    left, right = values[:2]
    function = _closure(values[2], "map_zip_with", 3)
    keys = unify([Value("", "NULL", left.type.key_type), Value("", "NULL", right.type.key_type)], what="map_zip_with")
    if keys[0].type != left.type.key_type or keys[0].type != right.type.key_type:
        raise Mismatch("the keys of both maps must have the same type", hint="Cast one of the maps.")
    name = function.names[0]
    given = [Value("", name, left.type.key_type)]
    given += [Value("", f"map_extract_value({m.sql}, {name})", m.type.item_type) for m in (left, right)]
    body = function.body(given)
    more = f"list_filter(map_keys({right.sql}), lambda __k: NOT map_contains({left.sql}, __k))"
    entry = f"struct_pack(key := {name}, value := {body.sql})"
    entries = f"list_transform(list_concat(map_keys({left.sql}), {more}), lambda {name}: {entry})"
    sql = f"(CASE WHEN {left.sql} IS NOT NULL AND {right.sql} IS NOT NULL THEN map_from_entries({entries}) END)"
    return _all(values, body, sql, pa.map_(left.type.key_type, body.type))


ENTRIES: tuple[Function, ...] = (
    built(
        "transform",
        "array, function",
        _transform,
        "transform(ints, x -> x % 7 + i)",
        "transform(texts, (x, n) -> x || n)",
        "transform(ints, x -> transform(texts, y -> y || x))",
        "transform(reals, x -> 1 / x)",
        notes="(x, n) -> …: n counts from 0",
    ),
    built(
        "filter",
        "array, function",
        _filter,
        "filter(ints, x -> x > 1)",
        "filter(texts, (x, n) -> n % 2 = 0 or x is null)",
        "filter(ints, x -> 1 / x > 0)",
    ),
    built("exists", "array, function", _some("exists", "true", "false"), "exists(ints, x -> x > 1)",
          "exists(ints, x -> 6 div x > 0)", "exists(texts, x -> x is null)", "exists(reals, x -> x > d)"),
    built("forall", "array, function", _some("forall", "false", "true"), "forall(ints, x -> x > 0)",
          "forall(ints, x -> 1 / x > 0)", "forall(texts, x -> length(x) < 2)"),
    built(
        "aggregate reduce",
        "array, any, function, [function]",
        _aggregate,
        "aggregate(ints, cast(0 as bigint), (a, x) -> a + x)",
        "aggregate(ints, 0, (a, x) -> a + coalesce(x, 0))",
        "reduce(texts, '', (a, x) -> concat(a, coalesce(x, '-')), a -> upper(a))",
        "aggregate(ints, i, (a, x) -> greatest(a, x), a -> a % 10)",
        notes="the function gives the type of the start",
    ),
    built("zip_with", "array, array, function", _zip_with, "zip_with(ints, texts, (x, y) -> concat(y, x))",
          "zip_with(ints, ints, (x, y) -> x % 5 - y % 5)"),
    built("map_filter", "map, function", _map_filter, "map_filter(counts, (k, v) -> v > 0 or k = 'a')"),
    built("transform_values", "map, function", _transform_values, "transform_values(counts, (k, v) -> k || v)",
          "transform_values(counts, (k, v) -> 1 / v)"),
    built("transform_keys", "map, function", _transform_keys, "transform_keys(counts, (k, v) -> upper(k))",
          "transform_keys(counts, (k, v) -> v)", "transform_keys(counts, (k, v) -> 'x')"),
    built("map_zip_with", "map, map, function", _map_zip_with,
          "map_zip_with(counts, map('a', i, 'z', 2), (k, v, w) -> concat(k, v, w))",
          "map_zip_with(counts, counts, (k, v, w) -> v = w)"),
)  # fmt: skip
