"""What one task reads, and how: ranges of offsets, as batches of exactly the columns that Spark asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace.base.errors import DataLoss, TopicDiffers
from headrace.base.schema import to_ddl
from headrace.connect.source import total_rows
from headrace.engine.spark.datasource import filters
from headrace.engine.spark.datasource.columns import METADATA
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headrace.connect.source import OffsetRange
    from headrace.engine.spark.datasource.filters import ColumnTest
    from headrace.log import Topic

FEW_ROWS = 20_000
"""Up to so many rows are read by one task: a second one costs more than it saves."""
ROWS_A_TASK = 250_000
MOST_TASKS = 1_000
_BATCH_ROWS = 16_384
"""Smaller batches are combined: one append of one record is one batch, and each costs Spark as much as a large one."""


class ReadTask(InputPartition):
    """The ranges of offsets that one task reads."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(None)
        self.ranges = list(ranges)


class ReadPlan(NamedTuple):
    """How ranges are read: from which log, as which columns, which rows, and whether lost records are an error."""

    log: Path
    schema: pa.Schema
    tests: tuple[ColumnTest, ...]
    fail_on_data_loss: bool


def plan_tasks(ranges: Sequence[OffsetRange], *, least: int) -> list[InputPartition]:
    """Return tasks for ranges: one for few rows, else one a range, which is cut if it is longer than `ROWS_A_TASK`."""
    rows = total_rows(ranges)
    if rows <= FEW_ROWS and least <= 1:
        return [ReadTask(ranges)] if ranges else []
    size = max(1, min(max(ROWS_A_TASK, -(-rows // MOST_TASKS)), -(-rows // least)))
    return [ReadTask([part]) for range_ in ranges for part in range_.split(-(-range_.rows // size))]


def pruned(topic: Topic, range_: OffsetRange, tests: Sequence[ColumnTest]) -> list[OffsetRange]:
    """Return the parts of a range that can hold records that pass, by topic, partition, offset and event time."""
    constants = (("_topic", topic.name), ("_partition", int(range_.partition)))
    if not all(filters.may_hold(tests, name, value, METADATA[name]) for name, value in constants):
        return []
    least, greatest = filters.span(tests, "_offset")
    first, last = max(range_.start, least), min(range_.end, greatest + 1)
    if first >= last:
        return []
    since, until = filters.span(tests, "_time")
    if topic.event_time is not None:
        least, greatest = filters.span(tests, topic.event_time)
        since, until = max(since, least), min(until, greatest)
    ranges = topic.ranges(int(range_.partition), first, last, since=since, until=until)
    return [replace(range_, start=each.start, end=each.stop) for each in ranges]


def batches(plan: ReadPlan, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """Yield the records of ranges as Spark asked for them; small batches are combined.

    Raises:
        DataLoss: records were deleted after the query was planned, and data loss is an error.
        CorruptBatch: records are damaged.

    """
    waiting: list[pa.RecordBatch] = []
    with Log(plan.log) as log:
        for batch in _read(log, plan, ranges):
            if not batch.num_rows:
                continue
            if batch.num_rows >= _BATCH_ROWS and not waiting:
                yield batch
                continue
            waiting.append(batch)
            if sum(each.num_rows for each in waiting) >= _BATCH_ROWS:
                yield _combined(waiting)
                waiting = []
        if waiting:
            yield _combined(waiting)


def _combined(waiting: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(waiting) == 1:
        return waiting[0]
    return pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]


def _read(log: Log, plan: ReadPlan, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    for range_ in ranges:
        topic = log.topic(range_.source)
        names = [name for name in plan.schema.names if name in topic.schema.names or name in METADATA]
        stored = [name for name in names if name not in ("_topic", "_partition")]
        for batch in topic.batches(int(range_.partition), *_available(topic, range_, plan), columns=stored):
            yield filters.passing(_with_schema(batch, topic.name, int(range_.partition), plan.schema), plan.tests)


def _available(topic: Topic, range_: OffsetRange, plan: ReadPlan) -> tuple[int, int]:
    start, end = topic.start_offsets()[int(range_.partition)], topic.end_offsets()[int(range_.partition)]
    if plan.fail_on_data_loss and not start <= range_.start <= range_.end <= end:
        raise DataLoss(
            f'topic "{topic.name}", partition {int(range_.partition)}: the records from {range_.start} on are gone',
            detail=f"It holds the offsets from {start} up to, not including, {end}; they went after the planning.",
            hint='Keep records longer than a query takes, or accept the loss: .option("failOnDataLoss", "false").',
        )
    first = min(max(range_.start, start), end)
    return first, max(min(range_.end, end), first)


def _with_schema(batch: pa.RecordBatch, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    constants = {"_topic": pa.scalar(topic), "_partition": pa.scalar(partition, pa.int32())}
    arrays = []
    for field in schema:
        if field.name in constants:
            arrays.append(pa.repeat(constants[field.name], batch.num_rows))
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
            f'the column "{field.name}" of topic "{topic}" has another type than when the query began',
            detail=f"The query reads: {to_ddl(schema)}.",
            hint="Start the query again: it then reads the current schema.",
        ) from None
