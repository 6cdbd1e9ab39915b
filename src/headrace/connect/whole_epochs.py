"""Whole epochs: what an app published together is read together, whatever log or cluster its topics are in.

An epoch of an app is, in each partition, the offsets `[first, last)`. A reader of several partitions ends its own
epochs between such epochs, never inside one (docs/design/0009).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.schema import as_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SCHEMA = as_schema("app string, epoch bigint, topic string, partition int, first bigint, last bigint")
"""A row: the offsets `[first, last)` of an app's epoch in a partition of a topic."""

TopicPartition = tuple[str, int]
"""A topic's name and the number of a partition."""


@dataclass
class PublishedEpochs:
    """The epochs of apps that a reader has not read yet."""

    _pending: pa.Table = field(default_factory=SCHEMA.empty_table, init=False)

    def add(self, epochs: pa.Table) -> None:
        """Take note of published epochs: rows of `SCHEMA`, of the topics that the reader reads."""
        self._pending = pa.concat_tables([self._pending, epochs]).combine_chunks()

    def whole(
        self,
        partitions: Sequence[TopicPartition],
        starts: Sequence[int],
        wanted: Sequence[int],
        limits: Sequence[int],
    ) -> list[int]:
        """Return the end offset of each partition's range, so that all ranges together hold whole epochs.

        The least such ends: beyond `wanted` only where an epoch has more records, and never beyond `limits`.

        Args:
            partitions: the partitions that are read.
            starts: where their ranges start; must not go back from call to call.
            wanted: where they should end.
            limits: where they may end at most.

        """
        epochs = self._unread(partitions, starts)
        highest = np.array(limits, dtype=np.int64)
        epochs.lower(highest)
        ends = np.minimum(np.array(wanted, dtype=np.int64), highest)
        epochs.extend(ends)
        return [int(end) for end in np.maximum(ends, np.array(starts, dtype=np.int64))]

    def _unread(self, partitions: Sequence[TopicPartition], starts: Sequence[int]) -> _Epochs:
        """Return the epochs that are not read yet, and forget what is read of these partitions.

        A partition may be missing because it was created after the bounds of this call were asked for.
        """
        rows, indexes, boundaries = [], [], self._pending
        elsewhere = np.ones(len(boundaries), dtype=np.bool_)
        for index, ((topic, partition), start) in enumerate(zip(partitions, starts, strict=True)):
            here = pc.and_(
                pc.equal(boundaries.column("topic"), topic), pc.equal(boundaries.column("partition"), partition)
            )
            found = np.flatnonzero(pc.and_(here, pc.greater(boundaries.column("last"), start)).to_numpy())
            elsewhere &= ~here.to_numpy()
            rows.append(found)
            indexes.append(np.full(found.size, index, dtype=np.int64))
        row = np.concatenate(rows)
        apps = pc.index_in(boundaries.column("app"), pc.unique(boundaries.column("app")))
        app = apps.to_numpy()[row].astype(np.int64)
        number, first, last = (boundaries.column(name).to_numpy()[row] for name in ("epoch", "first", "last"))
        _, epoch = np.unique(app * (1 << 40) + number, return_inverse=True)
        self._pending = boundaries.take(pa.array(np.union1d(row, np.flatnonzero(elsewhere))))
        return _Epochs(np.concatenate(indexes), epoch, first, last)


@dataclass(frozen=True, slots=True)
class _Epochs:
    """Boundaries as columns: a row is the offsets `[first, last)` of an epoch in a partition.

    An epoch is read whole or not at all. `partition` is an index into the ends that the methods change.
    """

    partition: NDArray[np.int64]
    epoch: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]

    def lower(self, ends: NDArray[np.int64]) -> None:
        """Lower the partitions' ends until every epoch that is cut by one of them is left out."""
        while (cut := self._same_epochs(self.last > ends[self.partition]) & (self.first < ends[self.partition])).any():
            np.minimum.at(ends, self.partition[cut], self.first[cut])

    def extend(self, ends: NDArray[np.int64]) -> None:
        """Raise the partitions' ends until every epoch that begins before one of them is whole."""
        while (cut := self._same_epochs(self.first < ends[self.partition]) & (self.last > ends[self.partition])).any():
            np.maximum.at(ends, self.partition[cut], self.last[cut])

    def _same_epochs(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which rows belong to an epoch of a chosen row."""
        epochs = np.zeros(int(self.epoch.max(initial=-1)) + 1, dtype=np.bool_)
        epochs[self.epoch[chosen]] = True
        return epochs[self.epoch]
