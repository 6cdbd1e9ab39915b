"""The format `json`: one object a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.connect.compiled import worth_compiling
from headrace.connect.format import Format, Formatted
from headrace.connect.formats.json_exact import exact
from headrace.connect.formats.json_text import encode

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class JsonFormat(Format):
    """One JSON object a record.

    Fields are matched by name, exactly; a missing field is null, as is JSON's null; of fields of one name the first
    counts. A field of another type than declared is converted where that loses nothing (`"7"` to int, 7 to string),
    and makes the record bad where it cannot be. Timestamps are ISO text, UTC where it has no zone, or numbers:
    milliseconds since 1970. Binary is base64, a map is an object. Numbers are exact, also beyond 2^53 and of decimals,
    whose digits after the scale are rounded half up. NaN and Infinity are accepted as Python writes them, and as text.
    """

    @property
    def name(self) -> str:
        """`"json"`."""
        return "json"

    def decode(self, values: pa.Array, schema: pa.Schema) -> Formatted:
        """Decode records, in columns where numba is installed (the extra `kafka`), else one by one."""
        if worth_compiling(len(values)):
            from headrace.connect.formats.json_columns import Scanned

            return Scanned(values, schema).formatted()
        return exact(values, schema)

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return rows as JSON objects, nulls included."""
        return encode(rows)
