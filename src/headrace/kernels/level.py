"""The level runner: all operations of one level for one shard and one epoch, in order.

It is a function of its inputs, the state at the epoch before, and the epoch's watermarks; it writes state and
staged files under names that no other attempt uses, and says what it wrote in its report.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any

import duckdb

from headrace.base.errors import HeadraceError, InternalError, StepFailed
from headrace.kernels import dedupe, grouped, top
from headrace.kernels.aggregate import Merging
from headrace.kernels.apply import applied
from headrace.kernels.call import called
from headrace.kernels.duck import typed
from headrace.kernels.exchange import split
from headrace.kernels.files import write_tables
from headrace.kernels.grouped import Counts
from headrace.kernels.latest import Upserting, arrived, kept_rows
from headrace.kernels.partial import partial
from headrace.kernels.sessions import Sessions
from headrace.kernels.spec import (
    Apply,
    Arrival,
    Best,
    Call,
    Dedupe,
    Judge,
    Merge,
    Op,
    Partial,
    Query,
    Send,
    Stage,
    Top,
    Upsert,
)
from headrace.kernels.staging import as_they_are, staged, staged_schema
from headrace.kernels.state import Head, open_states
from headrace.kernels.users import define

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa

    from headrace.kernels.duck import Duck
    from headrace.kernels.spec import Level, Stateful
    from headrace.kernels.state import StepState, TableSpec


_OURS = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Which part of which epoch is run: times are microseconds; a missing watermark is None.

    `watermarks` and `previous` give, by step, the watermark that it works with in this epoch and in the one before.
    """

    epoch: int
    shard: int
    shards: int
    attempt: str
    storage: Path
    sync: bool
    watermarks: Mapping[str, int | None]
    previous: Mapping[str, int | None]
    heads: Mapping[str, Head]
    fault: Callable[[str], None]

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

    `times`: by source and partition, the greatest event time it saw. `slices`: what it read; `began`: when its epoch
    was planned (the clock's seconds). Both are the carrier's, opaque here.
    """

    slices: list[Any] = field(default_factory=list)
    began: float = 0.0
    shard: int | None = None
    times: dict[str, dict[str, int]] = field(default_factory=dict)
    staged: list[StagedFile] = field(default_factory=list)
    heads: dict[str, Head] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)


@dataclass
class Outcome:
    """What a level gives: rows for later levels by (edge, level, shard), and the report."""

    sent: list[tuple[int, int, int, pa.Table]] = field(default_factory=list)
    report: Report = field(default_factory=Report)


class LevelRun:
    """Runs one level once."""

    def __init__(self, duck: Duck, level: Level, task: Task) -> None:
        self.duck = duck
        self.level = level
        self.task = task
        self.states: dict[str, StepState] = {}
        self.relations: dict[int, str] = {}
        self.tables: dict[int, list[pa.Table]] = {}
        self.outcome = Outcome(report=Report(shard=task.shard))

    def run(self, inputs: Mapping[int, list[pa.Table]]) -> Outcome:
        """Run the level on what came to it, by delta number.

        Raises:
            StepFailed: an expression failed on a row.
            FunctionError: a user's function raised.

        """
        if not any(part.num_rows for parts in inputs.values() for part in parts) and not self._time_has_work():
            return self.outcome
        try:
            self._define(self.level.ops)
            if self.level.stateful:
                self._open()
            for number, parts in inputs.items():
                self._came(number, [part for part in parts if part.num_rows])
            self._run_all()
            if self.outcome.report.staged:
                self.task.fault("after_staging")
            self._save()
        except BaseException:
            self.duck.rollback()  # the cache is as the epoch before left it, and can be used again
            raise
        finally:
            self.duck.forget()
        return self.outcome

    def _time_has_work(self) -> bool:
        """Whether a step has met a new watermark, so that windows may close without any row."""
        steps = [op.step for op in self.level.stateful if not isinstance(op, Upsert)]
        return any(self.task.watermarks.get(step) != self.task.previous.get(step) for step in steps)

    def _run_all(self) -> None:
        for op in self.level.ops:
            try:
                self._do(op)
            except HeadraceError:
                raise
            except duckdb.Error as error:
                failure = self._failure(op, error)
                raise failure from failure.__cause__ or error

    def _failure(self, op: Op, error: duckdb.Error) -> HeadraceError:
        if self.duck.blamed is not None:
            blamed, self.duck.blamed = self.duck.blamed, None
            return blamed
        if isinstance(error, _OURS):
            return InternalError(f'step "{op.step}" made SQL that DuckDB cannot read: {_said(error)}')
        return StepFailed(self._culprit(op), _said(error))

    def _define(self, ops: Iterable[Op]) -> None:
        """Make the user's aggregates callable; when the last op defined one, failures are of its step."""
        for op in ops:
            if isinstance(op, Partial | Merge) and op.grouping.users:
                define(self.duck, op.step, op.grouping.users)

    def _culprit(self, failed: Op) -> str:
        """Return the step whose expression failed: stateless steps are computed only where their rows are used."""
        self.duck.rollback()
        for op in self.level.ops[: self.level.ops.index(failed)]:
            if isinstance(op, Query) and op.output in self.relations:
                try:
                    self.duck.arrow(f"SELECT * FROM {self.relations[op.output]}")
                except duckdb.Error:
                    return op.step
        return failed.step

    # ---- state ----

    def _open(self) -> None:
        self.duck.begin()
        steps = {op.step: _kept(op) for op in self.level.stateful}
        folders = {step: self.task.state_folder(step) for step in steps}
        self.states = open_states(self.duck, steps, self.task.heads, folders)

    def _save(self) -> None:
        for step, state in self.states.items():
            folder = self.task.state_folder(step)
            if state.writes_full:
                self.task.fault("during_snapshot")
            head = state.save(folder, self.task.epoch, self.task.attempt, sync=self.task.sync)
            if head is not None and head != self.task.heads.get(step):
                self.outcome.report.heads[step] = head
        if self.states:
            self.duck.commit()

    # ---- deltas ----

    def _came(self, number: int, parts: list[pa.Table]) -> None:
        """Keep rows as a delta; a delta without rows is absent, and so is what is made of it alone."""
        if parts:
            self.tables[number] = parts

    def _relation(self, number: int) -> str | None:
        """Return a delta as SQL to select from, or None if it has no rows."""
        if number not in self.relations and number in self.tables:
            names = [self.duck.register(part) for part in self.tables[number]]
            union = " UNION ALL ".join(f"SELECT * FROM {name}" for name in names)
            self.relations[number] = names[0] if len(names) == 1 else f"({union})"
        return self.relations.get(number)

    def _materialized(self, number: int) -> list[pa.Table]:
        if number not in self.tables and number in self.relations:
            self.tables[number] = [self.duck.arrow(f"SELECT * FROM {self.relations[number]}")]
            self.relations.pop(number)
        return [part for part in self.tables.get(number, []) if part.num_rows]

    def _count(self, step: str, counts: Counts) -> None:
        kept = self.outcome.report.counts.setdefault(step, Counts())
        kept += counts

    # ---- operations ----

    @singledispatchmethod
    def _do(self, op: Op) -> None:
        raise TypeError(op)

    @_do.register
    def _query(self, op: Query) -> None:
        sources = [source for source in map(self._relation, op.inputs) if source is not None]
        if not sources:
            return
        self.relations[op.output] = f"({' UNION ALL '.join(f'{op.before} {rows} {op.after}' for rows in sources)})"
        if op.shared:
            self._came(op.output, self._materialized(op.output))

    @_do.register
    def _apply(self, op: Apply) -> None:
        made = [applied(op, part) for part in self._materialized(op.input)]
        self._count(op.step, Counts(rows_out=sum(part.num_rows for part in made)))
        self._came(op.output, [part for part in made if part.num_rows])

    @_do.register
    def _call(self, op: Call) -> None:
        self._came(op.output, [called(self.duck, op, part) for part in self._materialized(op.input)])

    @_do.register
    def _partial(self, op: Partial) -> None:
        rows = self._relation(op.input)
        if rows is None:
            return
        self._define([op])
        watermark = self.task.watermarks.get(op.step)
        judged = partial(self.duck, op.grouping, rows, watermark, want_late=op.late is not None)
        self._count(op.step, judged.counts)
        for number, table in zip(op.outputs, judged.tables, strict=True):
            self._came(number, [table] if table.num_rows else [])
        if op.late is not None and judged.late is not None:
            self._came(op.late, [judged.late])

    @_do.register
    def _merge(self, op: Merge) -> None:
        self._define([op])
        merging = (Sessions if op.grouping.session else Merging)(
            self.duck,
            op.grouping,
            self.states[op.step],
            self.task.watermarks.get(op.step),
            self.task.previous.get(op.step),
        )
        delta, counts = merging.run([self._materialized(number) for number in op.inputs])
        self._count(op.step, counts)
        self._came(op.output, [delta] if delta is not None else [])
        if op.late is not None and merging.late is not None:
            self._came(op.late, [merging.late])

    @_do.register
    def _judge(self, op: Judge) -> None:
        taken, late, counts = dedupe.judged(self._materialized(op.input), op.reach, self.task.watermarks.get(op.step))
        self._count(op.step, counts)
        self._came(op.output, taken)
        if op.late is not None:
            self._came(op.late, late)

    @_do.register
    def _dedupe(self, op: Dedupe) -> None:
        now, before = self.task.watermarks.get(op.step), self.task.previous.get(op.step)
        deduping = dedupe.Deduping(self.duck, op, self.states[op.step], now, before)
        delta, counts = deduping.run(self._materialized(op.input))
        self._count(op.step, counts)
        self._came(op.output, [delta] if delta is not None and delta.num_rows else [])

    @_do.register
    def _best(self, op: Best) -> None:
        parts = self._materialized(op.input)
        self._count(op.step, top.counted(parts))
        self._came(op.output, [top.best(self.duck, op.ranking, parts)] if parts else [])

    @_do.register
    def _top(self, op: Top) -> None:
        parts = self._materialized(op.input)
        if op.counts:
            self._count(op.step, top.counted(parts))
        delta = top.Topping(self.duck, op.ranking, self.states[op.step]).run(parts) if parts else None
        if delta is not None and delta.num_rows:
            self._count(op.step, Counts(rows_out=delta.num_rows))
            self._came(op.output, [delta])

    @_do.register
    def _arrival(self, op: Arrival) -> None:
        rows = self._relation(op.input)
        if rows is not None:
            table = arrived(self.duck, op.keeping, rows, task=self.task.shard)
            self._count(op.step, Counts(rows_in=table.num_rows))
            self._came(op.output, [table] if table.num_rows else [])

    @_do.register
    def _upsert(self, op: Upsert) -> None:
        parts = self._materialized(op.input)
        if parts:
            delta = Upserting(self.duck, op.keeping, self.states[op.step]).run(parts)
            self._count(op.step, Counts(rows_out=delta.num_rows))
            self._came(op.output, [delta] if delta.num_rows else [])

    @_do.register
    def _send(self, op: Send) -> None:
        for part in self._materialized(op.input):
            shards = self.task.shards
            here = {self.task.shard % shards: part}
            parts = here if op.keys is None else split(part, op.keys, shards)
            self.outcome.sent += [(op.edge, op.level, shard, rows) for shard, rows in parts.items()]

    @_do.register
    def _stage(self, op: Stage) -> None:
        known = self.tables.get(op.input, [])
        if as_they_are(op) and len(known) == 1:
            table = typed(known[0], staged_schema(op))
        else:
            rows = self._relation(op.input)
            if rows is None:
                return
            table = staged(self.duck, op, rows)
        if table.num_rows:
            self.task.fault("before_staging")
            self.outcome.report.staged.append(stage(self.task, self.level.number, op.sink, table))
            self._count(op.sink, Counts(rows_in=table.num_rows))


def _kept(op: Stateful) -> tuple[TableSpec, ...]:
    """Return the tables that an operation keeps."""
    if isinstance(op, Merge):
        return grouped.tables(op.grouping)
    if isinstance(op, Upsert):
        return kept_rows(op.keeping)
    return dedupe.tables(op) if isinstance(op, Dedupe) else top.tables(op.ranking)


def stage(task: Task, level: int, sink: str, table: pa.Table) -> StagedFile:
    """Write a sink's rows to a file of this attempt's own."""
    plain = sink.replace(":", "-")
    name = f"{plain}.{level}.{task.shard:05d}.{task.attempt}.rows"
    folder = task.storage / "epochs" / f"{task.epoch:012d}"
    write_tables(folder / name, {"rows": table}, {"sink": sink}, sync=task.sync)
    return StagedFile(sink=sink, file=name, rows=table.num_rows)


def at_shard(task: Task, shard: int, heads: Mapping[str, Head]) -> Task:
    """Return the same epoch for another shard."""
    return replace(task, shard=shard, heads=heads)


def _said(error: duckdb.Error) -> str:
    """Return what DuckDB said, in one line and without its class."""
    return str(error).strip().splitlines()[0].removeprefix("Invalid Input Error: ")
