"""Level 0 on ranges of sources: rows run through the level, dead letters are counted and staged for `<topic>.dead`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.base.dead_letters import DEAD_SINK
from headrace.base.errors import FunctionError, StepFailed
from headrace.engine.dealing import dealt
from headrace.engine.input import only_mapped
from headrace.kernels.counts import Counts
from headrace.kernels.duck import Duck
from headrace.kernels.level import LevelRun
from headrace.kernels.poison import failing_records, without
from headrace.kernels.spent import READ, spent
from headrace.kernels.task import stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from headrace.base.errors import HeadraceError
    from headrace.connect.source import OffsetRange
    from headrace.engine.inputs import Inputs, ReadRange
    from headrace.kernels.poison import FailingRow
    from headrace.kernels.program import Program
    from headrace.kernels.task import Outcome, Report, Task


@dataclass
class Records:
    """What was read of an epoch's ranges: the input of one run of level 0."""

    reads: list[ReadRange] = field(default_factory=list)
    dead: list[tuple[str, str, pa.Table]] = field(default_factory=list)
    """Dead letters: their step, its topic, and the letters."""
    times: dict[str, dict[str, int]] = field(default_factory=dict)
    marks: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def run_ranges(duck: Duck, program: Program, here: Task, inputs: Inputs, ranges: Sequence[OffsetRange]) -> Outcome:
    """Read ranges and run level 0 on them, all at once.

    Raises:
        UnreadableRecord: a record cannot be read, and its source has on_error="fail".
        StepFailed: an expression fails on a record, and its source does not have on_error="dead_letter".
        FunctionError: a user's function does.
        RecordsGone: records are gone, and their source has on_error="fail".

    """
    return run_records(duck, program, here, inputs, records_of(program, here, inputs, ranges))


def records_of(program: Program, here: Task, inputs: Inputs, ranges: Sequence[OffsetRange]) -> Records:
    """Read ranges, by readers that are used by one thread at a time, unless their sources are mapped.

    Raises:
        UnreadableRecord, RecordsGone: as `run_ranges`.

    """
    found = Records()
    wanted = {intake.source: intake.columns for intake in program.intakes}
    for part in ranges:
        here.fault("before_read")
        with spent(found.seconds, READ):
            read = inputs.read(part, wanted[part.source])
        here.fault("after_read")
        if read.max_event_time is not None:
            seen = found.times.setdefault(part.source, {})
            seen[part.partition] = max(read.max_event_time, seen.get(part.partition, read.max_event_time))
        mark = inputs.reader(part.source).mark(part.partition, part.end)
        known = found.marks.setdefault(part.source, {})
        if mark is not None and part.end > known.get(part.partition, [-1])[0]:
            known[part.partition] = [part.end, mark]
        if read.lost:
            found.lost[part.source] = found.lost.get(part.source, 0) + read.lost
        found.reads.append(read)
        if read.decoded.dead is not None:
            found.dead.append((part.source, inputs.inputs[part.source].shape.topic, read.decoded.dead))
    return found


def run_records(duck: Duck, program: Program, here: Task, inputs: Inputs, records: Records) -> Outcome:
    """Run level 0 on what was read.

    Raises:
        StepFailed, FunctionError: as `run_ranges`.

    """
    outcome = LevelZero(duck, program, here, inputs).run(records.reads, records.dead)
    stage_dead_letters(outcome.report, here, records.dead)
    outcome.report.times, outcome.report.marks = records.times, records.marks
    outcome.report.spent |= records.seconds
    for step, count in records.lost.items():
        outcome.report.counts.setdefault(step, Counts()).lost += count
    return outcome


def run_dealt(
    program: Program,
    inputs: Inputs,
    ranges: Sequence[OffsetRange],
    *,
    threads: int,
    task_of: Callable[[int], Task],
    duck_of: Callable[[int], AbstractContextManager[Duck]],
    map_parts: Callable[..., Iterable[Outcome]],
) -> list[Outcome]:
    """Run level 0 on an epoch's ranges, dealt out to so many threads, which `map_parts` uses.

    Each thread reads its own part of mapped sources; of others one thread reads all, before the rest begins. Functions
    of a user are called from one thread.

    Raises:
        UnreadableRecord, StepFailed, FunctionError, RecordsGone: as `run_ranges`.

    """
    parts = dealt(ranges, 1 if program.levels[0].calls_users else min(threads, program.shards))

    def read(number: int) -> Records:
        return records_of(program, task_of(number), inputs, parts[number])

    def run(number: int, records: Records) -> Outcome:
        with duck_of(number) as duck:
            return run_records(duck, program, task_of(number), inputs, records)

    numbers = range(len(parts))
    if only_mapped(inputs.inputs):
        inputs.open_readers()
        return list(map_parts(lambda number: run(number, read(number)), numbers))
    return list(map_parts(run, numbers, [read(number) for number in numbers]))


class LevelZero:
    """Level 0 on records that were read; those on which it fails are named, or taken out whole.

    A record that is taken out reaches no step at all: what is sent again, mended, counts once everywhere.
    """

    def __init__(self, duck: Duck, program: Program, here: Task, inputs: Inputs) -> None:
        self.duck = duck
        self.program = program
        self.here = here
        self.inputs = inputs
        self.intakes = {intake.source: intake.output for intake in program.intakes}

    def run(self, reads: Sequence[ReadRange], dead: list[tuple[str, str, pa.Table]]) -> Outcome:
        """Run the level; dead letters of records that are taken out are added to `dead`."""
        try:
            return self._level(reads, by_step=False)
        except (StepFailed, FunctionError) as failure:
            found = self._failing(reads)
            if not any(found) and not any(self._takes_out(read) for read in reads):
                raise
            kept = []
            for read, failing in zip(reads, found, strict=True):
                stops = [each for each in failing if not self._takes_out(read, refused=each.refused)]
                if stops:
                    raise self._located(failure, read, stops[0]) from failure
                kept.append(self._without(read, failing, dead) if failing else read)
            return self._level(kept, by_step=True)

    def _takes_out(self, read: ReadRange, *, refused: bool = False) -> bool:
        source = self.inputs.inputs[read.part.source]
        return source.takes_out or (refused and source.on_error != "fail")

    def _level(self, reads: Sequence[ReadRange], *, by_step: bool) -> Outcome:
        return LevelRun(self.duck, self.program.levels[0], self.here, by_step=by_step).run(self._deltas(reads))

    def _deltas(self, reads: Sequence[ReadRange]) -> dict[int, list[pa.Table]]:
        deltas: dict[int, list[pa.Table]] = {}
        for read in reads:
            deltas.setdefault(self.intakes[read.part.source], []).append(read.decoded.rows)
        return deltas

    def _failing(self, reads: Sequence[ReadRange]) -> list[list[FailingRow]]:
        """Return for each range the rows on which the level fails."""
        with closing(Duck(host=self.duck)) as search:
            by_delta = failing_records(search, self.program.levels[0], self._deltas(reads))
        starts: dict[int, int] = {}
        found = []
        for read in reads:
            number, count = self.intakes[read.part.source], read.decoded.rows.num_rows
            start = starts.get(number, 0)
            starts[number] = start + count
            here = [each for each in by_delta.get(number, ()) if start <= each.row < start + count]
            found.append([replace(each, row=each.row - start) for each in here])
        return found

    def _without(
        self, read: ReadRange, failing: Sequence[FailingRow], dead: list[tuple[str, str, pa.Table]]
    ) -> ReadRange:
        step = read.part.source
        letters = self.inputs.letters(read, {each.row: each.reason for each in failing})
        dead.append((step, self.inputs.inputs[step].shape.topic, letters))
        return replace(read, decoded=replace(read.decoded, rows=without(read.decoded.rows, failing)))

    def _located(self, failure: HeadraceError, read: ReadRange, failing: FailingRow) -> HeadraceError:
        """Return an error that says on which record a step fails, and with which values."""
        letter = self.inputs.letters(read, {failing.row: ""}).to_pylist()[0]
        place = f'topic "{letter["topic"]}", partition {letter["partition"]}, offset {letter["offset"]}'
        row = f"{place}: {failing}"
        if isinstance(failure, FunctionError):
            return FunctionError(failure.what, detail=f"{row} {failure.detail}", hint=failure.hint)
        return StepFailed(failing.step, failing.why, row=row)


def stage_dead_letters(report: Report, here: Task, dead: Sequence[tuple[str, str, pa.Table]]) -> None:
    """Stage dead letters, given as (step, topic, letters), for `<topic>.dead`, and count them."""
    by_topic: dict[str, list[pa.Table]] = {}
    for step, topic, letters in dead:
        by_topic.setdefault(topic, []).append(letters)
        report.count_dead(step, letters)
    for topic, tables in by_topic.items():
        report.staged.append(stage(here, 0, DEAD_SINK + topic, pa.concat_tables(tables)))
