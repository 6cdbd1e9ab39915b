"""Arrays: elements added and taken away, arrays as sets, sequences, sorting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.names import quote
from headrace.expressions import kinds as k
from headrace.expressions.binding import bound
from headrace.expressions.casts import cast, raising
from headrace.expressions.coercion import common_type, comparable, unify
from headrace.expressions.functions import Function, built, entry
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable

_DAY = 86_400_000_000
_MOST = 2_147_483_632  # elements of an array in the JVM
_NO_ZERO = raising(
    "INVALID_INDEX_OF_ZERO", "the index 0 is invalid: elements are counted from 1, or from -1 at the end"
)


def _raises(values: list[Value]) -> bool:
    return any(value.raises for value in values)


def _with_element(array: Value, element: Value, what: str) -> tuple[Value, Value]:
    """Return both cast to the common type of the elements."""
    unified = unify([Value("", "NULL", array.type.value_type), element], strings=False, what=what)
    return cast(array, pa.list_(unified[0].type)), unified[1]


def _joined(what: str, template: str) -> Callable[[list[Value]], Value]:
    def build(values: list[Value]) -> Value:
        array, element = _with_element(values[0], values[1], what)
        sql = template.replace("$1", array.sql).replace("$2", f"[{element.sql}]")
        sql = f"(CASE WHEN {array.sql} IS NOT NULL THEN {sql} END)"
        return Value("", sql, array.type, raises=_raises([array, element]))

    return build


def _remove(values: list[Value]) -> Value:
    array, element = _with_element(values[0], values[1], "array_remove")
    comparable(element, "array_remove")
    others = f"list_filter({array.sql}, lambda __x: __x IS DISTINCT FROM {element.sql})"
    sql = f"(CASE WHEN {element.sql} IS NOT NULL THEN {others} END)"
    return Value("", sql, array.type, raises=_raises([array, element]))


def _insert(values: list[Value]) -> Value:
    array, element = _with_element(values[0], values[2], "array_insert")
    a, index = array.sql, f"CAST({values[1].sql} AS BIGINT)"
    inserted, nulls = f"[{element.sql}]", f"repeat([CAST(NULL AS {k.sql_type(array.type.value_type)})], {{}})"
    after = f"list_concat({a}, {nulls.format(f'greatest({index} - 1 - len({a}), 0)')}, {inserted})"
    before = f"list_concat({inserted}, {nulls.format(f'greatest(-{index} - 1 - len({a}), 0)')}, {a})"
    cut = f"CASE WHEN {index} > 0 THEN {index} - 1 ELSE len({a}) + 1 + {index} END"
    inside = f"list_concat(list_slice({a}, 1, {cut}), {inserted}, list_slice({a}, {cut} + 1, len({a})))"
    sql = (
        f"(CASE WHEN {a} IS NULL OR {index} IS NULL THEN NULL WHEN {index} = 0 THEN {_NO_ZERO}"
        f" WHEN {index} > len({a}) THEN {after} WHEN -{index} > len({a}) THEN {before} ELSE {inside} END)"
    )
    return Value("", sql, array.type, raises=True)


def _repeat(values: list[Value]) -> Value:
    element, count = values
    kind = pa.list_(element.type)
    sql = f"repeat([CAST({element.sql} AS {k.sql_type(element.type)})], greatest({count.sql}, 0))"
    return Value("", f"(CASE WHEN {count.sql} IS NOT NULL THEN {sql} END)", kind, raises=_raises(values))


def _both(values: list[Value], what: str) -> tuple[Value, Value]:
    left, right = unify(values, strings=False, what=what)
    if not k.is_array(left.type):
        raise Mismatch(f"{what} takes two arrays")
    comparable(left, what)
    return left, right


def _if_both(left: Value, right: Value, sql: str) -> str:
    return f"(CASE WHEN {left.sql} IS NOT NULL AND {right.sql} IS NOT NULL THEN {sql} END)"


def once(sql: str, kind: pa.DataType, more: str = "") -> str:
    """Return SQL for the first of equal elements, in order; null is an element too, and zero has no sign.

    Raises:
        Mismatch: the elements contain fractions inside of arrays or structs.

    """
    if k.is_fraction(kind.value_type):
        sql = f"list_transform({sql}, lambda __x: __x + 0)"
    elif k.contains(kind, k.is_fraction):
        raise Mismatch("elements with fractions inside cannot be compared here", hint="Compare one field of them.")
    firsts = f"list_filter(__l, lambda __x, __i: list_position(__l, __x) = __i{more})"
    return bound("__l", sql, firsts)


def _union(values: list[Value]) -> Value:
    left, right = _both(values, "array_union")
    sql = _if_both(left, right, once(f"list_concat({left.sql}, {right.sql})", left.type))
    return Value("", sql, left.type, raises=_raises([left, right]))


def _common(what: str, test: str) -> Callable[[list[Value]], Value]:
    def build(values: list[Value]) -> Value:
        left, right = _both(values, what)
        sql = _if_both(left, right, once(left.sql, left.type, f" AND list_position({right.sql}, __x) {test}"))
        return Value("", sql, left.type, raises=_raises([left, right]))

    return build


def _overlap(values: list[Value]) -> Value:
    left, right = _both(values, "arrays_overlap")
    a, b = left.sql, right.sql
    null = f"len({a}) > 0 AND len({b}) > 0 AND (len({a}) > list_count({a}) OR len({b}) > list_count({b}))"
    shared = f"list_filter({a}, lambda __x: __x IS NOT NULL AND list_contains({b}, __x))"
    sql = f"CASE WHEN len({shared}) > 0 THEN true WHEN {null} THEN NULL ELSE false END"
    return Value("", _if_both(left, right, sql), k.BOOLEAN, raises=_raises([left, right]))


def _zipped(values: list[Value]) -> Value:
    names = [
        value.text.rpartition(".")[2].strip("`") if value.sql.startswith('"') else str(i)
        for i, value in enumerate(values)
    ]
    if len({name.lower() for name in names}) < len(names):
        raise Mismatch("two fields of arrays_zip have the same name")
    kind = pa.struct([pa.field(name, v.type.value_type) for name, v in zip(names, values, strict=True)])
    fields = ", ".join(f"{quote(name)} := {v.sql}[__i]" for name, v in zip(names, values, strict=True))
    most = f"greatest({', '.join(f'len({value.sql})' for value in values)})"
    known = f"NOT list_contains([{', '.join(f'{value.sql} IS NULL' for value in values)}], true)"
    sql = f"(CASE WHEN {known} THEN list_transform(range(1, {most} + 1), lambda __i: struct_pack({fields})) END)"
    return Value("", sql, pa.list_(kind), raises=_raises(values))


def _flatten(values: list[Value]) -> Value:
    array = values[0]
    if not k.is_array(array.type.value_type):
        raise Mismatch(f"flatten takes an array of arrays, not {k.shown(array.type)}")
    sql = f"(CASE WHEN list_count({array.sql}) = len({array.sql}) THEN flatten({array.sql}) END)"
    return Value("", sql, array.type.value_type, raises=array.raises)


def _slice(values: list[Value]) -> Value:
    array, start, length = values
    a, first, count = array.sql, f"CAST({start.sql} AS BIGINT)", f"CAST({length.sql} AS BIGINT)"
    negative = raising("INVALID_PARAMETER_VALUE.LENGTH", "the length of a slice is not negative")
    begin = f"(CASE WHEN {first} > 0 THEN {first} ELSE len({a}) + 1 + {first} END)"
    sql = (
        f"(CASE WHEN {a} IS NULL OR {first} IS NULL OR {count} IS NULL THEN NULL WHEN {first} = 0 THEN {_NO_ZERO}"
        f" WHEN {count} < 0 THEN {negative} WHEN {begin} < 1 THEN list_slice({a}, 1, 0)"
        f" ELSE list_slice({a}, {begin}, {begin} + {count} - 1) END)"
    )
    return Value("", sql, array.type, raises=True)


def _try_element(values: list[Value]) -> Value:
    array, index = values
    sql = f"(CASE WHEN {index.sql} = 0 AND {array.sql} IS NOT NULL THEN {_NO_ZERO} ELSE {array.sql}[{index.sql}] END)"
    return Value("", sql, array.type.value_type, raises=True)


def _sequence(values: list[Value]) -> Value:
    start, stop, *given = values
    in_time = all(k.is_timestamp(value.type) or value.type == k.DATE for value in (start, stop))
    if (given and k.is_interval(given[0].type)) or (in_time and not given):
        return _sequence_in_time(start, stop, given[0] if given else None)
    kind: pa.DataType | None = k.NULL
    for value in values:
        kind = common_type(kind, value.type) if kind is not None else None
    if kind is None or not k.is_integral(kind):
        raise Mismatch("sequence takes whole numbers, or dates and timestamps and an interval")
    a, b = (f"CAST({value.sql} AS HUGEINT)" for value in (start, stop))
    step = f"CAST({given[0].sql} AS HUGEINT)" if given else f"(CASE WHEN {a} <= {b} THEN 1 ELSE -1 END)::HUGEINT"
    sql = _steps(a, b, step, f"list_transform({{}}, lambda __i: CAST({a} + __i * {step} AS {k.sql_type(kind)}))")
    return Value("", sql, pa.list_(kind), raises=True)


def _steps(start: str, stop: str, step: str, template: str) -> str:
    """Return SQL that makes an array from the numbers of its elements; Spark's bounds raise."""
    wrong = raising("ILLEGAL_SEQUENCE_BOUNDARIES", "the step of a sequence leads from its start to its end")
    long = raising("COLLECTION_SIZE_LIMIT_EXCEEDED", "the sequence has too many elements")
    count = f"(CASE WHEN {step} = 0 THEN 1 ELSE ({stop} - {start}) // {step} + 1 END)"
    good = (
        f"({step} > 0 AND {start} <= {stop}) OR ({step} < 0 AND {start} >= {stop}) OR ({step} = 0 AND {start} = {stop})"
    )
    return (
        f"(CASE WHEN {start} IS NULL OR {stop} IS NULL OR {step} IS NULL THEN NULL WHEN NOT ({good}) THEN {wrong}"
        f" WHEN {count} > {_MOST} THEN {long} ELSE {template.format(f'range(CAST({count} AS BIGINT))')} END)"
    )


def _sequence_in_time(start: Value, stop: Value, step: Value | None) -> Value:
    """Return times with a step between; without one, days up or down."""
    dates = start.type == stop.type == k.DATE
    if not all(k.is_timestamp(value.type) or value.type == k.DATE for value in (start, stop)):
        raise Mismatch("a sequence with an interval is of dates or timestamps")
    if dates and step is not None and step.type == k.INTERVAL:
        raise Mismatch("a sequence of dates takes days or months", hint="Cast the dates to timestamp.")
    if step is not None and (step.type == k.MONTHS or not isinstance(step.constant, int) or step.constant == 0):
        raise Mismatch(
            "the step of a sequence in time is a constant of days or less", hint="For example interval 1 day."
        )
    kind = k.DATE if dates else k.TIMESTAMP
    if start.type != stop.type:
        raise Mismatch("the start and the end of a sequence have the same type")
    a, b = (f"CAST(epoch_us(CAST({value.sql} AS TIMESTAMP)) AS HUGEINT)" for value in (start, stop))
    size = f"{step.constant}::HUGEINT" if step else f"(CASE WHEN {a} <= {b} THEN {_DAY} ELSE -{_DAY} END)::HUGEINT"
    moment = f"make_timestamp(CAST({a} + __i * {size} AS BIGINT))"
    element = f"CAST({moment} AS DATE)" if dates else moment
    sql = _steps(a, b, size, f"list_transform({{}}, lambda __i: {element})")
    return Value("", sql, pa.list_(start.type if not dates else kind), raises=True)


def one_zero(sql: str, kind: pa.DataType) -> str:
    """Return SQL for a key of `map` and `map_from_entries`, where -0.0 is 0.0; other functions of Spark's keep it."""
    return f"({sql} + 0.0::{k.sql_type(kind)})" if pa.types.is_floating(kind) else sql


def ordered(array: Value, *, up: bool, nulls_first: bool) -> str:
    """Return SQL for a sorted array; zeros of either sign are equal and stay in their order."""
    order = f"'{'ASC' if up else 'DESC'}', 'NULLS {'FIRST' if nulls_first else 'LAST'}'"
    if not k.is_fraction(array.type.value_type):
        return f"list_sort({array.sql}, {order})"
    place = "__i" if up else "-__i"
    null = f"(__x IS {'NOT ' if nulls_first == up else ''}NULL)"
    packed = f"list_transform({array.sql}, lambda __x, __i: struct_pack(n := {null}, x := __x, i := {place}))"
    return f"list_transform(list_sort({packed}, {order}), lambda __s: __s.x)"


def _array_sort(values: list[Value]) -> Value:
    comparable(values[0], "array_sort")
    sql = ordered(values[0], up=True, nulls_first=False)
    return Value("", sql, values[0].type, raises=values[0].raises)


ENTRIES: tuple[Function, ...] = (
    built("array_append", "array, any", _joined("array_append", "list_concat($1, $2)"), "array_append(ints, i)",
          "array_append(texts, null)", "array_append(ints, l)", order="all"),
    built("array_prepend", "array, any", _joined("array_prepend", "list_concat($2, $1)"), "array_prepend(ints, i)",
          "array_prepend(texts, s)", order="all"),
    built("array_insert", "array, int, any", _insert, "array_insert(ints, b % 9, 5)", "array_insert(texts, -2, s)",
          "array_insert(ints, 3, 7)", "array_insert(texts, -7, 'x')", order="all"),
    entry("array_compact", "array", "$1", "list_filter($1, lambda __x: __x IS NOT NULL)", "array_compact(ints)",
          "array_compact(texts)"),
    built("array_remove", "array, any", _remove, "array_remove(ints, 1)", "array_remove(texts, s)"),
    built("array_repeat", "any, =int", _repeat, "array_repeat(s, b % 5)", "array_repeat(i, 2)", "array_repeat(ints, 2)",
          order="all"),
    built("array_union", "any, any", _union, "array_union(ints, array(1, 4))", "array_union(texts, texts)",
          "array_union(reals, array(0D, d))"),
    built("array_intersect", "any, any", _common("array_intersect", "IS NOT NULL"),
          "array_intersect(ints, array(1, null, i))",
          "array_intersect(texts, array('a', s))", "array_intersect(reals, array(d, 0D))"),
    built("array_except", "any, any", _common("array_except", "IS NULL"), "array_except(ints, array(1, null))",
          "array_except(texts, array(s, 'b'))",
          "array_except(reals, array(d, 2D))"),
    built("arrays_overlap", "any, any", _overlap, "arrays_overlap(ints, array(1, i))",
          "arrays_overlap(texts, array(s))",
          "arrays_overlap(ints, ints)"),
    built("arrays_zip", "array, array...", _zipped, "arrays_zip(ints, texts)",
          "arrays_zip(ints, array(1, 2))", order="all"),
    built("flatten", "array", _flatten, "flatten(array(ints, array(i)))", "flatten(array(texts, array('x')))"),
    built("slice", "array, int, int", _slice, "slice(ints, 2, 2)", "slice(texts, -2, 5)", "slice(ints, b, 2)",
          "slice(ints, 1, b)"),
    built("try_element_at", "array, =int", _try_element, "try_element_at(ints, i)", "try_element_at(texts, -1)"),
    built("sequence", "any, any, [any]", _sequence, "sequence(1, 5)", "sequence(b, b + 3S)", "sequence(b, 0, h)",
          "sequence(day, day + 3, interval 1 day)", "sequence(at, at + interval 3 hours, interval 90 minutes)",
          "sequence(l, l, 0L)", "sequence(day, date_add(day, b % 3))", "sequence(at, at + interval 50 hours)",
          notes="the step of dates and timestamps is a constant of days or less"),
    built("array_sort", "array", _array_sort, "array_sort(ints)", "array_sort(texts)", "array_sort(reals)",
          notes="without a function of two elements; nulls come last"),
)  # fmt: skip
