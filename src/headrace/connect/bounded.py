"""Rows that a program has, or a file of Parquet or CSV: a source that is complete from the first epoch on.

Its content is its identity: a changed file is another source, whose rows the app has not read.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from headrace.base.errors import InvalidPlan
from headrace.base.schema import TIMESTAMP, TIMESTAMP_NTZ, as_schema, to_ddl
from headrace.connect.source import Bounds, Source, SourceReader
from headrace.log.rows import rows_to_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.base.time import Clock
    from headrace.connect.source import OffsetRange

PARTITION = "0"
KIND = "rows:"
"""How the identity of such a source begins; the rest is a hash of its rows."""
ROWS_PER_BATCH = 1 << 16
SIDE_BYTES = 64 << 20
"""A table that may be larger is read by ranges, and spread over the shards."""
SUFFIXES = (".parquet", ".csv")
_ZONE = r"[T ].*(Z|[+-]\d\d(:?\d\d)?)$"
"""What a time with a zone looks like."""


class Declared(NamedTuple):
    """What the rows say of themselves: their columns, and no key."""

    schema: pa.Schema
    key: tuple[str, ...] = ()


def bounded(values: object, path: object, schema: str | pa.Schema | None) -> Bounded:
    """Return the source of rows, or of a file, of which exactly one is given.

    Raises:
        InvalidPlan: none or both are given, the file is missing or of another kind, or columns are not declared.
        InvalidRows: a value does not fit its column.

    """
    if (values is None) == (path is None):
        raise InvalidPlan("a bounded table has either values or a path", hint='Say values=[{"id": 1}] or path="x.csv".')
    if values is not None:
        return _of_values(values, schema)
    file = Path(str(path)).absolute()
    if file.suffix not in SUFFIXES:
        raise InvalidPlan(f"path={str(path)!r} is no file of Parquet or CSV", hint="Its name ends in .parquet or .csv.")
    if not file.is_file():
        raise InvalidPlan(f"path={str(path)!r}: there is no such file")
    if schema is None and file.suffix == ".csv":
        raise InvalidPlan(
            f"the columns of {file.name} have no types", hint='Declare them: app.table("t", "id int, name string", …).'
        )
    return Bounded(path=str(file), declared=None if schema is None else as_schema(schema))


def _of_values(values: object, schema: str | pa.Schema | None) -> Bounded:
    if schema is None and not isinstance(values, pa.Table):
        raise InvalidPlan(
            "values have no types", hint='Declare their columns: app.table("t", "id int, name string", …).'
        )
    columns = values.schema if schema is None and isinstance(values, pa.Table) else as_schema(schema or "")
    table = rows_to_table(values, columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Bounded(rows=sink.getvalue().to_pybytes(), declared=as_schema(columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded(Source):
    """The rows of an Arrow stream `rows`, or of the file at `path`; all were there before anything else arrived."""

    dates_records: ClassVar[bool] = True  # type: ignore[misc] # a constant, not a field
    bounded: ClassVar[bool] = True  # type: ignore[misc] # a constant, not a field
    mapped: ClassVar[bool] = True  # type: ignore[misc] # a constant, not a field

    declared: pa.Schema | None
    rows: bytes | None = None
    path: str | None = None

    @property
    def identity(self) -> str:
        """What it contains, whatever release of Arrow wrote it."""
        return f"{KIND}{sha256(self._content()).hexdigest()[:20]}"

    def declares(self) -> Declared:
        """Return the columns, for a program that leaves them out."""
        return Declared(as_schema(pa.parquet.read_schema(self.path)) if self.declared is None else self.declared)

    def open(self, *, clock: Clock) -> BoundedReader:
        """Return a reader of all rows.

        Raises:
            InvalidPlan: the file is gone, or lacks a column.

        """
        del clock
        return BoundedReader(self.whole())

    def side(self, key: Sequence[str]) -> bool:
        """Return whether each task may have all rows: they are few, and each has a key.

        Raises:
            InvalidPlan: the file is gone, or cannot be read as declared.

        """
        return self._bytes() <= SIDE_BYTES and not any(self.whole().column(name).null_count for name in key)

    def whole(self) -> pa.Table:
        """Return all rows, in their order.

        Raises:
            InvalidPlan: the file is gone, or lacks a column.

        """
        return _read(self.path, self.rows, self.declares().schema)

    def _bytes(self) -> int:
        """Return how large the rows are, about; of a file at most twice as large in memory."""
        if self.rows is not None:
            return len(self.rows)
        file = Path(str(self.path))
        if not file.is_file():
            raise InvalidPlan(f"the file {self.path} is gone", hint="The app reads it from the start of each run.")
        if file.suffix != ".parquet":
            return file.stat().st_size
        about = pa.parquet.read_metadata(file)
        return sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))

    def _content(self) -> bytes:
        if self.rows is not None:
            rows = _read(None, self.rows, self.declares().schema).to_pylist()
            return json.dumps([to_ddl(self.declares().schema), rows], default=str, sort_keys=True).encode()
        file = Path(str(self.path))
        if not file.is_file():
            raise InvalidPlan(f"the file {self.path} is gone", hint="The app reads it from the start of each run.")
        return file.read_bytes()


@lru_cache(maxsize=16)
def _read(path: str | None, rows: bytes | None, schema: pa.Schema) -> pa.Table:
    """Return all rows in the types of a schema; a process reads them once."""
    if rows is not None:
        return pa.ipc.open_stream(rows).read_all()
    try:
        table = _parquet(path, schema) if str(path).endswith(".parquet") else _csv(path, schema)
        return table.select(schema.names).cast(schema)
    except (OSError, KeyError, pa.ArrowException) as why:
        raise InvalidPlan(f"the file {path} cannot be read as declared: {why}") from None


def _parquet(path: str | None, schema: pa.Schema) -> pa.Table:
    return pa.parquet.read_table(path, columns=schema.names)


def _csv(path: str | None, schema: pa.Schema) -> pa.Table:
    """Return the rows of a CSV file; times without a zone are in UTC."""
    convert = pa.csv.ConvertOptions(
        column_types={field.name: pa.string() if field.type == TIMESTAMP else field.type for field in schema},
        include_columns=schema.names,
        null_values=[""],  # by default also NA, NaN, null and others, which may be names
        strings_can_be_null=True,
    )
    with Path(str(path)).open(encoding="utf-8-sig", errors="replace", newline="") as file:
        named = Counter(next(csv.reader(file), []))
    if twice := [name for name in schema.names if named[name] > 1]:
        raise pa.ArrowInvalid(f'its header has the column "{twice[0]}" more than once')
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    table = pa.csv.read_csv(path, parse_options=parse, convert_options=convert)
    for i, field in enumerate(schema):
        if field.type == TIMESTAMP:
            table = table.set_column(i, field.name, _times(table.column(i), field.name))
    return table


def _times(texts: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    zoned = pc.match_substring_regex(texts, _ZONE)
    try:
        without = pc.if_else(zoned, None, texts).cast(TIMESTAMP_NTZ).cast(TIMESTAMP)
        return pc.if_else(zoned, pc.if_else(zoned, texts, None).cast(TIMESTAMP), without)
    except pa.ArrowInvalid as why:
        raise pa.ArrowInvalid(f'in column "{name}": {why}') from None


class BoundedReader(SourceReader):
    """Reads rows by their numbers; all of them were stored in 1970, before those of any topic."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def bounds(self) -> Bounds:
        """Return the one partition, with all rows."""
        return Bounds({PARTITION: 0}, {PARTITION: self.table.num_rows})

    def append_time(self, part: OffsetRange) -> int | None:
        """Return 1970, where there is a row."""
        return 0 if part.start < min(part.end, self.table.num_rows) else None

    def read(self, part: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range."""
        rows = self.table.slice(part.start, part.rows)
        count = rows.num_rows
        none = pa.repeat(pa.scalar(0, pa.int64()).cast(TIMESTAMP), count)
        more = {
            "_offset": pa.array(range(part.start, part.start + count), pa.int64()),
            "_time": none,
            "_appended": none,
            "_deleted": pa.repeat(pa.scalar(False), count),  # noqa: FBT003 -- a value of Arrow
        }
        arrays = [more[name] if name in more else rows.column(name) for name in columns]
        yield from pa.table(arrays, names=list(columns)).to_batches(ROWS_PER_BATCH)
