"""Values as text: in a table for people, in JSON, in CSV, and read back from them."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.base.text import counted
from headrace.base.time import MICROS, show_duration
from headrace.connect.formats.calendar_text import date_text, time_text

if TYPE_CHECKING:
    from collections.abc import Callable

_TRUE, _FALSE = {"true", "t", "1", "yes"}, {"false", "f", "0", "no"}


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as values of Python; a time of a year that Python does not have is ISO text."""
    try:
        return table.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]
    except (OverflowError, ValueError):
        columns = [[_python(value) for value in column] for column in table.columns]
        return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _python(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    if isinstance(value, pa.MapScalar):
        return {_python(each["key"]): _python(each["value"]) for each in value.values}
    if isinstance(value, pa.ListScalar | pa.LargeListScalar):
        return [_python(each) for each in value.values]
    if isinstance(value, pa.StructScalar):
        return {name: _python(value[name]) for name in value}
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        is_date = isinstance(value, pa.Date32Scalar)
        return date_text(value.value) if is_date else time_text(value.value, "Z" if value.type.tz else "")


def plain(value: Any) -> Any:
    """Return a value as JSON, without loss: `from_json` reads it back."""
    if isinstance(value, str | int | bool) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime):
        return _iso(value)
    if isinstance(value, date | Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    return str(value)


def _iso(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()


def as_text(value: Any) -> str:
    """Return a value as the text of a CSV cell; null is the empty text."""
    if value is None:
        return ""
    json_value = plain(value)
    return json_value if isinstance(json_value, str) else json.dumps(json_value, ensure_ascii=False)


def shown(value: Any) -> str:
    """Return a value as text for people."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo else value
        text = moment.isoformat(sep=" ", timespec="microseconds" if moment.microsecond else "seconds")
        return text.replace("+00:00", "")
    if isinstance(value, float):
        return f"{value:.6g}"
    return "".join(c if c.isprintable() else "\\x%02x" % ord(c) for c in as_text(value))  # noqa: UP031 -- as in C


def sized(size: int) -> str:
    """Return a number of bytes as text for people: `1.2 MB`."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:  # noqa: PLR2004 -- decimal units
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"


def as_duration(micros: int) -> str:
    """Return a duration in microseconds as text, in one unit where one fits: `30 days`, not weeks and days."""
    for unit, name in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        count, rest = divmod(micros, unit * MICROS)
        if count and not rest:
            return counted(count, name)
    return show_duration(micros)


def as_bytes(text: str) -> int:
    """Return a number of bytes from text: `1000000`, `10 MB`, `1.5GB`.

    Raises:
        ValueError: the text is not a size.

    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]?)B?\s*", text)
    if found is None:
        raise ValueError(f"{text!r} is not a number of bytes; write it like 500MB or 10GB")
    scale: int = 1000 ** " kMGT".index(found[2].replace("K", "k") or " ")
    return round(float(found[1]) * scale)


def from_json(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return a function from a JSON value to one that a column of this type takes; None if none is needed."""
    if pa.types.is_binary(kind):
        return lambda value: _bytes(value) if isinstance(value, str) else value
    if pa.types.is_floating(kind):
        return lambda value: float(value) if value in ("nan", "inf", "-inf", "NaN", "Infinity", "-Infinity") else value
    if pa.types.is_map(kind):
        return _from_object(None if pa.types.is_string(kind.key_type) else from_text(kind.key_type), kind.item_type)
    if pa.types.is_struct(kind):
        return _from_fields({field.name: from_json(field.type) for field in kind})
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        of_item = from_json(kind.value_type)
        return of_item and (lambda value: [of_item(item) for item in value] if isinstance(value, list) else value)
    return None


def _from_object(of_key: Callable[[str], Any] | None, item: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the function for a map: JSON has texts as keys."""
    of_item = from_json(item)
    if of_key is None and of_item is None:
        return None
    key, part = of_key or _same, of_item or _same
    return lambda value: {key(k): part(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def _from_fields(fields: Mapping[str, Callable[[Any], Any] | None]) -> Callable[[Any], Any] | None:
    """Return the function for a struct."""
    of = {name: change for name, change in fields.items() if change is not None}
    if not of:
        return None
    return lambda value: {k: of.get(k, _same)(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def _same(value: Any) -> Any:
    return value


def from_text(kind: pa.DataType) -> Callable[[str], Any]:
    """Return a function from the text of a CSV cell to a value of this type; the empty text is null.

    The function raises ValueError for a text that is not such a value.
    """
    read = _reader(kind)
    return lambda text: None if text == "" else read(text)


def _reader(kind: pa.DataType) -> Callable[[str], Any]:
    if pa.types.is_integer(kind):
        return _integer
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_binary(kind):
        return _bytes
    if pa.types.is_nested(kind):
        inside = from_json(kind) or _same
        return lambda text: inside(_json(text))
    return lambda text: text  # texts, and types that the log converts itself: times, dates, decimals


def _integer(text: str) -> int:
    with suppress(ValueError):
        return int(_plain(text))
    raise ValueError(f"{text[:40]!r} is no whole number")


def _plain(text: str) -> str:
    """Return the text, unless it has a `_`: Python's own numbers may have some, no file means a number by it."""
    if "_" in text:
        raise ValueError(f"{text[:40]!r} is no number")
    return text


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{text[:40]!r} is not JSON: {error}") from error


def _float(text: str) -> float:
    try:
        value = float(_plain(text))
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no number") from None
    if math.isinf(value) and "inf" not in text.lower():
        raise ValueError(f"the number {text[:40]} is too large for a double")
    return value


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise ValueError(f"{text!r} is neither true nor false")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text[:40]!r} is not base64: {error}") from error
