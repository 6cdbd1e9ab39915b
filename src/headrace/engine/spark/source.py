"""One Python data source reads every topic of the app: one offset map for all, one source in Spark's eyes.

An offset is `{"epoch": n, "ends": {source: {partition: offset}}, "began": s, "whole": small}`: what has been read
once epoch n is committed, and whether one task runs all of it. Epochs without input exist too: a watermark that no step
has met yet asks for one, and so does the clock where a source is idle. That is why an app without any topic has this
source as well.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from headrace.base.time import SystemClock
from headrace.connect.embedded import OffsetRange
from headrace.engine.pace import most_rows, total
from headrace.engine.spark import blobs, tasks
from headrace.engine.spark.single_task import is_small, read_single_task
from headrace.engine.storage import Commit, Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from headrace.engine.inputs import Inputs

FEW_ROWS = 20_000
"""An epoch of fewer rows is read by one task: a second one costs more than it saves."""


class Piece(InputPartition):
    """What one task reads, and whether it runs the whole epoch."""

    def __init__(self, end: dict[str, Any], number: int, slices: Sequence[OffsetRange]) -> None:
        super().__init__(number)
        self.epoch = int(end["epoch"])
        self.whole = bool(end.get("whole"))
        self.began = float(end["began"])
        self.number = number
        self.slices = list(slices)


@dataclass(frozen=True)
class Gate:
    """How far the query may go: a small file that the driver writes and the planner of epochs reads.

    `until`: no epoch after this one (None: no end). `force`: epochs up to there run even when there is nothing to do.
    """

    until: int | None = None
    force: bool = False
    limit: int | None = None

    @staticmethod
    def path(storage: Path) -> Path:
        """Return the file of a storage."""
        return storage / "spark" / "gate.json"

    @staticmethod
    def read(storage: Path) -> Gate:
        """Return the gate as it is; without a file it is open."""
        try:
            return Gate(**json.loads(Gate.path(storage).read_text()))
        except (FileNotFoundError, ValueError):
            return Gate()

    def write(self, storage: Storage) -> None:
        """Set the gate."""
        storage.write_json("spark/gate.json", vars(self) | {})


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
        commit = Commit(epoch=-1) if last is None else self.storage.read_commit(last)
        ends = {name: progress.offsets for name, progress in commit.sources.items()}
        return {"epoch": commit.epoch, "ends": ends, "began": 0.0, "whole": False}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002, N802 -- Spark's name
        """Return the end of the next epoch, or `start` while there is nothing to do.

        It goes by the last commit: epochs of rows that Spark read by itself move no offset of ours.
        """
        newest = self.storage.last_epoch()
        gate, epoch = Gate.read(self.job.storage), max(int(start["epoch"]), -1 if newest is None else newest)
        if gate.until is not None and epoch >= gate.until:
            return start
        commit = self._commit(epoch)
        inputs, clock = self._inputs or self.job.inputs(), SystemClock()
        self._inputs = inputs
        slices = inputs.unread(commit, gate.limit if gate.limit is not None else commit.limit)
        if not slices and not gate.force and not commit.due and not inputs.clock_epoch_due(commit, clock.now()):
            return start
        ends = {name: dict(read) for name, read in start["ends"].items()}
        for piece in slices:
            ends.setdefault(piece.source, {})[str(piece.partition)] = piece.last
        whole = is_small(self.job, commit, slices)
        return {"epoch": epoch + 1, "ends": ends, "began": clock.monotonic(), "whole": whole}

    def _commit(self, epoch: int) -> Commit:
        commit = self.job.before(epoch + 1, self.job.program.app)
        if epoch < 0:
            return replace(commit, limit=most_rows(node.schema for node in self.job.sources.values()))
        return commit

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of an epoch: few for few rows, else about one a core."""
        slices = self._slices(start, end)
        if end.get("whole"):
            return [Piece(end, 0, slices)]
        parts = packed(slices, self.job.program.shards) if total(slices) > FEW_ROWS else [slices] if slices else []
        return [Piece(end, number, part) for number, part in enumerate(parts)]

    def _slices(self, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetRange]:
        made = []
        for source, ends in end["ends"].items():
            node = self.job.sources[source]
            for partition, last in ends.items():
                first = start["ends"].get(source, {}).get(partition, 0)
                if last > first:
                    topic: str = node.topic  # type: ignore[union-attr] # only topics have offsets of ours
                    piece = OffsetRange(source=source, topic=topic, partition=int(partition), first=first, last=last)
                    made.append(piece)
        return made

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run level 0, of a small epoch all levels."""
        assert isinstance(partition, Piece)  # noqa: S101 -- what `partitions` made
        if partition.whole:
            return read_single_task(self.job, partition.epoch, partition.slices, partition.began)
        return tasks.read_slices(self.job, partition.epoch, partition.number, partition.slices, partition.began)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the commit is ours."""


def packed(slices: Sequence[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
    """Return slices as the work of at most so many tasks, of about equal rows, in order.

    Few large tasks rather than one a partition: each sends a partial group of every key that it meets.
    """
    room = size = -(-total(slices) // tasks)
    made: list[list[OffsetRange]] = [[]]
    for piece in slices:
        rest: OffsetRange | None = piece
        while rest is not None:
            if room <= 0 and len(made) < tasks:
                made.append([])
                room = size
            taken = rest if rest.rows <= room or len(made) == tasks else replace(rest, last=rest.first + room)
            made[-1].append(taken)
            room -= taken.rows
            rest = replace(rest, first=taken.last) if taken.last < rest.last else None
    return made
