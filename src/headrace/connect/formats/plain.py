"""The formats `text` and `binary`: a record is the value of one column."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.base.errors import InvalidPlan
from headrace.base.schema import type_name
from headrace.connect.format import Format, Formatted
from headrace.connect.formats import texts
from headrace.connect.formats.json_format import JsonFormat
from headrace.connect.formats.json_text import text_of
from headrace.connect.formats.verdicts import Verdicts

NO_RECORD = "it has no value"


@dataclass(frozen=True, slots=True)
class TextFormat(Format):
    """The text of one column in UTF-8; of several columns, as a key may have, a JSON object in their order.

    Text is what JSON has between quotes: numbers in decimal, times as ISO 8601; of a binary column it is its bytes.
    It is the default of keys.
    """

    @property
    def name(self) -> str:
        """`"text"`."""
        return "text"

    def stored_type(self, schema: pa.Schema) -> pa.DataType:
        """Text, but of one binary column its bytes."""
        is_binary = len(schema) == 1 and pa.types.is_binary(schema.field(0).type)
        return pa.binary() if is_binary else pa.string()

    def decode(self, values: pa.Array, schema: pa.Schema) -> Formatted:
        """Return records as rows."""
        if len(schema) > 1:
            return JsonFormat().decode(values, schema)
        verdicts = Verdicts(len(values))
        verdicts.refuse(texts.absent(values), NO_RECORD)
        field = schema.field(0)
        if pa.types.is_binary(field.type):
            return verdicts.formatted([values.cast(pa.binary())], schema.names)
        texts.refuse_nested(schema, self.name)
        text = texts.text_or_null(values)
        verdicts.refuse(texts.absent(text), texts.NO_TEXT)
        if pa.types.is_string(field.type):
            return verdicts.formatted([text], schema.names)
        read = texts.read([text], schema)
        verdicts.add(read)
        return verdicts.formatted(texts.spread(read), schema.names)

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return rows as records, null where the one column is null."""
        if rows.num_columns > 1:
            return JsonFormat().encode(rows)
        column = rows.column(0)
        texts.refuse_nested(rows.schema, self.name)
        return column if pa.types.is_binary(column.type) else text_of(column)


@dataclass(frozen=True, slots=True)
class BinaryFormat(Format):
    """The bytes of one column, which is `binary`, or `string` of UTF-8."""

    @property
    def name(self) -> str:
        """`"binary"`."""
        return "binary"

    def stored_type(self, schema: pa.Schema) -> pa.DataType:
        """Bytes."""
        del schema
        return pa.binary()

    def decode(self, values: pa.Array, schema: pa.Schema) -> Formatted:
        """Return records as rows; a string that is not UTF-8 is bad."""
        self._check(schema)
        return TextFormat().decode(values, schema)

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the column's values as records, null where they are null."""
        self._check(rows.schema)
        return rows.column(0).cast(pa.binary())

    def _check(self, schema: pa.Schema) -> None:
        kinds = [field.type for field in schema]
        if len(kinds) != 1 or not (pa.types.is_binary(kinds[0]) or pa.types.is_string(kinds[0])):
            shown = ", ".join(f"{field.name} {type_name(field.type)}" for field in schema)
            raise InvalidPlan(
                f"the format binary is of one column that is binary or string, and not of {shown}",
                hint='Use format="json", or "text" for a column of another type.',
            )
