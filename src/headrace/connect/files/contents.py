"""What files have inside: lines of JSON or CSV, or Parquet. Parts are written one by one, and joined to a file."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.connect.formats import format_named
from headrace.connect.formats.texts import refuse_nested
from headrace.connect.store import together

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.connect.files.places import OpenPlace, Stored

COPY_BYTES = 8 << 20
_ROWS, _HEADER_BYTES = 100_000, 4_096
FORMATS = ("json", "csv", "parquet")


class Contents(Protocol):
    """How rows are written."""

    @property
    def suffix(self) -> str:
        """The end of a file's name."""
        ...

    def check(self, schema: pa.Schema) -> None:
        """Check that such rows can be written.

        Raises:
            InvalidPlan: they cannot.

        """
        ...

    def write(self, file: IO[bytes], rows: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        """Write rows as a part."""
        ...

    def join(self, file: IO[bytes], place: OpenPlace, parts: Sequence[Stored]) -> None:
        """Write parts as one file; raises as reading them does."""
        ...


def contents_of(form: str) -> Contents:
    """Return how rows are written in a format."""
    return ParquetContents() if form == "parquet" else LineContents(form)


class LineContents(NamedTuple):
    """A line a row; CSV with a header."""

    form: str

    @property
    def suffix(self) -> str:
        """That of JSON lines, or CSV."""
        return ".jsonl" if self.form == "json" else ".csv"

    def check(self, schema: pa.Schema) -> None:
        """Refuse nested values in CSV."""
        if self.form == "csv":
            refuse_nested(schema, self.form)

    def write(self, file: IO[bytes], rows: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        """Write lines."""
        form = format_named(self.form)
        if self.form == "csv":
            names = pa.record_batch([pa.array([name]) for name in schema.names], names=schema.names)
            file.write(form.encode(names)[0].as_py().encode() + b"\n")
        for batch in rows:
            if batch.num_rows:
                file.write(b"\n".join(form.encode(batch.select(schema.names)).cast(pa.binary()).to_pylist()) + b"\n")

    def join(self, file: IO[bytes], place: OpenPlace, parts: Sequence[Stored]) -> None:
        """Write the lines of all parts; in CSV below one header."""
        for number, part in enumerate(parts):
            start = self._behind_header(place, part) if number and self.form == "csv" else 0
            for at in range(start, part.size, COPY_BYTES):
                file.write(place.read(part, at, COPY_BYTES))

    def _behind_header(self, place: OpenPlace, part: Stored) -> int:
        size = _HEADER_BYTES
        while not (end := _first_line(place.read(part, 0, size))):
            size *= 2
        return end


class ParquetContents(NamedTuple):
    """Parquet, compressed by zstd."""

    @property
    def suffix(self) -> str:
        """That of Parquet."""
        return ".parquet"

    def check(self, schema: pa.Schema) -> None:
        """Take all."""

    def write(self, file: IO[bytes], rows: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        """Write row groups."""
        with pq.ParquetWriter(file, schema, compression="zstd") as out:
            for table in together(rows, _ROWS):
                out.write_table(table.select(schema.names).cast(schema))

    def join(self, file: IO[bytes], place: OpenPlace, parts: Sequence[Stored]) -> None:
        """Write the rows of all parts, in larger row groups."""
        schema = _opened(place, parts[0]).schema_arrow
        batches = (batch for part in parts for batch in _opened(place, part).iter_batches(_ROWS))
        self.write(file, batches, schema)


def _first_line(text: bytes) -> int:
    """Return where the first line of CSV ends, 0 if it does not: a name may have line breaks between quotes."""
    end = text.find(b"\n") + 1
    while end and text.count(b'"', 0, end) % 2:
        end = text.find(b"\n", end) + 1
    return end


def _opened(place: OpenPlace, part: Stored) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(place.read(part, 0, part.size)))
