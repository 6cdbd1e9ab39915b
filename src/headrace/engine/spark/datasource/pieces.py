"""What one task reads, and how: slices of partitions, as batches of exactly the columns that Spark asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace.base.errors import DataLoss, TopicDiffers
from headrace.base.schema import to_ddl
from headrace.engine.pace import total
from headrace.engine.spark.datasource import filters
from headrace.engine.spark.datasource.columns import METADATA
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headrace.connect.embedded import OffsetRange
    from headrace.engine.spark.datasource.filters import Test
    from headrace.log import Topic

FEW_ROWS = 20_000
"""So few rows are read by one task: a second one costs more than it saves."""
ROWS_A_TASK = 250_000
MOST_TASKS = 1_000
_BATCH_ROWS = 16_384
"""Smaller batches are joined: one append of one record is one batch, and each costs Spark as much as a large one."""


class Piece(InputPartition):
    """What one task reads."""

    def __init__(self, slices: Sequence[OffsetRange]) -> None:
        super().__init__(None)
        self.slices = list(slices)


class What(NamedTuple):
    """How slices are read: from which log, as which columns, with which tests, and whether lost records matter."""

    log: Path
    schema: pa.Schema
    tests: tuple[Test, ...]
    fail: bool


def cut(slices: Sequence[OffsetRange], *, least: int) -> list[InputPartition]:
    """Return tasks for slices: one for few rows, else a slice for each, none much longer than `ROWS_A_TASK`."""
    rows = total(slices)
    if rows <= FEW_ROWS and least <= 1:
        return [Piece(slices)] if slices else []
    size = max(1, min(max(ROWS_A_TASK, -(-rows // MOST_TASKS)), -(-rows // least)))
    return [Piece([part]) for piece in slices for part in piece.cut(-(-piece.rows // size))]


def pruned(topic: Topic, piece: OffsetRange, tests: Sequence[Test]) -> list[OffsetRange]:
    """Return what of a slice can hold records that pass, by topic, partition, offset and event time."""
    facts = (("_topic", topic.name), ("_partition", piece.partition))
    if not all(filters.may_hold(tests, name, value, METADATA[name]) for name, value in facts):
        return []
    least, greatest = filters.span(tests, "_offset")
    first, last = max(piece.first, least), min(piece.last, greatest + 1)
    if first >= last:
        return []
    since, until = filters.span(tests, "_time")
    if topic.event_time is not None:
        least, greatest = filters.span(tests, topic.event_time)
        since, until = max(since, least), min(until, greatest)
    ranges = topic.ranges(piece.partition, first, last, since=since, until=until)
    return [replace(piece, first=each.start, last=each.stop) for each in ranges]


def batches(what: What, slices: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """Yield the records of slices as Spark asked for them; small batches are joined.

    Raises:
        DataLoss: records are gone that were there when the query was planned, and data loss is to fail.
        CorruptBatch: records are damaged.

    """
    waiting: list[pa.RecordBatch] = []
    with Log(what.log) as log:
        for batch in _read(log, what, slices):
            if not batch.num_rows:
                continue
            if batch.num_rows >= _BATCH_ROWS and not waiting:
                yield batch
                continue
            waiting.append(batch)
            if sum(each.num_rows for each in waiting) >= _BATCH_ROWS:
                yield _joined(waiting)
                waiting = []
        if waiting:
            yield _joined(waiting)


def _joined(waiting: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(waiting) == 1:
        return waiting[0]
    return pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]


def _read(log: Log, what: What, slices: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    for piece in slices:
        topic = log.topic(piece.topic)
        names = [name for name in what.schema.names if name in topic.schema.names or name in METADATA]
        stored = [name for name in names if name not in ("_topic", "_partition")]
        for batch in topic.batches(piece.partition, *_there(topic, piece, what), columns=stored):
            yield filters.kept(_shaped(batch, topic.name, piece.partition, what.schema), what.tests)


def _there(topic: Topic, piece: OffsetRange, what: What) -> tuple[int, int]:
    start, end = topic.start_offsets()[piece.partition], topic.end_offsets()[piece.partition]
    if what.fail and not start <= piece.first <= piece.last <= end:
        raise DataLoss(
            f'topic "{topic.name}", partition {piece.partition}: the records from {piece.first} on are gone',
            detail=f"It holds the offsets from {start} up to, not including, {end}; they went after this was planned.",
            hint='Keep records longer than a query takes, or accept it: .option("failOnDataLoss", "false").',
        )
    first = min(max(piece.first, start), end)
    return first, max(min(piece.last, end), first)


def _shaped(batch: pa.RecordBatch, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    known = {"_topic": pa.scalar(topic), "_partition": pa.scalar(partition, pa.int32())}
    arrays = []
    for field in schema:
        if field.name in known:
            arrays.append(pa.repeat(known[field.name], batch.num_rows))
        elif field.name in batch.schema.names:
            arrays.append(_typed(batch.column(field.name), field, topic, schema))
        else:
            arrays.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _typed(values: pa.Array, field: pa.Field, topic: str, schema: pa.Schema) -> pa.Array:
    if values.type == field.type:
        return values
    try:
        return values.cast(field.type)
    except pa.ArrowException:
        raise TopicDiffers(
            f'the column "{field.name}" of topic "{topic}" is no longer what it was when the query began',
            detail=f"The query reads: {to_ddl(schema)}.",
            hint="Start the query again: it then reads the schema of now.",
        ) from None
