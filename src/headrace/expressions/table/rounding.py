"""Rounding, powers and logarithms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.expressions import kinds as k
from headrace.expressions.casts import cast
from headrace.expressions.casts_text import decimal_from_number
from headrace.expressions.functions import Function, built, entry
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

_ULP_NOTE = "may differ from the JVM's in the last digit"
_MAX_POWER = 22  # ten to this power is the last that a double holds exactly


def _whole(name: str) -> Callable[[list[Value]], Value]:
    """Return the rule of floor and ceil."""

    def build(values: list[Value]) -> Value:
        value = values[0]
        if k.is_decimal(value.type):
            kind = k.decimal(value.type.precision - value.type.scale + 1, 0)
            return Value("", f"CAST({name}({value.sql}) AS {k.sql_type(kind)})", kind, raises=value.raises)
        if k.is_integral(value.type):
            return Value("", f"CAST({value.sql} AS BIGINT)", k.BIGINT, raises=value.raises)
        # NaN has the floor 0 in the JVM
        sql = f"(CASE WHEN isnan({value.sql}) THEN 0 ELSE CAST({name}({value.sql}) AS BIGINT) END)"
        return Value("", sql, k.BIGINT, raises=True)

    return build


def _round(values: list[Value]) -> Value:
    value, places = values[0], values[1].constant if len(values) > 1 else 0
    if not isinstance(places, int):
        raise Mismatch("the number of digits must be a constant whole number")
    if k.is_decimal(value.type):
        return _round_decimal(value, places)
    if k.is_integral(value.type):
        return _round_integral(value, places)
    return _round_fraction(value, places)


def _round_decimal(value: Value, places: int) -> Value:
    whole = value.type.precision - value.type.scale + 1
    scale = min(value.type.scale, max(places, 0))
    kind = k.decimal(max(whole, 1 - places) if places < 0 else whole + scale, scale)
    if places >= 0:
        wide = f"CAST({value.sql} AS DECIMAL({min(whole + value.type.scale, 38)},{value.type.scale}))"
        return Value("", f"CAST({wide} AS {k.sql_type(kind)})", kind, raises=True)
    if -places >= k.MAX_PRECISION - 1:
        return Value("", f"CASE WHEN {value.sql} IS NOT NULL THEN CAST(0 AS {k.sql_type(kind)}) END", kind)
    unit = f"{10**-places}::HUGEINT"
    rounded = _half_up(f"CAST(trunc({value.sql}) AS HUGEINT)", unit)
    return Value("", f"CAST({rounded} AS {k.sql_type(kind)})", kind, raises=True)


def _half_up(whole: str, unit: str) -> str:
    """Return SQL for a whole number rounded to a multiple of `unit`, halves away from zero."""
    return f"((({whole} + sign({whole}) * ({unit} // 2)) // {unit}) * {unit})"


def _round_integral(value: Value, places: int) -> Value:
    if places >= 0:
        return Value("", value.sql, value.type, raises=value.raises)
    kind = k.sql_type(value.type)
    if -places > 19:  # noqa: PLR2004 digits of a bigint
        return Value(
            "", f"CASE WHEN {value.sql} IS NOT NULL THEN CAST(0 AS {kind}) END", value.type, raises=value.raises
        )
    rounded = _half_up(f"CAST({value.sql} AS HUGEINT)", f"{10**-places}::HUGEINT")
    return Value("", f"CAST({rounded} AS {kind})", value.type, raises=True)


def _round_fraction(value: Value, places: int) -> Value:
    """Round the shortest decimal text of the number, as the JVM does, by arithmetic where that is surely the same."""
    if abs(places) > _MAX_POWER - 4:
        raise Mismatch(f"round to {places} digits is not supported for {k.shown(value.type)}")
    kind = k.sql_type(value.type)
    x = cast(value, k.DOUBLE).sql
    unit = f"1e{abs(places)}::DOUBLE"
    up, down = ("*", "/") if places >= 0 else ("/", "*")
    scaled = f"({x} {up} {unit})"
    sure = f"abs({scaled}) < 1e11 AND abs(abs({scaled} - trunc({scaled})) - 0.5) > 0.001"
    text = f"CAST({x} AS VARCHAR)"
    if places >= 0:
        slow = f"CAST(CAST(CAST({text} AS DECIMAL(38,{places})) AS VARCHAR) AS DOUBLE)"
    else:  # beyond 2^53 the digits that are shown count, and there is no fraction
        large = f"CAST({decimal_from_number(text, 'DECIMAL(38,0)')} AS HUGEINT)"
        whole = f"(CASE WHEN abs({x}) < 9e15 THEN CAST(trunc({x}) AS HUGEINT) ELSE {large} END)"
        slow = f"CAST(CAST({_half_up(whole, f'{10**-places}::HUGEINT')} AS VARCHAR) AS DOUBLE)"
    sql = (  # a result has no sign of zero: the JVM rounds a BigDecimal
        f"(CASE WHEN {sure} THEN round({scaled}) {down} {unit} + 0.0::DOUBLE"
        f" WHEN NOT isfinite({x}) OR abs({scaled}) >= 1e17 THEN {x}"
        f" ELSE {slow} END)"
    )
    return Value("", f"CAST({sql} AS {kind})" if kind != "DOUBLE" else sql, value.type, raises=value.raises)


def _sign(values: list[Value]) -> Value:
    x = cast(values[0], k.DOUBLE)
    return Value("", f"(CASE WHEN isnan({x.sql}) OR {x.sql} = 0 THEN {x.sql} ELSE CAST(sign({x.sql}) AS DOUBLE) END)",
                 k.DOUBLE, raises=x.raises)  # fmt: skip


def _log(name: str, below: str = "0", *, closed: bool = True) -> str:
    """Return the template of a logarithm: null at and below its pole, as in Spark."""
    return f"(CASE WHEN $1 {'<=' if closed else '<'} {below} THEN NULL ELSE {name} END)"


def _log_base(values: Sequence[Value], _: pa.DataType) -> str:
    base, x = values[0].sql, values[1].sql
    return f"(CASE WHEN {base} <= 0 OR {x} <= 0 THEN NULL ELSE ln({x}) / ln({base}) END)"


# where C says 1 the JVM says NaN
_POWER = (
    "(CASE WHEN (isnan($2) OR (isinf($2) AND abs($1) = 1)) AND $1 IS NOT NULL THEN 'nan'::DOUBLE ELSE pow($1, $2) END)"
)

ENTRIES: tuple[Function, ...] = (
    built("floor", "number", _whole("floor"), "floor(d)", "floor(m)", "floor(i)", "floor(f)"),
    built("ceil ceiling", "number", _whole("ceil"), "ceil(d)", "ceiling(m)", "ceil(b)"),
    built(
        "round",
        "number, [whole]",
        _round,
        "round(d)",
        "round(d, 2)",
        "round(d, -2)",
        "round(f, 1)",
        "round(m)",
        "round(m, 1)",
        "round(m, -2)",
        "round(i, -1)",
        "round(l, -3)",
        "round(b, 2)",
        notes="half up; the digits are a constant",
    ),
    built("sign signum", "number", _sign, "sign(d)", "signum(i)", "sign(m)"),
    entry("sqrt", "double", "double", "(CASE WHEN $1 < 0 THEN 'nan'::DOUBLE ELSE sqrt($1) END)", "sqrt(d)", "sqrt(i)"),
    entry("cbrt", "double", "double", "cbrt($1)", "cbrt(d)", ulp=2, notes=_ULP_NOTE),
    entry("exp", "double", "double", "exp($1)", "exp(d)", "exp(b)", ulp=1, notes=_ULP_NOTE),
    entry(
        "ln", "double", "double", _log("ln($1)"), "ln(d)", "ln(i)", ulp=1, notes="null for 0 and below; " + _ULP_NOTE
    ),
    entry("log", "double", "double", _log("ln($1)"), "log(d)", ulp=1, notes="null for 0 and below; " + _ULP_NOTE),
    entry("log", "double, double", "double", _log_base, "log(d, e)", "log(10, d)", ulp=2, notes=_ULP_NOTE),
    entry("log10", "double", "double", _log("log10($1)"), "log10(d)", "log10(i)", ulp=1, notes=_ULP_NOTE),
    entry(
        "log2",
        "double",
        "double",
        _log("ln($1) / 0.6931471805599453::DOUBLE"),
        "log2(d)",
        "log2(i)",
        ulp=1,
        notes=_ULP_NOTE,
    ),
    entry(
        "pow power",
        "double, double",
        "double",
        _POWER,
        "pow(d, e)",
        "pow(i, 2)",
        "power(d, 0.5D)",
        ulp=1,
        notes=_ULP_NOTE,
    ),
)
