"""A frame's payload: one record batch as Arrow's IPC message, without its schema, which is in the description.

The columns of the schema are followed by the system columns that the batch needs, always in the order `_time`,
`_deleted`, `_headers`, `_offset`; the frame's flags say which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.crc import crc32
from headrace.base.schema import TIMESTAMP
from headrace.log.segments import column_sums, shared
from headrace.log.segments.frame import ALIGN, DELETED, HEADERS, NO_MAX, NO_MIN, OFFSETS, SUMS, TIMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.log.segments.frame import Frame

MAX_ROWS = 65_536
MAX_BYTES = 16 << 20

SYSTEM_COLUMNS = {
    "_time": TIMESTAMP,
    "_deleted": pa.bool_(),
    "_headers": pa.map_(pa.string(), pa.string()),
    "_offset": pa.int64(),
    "_appended": TIMESTAMP,  # never in the batch: it is in the frame's header
}
WRITABLE_COLUMNS = ("_time", "_deleted", "_headers")
"""System columns that rows may carry when they are appended."""

_FLAGS = {"_time": TIMES, "_deleted": DELETED, "_headers": HEADERS, "_offset": OFFSETS}
_FILLING = bytes(ALIGN)


class Payload(NamedTuple):
    """A batch ready to be written; only its offsets and position are open."""

    buffer: pa.Buffer
    filling: bytes
    checksum: int
    flags: int
    rows: int
    min_time: int
    max_time: int
    stamped: bool = False
    """Whether its event time is that of the append, which the writer knows better."""

    @property
    def length(self) -> int:
        """Return its length in bytes, filling included."""
        return int(self.buffer.size) + len(self.filling)


def encode(table: pa.Table, *, event_time: str | None, now: int) -> Iterator[Payload]:
    """Yield the payloads of a table, at least one; it has a topic's columns, followed by system columns."""
    flags = 0
    for name in table.column_names:
        flags |= _FLAGS.get(name, 0)
    timed = "_time" if flags & TIMES else event_time
    limit = max(1, min(MAX_ROWS, MAX_BYTES * table.num_rows // max(table.nbytes, 1)))
    batches = table.combine_chunks().to_batches(max_chunksize=limit)
    for batch in batches or [pa.RecordBatch.from_pylist([], schema=table.schema)]:
        buffer = batch.serialize()
        filling, checksum, summed = _end_of(buffer, table.schema)
        at_once = timed is None and batch.num_rows > 0
        low, high = (now, now) if at_once else extremes(batch.column(timed)) if timed else (NO_MIN, NO_MAX)
        yield Payload(buffer, filling, checksum, flags | summed, batch.num_rows, low, high, stamped=at_once)


def _end_of(buffer: pa.Buffer, schema: pa.Schema) -> tuple[bytes, int, int]:
    """Return what fills a payload up, the checksum of both, and the flag of a table of its columns' checksums."""
    if buffer.size < column_sums.LARGE:
        filling = _FILLING[: -buffer.size % ALIGN]
        return filling, crc32(filling, crc32(buffer)), 0
    parts = column_sums.parts_of(buffer, schema)
    table = column_sums.packed(parts)
    filling = _FILLING[: -(buffer.size + len(table)) % ALIGN] + table
    return filling, crc32(filling, column_sums.checksum_of(parts)), SUMS


def extremes(times: pa.Array) -> tuple[int, int]:
    """Return the least and the greatest time of a column, in microseconds; nulls do not count."""
    found = pc.min_max(times.view(pa.int64()))
    if not found["min"].is_valid:
        return NO_MIN, NO_MAX
    return found["min"].as_py(), found["max"].as_py()


def stored_schema(schema: pa.Schema, flags: int) -> pa.Schema:
    """Return the schema of the payload of a frame with these flags."""
    for name, flag in _FLAGS.items():
        if flags & flag:
            schema = schema.append(pa.field(name, SYSTEM_COLUMNS[name]))
    return schema


def decode(payload: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch in a payload, without a copy; `schema` is that of `stored_schema`."""
    return pa.ipc.read_record_batch(payload, schema)


def offsets(batch: pa.RecordBatch, frame: Frame) -> pa.Array:
    """Return each record's offset."""
    if frame.flags & OFFSETS:
        return batch.column("_offset")
    return shared.ascending(frame.base, frame.next)


def times(batch: pa.RecordBatch, frame: Frame, event_time: str | None) -> pa.Array:
    """Return each record's event time."""
    if frame.flags & TIMES:
        return batch.column("_time")
    if event_time is not None:
        found = batch.column(event_time)
        return found if found.type == TIMESTAMP else found.cast(TIMESTAMP)
    return shared.instants(frame.append_time, frame.rows)


def system_column(name: str, batch: pa.RecordBatch, frame: Frame, event_time: str | None) -> pa.Array:
    """Return a system column of a batch, computed if it is not stored."""
    if name == "_offset":
        return offsets(batch, frame)
    if name == "_time":
        return times(batch, frame, event_time)
    if name == "_appended":
        return shared.instants(frame.append_time, frame.rows)
    if frame.flags & _FLAGS[name]:
        return batch.column(name)
    if name == "_deleted":
        return shared.falses(frame.rows)
    return pa.nulls(frame.rows, SYSTEM_COLUMNS[name])


def cut(batch: pa.RecordBatch, frame: Frame, start: int, end: int) -> tuple[int, int]:
    """Return which rows of a frame's batch have offsets in [start, end): (first, count)."""
    if start <= frame.base and frame.next <= end:
        return 0, frame.rows
    if not frame.flags & OFFSETS:
        first = max(start - frame.base, 0)
        return first, min(end, frame.next) - frame.base - first
    stored = batch.column("_offset").to_numpy()
    first, last = (int(at) for at in np.searchsorted(stored, [start, end]))
    return first, last - first
