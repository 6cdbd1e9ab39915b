"""Reading: the frames of an offset range, decoded, cut to the range and brought to the wanted columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.arguments import a_whole_number, name_list
from headrace.log.projection import Projection, result_schema
from headrace.log.segments import payload as payloads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.log.open_topic import OpenTopic
    from headrace.log.segments.segment import Segment

_READ = ("_offset", "_time", "_deleted")


def read(topic: OpenTopic, partition: int, offset: int, max_rows: int, *, sealed: bool) -> pa.Table:
    """Return up to `max_rows` records from an offset on; see `Topic.read`."""
    a_whole_number(max_rows, "max_rows")
    end = topic.partition(partition).check(offset, offset).end
    columns = [*topic.meta().schema.names, *_READ]
    found: list[pa.RecordBatch] = []
    left = max_rows
    for batch in batches(topic, partition, offset, end, columns=columns, sealed=True) if left > 0 else ():
        found.append(batch if batch.num_rows <= left else batch.slice(0, left))
        left -= batch.num_rows
        if left <= 0:
            break
    meta = topic.meta()
    rows = list(found if sealed else topic.privacy.unseal(iter(found), meta, columns))
    return pa.Table.from_batches(rows, schema=rows[0].schema if rows else result_schema(meta, columns))


def batches(
    topic: OpenTopic, partition: int, start: int, end: int, *, columns: Sequence[str] | None, sealed: bool
) -> Iterator[pa.RecordBatch]:
    """Return the records with offsets in [start, end) as batches; see `Topic.batches`."""
    state = topic.partition(partition).check(start, end)  # before the schema: no frame is newer than that
    meta = topic.meta()
    schema = topic.schema_of(meta.schema.names if columns is None else name_list(columns, "columns"), meta)
    found = _projected(topic, topic.partition(partition).between(start, end, state), end, schema)
    return found if sealed else topic.privacy.unseal(found, topic.meta(), schema.names)


def _projected(
    topic: OpenTopic, frames: Iterator[tuple[Segment, int, int]], end: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    projection = Projection(schema, topic.meta())
    for segment, number, start in frames:
        frame = segment.frame(number)
        stored = topic.stored_schema(frame)
        batch = payloads.decode(segment.payload(number, frame), stored)
        wanted = projection.of(batch, frame, stored)
        first, count = payloads.cut(batch, frame, start, end)
        if count:
            yield wanted if count == frame.rows else wanted.slice(first, count)
