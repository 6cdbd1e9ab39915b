"""Parquet files: written whole and synced, split by partitions, merged by DuckDB within its memory."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote as escaped

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.base.disk import make_folder, sync_folder
from headrace.base.names import literal, quote
from headrace.base.schema import TIMESTAMP, duckdb_type, parse
from headrace.connect.store import database_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headrace.connect.parquet.manifest import Manifest

DELETED, RUN = "_deleted", "_run"
"""Columns that the files of a table have besides its own: of a key, the row with the greatest `_run` counts."""
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_BATCH = 100_000


class Rolling:
    """Writes rows into one file, or several of about a size; each is whole and synced when `close` has returned."""

    def __init__(self, root: Path, name: str, schema: pa.Schema, *, limit: int | None = None) -> None:
        self.root, self.name, self.schema, self.limit = root, name, schema, limit
        self.done: list[tuple[str, int, int]] = []
        self._writer: pq.ParquetWriter | None = None
        self._path = ""
        self._rows = 0

    def write(self, rows: pa.Table) -> None:
        """Add rows."""
        if not rows.num_rows:
            return
        if self._writer is None:
            self._path = self.name.format(len(self.done))
            make_folder((self.root / self._path).parent, sync=True)
            self._file = (self.root / self._path).open("wb")
            self._writer = pq.ParquetWriter(self._file, self.schema, compression="zstd")
            self._rows = 0
        self._writer.write_table(rows.cast(self.schema))
        self._rows += rows.num_rows
        if self.limit is not None and self._file.tell() >= self.limit:
            self._end()

    def close(self) -> list[tuple[str, int, int]]:
        """Return (path, rows, bytes) of the files."""
        self._end()
        return self.done

    def abandon(self) -> None:
        """Close files that are not whole."""
        if self._writer is not None:
            self._writer.close()
            self._file.close()

    def _end(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        sync_folder((self.root / self._path).parent)
        self.done.append((self._path, self._rows, size))
        self._writer = None


def by_partition(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Split rows by the values of columns: the path of each partition, as Hive names it, and its rows."""
    if not columns:
        yield "", rows
        return
    names = [str(number) for number in range(len(columns))]
    at = pa.table([*(rows.column(name) for name in columns), np.arange(rows.num_rows)], [*names, "row"])
    groups = at.group_by(names, use_threads=False).aggregate([("row", "list")])
    for number in range(groups.num_rows):
        values = [groups.column(name)[number] for name in names]
        path = "/".join(f"{escaped(n)}={_text(value)}" for n, value in zip(columns, values, strict=True))
        yield path, rows.take(groups.column("row_list")[number].values)


def _text(value: pa.Scalar) -> str:
    text = value.as_py() if pa.types.is_binary(value.type) else value.cast(pa.string()).as_py()
    return NULL_PARTITION if text is None else escaped(text, safe="")


def stored_schema(manifest: Manifest, schema: pa.Schema) -> pa.Schema:
    """Return the columns of a folder's files."""
    if not manifest.is_table:
        return schema
    return schema.append(pa.field(DELETED, pa.bool_())).append(pa.field(RUN, pa.int64()))


def listed(paths: Sequence[str], schema: pa.Schema) -> str:
    """Return DuckDB's text for reading files as one table; columns that a file does not have are null in its rows."""
    empty = ", ".join(f"NULL::{_kind(each.type)} AS {quote(each.name)}" for each in schema)
    none = f"SELECT {empty} WHERE false"
    if not paths:
        return f"({none})"
    read = f"read_parquet([{', '.join(map(literal, paths))}], union_by_name=true, hive_partitioning=false)"
    return f"({none} UNION ALL BY NAME FROM {read})"


def _kind(kind: pa.DataType) -> str:
    return "TIMESTAMPTZ" if kind == TIMESTAMP else duckdb_type(kind)


def current(paths: Sequence[str], key: Sequence[str], schema: pa.Schema) -> str:
    """Return a query for the last row of each key, deleted ones included."""
    last = f"row_number() OVER (PARTITION BY {', '.join(map(quote, key))} ORDER BY {RUN} DESC) = 1"
    return f"(FROM {listed(paths, schema)} QUALIFY {last})"


@contextmanager
def merged(paths: Sequence[str], manifest: Manifest, *, with_deleted: bool) -> Iterator[Iterator[pa.Table]]:
    """Read files as one: of a table the last row of each key, without deleted ones if no older file is left."""
    schema = stored_schema(manifest, parse(manifest.schema))
    query = f"FROM {listed(paths, schema)}"
    if manifest.is_table:
        query = f"FROM {current(paths, manifest.key, schema)}" + ("" if with_deleted else f" WHERE NOT {DELETED}")
        query += " ORDER BY " + ", ".join(map(quote, manifest.key))
    with (
        tempfile.TemporaryDirectory(prefix="headrace-") as folder,
        duckdb.connect(config=database_options(folder)) as sql,
    ):
        sql.execute("SET TimeZone = 'UTC'").fetchall()
        reader = sql.sql(query).to_arrow_reader(_BATCH)
        yield (pa.Table.from_batches([batch]) for batch in reader)
