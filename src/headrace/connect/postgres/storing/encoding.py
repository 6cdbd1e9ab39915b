"""Rows as the CSV that COPY reads: by Arrow's writer, after DuckDB has made texts of nested and binary values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from headrace.base.names import quote
from headrace.connect.postgres.storing.types import as_text, needs_text

if TYPE_CHECKING:
    from collections.abc import Sequence

_OPTIONS = csv.WriteOptions(include_header=False, quoting_style="needed")
"""Texts are quoted and nulls are not, so an empty text and a null differ."""


class Encoder:
    """Encodes rows with some columns.

    Args:
        columns: their types, in the order of the encoded rows.

    """

    def __init__(self, columns: pa.Schema) -> None:
        self.columns = columns
        self.query = ""
        if any(needs_text(field.type) for field in columns):
            self.sql = duckdb.connect(config={"threads": 1})
            self.sql.execute("SET TimeZone = 'UTC'")
            terms = ", ".join(_term(field) for field in columns)
            self.query = f"SELECT {terms} FROM rows"

    def encode(self, rows: pa.RecordBatch | pa.Table, *, more: Sequence[str] = ()) -> memoryview:
        """Return rows as CSV without a header; `more` are columns behind the others, of plain types."""
        table = pa.table(rows)
        chosen = table.select(self.columns.names)
        if self.query:
            self.sql.register("rows", chosen)
            chosen = self.sql.sql(self.query).to_arrow_table()
        for at, field in enumerate(chosen.schema):
            if pa.types.is_timestamp(field.type) and field.type.tz == "UTC":
                chosen = chosen.set_column(at, field.name, _utc_text(chosen.column(at)))
        for name in more:
            chosen = chosen.append_column(name, table.column(name))
        out = pa.BufferOutputStream()
        csv.write_csv(chosen, out, _OPTIONS)
        return memoryview(out.getvalue())


def _utc_text(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return instants as text; Arrow's own way asks for the offset of UTC at each, and takes twenty times as long."""
    local = pa.timestamp(times.type.unit)
    texts = [pc.binary_join_element_wise(chunk.view(local).cast(pa.string()), "Z", "") for chunk in times.chunks]
    return pa.chunked_array(texts, pa.string())


def _term(field: pa.Field) -> str:
    name = quote(field.name)
    return f"{as_text(field.type, name)} AS {name}" if needs_text(field.type) else name
