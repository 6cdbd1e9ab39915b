"""Rows as messages of Protobuf, a column at a time: flat and nested fields, no lists. Importing this imports numba.

The bytes are those of the library: fields in the order of their numbers, without what is not set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import FieldDescriptor as Kind

from headrace.connect.formats import cells
from headrace.connect.formats.cells import Around, Cells, NotInColumns
from headrace.connect.formats.protobuf_values import TIME, WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Sequence

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_ZIGZAG = (Kind.TYPE_SINT32, Kind.TYPE_SINT64)
_SIZED = {
    Kind.TYPE_FIXED32: np.uint32,
    Kind.TYPE_SFIXED32: np.int32,
    Kind.TYPE_FIXED64: np.uint64,
    Kind.TYPE_SFIXED64: np.int64,
}
_RANGES = {Kind.CPPTYPE_INT32: (-(1 << 31), 1 << 31), Kind.CPPTYPE_UINT32: (0, 1 << 32)}
_RANGES |= {Kind.CPPTYPE_INT64: (-(1 << 63), 1 << 63), Kind.CPPTYPE_UINT64: (0, 1 << 64)}
_SECOND = 1_000_000


def write(rows: pa.RecordBatch, kind: Any, head: bytes) -> pa.Array:
    """Return each row as a message, after `head`.

    Raises:
        NotInColumns: a field, or a value, is none that this writes.

    """
    parts = _message(kind.DESCRIPTOR, rows.schema.names, rows.columns)
    return cells.array(cells.joined(parts, rows.num_rows, head))


def _message(described: Any, names: Sequence[str], columns: Sequence[pa.Array]) -> list[Cells]:
    fields = described.fields_by_name
    if any(each.is_required for each in described.fields):
        raise NotInColumns
    if any(name not in fields for name in names):
        raise NotInColumns
    chosen = sorted(zip(names, columns, strict=True), key=lambda pair: fields[pair[0]].number)
    return [_field(fields[name], column) for name, column in chosen]


def _field(field: Any, column: pa.Array) -> Cells:
    in_choice = field.containing_oneof is not None and len(field.containing_oneof.fields) > 1
    if field.is_repeated or in_choice or field.type == Kind.TYPE_GROUP:
        raise NotInColumns
    there = cells.present(column)
    if field.message_type is not None:
        inside = cells.joined(_inside(field.message_type, column), len(column))
        return cells.wrapped(inside, Around(there, _tag(field, _LENGTH)), length=cells.PLAIN)
    return _scalar(field, column, there)


def _inside(described: Any, column: pa.Array) -> list[Cells]:
    """Return the fields of a message in a column."""
    if described.full_name == TIME and pa.types.is_timestamp(column.type) and column.type.unit == "us":
        micros = cells.whole(column)
        parts = {"seconds": micros // _SECOND, "nanos": micros % _SECOND * 1_000}
        fields = described.fields_by_name
        return [_scalar(fields[name], pa.array(each), np.ones(len(each), np.bool_)) for name, each in parts.items()]
    if described.full_name in WRAPPERS:
        return [_scalar(described.fields_by_name["value"], column, cells.present(column))]
    if not pa.types.is_struct(column.type):
        raise NotInColumns
    return _message(described, [each.name for each in column.type], column.flatten())


def _scalar(field: Any, column: pa.Array, there: Any) -> Cells:
    arrow, kind = column.type, field.type
    if kind in (Kind.TYPE_STRING, Kind.TYPE_BYTES):
        fits = pa.types.is_string(arrow) if kind == Kind.TYPE_STRING else pa.types.is_binary(arrow)
        if not fits:
            raise NotInColumns
        if not field.has_presence:
            there = there & (np.asarray(pc.binary_length(column).fill_null(0)) > 0)
        return cells.texts(column, Around(there, _tag(field, _LENGTH)), length=cells.PLAIN)
    if kind in (Kind.TYPE_FLOAT, Kind.TYPE_DOUBLE):
        single = kind == Kind.TYPE_FLOAT
        if not (pa.types.is_float32(arrow) or (pa.types.is_float64(arrow) and not single)):
            raise NotInColumns
        values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float32 if single else np.float64)
        bits = values.view(np.uint32 if single else np.uint64)
        return cells.fixed(values, Around(_set(field, bits, there), _tag(field, _FIXED32 if single else _FIXED64)))
    numbers = _whole(field, column)
    there = _set(field, numbers, there)
    if kind in _SIZED:
        sized = numbers.astype(_SIZED[kind])
        return cells.fixed(sized, Around(there, _tag(field, _FIXED32 if sized.itemsize == 4 else _FIXED64)))
    numbers = cells.zigzag(numbers) if kind in _ZIGZAG else numbers
    return cells.numbers(numbers, Around(there, _tag(field, _VARINT)))


def _whole(field: Any, column: pa.Array) -> Any:
    """Return the numbers of a field, as whole ones of 64 bits."""
    if field.type == Kind.TYPE_BOOL and pa.types.is_boolean(column.type):
        return cells.whole(column)
    if field.type == Kind.TYPE_ENUM and pa.types.is_string(column.type):
        return _enumerated(field.enum_type.values_by_name, column)
    bounds = _RANGES.get(field.cpp_type)
    if bounds is None or not pa.types.is_signed_integer(column.type):
        raise NotInColumns
    numbers = cells.whole(column)
    if len(numbers) and not (bounds[0] <= int(numbers.min()) and int(numbers.max()) < bounds[1]):
        raise NotInColumns
    return numbers


def _enumerated(known: Any, names: pa.Array) -> Any:
    encoded = names.dictionary_encode()
    if any(name not in known for name in encoded.dictionary.to_pylist()):
        raise NotInColumns
    numbers = np.array([known[name].number for name in encoded.dictionary.to_pylist()] or [0], np.int64)
    return numbers[encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)]


def _set(field: Any, bits: Any, there: Any) -> Any:
    """Return which rows set a field: without presence, a default is no value."""
    return there if field.has_presence else there & (bits != 0)


def _tag(field: Any, wire: int) -> bytes:
    left, found = field.number << 3 | wire, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)
