"""What the planner of epochs knows of a job, in a process of Spark's of its own, and which epochs are small.

The planner imports no DuckDB, no operator and no compiler of expressions: they would cost each start half a second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.connect.source import total_rows
from headrace.engine.input import only_replayable
from headrace.engine.pace import SMALL_ROWS, SMALL_ROWS_OF_ONE_MACHINE, SMALL_ROWS_OF_ONE_THREAD
from headrace.engine.storage import Commit, Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from headrace.connect.source import OffsetRange
    from headrace.engine.input import Input

SMALL_BYTES = 4 * 1024 * 1024
"""State up to this size stays in each worker's memory: opening and closing a file costs 5 ms an epoch or more."""
MOST_BYTES = 64 * SMALL_BYTES
"""State up to this size, of all shards and apps together, stays in each worker's memory."""
SCANNED_BYTES = 16 * SMALL_BYTES
"""The same where one task uses the whole machine: the tasks of a stage would open the same files."""
MOST_SECONDS = 1.0
"""Few rows may still take long: an epoch is not small if the one before took longer with as few rows. Where one task
uses the whole machine, so long for each `SMALL_ROWS` of its rows."""
USUAL_SHARDS = 16
"""With more of them an epoch may take longer, in proportion: each level of each shard has its fixed cost."""


@dataclass(frozen=True, kw_only=True)
class Planning:
    """The parameters of the planner.

    `first`: how many rows the first epoch may have, and `small` a small one. `scanned`: the steps whose tables an epoch
    may read as a whole.
    """

    app_id: str
    app: str
    storage: Path
    shards: int
    inputs: Mapping[str, Input]
    first: int
    small: int
    scanned: frozenset[str]
    fault: Callable[[str], None]
    ahead: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The steps that emit by the watermark that an epoch's input reaches, with their sources."""

    @property
    def whole_machine(self) -> bool:
        """Whether one task does with its threads what the tasks of a stage do."""
        return self.small >= SMALL_ROWS_OF_ONE_MACHINE

    def before(self, epoch: int) -> Commit:
        """Return the commit that an epoch builds on."""
        return commit_before(self.storage, self.app, epoch)


def commit_before(storage: Path, app: str, epoch: int) -> Commit:
    """Return the commit that an epoch of an app builds on."""
    return Commit(epoch=-1) if epoch == 0 else Storage(storage, app).read_commit(epoch - 1)


def is_one_machine(master: str) -> bool:
    """Return whether this machine is all that a master of Spark's has."""
    return master.startswith("local") and not master.startswith("local-cluster")


def small_rows(master: str, *, one_thread: bool) -> int:
    """Return how many rows a small epoch may have under a master of Spark's.

    Args:
        master: the master; of `local[…]` this machine is all there is.
        one_thread: whether a program decodes its input, or calls functions of the user's: one thread of a task does.

    """
    if not is_one_machine(master):
        return SMALL_ROWS
    return SMALL_ROWS_OF_ONE_THREAD if one_thread else SMALL_ROWS_OF_ONE_MACHINE


def is_small(planning: Planning, before: Commit, ranges: Sequence[OffsetRange], *, warm: bool = True) -> bool:
    """Whether one task should run an epoch, by its rows, the state it scans, and the time of the epoch before.

    That time says nothing where the epoch before was the first one of a start (not `warm`): Spark was cold.
    """
    rows = total_rows(ranges)
    return (
        rows <= planning.small
        and (not warm or before.seconds <= _most_seconds(planning, rows) or before.rows > rows)
        and only_replayable(planning.inputs)
        and _scans_little(planning, before)
    )


def _most_seconds(planning: Planning, rows: int) -> float:
    """Return how long an epoch of so many rows may take, for the next one to be small."""
    parts = rows / SMALL_ROWS if planning.whole_machine else 1.0
    return MOST_SECONDS * max(1.0, parts, planning.shards / USUAL_SHARDS)


def _scans_little(planning: Planning, before: Commit) -> bool:
    """Whether the tables that shards scan fit a worker's memory, so that any worker can have all of them."""
    sizes = [
        head.full_bytes + head.chain_bytes for step in planning.scanned for head in before.heads.get(step, {}).values()
    ]
    most = SCANNED_BYTES if planning.whole_machine else SMALL_BYTES
    return max(sizes, default=0) <= most and sum(sizes) <= MOST_BYTES
