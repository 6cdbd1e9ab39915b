"""Which data files an epoch replaces, and by which: a merge by key rewrites files that have keys of the epoch.

The library's own deletes and upserts go by expressions, one term a key, in which null equals nothing. Here DuckDB joins
columns of keys, where null is a value. Small files are gathered on the way: where one size class has `GATHERED` files,
these become one, so a row is written again each time its file has grown by this factor, and files stay few.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, In, IsNull, LessThanOrEqual, Or
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.io.pyarrow import _dataframe_to_data_files as _data_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table

GATHERED = 8
"""So many files of a size class are gathered, and so much larger is the next class."""
SMALLEST_CLASS = 64 * 1024
LARGE = 64 * 1024 * 1024
"""A file of so many bytes is not gathered; one that is rewritten stays a file of its own."""

FEW_VALUES = 100
"""Up to so many values of a key's column are looked for in statistics one by one; of more, the least and greatest."""


@dataclass
class Change:
    """Files that a snapshot replaces, those that it adds, and at least how many manifests before it list none."""

    replaced: list[DataFile] = field(default_factory=list)
    added: list[DataFile] = field(default_factory=list)
    idle_manifests: int = 0


def changed_files(table: Table, changes: pa.Table, key: tuple[str, ...] | None) -> Change:
    """Write the files for an epoch, which nobody reads before a snapshot names them.

    Args:
        table: the table at its current snapshot.
        changes: rows of a stream, or one change a key with `_deleted`.
        key: the columns that identify a row; None for a stream.

    Raises:
        ValueError: the library cannot read files that others have written, or write such rows.

    """
    columns = schema_to_pyarrow(table.schema(), include_field_ids=False)
    snapshot = table.current_snapshot()
    tasks = list(table.scan().plan_files())
    change = Change(idle_manifests=0 if snapshot is None else len(snapshot.manifests(table.io)) - len(tasks))
    affected: dict[str, pa.Table] = {}
    if key is None:
        fresh = changes.select(columns.names).cast(columns)
    else:
        fresh = changes.filter(pc.invert(changes.column("_deleted"))).select(columns.names).cast(columns)
        keys = changes.select(list(key)).cast(pa.schema([columns.field(name) for name in key]))
        affected = _without(table, keys, columns)
    gathered = [fresh] if fresh.num_rows else []
    together = _classes([each.file for each in tasks if each.file.file_path not in affected])
    for task in tasks:
        kept = affected.get(task.file.file_path)
        if kept is None and task.file.file_path in together:
            kept = _read(table, [task], columns)
        if kept is None:
            continue
        change.replaced.append(task.file)
        if task.file.file_size_in_bytes >= LARGE:
            change.added += _write(table, kept)
        elif kept.num_rows:
            gathered.append(kept)
    if gathered:
        change.added += _write(table, pa.concat_tables(gathered))
    return change


def batches_of(table: Table, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a table, file by file, with these types."""
    for task in table.scan().plan_files():
        yield from _read(table, [task], columns).to_batches()


def _read(table: Table, tasks: Sequence[FileScanTask], columns: pa.Schema) -> pa.Table:
    """Return rows of files, without those that delete files of others take out."""
    scan = ArrowScan(table.metadata, table.io, table.schema().select(*columns.names), AlwaysTrue())
    return scan.to_table(tasks).select(columns.names).cast(columns)


def _write(table: Table, rows: pa.Table) -> list[DataFile]:
    """Write rows to files of the table's target size, by its partitions."""
    return list(_data_files(table.metadata, rows, table.io)) if rows.num_rows else []


def _without(table: Table, keys: pa.Table, columns: pa.Schema) -> dict[str, pa.Table]:
    """Return by path, of the files that have rows with these keys, the other rows."""
    found = {}
    same = " AND ".join(f"held.k{n} IS NOT DISTINCT FROM keys.k{n}" for n in range(keys.num_columns))
    key = pa.schema([columns.field(name) for name in keys.column_names])
    with duckdb.connect() as sql:
        sql.execute("SET TimeZone = 'UTC'").fetchall()
        sql.register("keys", _numbered(keys))
        for task in _tasks_that_match(table, keys):
            held = _numbered(_read(table, [task], key))
            sql.register("held", held.append_column("_nth", pa.array(np.arange(held.num_rows))))
            others = sql.sql(f"SELECT _nth FROM held ANTI JOIN keys ON {same} ORDER BY _nth").to_arrow_table()
            sql.unregister("held")
            if others.num_rows < held.num_rows:
                found[task.file.file_path] = _read(table, [task], columns).take(others.column("_nth"))
    return found


def _numbered(table: pa.Table) -> pa.Table:
    return table.rename_columns([f"k{n}" for n in range(table.num_columns)])


def _tasks_that_match(table: Table, keys: pa.Table) -> list[FileScanTask]:
    """Return the files that may have rows with these keys, by their statistics and partitions."""
    try:
        return list(table.scan(row_filter=_may_match(keys)).plan_files())
    except TypeError:  # the library compares the null of a partition with a bound
        return list(table.scan().plan_files())


def _may_match(keys: pa.Table) -> Any:
    """Return an expression that is true for all rows with these keys."""
    condition: Any = AlwaysTrue()
    for name, column in zip(keys.column_names, keys.columns, strict=True):
        if not (_has_bounds(column.type) and keys.num_rows):
            continue
        values = pc.unique(column).drop_null()
        part: Any = IsNull(name)
        if 0 < len(values) <= FEW_VALUES:
            part = In(name, values.to_pylist())
        elif len(values):
            bounds = pc.min_max(values).as_py()
            part = And(GreaterThanOrEqual(name, bounds["min"]), LessThanOrEqual(name, bounds["max"]))
        condition = And(condition, Or(part, IsNull(name)) if column.null_count else part)
    return condition


def _has_bounds(kind: pa.DataType) -> bool:
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind) or texts)


def _classes(files: Sequence[DataFile]) -> set[str]:
    """Return the paths of files to gather: those of size classes that are full, with the smaller ones."""
    by_class: dict[tuple[str, int], list[str]] = {}
    for each in files:
        if each.file_size_in_bytes < LARGE:
            size = max(each.file_size_in_bytes // SMALLEST_CLASS, 1)
            by_class.setdefault((repr(each.partition), int(np.log(size) / np.log(GATHERED))), []).append(each.file_path)
    full = {partition: number for (partition, number), paths in sorted(by_class.items()) if len(paths) >= GATHERED}
    return {
        path for (partition, number), paths in by_class.items() if number <= full.get(partition, -1) for path in paths
    }
