"""Arithmetic: the operators, with Spark's result types, and the functions that go with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.expressions import kinds as k
from headrace.expressions.binding import Binding
from headrace.expressions.casts import cast, raising
from headrace.expressions.coercion import common_type
from headrace.expressions.functions import Function, built, entry
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.table import calendar, decimals
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable

BY_ZERO = raising("DIVIDE_BY_ZERO", "division by zero; use try_divide, or nullif(divisor, 0), to get null instead")


def _numbers(left: Value, right: Value, sign: str) -> tuple[Value, Value]:
    """Return both operands as numbers of one sort: the same type, or two decimals."""
    if left.type == k.STRING == right.type or not all(_numeric(value) for value in (left, right)):
        raise Mismatch(f"{k.shown(left.type)} {sign} {k.shown(right.type)} is not possible", hint=_hint(left, right))
    if k.is_decimal(left.type) or k.is_decimal(right.type):
        kind = common_type(left.type, right.type)
        if kind == k.DOUBLE:
            return cast(left, k.DOUBLE), cast(right, k.DOUBLE)
        return decimals.exact(left, right.type), decimals.exact(right, left.type)
    kind = common_type(left.type, right.type)
    if kind in (None, k.NULL):
        kind = k.DOUBLE
    return cast(left, kind), cast(right, kind)


def _numeric(value: Value) -> bool:
    return k.is_number(value.type) or value.type in (k.STRING, k.NULL)


def _hint(left: Value, right: Value) -> str:
    if left.type == k.STRING == right.type:
        return "Cast the texts to numbers, or put them together with ||."
    return "Cast one of them." if k.is_atomic(left.type) and k.is_atomic(right.type) else ""


def _made(values: tuple[Value, ...], sql: str, kind: object, *, raises: bool) -> Value:
    return Value("", sql, kind, raises=raises or any(value.raises for value in values))


def _sum(sign: str) -> Callable[[list[Value]], Value]:
    def build(values: list[Value]) -> Value:
        moved = calendar.moved(values[0], values[1], sign)
        if moved is not None:
            return moved
        left, right = _numbers(values[0], values[1], sign)
        if k.is_decimal(left.type):
            return decimals.sum_of(left, right, sign)
        left, right = left.apart(), right.apart()
        # DuckDB widens a negation but checks sums of integers as the JVM does
        return _made((left, right), f"({left.sql} {sign} {right.sql})", left.type, raises=k.is_integral(left.type))

    return build


def _times(values: list[Value]) -> Value:
    scaled = calendar.scaled(values[0], values[1])
    if scaled is not None:
        return scaled
    left, right = _numbers(values[0], values[1], "*")
    if k.is_decimal(left.type):
        return decimals.product(left, right)
    left, right = left.apart(), right.apart()
    return _made((left, right), f"({left.sql} * {right.sql})", left.type, raises=k.is_integral(left.type))


def _checked(left: Value, right: Value, sql: str, *, strict: bool = True) -> str:
    """Return SQL that raises where the divisor is zero and the dividend is not null."""
    if right.is_constant and right.constant is not None and right.constant != 0:
        return sql
    fail = BY_ZERO if strict else "NULL"
    return f"(CASE WHEN {right.sql} = 0 AND {left.sql} IS NOT NULL THEN {fail} ELSE {sql} END)"


def _nonzero(value: Value) -> bool:
    return value.is_constant and value.constant is not None and value.constant != 0


def _positive(value: Value) -> bool:
    return isinstance(value.constant, int) and value.constant > 0


def _divide(values: list[Value]) -> Value:
    left, right = _numbers(values[0], values[1], "/")
    safe = _nonzero(values[1])
    if k.is_decimal(left.type):
        return decimals.quotient(left, right, safe=safe)
    dividend, divisor = cast(left, k.DOUBLE), cast(right, k.DOUBLE)
    sql = _checked(dividend, divisor, f"({dividend.sql} / {divisor.sql})")
    return _made((dividend, divisor), sql, k.DOUBLE, raises=not safe)


def _whole_division(values: list[Value]) -> Value:
    left, right = _numbers(values[0], values[1], "div")
    if k.is_fraction(left.type):
        raise Mismatch("div needs whole numbers or decimals", hint="Use cast(a / b as bigint).")
    if k.is_decimal(left.type):
        return decimals.whole_quotient(left, right)
    dividend, divisor = cast(left, k.BIGINT), cast(right, k.BIGINT)
    sql = _checked(dividend, divisor, f"({dividend.sql} // {divisor.sql})")
    return _made((dividend, divisor), sql, k.BIGINT, raises=True)


def _remainder(values: list[Value]) -> Value:
    left, right = _numbers(values[0], values[1], "%")
    if k.is_decimal(left.type):
        return decimals.remainder(left, right)
    # the least number of a type has no remainder by -1 in C; it is 0 in the JVM
    divisor = f"CASE WHEN {right.sql} = -1 THEN 1 ELSE {right.sql} END"
    whole = k.is_integral(left.type) and not (_nonzero(right) and right.constant != -1)
    sql = f"({left.sql} % CAST({divisor} AS {k.sql_type(left.type)}))" if whole else f"({left.sql} % {right.sql})"
    return _made((left, right), _checked(left, right, sql), left.type, raises=not _nonzero(right))


def _positive_remainder(values: list[Value]) -> Value:
    left, right = _numbers(values[0], values[1], "pmod")
    if k.is_decimal(left.type):
        return decimals.positive_remainder(left, right)
    r = f"({left.sql} % {right.sql})"
    sql = f"(CASE WHEN {r} < 0 THEN ({r} + {right.sql}) % {right.sql} ELSE {r} END)"
    if k.is_integral(left.type) and not _positive(right):
        # where both are negative, r + n may pass the type's limits, and wraps around as in the JVM
        a, n, span = f"CAST({left.sql} AS HUGEINT)", f"CAST({right.sql} AS HUGEINT)", 2**left.type.bit_width
        wrapped = (
            f"(CASE WHEN {a} % {n} + {n} < {-span // 2}::HUGEINT THEN {span}::HUGEINT ELSE 0 END + {a} % {n} + {n})"
        )
        sql = f"CAST((CASE WHEN {a} % {n} < 0 THEN {wrapped} % {n} ELSE {a} % {n} END) AS {k.sql_type(left.type)})"
    return _made((left, right), _checked(left, right, sql), left.type, raises=not _nonzero(right))


def _negative(values: list[Value]) -> Value:
    value = values[0]
    if k.is_interval(value.type):
        return _made((value,), f"CAST(-{value.sql} AS {k.sql_type(value.type)})", value.type, raises=False)
    return _made(
        (value,), f"CAST(-{value.sql} AS {k.sql_type(value.type)})", value.type, raises=k.is_integral(value.type)
    )


def _absolute(values: list[Value]) -> Value:
    value = values[0]
    return _made((value,), f"abs({value.sql})", value.type, raises=k.is_integral(value.type))


def _bits(sign: str) -> Callable[[list[Value]], Value]:
    def build(values: list[Value]) -> Value:
        kind = common_type(values[0].type, values[1].type)
        kind = k.INT if kind == k.NULL else kind
        if kind is None or not k.is_integral(kind):
            raise Mismatch(f"{sign} needs whole numbers")
        left, right = cast(values[0], kind), cast(values[1], kind)
        sql = f"xor({left.sql}, {right.sql})" if sign == "^" else f"({left.sql} {sign} {right.sql})"
        return _made((left, right), sql, kind, raises=False)

    return build


def _tried(build: Callable[[list[Value]], Value], *, divides: bool = False) -> Callable[[list[Value]], Value]:
    """Return the rule of a `try_` function: null where the operator raises; its arguments still raise.

    A dividend is not computed where the divisor is zero.
    """

    def lenient(values: list[Value]) -> Value:
        if any(value.type == k.STRING for value in values):
            raise Mismatch("a text is not taken here", hint="Cast it: try_cast(x as double).")
        if any(value.raises for value in values) and not all(k.is_number(v.type) or v.type == k.NULL for v in values):
            raise Mismatch("times and intervals that may raise are not taken here", hint="Use try_cast inside.")
        outside = Binding(values, "\x04", outside=True)
        result = build(outside.values)
        sql = result.sql.replace(BY_ZERO, "NULL")
        sql = outside.finish(f"TRY({sql})" if result.raises else sql)
        if divides and values[0].raises:
            divisor = _numbers(values[0], values[1], "/")[1]
            sql = f"(CASE WHEN {divisor.sql} = 0 THEN NULL ELSE {sql} END)"
        return Value("", sql, result.type, raises=any(v.raises for v in values))

    return lenient


ENTRIES: tuple[Function, ...] = (
    built(
        "+",
        "any, any",
        _sum("+"),
        "i + j",
        "l + i",
        "b + b",
        "d + f",
        "i + 1.5",
        "m + n",
        "s + i",
        "at + interval 1 hour",
        "day + 1",
        "day + interval 1 day",
        "day + interval 2 hours",
        "day + interval 1 month",
        "at + interval 1 year",
        notes="whole numbers that overflow raise; dates and timestamps take intervals, a date takes days",
    ),
    built(
        "-",
        "any, any",
        _sum("-"),
        "i - j",
        "l - i",
        "h - h",
        "d - f",
        "m - n",
        "m - i",
        "at - interval '1 2:03' day to minute",
        "day - 1",
        "day - interval 1 month",
        "at - at2 > interval 1 hour",
        "day - day2 = interval 1 day",
    ),
    built(
        "*",
        "any, any",
        _times,
        "i * j",
        "l * i",
        "b * b",
        "d * f",
        "m * n",
        "m * 0.9",
        "at + i * interval 1 second",
        notes="decimals whose digits together exceed 38 are refused: cast them to fewer digits",
    ),
    built(
        "/",
        "any, any",
        _divide,
        "i / j",
        "l / 2",
        "d / f",
        "m / n",
        "m / 3",
        "i / m",
        "d / i",
        raises=True,
        notes="two whole numbers give a double; division by zero raises",
        order="right",
    ),
    built("%", "any, any", _remainder, "i % j", "l % i", "b % 3", "d % f", "m % n", "i % -7", order="right"),
    built("mod", "any, any", _remainder, "mod(i, j)", order="right"),
    built("div", "any, any", _whole_division, "i div j", "l div -1", "m div n", order="right"),
    built(
        "negative", "number", _negative, "-i", "-l", "-d", "-m", "negative(b)", notes="the operator - before a value"
    ),
    entry("positive", "number", "$1", "$1", "positive(i)"),
    built("abs", "number", _absolute, "abs(i)", "abs(l)", "abs(d)", "abs(f)", "abs(m)"),
    built(
        "pmod",
        "any, any",
        _positive_remainder,
        "pmod(i, j)",
        "pmod(l, i)",
        "pmod(i, 7)",
        "pmod(d, f)",
        "pmod(m, n)",
        order="right",
    ),
    built("&", "any, any", _bits("&"), "i & j", "l & i"),
    built("|", "any, any", _bits("|"), "i | j"),
    built("^", "any, any", _bits("^"), "i ^ j"),
    entry("~", "=integral", "$1", "(~$1)", "~i", "~l"),
    built("try_add", "any, any", _tried(_sum("+")), "try_add(i, j)", "try_add(l, i)"),
    built("try_subtract", "any, any", _tried(_sum("-")), "try_subtract(i, j)"),
    built("try_multiply", "any, any", _tried(_times), "try_multiply(i, j)", "try_multiply(l, l)"),
    built(
        "try_divide", "any, any", _tried(_divide, divides=True), "try_divide(i, j)", "try_divide(d, f)", order="right"
    ),
    built("try_mod", "any, any", _tried(_remainder, divides=True), "try_mod(i, j)", order="right"),
)
