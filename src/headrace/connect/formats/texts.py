"""Texts as values of columns: the rules are those of JSON's strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import InvalidPlan
from headrace.base.schema import type_name
from headrace.connect.formats.json_format import JsonFormat
from headrace.connect.formats.json_text import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.connect.format import Formatted

NO_TEXT = "it is no text: its bytes are not UTF-8"


def text_or_null(values: pa.Array) -> pa.Array:
    """Return binary values as text, null where they are not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(each) for each in values.cast(pa.binary()).to_pylist()], pa.string())


def read(texts: Sequence[pa.Array], schema: pa.Schema) -> Formatted:
    """Return texts as the columns of a schema, null where they are null; bad are those that its types do not have."""
    return JsonFormat().decode(encode(pa.RecordBatch.from_arrays(list(texts), names=schema.names)), schema)


def spread(read: Formatted) -> list[pa.Array]:
    """Return the columns with a row for each record, null where it is bad."""
    if read.rows.num_rows == len(read.good):
        return list(read.rows.columns)
    good = np.asarray(read.good)
    places = pa.array(np.cumsum(good) - 1, mask=~good)
    return [column.take(places) for column in read.rows.columns]


def refuse_nested(schema: pa.Schema, name: str) -> None:
    """Refuse columns that a format of flat text does not have.

    Raises:
        InvalidPlan: a column is a list, a map or a struct.

    """
    for field in schema:
        if pa.types.is_nested(field.type):
            raise InvalidPlan(
                f'the format {name} has no values of type {type_name(field.type)}, as of the column "{field.name}"',
                hint='Use format="json".',
            )


def absent(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return for each value whether it is null."""
    return np.asarray(pc.is_null(values))


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
