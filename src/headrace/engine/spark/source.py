"""One Python data source reads all sources of the app: Spark sees one source with one offset.

An offset is `{"app": id, "epoch": n, "ranges": [[source, partition, start, end], ...], "bounds": {source: [earliest,
end]}, "began": s, "now": us, "reached": {step: us}, "single_task": small}`: what epoch n reads, the bounds of the
sources when it was planned, its time, the watermarks that its input reaches, and whether one task runs all of it.
Ranges have both ends, so an epoch that is repeated after a crash reads the same records, wherever its sources start by
then. Epochs without input exist too: for a watermark that a step has not worked with yet, and for idle sources. So an
app without any topic has this source as well.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from headrace.base.errors import DamagedFile
from headrace.base.time import SystemClock
from headrace.connect.source import from_json, to_json
from headrace.engine.dealing import dealt
from headrace.engine.inputs import Inputs
from headrace.engine.private import Destroyed
from headrace.engine.spark import workers
from headrace.engine.spark.planning import is_small
from headrace.engine.storage import Commit, Storage, read_json
from headrace.engine.watermarks import EpochTimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from headrace.connect.source import Bounds, OffsetRange
    from headrace.engine.spark.planning import Planning
    from headrace.engine.spark.tasks import Job

CLOCK = SystemClock()


class EpochTask(InputPartition):
    """The ranges that one task reads, and whether it runs the whole epoch."""

    def __init__(self, planned: Mapping[str, Any], number: int, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(number)
        self.epoch = int(planned["epoch"])
        self.times = times_of(planned, now=0)  # 0: planned by an older version, whose apps did not read it
        self.single = bool(planned["single_task"])
        self.number = number
        self.ranges = list(ranges)


@dataclass(frozen=True)
class EpochControl:
    """Which epochs may run: the driver writes it to a small file, the planner of epochs reads it.

    `until`: the last epoch (None: no end). `force`: epochs up to it run even without input. `limit`: how many rows an
    epoch reads (None: the limit of the last commit).
    """

    until: int | None = None
    force: bool = False
    limit: int | None = None

    @staticmethod
    def path(storage: Path) -> Path:
        """Return the control's file in a storage."""
        return storage / "spark" / "control.json"

    @staticmethod
    def read(storage: Path) -> EpochControl:
        """Return the control of a storage; without a file there are no restrictions."""
        try:
            return EpochControl(**(read_json(EpochControl.path(storage)) or {}))
        except DamagedFile:
            return EpochControl()

    def write(self, storage: Storage) -> None:
        """Write the control."""
        storage.write_json("spark/control.json", vars(self) | {})


def data_source(job: Job, name: str) -> type[DataSource]:
    """Return the data source of an app.

    Three processes of Spark's have it before a task runs: what the planner needs, and what tasks need, travel as bytes,
    so that each process imports what it uses, and no more.
    """
    from headrace.engine.spark.blobs import DDL

    pickler = CloudPickleSerializer()
    packed, columns = pickler.dumps((job.planning, pickler.dumps(job))), DDL

    class HeadraceEpochs(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            from headrace.engine.spark import ending

            ending.quietly()
            return columns

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 -- Spark's names
            from headrace.engine.spark import workers
            from headrace.engine.spark.source import EpochReader, unpacked

            workers.hide_pandas()
            return EpochReader(*unpacked(packed))

    return HeadraceEpochs


def unpacked(packed: bytes) -> Any:
    """Return what `data_source` packed: Spark brings it from the driver, as it does what it pickles itself."""
    workers.prepare()
    return CloudPickleSerializer().loads(packed)


class EpochReader(DataSourceStreamReader):
    """Plans epochs in Spark's planner process, and reads them in its tasks."""

    def __init__(self, planning: Planning, job: bytes) -> None:
        self.planning = planning
        self.job = job
        self.storage = Storage(planning.storage, planning.app)
        self.destroyed = Destroyed(planning.storage)
        self._inputs: Inputs | None = None
        self._first: int | None = None  # the first epoch that it planned

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need, to which each epoch sends it: they plan nothing."""
        return {"job": self.job}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return the epoch of the last commit."""
        last = self.storage.last_epoch()
        return self._offset(-1 if last is None else last, [], {}, EpochTimes(0), single_task=False)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002, N802 -- Spark's name
        """Return the next epoch, or `start` while there is nothing to do.

        It follows the last commit: epochs with rows of Spark's own sources alone do not change our offset.
        """
        newest = self.storage.last_epoch()
        epoch = max(int(start["epoch"]), -1 if newest is None else newest)
        control = EpochControl.read(self.planning.storage)
        if control.until is not None and epoch >= control.until:
            return start
        commit = self._commit(epoch)
        if self._inputs is None:
            self._inputs = Inputs(self.planning.inputs, clock=CLOCK)
        self.planning.fault("before_bounds")
        bounds = self._inputs.bounds(commit)
        self.planning.fault("after_bounds")
        ranges = self._inputs.unread(commit, bounds, control.limit if control.limit is not None else commit.limit)
        due = commit.due or self._inputs.begins(commit, bounds) or self.destroyed.since(commit)
        if not (ranges or control.force or due or self._inputs.clock_epoch_due(commit, bounds, CLOCK.now())):
            return start
        if self._first is None:
            self._first = epoch + 1
        single_task = is_small(self.planning, commit, ranges, warm=epoch != self._first)
        reaches = self._inputs.reaches(self.planning.ahead, commit, ranges, bounds)
        times = EpochTimes(max(CLOCK.now(), commit.now), reaches)
        return self._offset(epoch + 1, ranges, bounds, times, single_task=single_task)

    def _offset(
        self,
        epoch: int,
        ranges: Sequence[OffsetRange],
        bounds: Mapping[str, Bounds],
        times: EpochTimes,
        *,
        single_task: bool,
    ) -> dict[str, Any]:
        return {
            "app": self.planning.app_id,
            "epoch": epoch,
            "ranges": to_json(ranges),
            "bounds": {step: [dict(each.earliest), dict(each.end)] for step, each in bounds.items()},
            "began": CLOCK.monotonic(),
            "now": times.now,
            "reached": dict(times.reached),
            "single_task": single_task,
        }

    def _commit(self, epoch: int) -> Commit:
        commit = self.planning.before(epoch + 1)
        if epoch < 0:
            return replace(commit, limit=self.planning.first)
        return commit

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of an epoch: one for few rows, else at most one for each shard."""
        if start["epoch"] == end["epoch"]:
            return []  # only Spark's own sources have rows
        ranges = from_json(end["ranges"])
        if end["single_task"]:
            return [EpochTask(end, 0, ranges)]
        parts = dealt(ranges, self.planning.shards) if ranges else []
        return [EpochTask(end, number, part) for number, part in enumerate(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run level 0, or all levels of a small epoch."""
        assert isinstance(partition, EpochTask)  # noqa: S101 -- what `partitions` returned
        from headrace.engine.spark.single_task import read_single_task
        from headrace.engine.spark.tasks import read_ranges

        job = unpacked(self.job)
        if partition.single:
            return read_single_task(job, partition.epoch, partition.ranges, partition.times)
        here = job.task(partition.epoch, partition.number, partition.times)
        return read_ranges(job, here, partition.ranges)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the engine commits."""

    def stop(self) -> None:
        """End the planner's process without a word where Spark has left: its runner would print three traces."""
        if workers.spark_left(sys.exc_info()[1]):
            os._exit(0)


def times_of(offset: Mapping[str, Any], *, now: int) -> EpochTimes:
    """Return what an offset tells all tasks of its epoch; `now` is for one that does not say its time."""
    return EpochTimes(int(offset.get("now", now)), offset.get("reached", {}))
