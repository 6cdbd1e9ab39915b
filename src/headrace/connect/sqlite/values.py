"""Values of SQLite as columns: a column there may have a value of any type, a column here has one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.connect.capture.errors import ValueDoesNotFit

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

_NOT_UTF8 = "a text is not UTF-8"


class NotUtf8(bytes):
    """The bytes of a text that is not UTF-8, which SQLite stores as it does any. Only a column of bytes takes them."""


@contextmanager
def texts_of_any_bytes(db: sqlite3.Connection) -> Iterator[None]:
    """Read texts that are not UTF-8 as `NotUtf8`. Slower by a third than without, where these are an error."""
    db.text_factory = _utf8
    try:
        yield
    finally:
        db.text_factory = str


def column(values: Sequence[Any], kind: pa.DataType, *, table: str, name: str, key: bool = False) -> pa.Array:
    """Return values as a column; in one of a key (`key`) all texts are UTF-8.

    Raises:
        ValueDoesNotFit: one is none of its type.

    """
    try:
        return _converted(values, kind, key=key)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        why, hint = str(error).splitlines()[0], _hint(values, key=key)
        raise ValueDoesNotFit(table, name, str(kind), why, hint=hint) from error


def _converted(values: Sequence[Any], kind: pa.DataType, *, key: bool) -> pa.Array:
    if key and pa.types.is_binary(kind) and NotUtf8 in map(type, values):
        raise TypeError(_NOT_UTF8)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, TypeError):
            return pa.array([None if each is None else _decoded(each) for each in values], kind)
    if pa.types.is_boolean(kind):
        return pa.array(values, pa.int64()).cast(pa.int8()).cast(kind)
    if pa.types.is_decimal(kind) or pa.types.is_temporal(kind):
        return pa.array([None if each is None else _text(each) for each in values], pa.string()).cast(kind)
    return pa.array(values, kind)


def _utf8(value: bytes) -> str | NotUtf8:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return NotUtf8(value)


def _hint(values: Sequence[Any], *, key: bool) -> str:
    """Return what helps: a column of bytes takes BLOBs and texts; the default, one of text, has no BLOBs."""
    kinds = {type(each) for each in values if each is not None}
    if not kinds & {bytes, NotUtf8}:
        return ""
    if key and NotUtf8 in kinds:
        return "Correct the row: texts of a key must be UTF-8."
    if kinds <= {bytes, NotUtf8, str}:
        return "Correct the row, or declare the column as binary, with a new topic."
    return "Correct the row: no type takes both bytes and numbers."


def _decoded(value: object) -> str:
    """Return a value as a text; a BLOB is one if it is UTF-8, as it is for Arrow."""
    if isinstance(value, NotUtf8):
        raise TypeError(_NOT_UTF8)
    try:
        return value.decode() if isinstance(value, bytes) else _text(value)
    except UnicodeDecodeError:
        raise TypeError("a BLOB is no text") from None


def _text(value: object) -> str:
    if isinstance(value, bytes):
        raise TypeError("a BLOB is no text")
    return str(value)
