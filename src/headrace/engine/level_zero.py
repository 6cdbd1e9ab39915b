"""Level 0 on slices of topics: what can be read is run, what cannot is counted and on its way to `<topic>.dead`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.publish import DEAD_SINK
from headrace.kernels.counts import Counts
from headrace.kernels.level import LevelRun
from headrace.kernels.task import stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.connect.embedded import OffsetRange
    from headrace.engine.inputs import Inputs
    from headrace.kernels.duck import Duck
    from headrace.kernels.program import Program
    from headrace.kernels.task import Outcome, Report, Task


def run_slices(duck: Duck, program: Program, here: Task, inputs: Inputs, slices: Sequence[OffsetRange]) -> Outcome:
    """Read slices and run level 0 on them, all at once.

    Raises:
        UnreadableRecord: a record cannot be read, and its source says to fail.

    """
    intakes = {intake.source: intake.output for intake in program.intakes}
    deltas: dict[int, list[pa.Table]] = {}
    dead, times = [], dict[str, dict[str, int]]()
    for piece in slices:
        taken = inputs.take(piece)
        if not inputs.indexed(piece):
            _saw(times.setdefault(piece.source, {}), str(piece.partition), taken.rows)
        deltas.setdefault(intakes[piece.source], []).append(taken.rows)
        if taken.dead is not None:
            dead.append((piece, taken.dead))
    outcome = LevelRun(duck, program.levels[0], here).run(deltas)
    stage_dead_letters(outcome.report, here, dead)
    outcome.report.times = times
    return outcome


def _saw(times: dict[str, int], partition: str, rows: pa.Table) -> None:
    """Remember the greatest event time of a partition's rows."""
    greatest = pc.max(rows.column("_time")).as_py()
    if greatest is not None:
        times[partition] = max(greatest, times.get(partition, greatest))


def stage_dead_letters(report: Report, here: Task, dead: Sequence[tuple[OffsetRange, pa.Table]]) -> None:
    """Stage dead letters for `<topic>.dead`, and count them."""
    by_topic: dict[str, list[pa.Table]] = {}
    for piece, letters in dead:
        by_topic.setdefault(piece.topic, []).append(letters)
        report.counts.setdefault(piece.source, Counts()).dead += letters.num_rows
    for topic, tables in by_topic.items():
        report.staged.append(stage(here, 0, DEAD_SINK + topic, pa.concat_tables(tables)))
