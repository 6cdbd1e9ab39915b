"""Records of a queue's topic by their places: those that were leased, and what decides their order."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.hashing import hash_columns
from headrace.base.schema import TIMESTAMP
from headrace.log.queues.leases import Admitted
from headrace.log.queues.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from headrace.log.queues.leases import Lease
    from headrace.log.topic import Topic

_NEAR = 32
"""Records that are so near to each other are read together."""
_FEW, _BLOCK = 16, 256
_SYSTEM = ("_offset", "_time", "_deleted")


def rows_at(topic: Topic, places: Iterable[tuple[int, int]], *, sealed: bool = False) -> Iterator[pa.RecordBatch]:
    """Yield the records at some (partition, offset), with `_partition` and the system columns; missing ones are not."""
    starts = topic.start_offsets()
    for partition, offsets in groupby(sorted(places), key=lambda place: place[0]):
        wanted = [offset for _, offset in offsets if offset >= starts[partition]]
        cuts = np.flatnonzero(np.diff(wanted) > _NEAR) + 1
        for run in np.split(np.array(wanted, np.int64), cuts):
            if not len(run):
                continue
            columns = [*topic.schema.names, *_SYSTEM]
            for batch in topic.batches(partition, int(run[0]), int(run[-1]) + 1, columns=columns, sealed=sealed):
                rows = batch
                if len(run) != int(run[-1]) + 1 - int(run[0]):
                    rows = batch.filter(pc.is_in(batch.column("_offset"), pa.array(run)))
                if rows.num_rows:
                    yield rows.append_column("_partition", pa.array(np.full(rows.num_rows, partition, np.int32)))


class Reader:
    """Reads the records of leases. Blocks that were read last are kept, since the next leases are often beside them."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self._blocks: dict[int, pa.Table] = {}

    def tasks(self, leases: Sequence[Lease]) -> list[Task]:
        """Return the records of leases, in the leases' order, without those that the topic does not have any more."""
        names = self.topic.schema.names
        found: dict[tuple[int, int], Task] = {}
        by_place = {(lease.partition, lease.offset): lease for lease in leases}
        for rows in self._rows(list(by_place)):
            places = zip(rows.column("_partition").to_pylist(), rows.column("_offset").to_pylist(), strict=True)
            times = rows.column("_time").cast(pa.int64()).to_pylist()
            deleted = rows.column("_deleted").to_pylist()
            values = rows.select(names).to_pylist()
            for place, time, gone, value in zip(places, times, deleted, values, strict=True):
                lease = by_place[place]
                found[place] = Task(
                    value=value,
                    topic=self.topic.name,
                    partition=lease.partition,
                    offset=lease.offset,
                    time=time,
                    deleted=bool(gone),
                    deliveries=lease.deliveries,
                    lease=lease,
                )
        return [found[place] for place in by_place if place in found]

    def _rows(self, places: Sequence[tuple[int, int]]) -> Iterator[pa.RecordBatch | pa.Table]:
        if len(places) > _FEW or self.topic.private:  # who is forgotten is so at once
            yield from rows_at(self.topic, places)
            return
        for partition, offset in places:
            block = self._blocks.get(partition)
            row = _row(block, offset)
            if row is None:
                block = self._blocks[partition] = self._block(partition, offset)
                row = _row(block, offset)
            if row is not None and block is not None:
                yield block.slice(row, 1)

    def _block(self, partition: int, offset: int) -> pa.Table | None:
        end = min(offset + _BLOCK, self.topic.end_offsets()[partition])
        batches = list(rows_at(self.topic, ((partition, each) for each in range(offset, end))))
        return pa.Table.from_batches(batches).combine_chunks() if batches else None


def _row(block: pa.Table | None, offset: int) -> int | None:
    if block is None:
        return None
    offsets = np.asarray(block.column("_offset"))
    at = int(np.searchsorted(offsets, offset))
    return at if at < len(offsets) and offsets[at] == offset else None


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
