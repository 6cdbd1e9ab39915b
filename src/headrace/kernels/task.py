"""The input and output of a task: its part of an epoch, the files it staged, its report."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.base.checked import members
from headrace.base.dead_letters import causes
from headrace.kernels.counts import Counts
from headrace.kernels.files import in_few_bytes, write_tables
from headrace.kernels.state.state import StateHead

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pyarrow as pa

    from headrace.kernels.files import Later


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Which part of which epoch is run: times are microseconds; a missing watermark is None.

    `sync`: whether files are on the disk when they are written, or what takes charge of that before the commit.
    `now` is the time of the epoch: all of its tasks, and all attempts of them, have the same.
    `watermarks` and `previous` are, by step, the watermarks that it works with in this epoch and in the one before;
    `reached` are those that the epoch's own input reaches, where they are known and later.
    """

    epoch: int
    shard: int
    shards: int
    attempt: str
    storage: Path
    sync: bool | Later
    watermarks: Mapping[str, int | None]
    previous: Mapping[str, int | None]
    heads: Mapping[str, StateHead]
    fault: Callable[[str], None]
    now: int
    reached: Mapping[str, int]

    def state_folder(self, step: str) -> Path:
        """Return where a step keeps the files of this shard."""
        return self.storage / "state" / step / str(self.shard)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """Rows of a sink in a file that no one reads before the commit."""

    sink: str
    file: str
    rows: int


@dataclass
class Report:
    """What a task did: goes into the manifest.

    `times`: by source and partition, the greatest event time in what it read, in microseconds. `marks`: by source and
    partition, the end of what it read, and what tells the record before it from others. `causes`: by step, how many
    dead letters there are for each cause. `attempts`: by task, its own attempt and those whose output it read. `spent`:
    where its time went, in seconds (`kernels/spent.py`).
    """

    shard: int | None = None
    times: dict[str, dict[str, int]] = field(default_factory=dict)
    marks: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    staged: list[StagedFile] = field(default_factory=list)
    heads: dict[str, StateHead] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)
    causes: dict[str, dict[str, int]] = field(default_factory=dict)
    attempts: dict[str, str] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)

    def count_dead(self, step: str, letters: pa.Table) -> None:
        """Count the dead letters of a step, with their causes."""
        self.count_causes(step, causes(letters))

    def count_causes(self, step: str, found: Mapping[str, int]) -> None:
        """Count the dead letters of a step, of which there are so many for each cause."""
        self.counts.setdefault(step, Counts()).dead += sum(found.values())
        known = self.causes.setdefault(step, {})
        for cause, count in found.items():
            known[cause] = known.get(cause, 0) + count

    def to_json(self) -> str:
        """Return the report as text: what executors send to the driver is data, never a pickle."""
        return json.dumps(self, default=members)

    @staticmethod
    def from_json(text: str | bytes) -> Report:
        """Return the report that `to_json` wrote."""
        data: dict[str, Any] = json.loads(text)
        return Report(
            shard=data["shard"],
            times=data["times"],
            marks=data["marks"],
            staged=[StagedFile(**staged) for staged in data["staged"]],
            heads={step: StateHead(**head) for step, head in data["heads"].items()},
            counts={step: Counts(**counts) for step, counts in data["counts"].items()},
            causes=data["causes"],
            attempts=data["attempts"],
            spent=data["spent"],
        )


@dataclass
class Outcome:
    """The output of a level: rows for later levels by (edge, level, shard), and the report."""

    sent: list[tuple[int, int, int, pa.Table]] = field(default_factory=list)
    report: Report = field(default_factory=Report)


def stage(task: Task, level: int, sink: str, table: pa.Table) -> StagedFile:
    """Write a sink's rows to a file of this attempt's own."""
    name = f"{_file_name(sink)}.{level}.{task.shard:05d}.{task.attempt}.rows"
    folder = task.storage / "epochs" / f"{task.epoch:012d}"
    write_tables(folder / name, {"rows": in_few_bytes(table)}, {"sink": sink}, sync=task.sync)
    return StagedFile(sink=sink, file=name, rows=table.num_rows)


def _file_name(sink: str) -> str:
    """Return a sink's name as a part of a file's; where it has more than a name's characters, with a hash of it."""
    plain = sink.replace(":", "-")
    safe = re.sub(r"[^\w.-]", "-", plain)[-80:]
    return safe if safe == plain else f"{safe}-{hashlib.sha256(sink.encode()).hexdigest()[:12]}"
