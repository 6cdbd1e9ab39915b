"""What an engine runs with, an epoch that it has planned, and the parameters of its tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.connect.source import total_rows
from headrace.kernels.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from headrace.base.time import Clock
    from headrace.connect.source import Bounds, OffsetRange
    from headrace.engine.storage import Commit
    from headrace.kernels.redo import RedoLog


def no_fault(point: str) -> None:
    """A point where a test may end the process; in production nothing happens."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How an engine runs.

    `sync`: whether files survive a power cut; False is faster, for tests. `small`: an epoch of at most so many rows may
    run as one Spark task (`spark/single_task.py`); None: as many as pay where Spark runs. `beside`: whether processes
    beside Spark's worker run such epochs from the first one on, for tests; else they do when they are worth it. Of a
    replay, `upto` has the offsets up to which sources are read, and `until` by step the latest watermark that it may
    work with.
    """

    storage: Path
    topics: str | None
    shards: int
    clock: Clock
    sync: bool = True
    partitions: int | None = None
    small: int | None = None
    beside: bool = False
    upto: Mapping[str, Mapping[str, int]] | None = None
    until: Mapping[str, int | None] = field(default_factory=dict)
    fault: Callable[[str], None] = no_fault


@dataclass(frozen=True, kw_only=True)
class PlannedEpoch:
    """An epoch to run: its input ranges, the bounds of the sources when it was planned, and the commit before it."""

    epoch: int
    ranges: tuple[OffsetRange, ...]
    bounds: Mapping[str, Bounds]
    before: Commit
    began: float
    now: int
    """The time of the epoch, in microseconds: what `current_timestamp()` is in all of its tasks."""
    reached: Mapping[str, int] = field(default_factory=dict)
    """The watermarks that its own input reaches, by step: where they are known, and later than those before it."""
    decided: Commit | None = None
    """Of an epoch that was lost and runs again: what its first run decided."""

    @property
    def rows(self) -> int:
        """How many offsets it reads."""
        return total_rows(self.ranges)


def task(
    settings: Settings, planned: PlannedEpoch, *, shard: int, shards: int, attempt: str, redo: RedoLog | None = None
) -> Task:
    """Return the parameters of one task of an epoch; `redo` takes its small files."""
    heads = {step: by[str(shard)] for step, by in planned.before.heads.items() if str(shard) in by}
    return Task(
        epoch=planned.epoch,
        shard=shard,
        shards=shards,
        attempt=attempt,
        storage=settings.storage,
        sync=settings.sync if redo is None else redo,
        watermarks=planned.before.watermarks,
        previous=planned.before.previous,
        heads=heads,
        fault=settings.fault,
        now=planned.now,
        reached=planned.reached,
    )
