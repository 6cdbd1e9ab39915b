"""Arrow tables as Spark rows `(shard, edge, rows)`: a Spark row is a blob of many records, never one record."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.kernels.exchange import in_blobs
from headrace.kernels.files import decode, encode
from headrace.kernels.task import Report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.kernels.task import Outcome

SCHEMA = pa.schema([("shard", pa.int32()), ("edge", pa.int32()), ("rows", pa.binary())])
DDL = "shard int, edge int, rows binary"
MARK = -1
"""The edge of marks: the next level takes them."""
MANIFEST = 0
"""The edge of reports on their way to the driver; exchanges count from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Which attempt of which task its output is of, told to each of the shards that read it."""

    task: str
    attempt: str
    shards: int


def row(shard: int, edge: int, data: pa.Buffer) -> pa.RecordBatch:
    """Return one Spark row around a buffer, which is not copied."""
    offsets = pa.py_buffer(np.array([0, data.size], dtype=np.int32))
    blob = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, data])
    return pa.record_batch([pa.array([shard], pa.int32()), pa.array([edge], pa.int32()), blob], schema=SCHEMA)


def outgoing(outcome: Outcome, mark: Mark | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the output of a level: blobs by edge and shard, its mark for each shard if it has one, and its report."""
    if mark is not None:
        outcome.report.attempts[mark.task] = mark.attempt
        text = json.dumps([mark.task, mark.attempt]).encode()
        for shard in range(mark.shards):
            yield row(shard, MARK, pa.py_buffer(text))
    for edge, _, shard, table in outcome.sent:
        for blob in in_blobs(table):
            yield row(shard, edge, encode(blob))
    yield manifest([outcome.report])


def manifest(reports: Sequence[Report]) -> pa.RecordBatch:
    """Return reports as a row of the manifest."""
    return row(0, MANIFEST, pa.py_buffer(json.dumps([report.to_json() for report in reports]).encode()))


def reports_of(rows: bytes) -> list[Report]:
    """Return the reports of a row of the manifest."""
    return [Report.from_json(report) for report in json.loads(rows)]


def sort_out(
    batches: Iterator[pa.RecordBatch],
    edges: frozenset[int],
    inbox: dict[int, list[pa.Table]],
    attempts: dict[str, str],
) -> Iterator[pa.RecordBatch]:
    """Put blobs for this level into `inbox` by edge and marks into `attempts`, and yield the others unchanged."""
    for batch in batches:
        found = batch.column(1).to_pylist()
        mine = [edge in edges or edge == MARK for edge in found]
        for at, here in enumerate(mine):
            if found[at] == MARK:
                task, attempt = json.loads(batch.column(2)[at].as_py())
                attempts[task] = attempt
            elif here:
                inbox.setdefault(batch.column(1)[at].as_py(), []).append(decode(batch.column(2)[at].as_buffer()))
        if not all(mine):
            yield batch.filter(pa.array([not here for here in mine]))
