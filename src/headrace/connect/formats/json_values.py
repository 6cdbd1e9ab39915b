"""What a JSON value means in a column: the rules, one value at a time. Compiled code reads what is common faster."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from headrace.base.schema import TIMESTAMP, type_name
from headrace.connect.formats import calendar_text

if TYPE_CHECKING:
    from collections.abc import Callable

    Convert = Callable[[Any], Any]

NO_OBJECT = "it is no JSON object"
MANY_DIGITS = 400
"""Numbers of more digits are not written out: their exponents may be made to fill the memory."""
DEEPEST = 500
"""So many lists and objects may be inside each other in a record."""
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{\]}]', re.DOTALL)
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?", re.ASCII | re.IGNORECASE)
_NO_FINITE = re.compile(r"[-+]?(nan|inf(inity)?)", re.IGNORECASE)
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_INT64 = 2**63
_DIGITS = Context(prec=MANY_DIGITS)
_SHOWN = 200


class BadValue(ValueError):
    """A value that the declared type does not have; `path` says where in a struct it is."""

    def __init__(self, why: str, path: str = "") -> None:
        super().__init__(why)
        self.path = path

    def reason(self, field: str) -> str:
        """Return why a record with it in a field is bad."""
        return f"the field {field}{self.path} {self}"


class Number(str):
    """A number's text, as it is written: `1.50`."""

    __slots__ = ()


def parsed(text: str) -> Any:
    """Return a JSON text as Python's values, its numbers as `Number`; of names that are repeated the first counts.

    Raises:
        ValueError: it is no JSON.

    """
    try:
        found = _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if "\\u" in text:
        _check_unicode(found)
    return found


def record(text: bytes | None) -> dict[str, Any]:
    """Return a record as a dictionary; null is none.

    Raises:
        BadValue: it is no JSON object.

    """
    try:
        found = None if text is None or _is_too_deep(text) else parsed(text.decode())
    except ValueError as error:  # of UTF-8 as well
        raise BadValue(NO_OBJECT) from error
    if not isinstance(found, dict):
        raise BadValue(NO_OBJECT)
    return found


def _is_too_deep(text: bytes) -> bool:
    if text.count(b"[") + text.count(b"{") <= DEEPEST:
        return False
    depth = 0
    for found in _BRACKET.finditer(text):
        depth += (found[0] in b"[{") - (found[0] in b"]}")
        if depth > DEEPEST + 1:  # the record itself is one
            return True
    return False


@cache
def converter(kind: pa.DataType) -> Convert:
    """Return a function from a JSON value to one that `pyarrow.array` takes for the type; null stays null.

    The function raises `BadValue` where the type does not have it, with the reason.
    """
    convert = _converter(kind)
    return lambda value: None if value is None else convert(value)


def _converter(kind: pa.DataType) -> Convert:
    if pa.types.is_list(kind):
        return _list(converter(kind.value_type))
    if pa.types.is_struct(kind):
        return _struct({field.name: converter(field.type) for field in kind})
    if pa.types.is_map(kind):
        return _map(converter(kind.key_type), converter(kind.item_type))
    if pa.types.is_integer(kind):
        return _whole(kind)
    if pa.types.is_floating(kind):
        return _floating(kind)
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_timestamp(kind):
        return _time(local=kind != TIMESTAMP)
    plain: dict[pa.DataType, Convert] = {
        pa.string(): json_text_of,
        pa.bool_(): _boolean,
        pa.date32(): _date,
        pa.binary(): _binary,
    }
    return plain[kind]


def _whole(kind: pa.DataType) -> Convert:
    top, name = 2 ** (kind.bit_width - 1), type_name(kind).upper()

    def convert(value: Any) -> int:
        number = _number(value, "is no whole number")
        if not number.is_finite() or number.adjusted() > MANY_DIGITS:
            _refuse(f"is out of the range of {name}", value)
        if number.adjusted() < -MANY_DIGITS or number != number.to_integral_value(context=_DIGITS):
            _refuse("is no whole number", value)
        whole = int(number)
        if not -top <= whole < top:
            _refuse(f"is out of the range of {name}", value)
        return whole

    return convert


def _floating(kind: pa.DataType) -> Convert:
    name = type_name(kind).upper()
    largest = 3.4028235677973362e38 if kind == pa.float32() else math.inf  # half a step beyond the greatest float

    def convert(value: Any) -> float:
        if isinstance(value, str) and _NO_FINITE.fullmatch(value):
            return float(value)
        if not isinstance(value, str) or not _NUMBER.fullmatch(value):
            _refuse("is no number", value)
        number = float(value)
        if abs(number) >= largest:
            _refuse(f"is out of the range of {name}", value)
        return number

    return convert


def _decimal(kind: pa.DataType) -> Convert:
    step, name = Decimal(1).scaleb(-kind.scale), type_name(kind).upper()
    context = Context(prec=kind.precision, rounding=ROUND_HALF_UP)

    def convert(value: Any) -> Decimal:
        number = _number(value, "is no number")
        try:
            return number.quantize(step, context=context)
        except InvalidOperation:
            return _refuse(f"is out of the range of {name}", value)

    return convert


def _time(*, local: bool) -> Convert:
    def convert(value: Any) -> int:
        if isinstance(value, Number):
            found: int = _milliseconds(value) * 1000
        else:
            parsed = calendar_text.micros(value, local=local) if isinstance(value, str) else None
            found = _refuse("is no time", value) if parsed is None else parsed
        return found if -_INT64 < found < _INT64 else _refuse("is out of the range of times", value)

    return convert


_milliseconds = _whole(pa.int64())


def _date(value: Any) -> int:
    found = calendar_text.days(value) if isinstance(value, str) and not isinstance(value, Number) else None
    return _refuse("is no date", value) if found is None else found


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    found = _BOOLEANS.get(value.lower()) if isinstance(value, str) else None
    return _refuse("is neither true nor false", value) if found is None else found


def _binary(value: Any) -> bytes:
    if isinstance(value, str) and not isinstance(value, Number):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            pass
    return _refuse("is no base64", value)


def _list(inner: Convert) -> Convert:
    def convert(value: Any) -> list[Any]:
        return [inner(each) for each in value] if isinstance(value, list) else _refuse("is no list", value)

    return convert


def _struct(fields: dict[str, Convert]) -> Convert:
    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            _refuse("is no object", value)
        found = {}
        for name, inner in fields.items():
            try:
                found[name] = inner(value.get(name))
            except BadValue as error:
                raise BadValue(str(error), f".{name}{error.path}") from error
        return found

    return convert


def _map(key: Convert, item: Convert) -> Convert:
    def convert(value: Any) -> list[tuple[Any, Any]]:
        if isinstance(value, dict):
            return [(key(name), item(of)) for name, of in value.items()]
        return _refuse("is no object", value)

    return convert


def _number(value: Any, otherwise: str) -> Decimal:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        try:
            return Decimal(value)
        except InvalidOperation:  # an exponent of more than 18 digits
            pass
    return _refuse(otherwise, value)


def json_text_of(value: Any) -> str:
    """Return text as it is, and any other value as JSON without blanks."""
    return str(value) if isinstance(value, str) else _written(value)


def _written(value: Any) -> str:
    """Return JSON without blanks; not by recursion: what records have inside each other is deeper than our stack."""
    parts: list[str] = []
    waiting: list[tuple[bool, Any]] = [(False, value)]
    while waiting:
        is_text, each = waiting.pop()
        if is_text or isinstance(each, Number):
            parts.append(str(each))
        elif isinstance(each, list):
            waiting.append((True, "]"))
            for place in range(len(each) - 1, -1, -1):
                waiting += [(False, each[place]), (True, "," if place else "[")]
            parts += ["["] if not each else []
        elif isinstance(each, dict):
            waiting.append((True, "}"))
            for place, (name, inner) in reversed(list(enumerate(each.items()))):
                written = f"{json.dumps(name, ensure_ascii=False)}:"
                waiting += [(False, inner), (True, ("," if place else "{") + written)]
            parts += ["{"] if not each else []
        else:
            parts.append(json.dumps(each, ensure_ascii=False))
    return "".join(parts)


def _refuse(why: str, value: Any) -> NoReturn:
    text = _written(value)
    raise BadValue(f"{why}: {text if len(text) <= _SHOWN else text[:_SHOWN] + ' …'}")


def _check_unicode(value: Any) -> None:
    waiting = [value]
    try:
        while waiting:
            each = waiting.pop()
            if isinstance(each, str):
                each.encode()
            elif isinstance(each, dict):
                waiting += [*each, *each.values()]
            elif isinstance(each, list | tuple):
                waiting += each
    except UnicodeEncodeError as error:
        raise ValueError("half a character of Unicode") from error


def _first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        _check_unicode(pairs)  # also of what does not count
        found.update(reversed(pairs))
    return found


_DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=_first)
