"""Bits of whole numbers: shifts, counts, single bits; and small functions of whole numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.expressions import kinds as k
from headrace.expressions.casts import cast, raising
from headrace.expressions.functions import Function, built, entry
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable


def _wrapped(sql: str, bits: int) -> str:
    """Return SQL for the lowest bits of a HUGEINT, as the JVM keeps them: the highest of them is the sign."""
    low = f"({sql} & {2**bits - 1}::HUGEINT)"
    return f"({low} - CASE WHEN {low} >= {2 ** (bits - 1)}::HUGEINT THEN {2**bits}::HUGEINT ELSE 0::HUGEINT END)"


def _shift(way: str) -> Callable[[list[Value]], Value]:
    def build(values: list[Value]) -> Value:
        value, count = values
        if not (k.is_integral(value.type) or value.type in (k.STRING, k.NULL)):
            raise Mismatch(f"a shift needs a whole number, not {k.shown(value.type)}")
        if value.type != k.BIGINT:
            value = cast(value, k.INT)
        bits = value.type.bit_width
        wide = f"CAST({value.sql} AS HUGEINT)"
        if way == "unsigned":
            wide = f"({wide} & {2**bits - 1}::HUGEINT)"
        unit = f"(1::HUGEINT << CAST({count.sql} & {bits - 1} AS INTEGER))"
        if way == "left":
            rounded = f"({wide} * {unit})"
        else:  # rounds down, as the bits do
            rounded = f"(({wide} - (({wide} % {unit}) + {unit}) % {unit}) // {unit})"
        sql = f"CAST({_wrapped(rounded, bits)} AS {k.sql_type(value.type)})"
        return Value("", sql, value.type, raises=value.raises or count.raises)

    return build


def _bit_get(values: list[Value]) -> Value:
    value, place = values
    fail = raising("INVALID_PARAMETER_VALUE.BIT_POSITION_RANGE", "there is no bit ", f"CAST({place.sql} AS VARCHAR)")
    wide = f"(CAST({value.sql} AS HUGEINT) & {2**64 - 1}::HUGEINT)"
    bit = f"(({wide} // (1::HUGEINT << {place.sql})) & 1::HUGEINT)"
    sql = (
        f"CAST((CASE WHEN {value.sql} IS NULL OR {place.sql} IS NULL THEN NULL"
        f" WHEN {place.sql} < 0 OR {place.sql} >= {value.type.bit_width} THEN {fail} ELSE {bit} END) AS TINYINT)"
    )
    return Value("", sql, k.TINYINT, raises=True)


def _counted(values: list[Value]) -> Value:
    value = values[0]
    if not (k.is_integral(value.type) or value.type in (k.BOOLEAN, k.NULL)):
        raise Mismatch(f"bit_count needs a whole number or a boolean, not {k.shown(value.type)}")
    sql = f"CAST(bit_count(CAST({value.sql} AS BIGINT)) AS INTEGER)"
    return Value("", sql, k.INT, raises=value.raises)


_FACTORIAL = "(CASE WHEN $1 BETWEEN 0 AND 20 THEN CAST(factorial(CAST($1 AS INTEGER)) AS BIGINT) END)"
_BUCKET = (
    "(CASE WHEN $1 IS NULL OR $2 IS NULL OR $3 IS NULL OR $4 IS NULL OR $4 <= 0 OR $4 = 9223372036854775807"
    " OR isnan($1) OR $2 = $3 OR NOT isfinite($2) OR NOT isfinite($3) THEN NULL"
    " WHEN $2 < $3 THEN CASE WHEN $1 < $2 THEN 0 WHEN $1 >= $3 THEN $4 + 1"
    " ELSE CAST(trunc($4::DOUBLE * ($1 - $2) / ($3 - $2)) AS BIGINT) + 1 END"
    " ELSE CASE WHEN $1 > $2 THEN 0 WHEN $1 <= $3 THEN $4 + 1"
    " ELSE CAST(trunc($4::DOUBLE * ($2 - $1) / ($2 - $3)) AS BIGINT) + 1 END END)"
)
ENTRIES: tuple[Function, ...] = (
    built("shiftleft", "any, int", _shift("left"), "shiftleft(i, j)", "shiftleft(l, b)", "i << 3", "b << 9"),
    built(
        "shiftright",
        "any, int",
        _shift("right"),
        "shiftright(i, j)",
        "shiftright(l, b)",
        "l >> 3",
    ),
    built(
        "shiftrightunsigned",
        "any, int",
        _shift("unsigned"),
        "shiftrightunsigned(i, j)",
        "shiftrightunsigned(l, b)",
        notes="the sign >>> is not read",
    ),
    built("bit_count", "any", _counted, "bit_count(i)", "bit_count(l)", "bit_count(p)", "bit_count(b)"),
    built("bit_get getbit", "=integral, int", _bit_get, "bit_get(i, 3)", "getbit(l, b)", "bit_get(b, 7)"),
    entry("bin", "bigint", "string", "bin($1)", "bin(i)", "bin(l)"),
    entry("factorial", "int", "bigint", _FACTORIAL, "factorial(i)", "factorial(b)", notes="null below 0 and above 20"),
    entry(
        "width_bucket",
        "double, double, double, bigint",
        "bigint",
        _BUCKET,
        "width_bucket(d, 0, 100, 10)",
        "width_bucket(d, 5, e, l)",
        "width_bucket(i, 10, -10, 4)",
        raises=True,
        notes="not of intervals",
    ),
)
