"""The format `csv`: the columns in the order of the schema, without a header."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import InvalidPlan
from headrace.connect.format import Format, Formatted
from headrace.connect.formats import texts
from headrace.connect.formats.json_text import text_of
from headrace.connect.formats.plain import NO_RECORD
from headrace.connect.formats.verdicts import Verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOTHING = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFormat(Format):
    """Separated values, one record a row; `csv` creates it.

    Columns are found by their place. A record with fewer values has nulls at its end: columns may be added there. One
    with more is bad: a column would be read as another. Values are read as JSON's strings are; binary is base64.
    """

    delimiter: str = ","
    quote: str = '"'
    null: str = ""

    @property
    def name(self) -> str:
        """`"csv"`."""
        return "csv"

    @property
    def identity(self) -> str:
        """The name and the options."""
        return f"csv(delimiter={self.delimiter!r}, quote={self.quote!r}, null={self.null!r})"

    def decode(self, values: pa.Array, schema: pa.Schema) -> Formatted:
        """Return records as rows."""
        texts.refuse_nested(schema, self.name)
        verdicts = Verdicts(len(values))
        verdicts.refuse(texts.absent(values), NO_RECORD)
        records = texts.text_or_null(values)
        verdicts.refuse(texts.absent(records), texts.NO_TEXT)
        columns = self._split(pc.fill_null(records, ""), len(schema), verdicts)
        read = texts.read(columns, schema)
        verdicts.add(read)
        return verdicts.formatted(texts.spread(read), schema.names)

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return rows as records."""
        texts.refuse_nested(rows.schema, self.name)
        return pc.binary_join_element_wise(*map(self._written, rows.columns), pa.scalar(self.delimiter))

    def _written(self, column: pa.Array) -> pa.Array:
        text = text_of(column)
        odd = pc.equal(text, self.null)
        for mark in (self.delimiter, self.quote, "\n", "\r"):
            odd = pc.or_(odd, pc.match_substring(text, mark))
        mark = pa.scalar(self.quote)
        doubled = pc.replace_substring(text, self.quote, self.quote * 2)
        quoted = pc.binary_join_element_wise(mark, doubled, mark, _NOTHING)
        return pc.fill_null(pc.if_else(odd, quoted, text), self.null)

    def _split(self, records: pa.Array, count: int, verdicts: Verdicts) -> list[pa.Array]:
        """Return the texts of so many columns."""
        quoted = np.asarray(pc.match_substring(records, self.quote))
        lists = pc.split_pattern(records, self.delimiter)
        lengths = np.where(quoted, 0, np.asarray(pc.list_value_length(lists)))
        starts, flat = lists.offsets.to_numpy()[:-1], lists.flatten()
        odd, odd_texts = self._quoted(records, np.flatnonzero(quoted), verdicts)
        lengths[odd] = [len(each) for each in odd_texts]
        verdicts.refuse(lengths > count, f"it has more than {count} values")
        columns = []
        for at in range(count):
            present = ~quoted & (lengths > at)
            places = pa.array(np.where(present, starts + at, 0), pa.int64(), mask=~present)
            column = flat.take(places)
            column = pc.if_else(pc.equal(column, self.null), pa.scalar(None, pa.string()), column)
            if len(odd):
                own = pa.array([each[at] if at < len(each) else None for each in odd_texts], pa.string())
                column = pc.replace_with_mask(column, pa.array(quoted), own)
            columns.append(column)
        return columns

    def _quoted(self, records: pa.Array, rows: Any, verdicts: Verdicts) -> tuple[Any, list[list[str | None]]]:
        """Split the records with quotes one by one."""
        found: list[list[str | None]] = []
        for row, record in zip(rows.tolist(), records.take(pa.array(rows)).to_pylist(), strict=True):
            values = self._values(record)
            if values is None:
                verdicts.refuse_each({row: f"a {self.quote} is not closed, or is inside a value"})
            found.append(values or [])
        return rows, found

    def _values(self, record: str) -> list[str | None] | None:
        values: list[str | None] = []
        at = 0
        while True:
            if record.startswith(self.quote, at):
                value, at = self._inside(record, at + 1)
                if at < 0:
                    return None
                values.append(value)
            else:
                end = record.find(self.delimiter, at)
                end = len(record) if end < 0 else end
                text, at = record[at:end], end
                if self.quote in text:
                    return None
                values.append(None if text == self.null else text)
            if at == len(record):
                return values
            if record[at] != self.delimiter:
                return None
            at += 1

    def _inside(self, record: str, at: int) -> tuple[str, int]:
        """Return the text between quotes, and the place after it, or -1."""
        parts = []
        while True:
            end = record.find(self.quote, at)
            if end < 0:
                return "", -1
            parts.append(record[at:end])
            if not record.startswith(self.quote, end + 1):
                return self.quote.join(parts), end + 1
            at = end + 2


def csv(*, delimiter: str = ",", quote: str = '"', null: str = "") -> CsvFormat:
    """Return the format of separated values.

    Args:
        delimiter: one character between values.
        quote: one character around values that have a delimiter, a line end or a quote, which is written twice.
        null: the text of a null, without quotes; with quotes it is text.

    Raises:
        InvalidPlan: they are not one character, or the same.

    """
    marks: Sequence[str] = (delimiter, quote)
    if any(not isinstance(mark, str) or len(mark) != 1 or mark in "\r\n" for mark in marks) or delimiter == quote:
        raise InvalidPlan(f"csv(delimiter={delimiter!r}, quote={quote!r}) is not possible: each is one character")
    if not isinstance(null, str) or any(mark in null for mark in (*marks, "\n", "\r")):
        raise InvalidPlan(f"csv(null={null!r}) is not possible: it would be read as something else")
    return CsvFormat(delimiter=delimiter, quote=quote, null=null)
