"""`app.read`: encodes rows of Spark's own streaming sources as blobs, in the tasks that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.dead_letters import DEAD, as_json
from headrace.base.schema import to_ddl
from headrace.connect.decoding import NEAR
from headrace.engine.level_zero import stage_dead_letters
from headrace.engine.spark import blobs, tasks
from headrace.engine.watermarks import EpochTimes
from headrace.kernels.duck import Duck, typed
from headrace.kernels.level import LevelRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from headrace.plan.nodes import Source

FIRST_TASK = 1_000_000
"""Tasks of Spark's sources are numbered from here, so that the names of their staged files differ from ours."""


def encoded(spark: SparkSession, job: tasks.Job, name: str, node: Source) -> DataFrame:
    """Return the blobs of a source's rows, after level 0."""
    frame = node.frame
    if frame is None:
        reader = spark.readStream.format(str(node.format)).options(**dict(node.options))
        frame = reader.schema(to_ddl(node.schema)).load() if _takes_schema(str(node.format)) else reader.load()
    columns = [
        f"CAST(`{field.name.replace('`', '``')}` AS {_ddl(field)}) AS `{field.name.replace('`', '``')}`"
        for field in node.schema
    ]
    return frame.selectExpr(*columns).mapInArrow(_level_zero(job, name, node.event_time, node.schema), blobs.DDL)


def _ddl(field: pa.Field) -> str:
    from headrace.base.schema import type_name

    return type_name(field.type)


def _takes_schema(source: str) -> bool:
    return source not in ("rate", "rate-micro-batch", "socket", "kafka")


def _level_zero(
    job: tasks.Job, name: str, event_time: str | None, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        epoch, number = tasks.current_epoch(job), FIRST_TASK + tasks.partition_number()
        here = job.task(epoch, number, EpochTimes(0))  # level 0 reads no clock: the carrier looked
        rows, dead = _timed(list(batches), name, event_time, schema, here_now=job.now())
        intake = next(intake for intake in job.program.intakes if intake.source == name)
        duck = Duck()
        try:
            outcome = LevelRun(duck, job.program.levels[0], here, by_step=True).run({intake.output: [rows]})
            if dead is not None:
                stage_dead_letters(outcome.report, here, [(name, name, dead)])
            if rows.num_rows:
                outcome.report.times = {name: {"spark": pc.max(rows.column("_time")).as_py()}}
            yield from blobs.outgoing(outcome, tasks.mark(job, 0, here))
        finally:
            duck.close()

    return run


def _timed(
    batches: list[pa.RecordBatch], name: str, event_time: str | None, schema: pa.Schema, *, here_now: int
) -> tuple[pa.Table, pa.Table | None]:
    """Return the rows with `_time`, and as dead letters those whose event time is null or far away."""
    fields = pa.schema([(field.name, field.type) for field in schema])
    table = typed(pa.Table.from_batches(batches), fields) if batches else fields.empty_table()
    if event_time is None:
        times = pa.chunked_array([pa.array([here_now] * table.num_rows, pa.int64())])
        return table.append_column("_time", times), None
    times = table.column(event_time).cast(pa.int64())
    rows, far = table.append_column("_time", times), NEAR.far(times)
    if not times.null_count and far is None:
        return rows, None
    kept = times.is_valid() if far is None else pc.and_not(times.is_valid(), far)
    bad = rows.filter(pc.invert(kept)).to_pylist()
    letters = [
        {"topic": name, "partition": -1, "offset": -1,
         "reason": f'the event time "{event_time}" {"is null" if row.pop("_time") is None else NEAR.reason}',
         "record": as_json(row)}
        for row in bad
    ]  # fmt: skip
    return rows.filter(kept), pa.Table.from_pylist(letters, schema=DEAD)
