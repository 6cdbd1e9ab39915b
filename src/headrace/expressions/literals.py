"""Literals: numbers, text, intervals, typed texts (`date '2024-02-29'`), null and the booleans."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from math import isinf
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from headrace.base.errors import InvalidExpression, InvalidSchema
from headrace.base.names import literal
from headrace.expressions import kinds as k
from headrace.expressions.grammar import Grammar, shown
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from headrace.expressions.compiling import Compiling

MOMENTS = frozenset(
    {"current_timestamp", "current_date", "current_user", "localtimestamp", "current_time", "now", "user"}
)
_MICROS = {"microsecond": 1, "millisecond": 1_000, "second": 10**6, "minute": 60 * 10**6, "hour": 3_600 * 10**6}
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "year": 12}
_DAY_MICROS = 86_400 * 10**6
_PART = re.compile(r"\s*([+-]?)\s*(\d+)(?:\.(\d{1,9}))?\s+([a-zA-Z]+)\s*")
_SPANS = {
    ("day", "hour"): r"(?P<d>\d+) (?P<h>\d+)",
    ("day", "minute"): r"(?P<d>\d+) (?P<h>\d+):(?P<m>\d+)",
    ("day", "second"): r"(?P<d>\d+) (?P<h>\d+):(?P<m>\d+):(?P<s>\d+)(?:\.(?P<f>\d{1,6}))?",
    ("hour", "minute"): r"(?P<h>\d+):(?P<m>\d+)",
    ("hour", "second"): r"(?P<h>\d+):(?P<m>\d+):(?P<s>\d+)(?:\.(?P<f>\d{1,6}))?",
    ("minute", "second"): r"(?P<m>\d+):(?P<s>\d+)(?:\.(?P<f>\d{1,6}))?",
    ("year", "month"): r"(?P<y>\d+)-(?P<o>\d+)",
}
_SPAN_MICROS = {"d": _DAY_MICROS, "h": _MICROS["hour"], "m": _MICROS["minute"], "s": _MICROS["second"]}


def quoted(text: str) -> str:
    """Return text as SQL; characters that SQL text cannot hold are written by number."""
    if "\0" not in text:
        return literal(text)
    return "(" + " || chr(0) || ".join(literal(part) for part in text.split("\0")) + ")"


def number(text: str) -> Value:
    """Return a number as Spark types it: int, bigint, decimal by its digits, double if it has an exponent."""
    if not re.fullmatch(r"-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", text, re.IGNORECASE | re.ASCII):
        raise Mismatch(f"{text} is no number", hint="For example 12, 1.5 or 1e3.", condition=InvalidExpression)
    if "e" in text.lower() and isinf(float(text)):
        raise Mismatch(f"{text} is more than a double can hold", condition=InvalidExpression)
    if "e" in text.lower():
        return Value(text, f"CAST('{text}' AS DOUBLE)", k.DOUBLE, constant=float(text))
    if "." not in text:
        whole = int(text)
        for kind in (k.INT, k.BIGINT):
            if -(2 ** (kind.bit_width - 1)) <= whole < 2 ** (kind.bit_width - 1):
                return integer(whole, kind, text)
    return _decimal(Decimal(text), text)


def integer(whole: int, kind: pa.DataType, text: str) -> Value:
    """Return a whole number of an integral type."""
    return Value(text, f"CAST({whole} AS {k.sql_type(kind)})", kind, constant=whole)


def _decimal(value: Decimal, text: str) -> Value:
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits), scale, 1)
    if precision > k.MAX_PRECISION:
        raise Mismatch(f"{text} has more than {k.MAX_PRECISION} digits")
    kind = k.decimal(precision, scale)
    return Value(text, f"CAST('{value:f}' AS {k.sql_type(kind)})", kind, constant=value)


def _literal(_: Compiling, tree: exp.Expression) -> Value:
    text = str(tree.this)
    if tree.is_string:
        return string(text, shown(tree))
    return number(text)


def string(text: str, written: str | None = None) -> Value:
    """Return a text."""
    return Value(written or literal(text), quoted(text), k.STRING, constant=text)


def _adjacent(compiler: Compiling, tree: exp.Expression) -> Value:
    parts = compiler.all(tree.expressions)
    return string("".join(str(part.constant) for part in parts), shown(tree))


def _raw(_: Compiling, tree: exp.Expression) -> Value:
    return string(str(tree.this), shown(tree))


def _binary(_: Compiling, tree: exp.Expression) -> Value:
    digits = str(tree.this)
    digits = digits if len(digits) % 2 == 0 else "0" + digits
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        raise Mismatch(f"X'{digits}' is no hexadecimal text", condition=InvalidExpression) from None
    return Value(shown(tree), f"unhex('{digits}')", k.BINARY, constant=raw)


def _null(_: Compiling, __: exp.Expression) -> Value:
    return Value("null", "NULL", k.NULL, constant=None)


def _boolean(_: Compiling, tree: exp.Expression) -> Value:
    return Value(shown(tree), "true" if tree.this else "false", k.BOOLEAN, constant=bool(tree.this))


def type_of(tree: exp.Expression) -> pa.DataType:
    """Return the type that a cast names."""
    text = tree.sql(dialect=Grammar)
    try:
        return k.parse_type(text)
    except InvalidSchema as error:
        raise Mismatch(f"{text} is no type that can be cast to", hint=error.hint) from None


def typed(value: Value, kind: pa.DataType, text: str) -> Value | None:
    """Return `5L`, `date '2024-02-29'` and their like as literals, or None if it is no such thing."""
    if isinstance(value.constant, bool) or value.text == text:
        return None
    if isinstance(value.constant, int | Decimal) and k.is_integral(kind):
        whole = int(value.constant)
        fits = -(2 ** (kind.bit_width - 1)) <= whole < 2 ** (kind.bit_width - 1)
        return integer(whole, kind, text) if fits else None
    if isinstance(value.constant, int | Decimal) and kind == k.DOUBLE:
        return Value(text, f"CAST('{value.constant}' AS DOUBLE)", kind, constant=float(value.constant))
    if isinstance(value.constant, str) and k.is_decimal(kind) and re.fullmatch(r"-?\d+(\.\d+)?", value.constant):
        exact = _decimal(Decimal(value.constant), text)
        return exact if exact.type == kind else None
    if isinstance(value.constant, str) and kind == k.DATE and re.fullmatch(r"\d{4}-\d\d-\d\d", value.constant):
        year = value.constant[:4]
        try:  # in the calendar, the year 0 is as 2000
            date.fromisoformat(value.constant if int(year) else f"2000{value.constant[4:]}")
        except ValueError:
            raise Mismatch(f"{value.text} is no date") from None
        return Value(text, f"CAST({value.sql} AS DATE)", kind, constant=value.constant)
    return None


# ---- intervals -----------------------------------------------------------------------------------------


def _interval(compiler: Compiling, tree: exp.Expression) -> Value:
    amount, unit = tree.this, tree.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        return _span(str(amount.this), unit.this.name.lower(), unit.expression.name.lower(), shown(tree))
    if not isinstance(amount, exp.Literal):
        value = compiler.compile(amount) if amount is not None else None
        if value is None or not isinstance(value.constant, int | Decimal):
            raise Mismatch(
                "the length of an interval is a constant", hint="Multiply an interval: at + n * interval 1 hour."
            )
        return interval(f"{value.constant} {unit.name if unit else ''}", shown(tree))
    return interval(f"{amount.this} {unit.name if unit else ''}".strip(), shown(tree))


def interval(words: str, text: str) -> Value:
    """Return an interval from words such as `1 hour 30 minutes`.

    Raises:
        Mismatch: it cannot be read, or mixes months with days.

    """
    months = micros = at = 0
    units = set()
    words = words.lower().removeprefix("interval").strip()
    while at < len(words):
        found = _PART.match(words, at)
        unit = found[4].removesuffix("s") if found else ""
        if not found or unit not in _MICROS | _DAYS | _MONTHS or (found[3] and unit != "second"):
            raise Mismatch(f'"{words}" is no interval', hint="For example interval 1 hour, interval '1 day 2 hours'.")
        sign = -1 if found[1] == "-" else 1
        months += sign * int(found[2]) * _MONTHS.get(unit, 0)
        micros += sign * int(found[2]) * (_MICROS.get(unit) or _DAYS.get(unit, 0) * _DAY_MICROS)
        micros += sign * int((found[3] or "").ljust(9, "0")[:6]) if found[3] else 0
        units.add("m" if unit in _MONTHS else "d" if unit in _DAYS else "t")
        at = found.end()
    if not units or ("m" in units and len(units) > 1):
        raise Mismatch(f'"{words}" mixes months with days or times' if units else "the interval is empty")
    if "m" in units:
        return Value(text, f"CAST({months} AS INTEGER)", k.MONTHS, constant=months)
    return Value(text, f"CAST({micros} AS BIGINT)", k.DAYS if units == {"d"} else k.INTERVAL, constant=micros)


def _span(words: str, first: str, last: str, text: str) -> Value:
    sign = -1 if words.strip().startswith("-") else 1
    pattern = _SPANS.get((first, last))
    found = re.fullmatch(pattern, words.strip().lstrip("+-")) if pattern else None
    if not found:
        raise Mismatch(f"'{words}' is no interval from {first} to {last}")
    parts: dict[str, Any] = found.groupdict()
    if "y" in parts:
        months = sign * (int(parts["y"]) * 12 + int(parts["o"]))
        return Value(text, f"CAST({months} AS INTEGER)", k.MONTHS, constant=months)
    micros = sum(int(parts[name]) * size for name, size in _SPAN_MICROS.items() if parts.get(name))
    micros = sign * (micros + int((parts.get("f") or "").ljust(6, "0") or 0))
    return Value(text, f"CAST({micros} AS BIGINT)", k.INTERVAL, constant=micros)


HANDLERS: dict[type[exp.Expression], Callable[[Compiling, exp.Expression], Value]] = {
    exp.Literal: _literal,
    exp.RawString: _raw,
    exp.Concat: _adjacent,
    exp.HexString: _binary,
    exp.Null: _null,
    exp.Boolean: _boolean,
    exp.Interval: _interval,
}
