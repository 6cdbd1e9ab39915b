"""Cells as columns: PostgreSQL's texts become Arrow arrays.

Changes and snapshots both send texts, so that a value is the same whichever way it comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.schema import TIMESTAMP, TIMESTAMP_NTZ
from headrace.connect.capture.errors import ValueDoesNotFit
from headrace.connect.postgres.kernels import unhexed

if TYPE_CHECKING:
    import numpy.typing as npt

    Longs = npt.NDArray[np.int64]

_HEX = b"\\x"
_NUMBERS = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp without time zone": TIMESTAMP_NTZ,
    "timestamp with time zone": TIMESTAMP,
}
_DAYS, _DAY = (-719_162, 2_932_896, 10_957), 86_400_000_000
"""The first and the last day of four-digit years, and PostgreSQL's first one, in days since 1970."""
_MICROS = (_DAYS[0] * _DAY, (_DAYS[1] + 1) * _DAY - 1, _DAYS[2] * _DAY)
_UNITS = {pa.date32(): _DAYS, TIMESTAMP_NTZ: _MICROS, TIMESTAMP: _MICROS}
_NO_TYPE = (
    "Declare the column as string, or correct the row: infinite dates, years before 0, numeric NaN and arrays of "
    "several dimensions have no type here."
)


def printed(column: pa.ChunkedArray) -> list[str]:
    """Return values, which are not null, as texts that PostgreSQL reads as the same values."""
    if pa.types.is_binary(column.type):
        return [f"\\x{value.hex()}" for value in column.to_pylist()]
    as_texts: list[str] = column.cast(pa.string()).to_pylist()
    return as_texts


def number_type(declared: str) -> pa.DataType | None:
    """Return the type here of a column whose values can be sent in binary; None for others."""
    return _NUMBERS.get(declared)


def as_number(numbers: Longs, valid: npt.NDArray[np.bool_], kind: pa.DataType, *, table: str, name: str) -> pa.Array:
    """Return values that the server sent in binary, read as whole numbers of their size, as values of a type.

    Raises:
        ValueDoesNotFit: a date or time has no text with four digits of the year, so the stream could not send it.

    """
    mask = None if valid.all() else ~valid
    if pa.types.is_boolean(kind):
        return pa.array(numbers != 0, mask=mask)
    if pa.types.is_float32(kind):
        return pa.array(numbers.astype(np.int32).view(np.float32), mask=mask)
    if pa.types.is_float64(kind):
        return pa.array(numbers.view(np.float64), mask=mask)
    if kind in _UNITS:
        first, last, epoch = _UNITS[kind]
        with np.errstate(over="ignore"):
            numbers = numbers + epoch
        wrong = valid & ((numbers < first) | (numbers > last))
        if wrong.any():
            raise ValueDoesNotFit(
                table, name, str(kind), "it is infinite, or not of the years 1 to 9999", hint=_NO_TYPE
            )
        whole = pa.int32() if kind == pa.date32() else pa.int64()
        return pa.array(numbers, mask=mask).cast(whole).view(kind)
    return pa.array(numbers, mask=mask).cast(kind)


def as_type(column: pa.Array, kind: pa.DataType, *, table: str, name: str) -> pa.Array:
    """Return texts of PostgreSQL as values of a type.

    Raises:
        ValueDoesNotFit: one is none.

    """
    try:
        return _converted(column, kind)
    except (pa.ArrowInvalid, ValueError) as error:
        raise ValueDoesNotFit(table, name, str(kind), str(error).splitlines()[0], hint=_NO_TYPE) from error


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if pa.types.is_string(kind):
        return column.cast(kind)
    if pa.types.is_boolean(kind):
        return _booleans(column)
    if pa.types.is_binary(kind):
        return _bytes(column)
    if pa.types.is_list(kind):
        return _arrays(column, kind)
    if pa.types.is_decimal(kind) and column.null_count != len(column):
        return column.cast(kind)
    return column.cast(kind)


def _booleans(column: pa.Array) -> pa.Array:
    true, false = (pc.is_in(column, pa.array(words, column.type)) for words in (["t", "true"], ["f", "false"]))
    known = pc.or_(true, false)
    _check(column, known, "it is neither true nor false")
    return pc.if_else(known, true, pa.scalar(None, pa.bool_()))


def _check(column: pa.Array, known: pa.Array, why: str) -> None:
    """Refuse texts of another type, which the column got meanwhile (ALTER COLUMN … TYPE)."""
    if pc.any(pc.and_(column.is_valid(), pc.invert(known))).as_py():
        raise ValueError(why)


def _bytes(column: pa.Array) -> pa.Array:
    _check(column, pc.starts_with(column, "\\x"), "it is not hexadecimal")
    column = column.cast(pa.large_string())
    _, offset_buffer, content = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[column.offset : column.offset + len(column) + 1]
    raw = np.frombuffer(content, np.uint8) if content is not None and content.size else np.empty(0, np.uint8)
    sizes = np.maximum(np.diff(offsets) - len(_HEX), 0) // 2
    ends = np.zeros(len(column) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    out = np.empty(int(ends[-1]), np.uint8)
    wrong = unhexed(raw, offsets, ends, out)
    if wrong >= 0:
        raise ValueError("it is not hexadecimal")
    valid = pa.array(column.is_valid()).buffers()[1] if column.null_count else None
    found = pa.Array.from_buffers(pa.large_binary(), len(column), [valid, pa.py_buffer(ends), pa.py_buffer(out)])
    return found.cast(pa.binary())


def _arrays(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return arrays: those whose elements are not quoted in columns, others one by one."""
    _check(column, pc.match_substring_regex(column, r"^[{\[](?s:.*)\}$"), "it is no array")
    hard = pc.any(pc.match_substring_regex(column, r'["\\]|^\[|\{.*\{')).as_py()
    if hard:
        elements = [None if text is None else _elements(text) for text in column.to_pylist()]
        lists = pa.array(elements, pa.list_(pa.string()))
    else:
        inner = pc.utf8_slice_codeunits(column, 1, -1)
        split = pc.split_pattern(inner, ",")
        nothing = pc.equal(inner, "")
        empty = pa.array([[]], pa.list_(column.type))[0]
        split = pc.if_else(pc.fill_null(nothing, False), empty, split)  # noqa: FBT003 - the value to fill in
        lists = split.cast(pa.list_(pa.string()))
        flat = pc.if_else(pc.equal(lists.flatten(), "NULL"), pa.scalar(None, pa.string()), lists.flatten())
        sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        return _list_array(sizes, _converted(flat, kind.value_type), lists, kind)
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return _list_array(sizes, _converted(lists.flatten(), kind.value_type), lists, kind)


def _list_array(sizes: Any, values: pa.Array, lists: pa.Array, kind: pa.DataType) -> pa.Array:
    ends = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    result = pa.ListArray.from_arrays(pa.array(ends), values, mask=pc.is_null(lists) if lists.null_count else None)
    return result.cast(kind)


def _elements(text: str) -> list[str | None]:
    """Return the elements of one array that PostgreSQL has printed.

    Raises:
        ValueError: it has several dimensions, or bounds of its own.

    """
    if not text.startswith("{") or not text.endswith("}"):
        raise ValueError("an array with bounds of its own")
    found: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        if text[at] == "{":
            raise ValueError("an array of several dimensions")
        quoted = text[at] == '"'
        at += quoted
        word = []
        while at < end and text[at] != ('"' if quoted else ","):
            at += text[at] == "\\"
            word.append(text[at])
            at += 1
        at += 1 + quoted  # behind the quotation mark and the comma
        one = "".join(word)
        found.append(None if one == "NULL" and not quoted else one)
    return found
