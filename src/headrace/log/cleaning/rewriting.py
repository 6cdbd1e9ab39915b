"""Writing the records that compaction keeps: frames with an offset range, from which records are missing.

The frames of a rewritten segment follow each other without a gap: each begins where the one before ended, even if no
record is left. So records that are missing by damage can be told from those that were compacted away.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.disk import sync_folder, write_all
from headrace.log.segments import frame as framing
from headrace.log.segments import payload as payloads
from headrace.log.segments.frame import DELETED, END, HEADER_SIZE, HEADERS, NO_PRODUCER, TIMES, Frame
from headrace.log.segments.layout import SegmentEntry
from headrace.log.segments.payload import MAX_BYTES, MAX_ROWS, SYSTEM_COLUMNS
from headrace.log.segments.segment import INDEX, SEGMENT, Segment, TopicPartition, name_of

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from headrace.log.meta import Meta


@dataclass(frozen=True, kw_only=True)
class CompactionPlan:
    """What a compaction works with: the topic's description, its folder and limits, as of `now`."""

    folder: Path
    meta: Meta
    version: int  # of the layout that it will be part of; file names contain it
    fsync: bool
    segment_bytes: int
    now: int


class _Remainder(NamedTuple):
    """The records that stay of one frame."""

    batch: pa.RecordBatch
    offsets: pa.Array
    frame: Frame


class Rewriter:
    """Writes records to new segments from `base` on."""

    def __init__(self, plan: CompactionPlan, *, base: int) -> None:
        self._plan = plan
        self._reached = base  # the offset up to which frames were written
        self._covered = base  # the offset up to which frames were added or skipped
        self._remainders: list[_Remainder] = []
        self._rows = self._bytes = 0
        self._skipped = 0  # append time of the newest skipped frame
        self._file: BinaryIO | None = None
        self._base = base
        self._position = self._count = self._due = self._age = 0
        self._entries: list[SegmentEntry] = []

    def skip(self, frame: Frame) -> None:
        """Skip a frame of which no record stays."""
        self._covered = frame.next
        self._skipped = max(self._skipped, frame.append_time)

    def add(self, batch: pa.RecordBatch, frame: Frame, offsets: pa.Array) -> None:
        """Add the records that stay of a frame, with their offsets."""
        marked = bool(frame.flags & DELETED) and pc.any(batch.column("_deleted"), min_count=0).as_py()
        due = (frame.due or self._plan.now + self._plan.meta.delete_retention) if marked else 0
        remainder = _Remainder(batch, offsets, frame._replace(due=due))
        if self._remainders and not self._fits(remainder):
            self._flush()
        self._remainders.append(remainder)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        self._covered = frame.next

    def close(self) -> list[SegmentEntry]:
        """Finish the last segment and return the entries of all that were written."""
        self._flush()
        self._finish()
        if self._plan.fsync:
            sync_folder(self._plan.folder)
        return self._entries

    def _fits(self, remainder: _Remainder) -> bool:
        first = self._remainders[0].frame
        alike = (first.schema, first.due) == (remainder.frame.schema, remainder.frame.due)
        rows, size = self._rows + remainder.batch.num_rows, self._bytes + remainder.batch.nbytes
        return alike and rows <= MAX_ROWS and size <= MAX_BYTES

    # ---- frames ----------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Write the frames of the pending records, or an empty one for offsets at which none is left."""
        if self._reached == self._covered:
            return
        remainders = self._remainders or [self._nothing()]
        newest = max(remainder.frame.append_time for remainder in remainders)
        table = self._table(remainders)
        offsets = table.column("_offset").to_numpy()
        encoded = list(payloads.encode(table, event_time=self._plan.meta.event_time, now=newest))
        rows_written = 0
        for at, payload in enumerate(encoded):
            rows_written += payload.rows
            following = self._covered if at == len(encoded) - 1 else int(offsets[rows_written])
            self._write(payload, remainders[0].frame, following, newest)
        self._remainders, self._rows, self._bytes, self._skipped = [], 0, 0, 0

    def _table(self, remainders: list[_Remainder]) -> pa.Table:
        """Return the records with the system columns that they need."""
        frames = [remainder.frame for remainder in remainders]
        flags = int(np.bitwise_or.reduce([frame.flags for frame in frames]))
        timed = flags & TIMES
        if self._plan.meta.event_time is None and len({frame.append_time for frame in frames}) > 1:
            timed = TIMES
        marked = any(frame.due for frame in frames)  # a frame without tombstones needs no column for them
        needed = {"_time": timed, "_deleted": marked, "_headers": flags & HEADERS}
        names = [name for name, needs in needed.items() if needs]
        schema = self._plan.meta.schema_of(frames[0].schema)
        fields = [*schema, *(pa.field(name, SYSTEM_COLUMNS[name]) for name in names), pa.field("_offset", pa.int64())]
        batches = []
        for batch, offsets, frame in remainders:
            remaining = frame._replace(rows=batch.num_rows)
            system = [payloads.system_column(name, batch, remaining, self._plan.meta.event_time) for name in names]
            columns = [*(batch.column(name) for name in schema.names), *system, offsets]
            batches.append(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)))
        return pa.Table.from_batches(batches)

    def _nothing(self) -> _Remainder:
        """Return a remainder without records, under the newest schema."""
        number = len(self._plan.meta.schemas)
        batch = pa.RecordBatch.from_pylist([], schema=self._plan.meta.schema_of(number))
        frame = Frame(0, 0, 0, 0, 0, 0, 0, 0, number, self._skipped, 0, 0, 0, NO_PRODUCER, 0)
        return _Remainder(batch, pa.array([], pa.int64()), frame)

    # ---- files -----------------------------------------------------------------------------------------

    def _write(self, payload: payloads.Payload, like: Frame, following: int, newest: int) -> None:
        if self._position and self._position + payload.length + HEADER_SIZE > self._plan.segment_bytes:
            self._finish()
        if self._file is None:
            self._file = (self._plan.folder / (self._name() + SEGMENT)).open("wb")
        frame = Frame(payload.flags | END, payload.checksum, payload.length, self._position, self._position,
                      self._reached, following, payload.rows, like.schema, newest, payload.min_time, payload.max_time,
                      self._reached, NO_PRODUCER, 0, like.due)  # fmt: skip
        for buffer in (framing.pack(frame), payload.buffer, payload.filling):
            write_all(self._file, buffer)
        self._position, self._reached = frame.end, following
        self._count += payload.rows
        self._age = max(self._age, newest)
        self._due = min(filter(None, (self._due, like.due)), default=0)

    def _name(self) -> str:
        return f"{name_of(self._base)}-{self._plan.version}"

    def _finish(self) -> None:
        """Close the current segment, durably, with its index."""
        if self._file is None:
            return
        self._file.flush()
        if self._plan.fsync:
            os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        path, index = (self._plan.folder / (self._name() + suffix) for suffix in (SEGMENT, INDEX))
        topic_partition = TopicPartition(self._plan.meta.name, int(self._plan.folder.name))
        Segment(path, index, self._base, topic_partition).save_index(self._position, self._reached)
        self._entries.append(
            SegmentEntry(
                self._base,
                self._reached,
                self._name(),
                self._position,
                self._count,
                self._age,
                cleaned=True,
                due=self._due,
            )
        )
        self._base = self._reached
        self._position = self._count = self._due = self._age = 0
