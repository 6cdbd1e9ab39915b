"""Level 0 on ranges of sources: rows run through the level, dead letters are counted and staged for `<topic>.dead`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.engine.outside import DEAD_SINK
from headrace.kernels.counts import Counts
from headrace.kernels.level import LevelRun
from headrace.kernels.task import stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.connect.source import OffsetRange
    from headrace.engine.inputs import Inputs
    from headrace.kernels.duck import Duck
    from headrace.kernels.program import Program
    from headrace.kernels.task import Outcome, Report, Task


def run_ranges(duck: Duck, program: Program, here: Task, inputs: Inputs, ranges: Sequence[OffsetRange]) -> Outcome:
    """Read ranges and run level 0 on them, all at once.

    Raises:
        UnreadableRecord: a record cannot be read, and its source has on_error="fail".
        RecordsGone: records are gone, and their source has on_error="fail".

    """
    intakes = {intake.source: intake.output for intake in program.intakes}
    deltas: dict[int, list[pa.Table]] = {}
    dead: list[tuple[str, str, pa.Table]] = []
    times: dict[str, dict[str, int]] = {}
    lost: dict[str, int] = {}
    for part in ranges:
        here.fault("before_read")
        read = inputs.read(part)
        here.fault("after_read")
        if read.max_event_time is not None:
            seen = times.setdefault(part.source, {})
            seen[part.partition] = max(read.max_event_time, seen.get(part.partition, read.max_event_time))
        if read.lost:
            lost[part.source] = lost.get(part.source, 0) + read.lost
        deltas.setdefault(intakes[part.source], []).append(read.decoded.rows)
        if read.decoded.dead is not None:
            dead.append((part.source, inputs.inputs[part.source].shape.topic, read.decoded.dead))
    outcome = LevelRun(duck, program.levels[0], here).run(deltas)
    stage_dead_letters(outcome.report, here, dead)
    outcome.report.times = times
    for step, count in lost.items():
        outcome.report.counts.setdefault(step, Counts()).lost += count
    return outcome


def stage_dead_letters(report: Report, here: Task, dead: Sequence[tuple[str, str, pa.Table]]) -> None:
    """Stage dead letters, given as (step, topic, letters), for `<topic>.dead`, and count them."""
    by_topic: dict[str, list[pa.Table]] = {}
    for step, topic, letters in dead:
        by_topic.setdefault(topic, []).append(letters)
        report.counts.setdefault(step, Counts()).dead += letters.num_rows
    for topic, tables in by_topic.items():
        report.staged.append(stage(here, 0, DEAD_SINK + topic, pa.concat_tables(tables)))
