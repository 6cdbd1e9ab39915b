"""Rows as Avro records, a column at a time: what has exactly a type of Avro. Importing this imports numba."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.connect.formats import cells
from headrace.connect.formats.avro_values import MICROS
from headrace.connect.formats.cells import Around, Cells, NotInColumns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.connect.formats.avro_schema import Parsed

_INT = 31


def write(rows: pa.RecordBatch, written: Parsed, head: bytes) -> pa.Array:
    """Return each row as a record, after `head`.

    Raises:
        NotInColumns: a type, or a value, is none that this writes.

    """
    parts = _record(written, written.schema, rows.schema.names, rows.columns)
    return cells.array(cells.joined(parts, rows.num_rows, head))


def _record(written: Parsed, record: Any, names: Sequence[str], columns: Sequence[pa.Array]) -> list[Cells]:
    found = dict(zip(names, columns, strict=True))
    if any(each["name"] not in found for each in record["fields"]):
        raise NotInColumns  # its default is written
    return [_cells(written, each["type"], found[each["name"]]) for each in record["fields"]]


def _cells(written: Parsed, kind: Any, column: pa.Array) -> Cells:
    kind = written.of(kind)
    there = cells.present(column)
    if not isinstance(kind, list):
        if not there.all():
            raise NotInColumns
        return _values(written, kind, column, Around(there))
    branches = [written.of(each) for each in kind]
    if len(branches) != 2 or branches.count({"type": "null"}) != 1:
        raise NotInColumns
    at = branches.index({"type": "null"})
    around = Around(there, bytes([2 * (1 - at)]), bytes([2 * at]))  # the numbers of branches
    return _values(written, branches[1 - at], column, around)


def _values(written: Parsed, kind: Any, column: pa.Array, around: Around) -> Cells:
    name, logical, arrow = kind["type"], kind.get("logicalType"), column.type
    if name == "record" and pa.types.is_struct(arrow):
        inside = _record(written, kind, [field.name for field in arrow], column.flatten())
        return cells.wrapped(cells.joined(inside, len(column)), around, length=cells.NO_LENGTH)
    if name == "boolean" and pa.types.is_boolean(arrow):
        return cells.numbers(cells.whole(column), around)
    if name in ("int", "long"):
        return cells.numbers(cells.zigzag(_whole(name, logical, column)), around)
    if name in ("float", "double") and pa.types.is_floating(arrow) and (name == "double" or arrow == pa.float32()):
        numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
        return cells.fixed(numbers.astype(np.float32 if name == "float" else np.float64), around)
    if (name == "string" and pa.types.is_string(arrow)) or (name == "bytes" and pa.types.is_binary(arrow)):
        return cells.texts(column, around, length=cells.ZIGZAG)
    if (
        name == "bytes"
        and logical == "decimal"
        and pa.types.is_decimal128(arrow)
        and arrow.scale == kind.get("scale", 0)
    ):
        return cells.decimals(column, around)
    raise NotInColumns


def _whole(name: str, logical: str | None, column: pa.Array) -> Any:
    """Return the numbers that are written, as whole ones of 64 bits."""
    arrow = column.type
    if logical and logical.rpartition("-")[0] in ("timestamp", "local-timestamp") and pa.types.is_timestamp(arrow):
        factor = MICROS.get(logical.rpartition("-")[2], 1)
        if not factor or arrow.unit != "us":
            raise NotInColumns  # nanoseconds may be too large
        return cells.whole(column) // factor
    if logical == "date" and pa.types.is_date32(arrow):
        return cells.whole(column)
    if logical is not None or not pa.types.is_signed_integer(arrow):
        raise NotInColumns
    found = cells.whole(column)
    if name == "int" and arrow == pa.int64() and len(found) and (found.max() >= 1 << _INT or found.min() < -1 << _INT):
        raise NotInColumns
    return found
