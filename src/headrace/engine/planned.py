"""An epoch that was planned and has not run yet, and the parameters of its tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.connect.source import total_rows
from headrace.kernels.task import Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.connect.source import Bounds, OffsetRange
    from headrace.engine.engine import Settings
    from headrace.engine.storage import Commit


@dataclass(frozen=True, kw_only=True)
class PlannedEpoch:
    """An epoch to run: its input ranges, the bounds of the sources when it was planned, and the commit before it."""

    epoch: int
    ranges: tuple[OffsetRange, ...]
    bounds: Mapping[str, Bounds]
    before: Commit
    began: float
    decided: Commit | None = None
    """Of an epoch that was lost and runs again: what its first run decided."""

    @property
    def rows(self) -> int:
        """How many offsets it reads."""
        return total_rows(self.ranges)


def task(settings: Settings, planned: PlannedEpoch, *, shard: int, shards: int, attempt: str) -> Task:
    """Return the parameters of one task of an epoch."""
    heads = {step: by[str(shard)] for step, by in planned.before.heads.items() if str(shard) in by}
    return Task(
        epoch=planned.epoch,
        shard=shard,
        shards=shards,
        attempt=attempt,
        storage=settings.storage,
        sync=settings.sync,
        watermarks=planned.before.watermarks,
        previous=planned.before.previous,
        heads=heads,
        fault=settings.fault,
    )
