"""Rows of a topic → records: each with its event time and its partition, tombstones without values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import InvalidRows
from headrace.base.hashing import hash_columns
from headrace.base.schema import TIMESTAMP
from headrace.log.privacy.subjects import refuse_without_subject
from headrace.log.rows import Rows, rows_to_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.log.meta import Meta


def as_records(rows: Rows, meta: Meta, *, now: int) -> pa.Table:
    """Return the topic's columns, followed by those system columns that are needed.

    Raises:
        InvalidRows: a row does not fit the schema, deletes in a topic without key, or has no key in a compacted one.

    """
    table = rows_to_table(rows, meta.schema, meta.defaults)
    if meta.cleanup == "compact":
        _refuse_without_key(table, meta)
    deleted = _deleted(table, meta)
    times = _times(table, meta, deleted=deleted, now=now)
    if deleted is not None:
        table = _without_values(table, meta, deleted)
    if meta.private:
        refuse_without_subject(table, meta.private)
    headers = table.column("_headers") if "_headers" in table.column_names else None
    table = table.select(meta.schema.names)
    if times is not None:
        table = table.append_column("_time", times)
    if deleted is not None:
        table = table.append_column("_deleted", deleted)
    if headers is not None and headers.null_count < len(headers):
        table = table.append_column("_headers", headers)
    return table


def by_partition(table: pa.Table, key: tuple[str, ...], partitions: int) -> dict[int, pa.Table]:
    """Return the records of each partition, in their order, by the stable hash of the key."""
    groups = grouped(partitions_of(table, key, partitions))
    return {number: part_of(table, at) for number, at in groups.items()}


def partitions_of(table: pa.Table, key: tuple[str, ...], partitions: int) -> NDArray[np.int64]:
    """Return each record's partition, by the stable hash of its key."""
    hashes = hash_columns([table.column(name) for name in key], table.num_rows)
    return (hashes % np.uint64(partitions)).astype(np.int64)


def grouped(chosen: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """Return for each partition the indices of its records, ascending; `chosen` has each record's partition."""
    small = chosen.astype(np.uint16) if len(chosen) and int(chosen.max()) < 1 << 16 else chosen  # sorts by radix
    order = np.argsort(small, kind="stable")
    numbers, firsts = np.unique(small[order], return_index=True)
    ends = [*firsts[1:], len(order)]
    return {int(number): order[first:end] for number, first, end in zip(numbers, firsts, ends, strict=True)}


def part_of(table: pa.Table, at: NDArray[np.int64]) -> pa.Table:
    """Return the records at these indices, which ascend."""
    return table if len(at) == table.num_rows else table.take(pa.array(at))


def _refuse_without_key(table: pa.Table, meta: Meta) -> None:
    """Refuse rows whose key columns are all null: compaction keeps the last record of each key."""
    absent = None
    for name in meta.key:
        column = table.column(name)
        if not column.null_count:
            return
        absent = pc.is_null(column) if absent is None else pc.and_(absent, pc.is_null(column))
    at = pc.index(absent, value=True).as_py()
    if at >= 0:
        raise InvalidRows(
            f'rows[{at}] has no key: {", ".join(meta.key)} is null, and the topic "{meta.name}" is compacted',
            hint="Compaction keeps the last record of each key: give the row one.",
        )


def _deleted(table: pa.Table, meta: Meta) -> pa.ChunkedArray | None:
    """Return which rows are tombstones; None if there are none."""
    if "_deleted" not in table.column_names:
        return None
    deleted = pc.fill_null(table.column("_deleted"), fill_value=False)
    if not pc.any(deleted, min_count=0).as_py():
        return None
    if not meta.key:
        raise InvalidRows(
            f'rows[{pc.index(deleted, value=True).as_py()}] deletes, but the topic "{meta.name}" has no key',
            hint="Only records of a topic with key=… can be deleted.",
        )
    return deleted


def _times(table: pa.Table, meta: Meta, *, deleted: pa.ChunkedArray | None, now: int) -> pa.ChunkedArray | None:
    """Return the event times to store; None if they are the event-time column or the time of the append."""
    times = table.column("_time") if "_time" in table.column_names else None
    if times is None or times.null_count == len(times):
        return None
    if meta.event_time is None:
        return pc.fill_null(times, pa.scalar(now, pa.int64()).cast(TIMESTAMP))
    if deleted is None:
        return None
    column = table.column(meta.event_time).cast(TIMESTAMP)
    return pc.if_else(pc.and_(deleted, pc.is_null(column)), times, column)


def _without_values(table: pa.Table, meta: Meta, deleted: pa.ChunkedArray) -> pa.Table:
    """Set all columns of tombstones to null but key and event time."""
    for at, field in enumerate(meta.schema):
        if field.name not in meta.key and field.name != meta.event_time:
            value = table.column(at)
            table = table.set_column(at, field, _null_where(deleted, value))
    return table


def _null_where(deleted: pa.ChunkedArray, value: pa.ChunkedArray) -> pa.ChunkedArray:
    indices = pc.if_else(deleted, None, pa.array(np.arange(len(value), dtype=np.int64)))
    return value.take(indices) if value.null_count < len(value) else value
