"""Keys as text, the default: one column as its text, several as a JSON object in the key's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.formats import format_named

if TYPE_CHECKING:
    from headrace.connect.format import Format


def key_values(rows: pa.RecordBatch, key_format: Format | None) -> pa.Array:
    """Return the key of each row as binary.

    Args:
        rows: the key's columns.
        key_format: how they are written; None: one column as its text (numbers in decimal, times as ISO text), several
            as a JSON object.

    """
    if key_format is not None:
        return key_format.encode(rows).cast(pa.binary())
    if len(rows.columns) > 1:
        return format_named("json").encode(rows).cast(pa.binary())
    return _text(rows.column(0)).cast(pa.binary())


def _text(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return column
    text = column.cast(pa.string())
    return pc.replace_substring(text, " ", "T") if pa.types.is_timestamp(column.type) else text
