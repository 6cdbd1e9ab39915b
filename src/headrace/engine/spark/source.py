"""One Python data source reads every topic of the app: one offset map for all, one source in Spark's eyes.

An offset is `{"app": id, "epoch": n, "ranges": [[source, partition, start, end], ...], "bounds": {source: [earliest,
end]}, "began": s, "single_task": small}`: what epoch n reads, what there was to read when it was planned, and
whether one task runs all of it. Ranges are whole, so an epoch that is planned again after a crash reads the same,
wherever its sources begin by then. Epochs without input exist too: a watermark that no step has worked with yet asks
for one, and so does the clock where a source is idle. That is why an app without any topic has this source as well.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from headrace.base.time import SystemClock
from headrace.connect.source import from_json, to_json, total_rows
from headrace.engine.inputs import Inputs
from headrace.engine.pace import most_rows
from headrace.engine.spark import blobs, tasks
from headrace.engine.spark.single_task import is_small, read_single_task
from headrace.engine.storage import Commit, Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from headrace.connect.source import Bounds, OffsetRange

CLOCK = SystemClock()
FEW_ROWS = 20_000
"""An epoch of fewer rows is read by one task: a second one costs more than it saves."""


class EpochTask(InputPartition):
    """What one task reads, and whether it runs the whole epoch."""

    def __init__(self, planned: Mapping[str, Any], number: int, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(number)
        self.epoch = int(planned["epoch"])
        self.single = bool(planned["single_task"])
        self.number = number
        self.ranges = list(ranges)


@dataclass(frozen=True)
class EpochControl:
    """How far the query may go: a small file that the driver writes and the planner of epochs reads.

    `until`: no epoch after this one (None: no end). `force`: epochs up to there run even when there is nothing to do.
    """

    until: int | None = None
    force: bool = False
    limit: int | None = None

    @staticmethod
    def path(storage: Path) -> Path:
        """Return the file of a storage."""
        return storage / "spark" / "control.json"

    @staticmethod
    def read(storage: Path) -> EpochControl:
        """Return the control as it is; without a file it is open."""
        try:
            return EpochControl(**json.loads(EpochControl.path(storage).read_text()))
        except (FileNotFoundError, ValueError):
            return EpochControl()

    def write(self, storage: Storage) -> None:
        """Set the control."""
        storage.write_json("spark/control.json", vars(self) | {})


def data_source(job: tasks.Job, name: str) -> type[DataSource]:
    """Return the data source of an app; it carries its job along to wherever Spark unpickles it."""

    class HeadraceEpochs(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return blobs.DDL

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 -- Spark's names
            return make_reader(job)

    return HeadraceEpochs


def make_reader(job: tasks.Job) -> DataSourceStreamReader:
    """Return the reader of an app's topics."""
    return EpochReader(job)


class EpochReader(DataSourceStreamReader):
    """Plans epochs in Spark's planner process, and reads them in its tasks."""

    def __init__(self, job: tasks.Job) -> None:
        self.job = job
        self.storage = Storage(job.storage, job.program.app)
        self._inputs: Inputs | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need: what is open here stays here."""
        return vars(self) | {"_inputs": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return where the last commit is."""
        last = self.storage.last_epoch()
        return self._offset(-1 if last is None else last, [], {}, single_task=False)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002, N802 -- Spark's name
        """Return the next epoch, or `start` while there is nothing to do.

        It follows the last commit: epochs of rows that Spark read by itself move no offset of ours.
        """
        newest = self.storage.last_epoch()
        control, epoch = EpochControl.read(self.job.storage), max(int(start["epoch"]), -1 if newest is None else newest)
        if control.until is not None and epoch >= control.until:
            return start
        commit = self._commit(epoch)
        if self._inputs is None:
            self._inputs = Inputs(self.job.inputs, clock=CLOCK)
        self.job.fault("before_bounds")
        bounds = self._inputs.bounds()
        self.job.fault("after_bounds")
        ranges = self._inputs.unread(commit, bounds, control.limit if control.limit is not None else commit.limit)
        if not (ranges or control.force or commit.due or self._inputs.clock_epoch_due(commit, bounds, CLOCK.now())):
            return start
        return self._offset(epoch + 1, ranges, bounds, single_task=is_small(self.job, commit, ranges))

    def _offset(
        self, epoch: int, ranges: Sequence[OffsetRange], bounds: Mapping[str, Bounds], *, single_task: bool
    ) -> dict[str, Any]:
        return {
            "app": self.job.app_id,
            "epoch": epoch,
            "ranges": to_json(ranges),
            "bounds": {step: [dict(each.earliest), dict(each.end)] for step, each in bounds.items()},
            "began": CLOCK.monotonic(),
            "single_task": single_task,
        }

    def _commit(self, epoch: int) -> Commit:
        commit = self.job.before(epoch + 1, self.job.program.app)
        if epoch < 0:
            return replace(commit, limit=most_rows(each.shape.schema for each in self.job.inputs.values()))
        return commit

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of an epoch: few for few rows, else about one a core."""
        if start["epoch"] == end["epoch"]:
            return []  # nothing of ours: sources of Spark's own have rows
        ranges = from_json(end["ranges"])
        if end["single_task"]:
            return [EpochTask(end, 0, ranges)]
        parts = packed(ranges, self.job.program.shards) if total_rows(ranges) > FEW_ROWS else [ranges] if ranges else []
        return [EpochTask(end, number, part) for number, part in enumerate(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run level 0, of a small epoch all levels."""
        assert isinstance(partition, EpochTask)  # noqa: S101 -- what `partitions` returned
        if partition.single:
            return read_single_task(self.job, partition.epoch, partition.ranges)
        return tasks.read_ranges(self.job, partition.epoch, partition.number, partition.ranges)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the commit is ours."""


def packed(ranges: Sequence[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
    """Return ranges as the work of at most so many tasks, of about equal rows, in order.

    Few large tasks rather than one a partition: each sends a partial group of every key that it has.
    """
    room = size = -(-total_rows(ranges) // tasks)
    parts: list[list[OffsetRange]] = [[]]
    for each in ranges:
        rest: OffsetRange | None = each
        while rest is not None:
            if room <= 0 and len(parts) < tasks:
                parts.append([])
                room = size
            fits = rest.rows <= room or len(parts) == tasks
            taken = rest if fits else replace(rest, end=rest.start + room)
            parts[-1].append(taken)
            room -= taken.rows
            rest = replace(rest, start=taken.end) if taken.end < rest.end else None
    return parts
