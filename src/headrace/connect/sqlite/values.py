"""Values of SQLite as columns: a column there may have a value of any type, a column here has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.connect.capture.errors import ValueDoesNotFit

if TYPE_CHECKING:
    from collections.abc import Sequence


def column(values: Sequence[Any], kind: pa.DataType, *, table: str, name: str) -> pa.Array:
    """Return values as a column.

    Raises:
        ValueDoesNotFit: one is none of its type.

    """
    try:
        return _converted(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueDoesNotFit(table, name, str(kind), str(error).splitlines()[0], hint=_hint(values)) from error


def _converted(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
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


def _hint(values: Sequence[Any]) -> str:
    """Return what helps: a column of bytes takes BLOBs and texts; the default, one of text, has no BLOBs."""
    kinds = {type(each) for each in values if each is not None}
    if bytes not in kinds:
        return ""
    if kinds <= {bytes, str}:
        return "Correct the row, or declare the column as binary, with a new topic."
    return "Correct the row: no type takes both BLOBs and numbers."


def _decoded(value: object) -> str:
    """Return a value as a text; a BLOB is one if it is UTF-8, as it is for Arrow."""
    try:
        return value.decode() if isinstance(value, bytes) else _text(value)
    except UnicodeDecodeError:
        raise TypeError("a BLOB is no text") from None


def _text(value: object) -> str:
    if isinstance(value, bytes):
        raise TypeError("a BLOB is no text")
    return str(value)
