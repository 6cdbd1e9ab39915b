"""Records of a queue's topic by their places: those that were leased, and what decides their order."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import OffsetOutOfRange
from headrace.base.hashing import hash_columns
from headrace.base.schema import TIMESTAMP
from headrace.log.disk_errors import disk_error
from headrace.log.queues.leases import Admitted
from headrace.log.queues.task import Task
from headrace.log.reading import first_stored
from headrace.log.segments import shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    import numpy.typing as npt

    from headrace.log.queues.leases import Lease
    from headrace.log.topic import Topic

_NEAR = 32
"""Records that are so near to each other are read together."""
_FEW, _BLOCK, _BLOCK_BYTES = 16, 256, 1 << 20
_SYSTEM = ("_offset", "_time", "_deleted")


class _Record(NamedTuple):
    value: dict[str, Any]
    time: int
    deleted: bool


def rows_at(
    topic: Topic, places: Iterable[tuple[int, int]], *, sealed: bool = False
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the records at some (partition, offset) with the system columns, by partition; missing ones are not."""
    starts = topic.start_offsets()
    for partition, offsets in groupby(sorted(places), key=lambda place: place[0]):
        wanted = [offset for _, offset in offsets if offset >= starts[partition]]
        cuts = np.flatnonzero(np.diff(wanted) > _NEAR) + 1
        for run in np.split(np.array(wanted, np.int64), cuts):
            for rows in _rows_of(topic, partition, run, sealed=sealed):
                yield partition, rows


def _rows_of(topic: Topic, partition: int, run: npt.NDArray[np.int64], *, sealed: bool) -> Iterator[pa.RecordBatch]:
    """Yield the records at offsets that are near to each other, without those that retention deletes meanwhile."""
    columns = [*topic.schema.names, *_SYSTEM]
    while len(run):
        first, end = int(run[0]), int(run[-1]) + 1
        try:
            for batch in topic.batches(partition, first, end, columns=columns, sealed=sealed):
                rows = batch
                if len(run) != end - int(run[0]):
                    at = np.flatnonzero(np.isin(shared.values_of(batch.column("_offset")), run))
                    rows = batch.take(shared.numbers(at))
                if rows.num_rows:
                    yield rows
                    first = int(shared.values_of(rows.column("_offset"))[-1]) + 1
        except OffsetOutOfRange:
            rest = run[run >= max(first, topic.start_offsets()[partition])]
            if len(rest) == len(run):
                raise
            run = rest
        else:
            return


class Reader:
    """Reads the records of leases. Some that follow are read with them, since the next leases are often those.

    Many threads may use it.
    """

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self._following: dict[int, dict[int, _Record]] = {}

    def tasks(self, leases: Sequence[Lease], ends: Mapping[int, int]) -> list[Task]:
        """Return the records of leases, in the leases' order, without those that the topic does not have any more.

        `ends` is where the partitions end, at least.
        """
        if len(leases) > _FEW or self.topic.private:  # who is forgotten is so at once
            places = [(lease.partition, lease.offset) for lease in leases]
            found = {
                (partition, offset): record
                for partition, rows in rows_at(self.topic, places)
                for offset, record in _records(rows, self.topic.schema.names)
            }
            there = ((lease, found.get((lease.partition, lease.offset))) for lease in leases)
        else:
            there = ((lease, self._record(lease.partition, lease.offset, ends)) for lease in leases)
        return [self._task(lease, record) for lease, record in there if record is not None]

    def _task(self, lease: Lease, record: _Record) -> Task:
        return Task(
            value=record.value,
            topic=self.topic.name,
            partition=lease.partition,
            offset=lease.offset,
            time=record.time,
            deleted=record.deleted,
            deliveries=lease.deliveries,
            lease=lease,
        )

    def _record(self, partition: int, offset: int, ends: Mapping[int, int]) -> _Record | None:
        """Return a record once: whoever has it may change its value."""
        record = self._following.get(partition, {}).pop(offset, None)
        if record is None:
            block = self._block(partition, offset, ends[partition])
            record = block.pop(offset, None)
            self._following[partition] = block
        return record

    def _block(self, partition: int, offset: int, end: int) -> dict[int, _Record]:
        """Return records from an offset on: those that were appended together, up to a limit."""
        names = self.topic.schema.names
        try:
            if (found := first_stored(self.topic.opened, partition, offset, end)) is not None:
                some = found.batch.slice(0, _fitting(found.batch)).to_pylist()
                return {at: _Record(value, found.time, deleted=False) for at, value in enumerate(some, found.offset)}
            for batch in self.topic.batches(partition, offset, end, columns=[*names, *_SYSTEM]):
                return dict(_records(batch.slice(0, _fitting(batch)), names))
        except OffsetOutOfRange:  # retention was faster
            pass
        except OSError as error:
            raise disk_error(self.topic.place, error) from error
        return {}


def _fitting(rows: pa.RecordBatch) -> int:
    """Return how many of some rows are read together."""
    if rows.num_rows == 1:
        return 1
    fit: int = _BLOCK_BYTES * rows.num_rows // max(rows.nbytes, 1)
    return max(1, min(fit, _BLOCK))


def _records(rows: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[int, _Record]]:
    times = rows.column("_time").view(pa.int64()).to_pylist()
    found = map(_Record, rows.select(names).to_pylist(), times, rows.column("_deleted").to_pylist())
    return zip(rows.column("_offset").to_pylist(), found, strict=True)


def ordering(
    topic: Topic, partition: int, offsets: range, *, priority: str | None, not_before: str | None, in_order: bool
) -> list[Admitted]:
    """Return what decides when records are taken."""
    key = topic.key if in_order else ()
    columns = list(dict.fromkeys([*(name for name in (priority, not_before) if name), *key, "_offset"]))
    found: list[Admitted] = []
    for batch in topic.batches(partition, offsets.start, offsets.stop, columns=columns):
        count = batch.num_rows
        nothing = np.zeros(count, np.int64)
        priorities = _numbers(batch.column(priority)) if priority else nothing
        times = _numbers(batch.column(not_before).cast(TIMESTAMP).cast(pa.int64())) if not_before else nothing
        keys = hash_columns([batch.column(name) for name in key], count).view(np.int64).tolist() if key else None
        for row, offset in enumerate(batch.column("_offset").to_pylist()):
            hashed = keys[row] if keys is not None else None
            found.append(Admitted(partition, offset, int(times[row]), int(priorities[row]), hashed))
    return found


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(column.cast(pa.int64()), 0))
