"""Angles, exponentials, hyperbolic functions; the JVM's own rounding may differ in the last digits."""

from __future__ import annotations

from headrace.expressions.functions import Function, entry

_NOTE = "may differ from the JVM's in the last digits"
_NAN = "'nan'::DOUBLE"


def _plain(name: str, sql: str, *examples: str, ulp: int = 2, notes: str = _NOTE) -> Function:
    return entry(name, "double", "double", sql, *(examples or (f"{name}(d)", f"{name}(i)")), ulp=ulp, notes=notes)


# exact near zero, where ln(1 + x) and exp(x) - 1 lose digits (W. Kahan)
_LOG1P = (
    "(CASE WHEN 1 + $1 = 1 THEN $1 WHEN $1 = 'inf'::DOUBLE THEN $1"
    " WHEN $1 > -1 THEN ln(1 + $1) * ($1 / ((1 + $1) - 1)) END)"
)
_EXPM1 = (
    "(CASE WHEN exp($1) = 1 THEN $1 WHEN exp($1) - 1 = -1 THEN -1 WHEN isinf(exp($1)) THEN exp($1)"
    " ELSE (exp($1) - 1) * ($1 / ln(exp($1))) END)"
)
_LARGER, _SMALLER = "greatest(abs($1), abs($2))", "least(abs($1), abs($2))"
_HYPOT = (
    "(CASE WHEN $1 IS NULL OR $2 IS NULL THEN NULL WHEN isinf($1) OR isinf($2) THEN 'inf'::DOUBLE"
    f" WHEN isnan($1) OR isnan($2) THEN {_NAN} WHEN {_LARGER} = 0 THEN 0.0::DOUBLE"
    f" ELSE {_LARGER} * sqrt(1 + pow({_SMALLER} / {_LARGER}, 2)) END)"
)
_INSIDE = f"(CASE WHEN abs($1) > 1 THEN {_NAN} ELSE {{}}($1) END)"
_TURNING = f"(CASE WHEN isinf($1) THEN {_NAN} ELSE {{}} END)"

ENTRIES: tuple[Function, ...] = (
    _plain("sin", _TURNING.format("sin($1)")),
    _plain("cos", _TURNING.format("cos($1)")),
    _plain("tan", _TURNING.format("tan($1)")),
    _plain("cot", _TURNING.format("(1 / tan($1))")),
    _plain("sec", _TURNING.format("(1 / cos($1))")),
    _plain("csc", _TURNING.format("(1 / sin($1))")),
    _plain("asin", _INSIDE.format("asin")),
    _plain("acos", _INSIDE.format("acos")),
    _plain("atan", "atan($1)"),
    entry(
        "atan2",
        "double, double",
        "double",
        "atan2($1 + 0.0, $2 + 0.0)",
        "atan2(d, e)",
        "atan2(i, j)",
        ulp=2,
        notes=_NOTE,
    ),
    _plain("sinh", "sinh($1)"),
    _plain("cosh", "cosh($1)"),
    _plain("tanh", "tanh($1)"),
    _plain("asinh", "asinh($1)"),
    _plain("acosh", f"(CASE WHEN $1 < 1 THEN {_NAN} ELSE acosh($1) END)"),
    _plain("atanh", f"(CASE WHEN abs($1) > 1 THEN {_NAN} ELSE atanh($1) END)"),
    _plain("degrees", "degrees($1)"),
    _plain("radians", "radians($1)"),
    _plain("expm1", _EXPM1, ulp=4),
    _plain("log1p", _LOG1P, ulp=4, notes="null for -1 and below; " + _NOTE),
    entry("hypot", "double, double", "double", _HYPOT, "hypot(d, e)", "hypot(i, j)", ulp=2, notes=_NOTE),
    entry("rint", "double", "double", "round_even($1, 0)", "rint(d)", "rint(m)", "rint(i)", notes="half to even"),
    entry("pi", "", "double", "pi()", "pi()", "pi() * d"),
    entry("e", "", "double", "2.718281828459045::DOUBLE", "e()", "e() + d"),
)
