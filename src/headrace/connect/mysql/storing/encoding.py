"""Rows as the values of INSERT statements, made by DuckDB from whole columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pymysql

from headrace.base.names import quote
from headrace.connect.mysql.storing.types import literal

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOO_LONG = 1406
"""The server's number of the error that a value is too long."""


class Values(NamedTuple):
    """Texts `,(…)` of rows, one behind the other, and where each begins."""

    content: memoryview
    starts: np.ndarray

    def parts(self, most: int, longest: int) -> Iterator[memoryview]:
        """Return `(…),(…)` in parts of about `most` bytes.

        Raises:
            pymysql.DataError: a row is longer than `longest`, which the server takes.

        """
        at, count = 0, len(self.starts) - 1
        while at < count:
            end = int(np.searchsorted(self.starts, self.starts[at] + most, side="right")) - 1
            end = max(at + 1, min(end, count))
            part = self.content[int(self.starts[at]) + 1 : int(self.starts[end])]
            if len(part) > longest:
                raise pymysql.DataError(_TOO_LONG, f"it is longer than max_allowed_packet ({len(part)} bytes)")
            yield part
            at = end


class Encoder:
    """Encodes rows with some columns.

    Args:
        columns: their types, in the order of the encoded values.

    """

    def __init__(self, columns: pa.Schema) -> None:
        self.columns = columns
        self.sql = duckdb.connect(config={"threads": 1})
        self.sql.execute("SET TimeZone = 'UTC'")

    def encode(self, rows: pa.RecordBatch, first: int | None, *, more: tuple[str, ...] = ()) -> Values:
        """Return the values of rows: their columns, integers or booleans `more`, and their numbers from `first` on."""
        table = pa.table(rows)
        chosen = table.select([*self.columns.names, *more])
        terms = [literal(field) for field in self.columns]
        terms += [f"CAST(CAST({quote(name)} AS TINYINT) AS VARCHAR)" for name in more]
        if first is not None:
            numbers = pa.array(np.arange(first, first + rows.num_rows))
            chosen = chosen.append_column("_headrace_row", numbers)
            terms.append("CAST(_headrace_row AS VARCHAR)")
        chosen = pa.table([_without_zone(each) for each in chosen.columns], names=chosen.column_names)
        self.sql.register("rows", chosen)
        joined = " || ',' || ".join(terms)
        query = f"SELECT ',(' || {joined} || ')' AS text FROM rows"
        found = self.sql.sql(query).to_arrow_table().column("text").cast(pa.large_string())
        texts = pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], pa.large_string())
        _, starts, content = texts.buffers()
        numbers = np.frombuffer(starts, np.int64, len(texts) + 1, offset=8 * texts.offset)
        return Values(memoryview(content) if content is not None else memoryview(b""), numbers)


def _without_zone(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return instants as their dates and times in UTC."""
    return column.cast(pa.timestamp(column.type.unit)) if pa.types.is_timestamp(column.type) else column
