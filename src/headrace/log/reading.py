"""Reading: the frames of an offset range, decoded, cut to the range and brought to the wanted columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from headrace.base.arguments import a_whole_number, name_list
from headrace.log.projection import Projection, result_schema
from headrace.log.segments import payload as payloads
from headrace.log.segments.frame import END, PRODUCED, SUMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.log.open_topic import OpenTopic
    from headrace.log.segments.segment import Segment

_PLAIN = END | PRODUCED | SUMS
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


class Stored(NamedTuple):
    """Records that were appended together, as they are stored: their first offset, their time, and their columns."""

    offset: int
    time: int
    batch: pa.RecordBatch


def first_stored(topic: OpenTopic, partition: int, start: int, end: int) -> Stored | None:
    """Return the first records of [start, end), a few times faster than `batches` does where there are few.

    None: they cannot be read as they are stored. They have an older schema, private values, event times or headers of
    their own, tombstones or gaps among them.

    Raises:
        OffsetOutOfRange, CorruptBatch: as `batches` raises them.

    """
    found = topic.partition(partition)
    state = found.check(start, end)
    meta = topic.meta()
    if meta.private or meta.sealed or meta.event_time is not None:
        return None
    for segment, number, _ in found.between(start, end, state):
        frame = segment.frame(number)
        first, stop = max(start, frame.base), min(end, frame.next)
        if frame.schema != len(meta.schemas) or frame.flags & ~_PLAIN or frame.rows != frame.next - frame.base:
            break
        batch = payloads.decode(segment.payload(number, frame), meta.schema)
        return Stored(first, frame.append_time, batch.slice(first - frame.base, stop - first))
    return None


def _projected(
    topic: OpenTopic, frames: Iterator[tuple[Segment, int, int]], end: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    projection = Projection(schema, topic.meta())
    for segment, number, start in frames:
        frame = segment.frame(number)
        stored = topic.stored_schema(frame)
        payload = segment.payload(number, frame, projection.reads(frame, stored))
        batch = payloads.decode(payload, stored)
        wanted = projection.of(batch, frame, stored)
        first, count = payloads.cut(batch, frame, start, end)
        if count:
            yield wanted if count == frame.rows else wanted.slice(first, count)
