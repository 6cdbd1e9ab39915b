"""JSON lines as a table at once, by Arrow, where that gives what reading them one by one gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_LINES = 64
"""Fewer lines are read one by one as fast."""


class JsonTables:
    """Reads blocks of lines into the columns of a topic."""

    def __init__(self, schema: pa.Schema, event_time: str | None) -> None:
        self._event_time = event_time
        self._options: pa.json.ParseOptions | None = None
        if len(schema) and all(_is_plain(field.type) for field in schema):
            self._options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")

    def table(self, lines: Sequence[bytes]) -> pa.Table | None:
        """Return the rows of lines, in order.

        None where a line is bad or may be read otherwise than by itself: it is empty, has fields that the topic has
        not, no values or no event time, is no text, or its numbers and times need the rules of the log.
        """
        if self._options is None or len(lines) < LEAST_LINES or not all(line.startswith(b"{") for line in lines):
            return None
        block = b"".join(lines)
        reading = pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        try:
            block.decode()
            table = pa.json.read_json(pa.BufferReader(block), parse_options=self._options, read_options=reading)
        except (UnicodeDecodeError, pa.ArrowException):
            return None
        if table.num_rows != len(lines) or _has_row_without_values(table):
            return None
        if self._event_time is not None and table.column(self._event_time).null_count:
            return None
        return table


def _is_plain(kind: pa.DataType) -> bool:
    """Whether Arrow reads values of a type from JSON as the log does, or refuses them."""
    return (
        pa.types.is_signed_integer(kind)
        or kind in (pa.float64(), pa.bool_(), pa.string())
        or (pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz == "UTC")
    )


def _has_row_without_values(table: pa.Table) -> bool:
    columns = sorted(table.columns, key=lambda column: column.null_count)
    if columns[0].null_count == 0:
        return False
    empty = np.ones(table.num_rows, np.bool_)
    for column in columns:
        empty &= np.asarray(pc.is_null(column))
    return bool(empty.any())
