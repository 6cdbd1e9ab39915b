"""The level runner: all operations of one level for one shard and one epoch, in order.

It is a function of its inputs, the state at the epoch before, and the epoch's watermarks; it writes state and
staged files under names that no other attempt uses, and its report names what it wrote.
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.dead_letters import DEAD_SINK, NO_KEY, dead_letters, keyless
from headrace.base.errors import FunctionError, HeadraceError, InternalError, StepFailed
from headrace.kernels.blame import duckdb_text
from headrace.kernels.counts import Counts
from headrace.kernels.delta import Delta
from headrace.kernels.duck import Duck
from headrace.kernels.exchange import Send, split
from headrace.kernels.op import Context, Operator, StatefulOp
from headrace.kernels.poison import failing_rows, without
from headrace.kernels.query import Query
from headrace.kernels.spent import EXCHANGE, STAGING, STATE, of_step, spent
from headrace.kernels.staged_columns import MOST_ROWS, staged_by_columns
from headrace.kernels.staging import WEIGHT, Stage, staged, staged_schema
from headrace.kernels.state.in_columns import ColumnState, reads_columns
from headrace.kernels.state.keyed import KeyedState
from headrace.kernels.state.scanned import ScannedState
from headrace.kernels.task import Outcome, Report, stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from headrace.kernels.delta import Rows
    from headrace.kernels.op import Op, StepResult
    from headrace.kernels.poison import FailingRow
    from headrace.kernels.program import Level
    from headrace.kernels.state.state import State
    from headrace.kernels.task import Task


_OURS = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)


class LevelRun:
    """Runs one level once."""

    def __init__(self, duck: Duck, level: Level, task: Task, *, by_step: bool = False) -> None:
        self.duck = duck
        self.level = level
        self.task = task
        self.by_step = by_step or level.number > 0
        self.careful: set[int] = set()
        """The operations that failed: rows on which they fail by themselves are taken out of their input first."""
        self._begin()

    def _begin(self) -> None:
        self.letters: dict[str, list[pa.Table]] = {}
        self.states: dict[str, State] = {}
        self.deltas: dict[int, Delta] = {}
        self.outcome = Outcome(report=Report(shard=self.task.shard))

    def run(self, inputs: Mapping[int, list[pa.Table]]) -> Outcome:
        """Run the level on the rows that it received, by delta number.

        Raises:
            StepFailed: an expression failed on a row that is not taken out.
            FunctionError: a user's function raised.

        """
        while True:
            try:
                return self._attempt(inputs)
            except _Again:
                self._begin()

    def _attempt(self, inputs: Mapping[int, list[pa.Table]]) -> Outcome:
        if not any(part.num_rows for parts in inputs.values() for part in parts) and not self._has_work():
            return self.outcome
        try:
            if self.level.reads_clock:
                self.duck.set_epoch_time(self.task.now)
            for op in self.level.ops:  # before the transaction: what is defined inside it may end with it
                op.define(self.duck)
            if self.level.stateful:
                with self._spent(STATE):
                    self._open(sum(part.num_rows for parts in inputs.values() for part in parts))
            for number, parts in inputs.items():
                self._put(number, parts)
            self._run_all()
            self._stage_letters()
            if self.outcome.report.staged:
                self.task.fault("after_staging")
            with self._spent(STATE):
                self._save()
        except BaseException:
            self.duck.rollback()  # the cache is as the epoch before left it, and can be used again
            raise
        finally:
            self.duck.forget()
        return self.outcome

    def _has_work(self) -> bool:
        """Whether an operator has rows to begin with, or a new watermark, so that windows may close without any row."""
        if any(op.begins for op in self.level.stateful):
            return True
        steps = [op.step for op in self.level.stateful if op.timed]
        task = self.task
        return any(step in task.reached or task.watermarks.get(step) != task.previous.get(step) for step in steps)

    def _run_all(self) -> None:
        for number, op in enumerate(self.level.ops):
            try:
                self._run(number, op)
            except FunctionError:
                self._try_without(number, op)
                raise
            except HeadraceError:
                raise
            except duckdb.Error as error:
                if self.duck.blamed is None and not isinstance(error, _OURS):
                    self._try_without(number, op)
                failure = self._failure(op, error)
                raise failure from failure.__cause__ or error

    # ---- operations ----

    def _run(self, place: int, op: Op) -> None:
        inputs = [self._delta(number) for number in op.inputs]
        if place in self.careful:
            inputs = [self._without_failing(op, delta) for delta in inputs]
        if isinstance(op, Operator):
            with self._spent(of_step(op.step)):
                op.define(self.duck)
                self._take(op, inputs, op.run(inputs, self._context(op)))
        elif isinstance(op, Send):
            with self._spent(EXCHANGE):
                self._send(op, inputs[0])
        elif isinstance(op, Stage):
            with self._spent(STAGING):
                self._stage(op, inputs[0])
        else:
            raise TypeError(op)

    def _spent(self, part: str) -> AbstractContextManager[None]:
        return spent(self.outcome.report.spent, part)

    def _context(self, op: Op) -> Context:
        return Context(
            duck=self.duck,
            epoch=self.task.epoch,
            task=self.task.shard,
            watermark=self.task.watermarks.get(op.step),
            previous=self.task.previous.get(op.step),
            reached=self.task.reached.get(op.step),
            opened=self.states.get(op.step),
        )

    def _take(self, op: Operator, inputs: Sequence[Delta], result: StepResult) -> None:
        """Put an operator's rows where the next ones find them, and its counts into the report."""
        if isinstance(result.delta, str):
            passed = op.passed(inputs) if isinstance(op, Query) and not op.shared else ()
            about = sum(delta.about for delta in inputs)
            self.deltas[op.output] = Delta(self.duck, result.delta, about=about, passed=passed)
        else:
            self._put(op.output, result.delta)
        for number, rows in zip(op.more, result.more, strict=bool(result.more)):
            self._put(number, rows)
        if op.late is not None:
            self._put(op.late, result.late)
        if isinstance(op, StatefulOp) and not op.begins:
            result.counts.rows_out = sum(part.num_rows for part in result.delta if not isinstance(part, str))
        self._count(op.step, result.counts)

    def _send(self, op: Send, delta: Delta) -> None:
        for part in delta.tables:
            shards = self.task.shards
            if op.to_all:
                parts = dict.fromkeys(range(shards), part)
            else:
                here = {self.task.shard % shards: part}
                parts = here if op.keys is None else split(part, op.keys, shards)
            self.outcome.sent += [(op.edge, op.level, shard, rows) for shard, rows in parts.items()]

    def _stage(self, op: Stage, delta: Delta) -> None:
        columns = dict.fromkeys([*staged_schema(op).names, WEIGHT.name])
        tables = None if op.net or op.before or op.form == "changelog" else delta.beside([*columns])
        if tables is None and (delta.about <= MOST_ROWS or delta.computed is not None):
            tables = delta.tables
        table = staged_by_columns(op, tables) if tables else None
        if table is None and delta.relation is not None:
            table = staged(self.duck, op, delta.relation)
        if table is not None and table.num_rows:
            self.task.fault("before_staging")
            self.outcome.report.staged.append(stage(self.task, self.level.number, op.sink, table))
            absent = keyless(table, op.key or ()) if op.needs_key else None
            lost = 0 if absent is None else pc.sum(absent).as_py()
            self._count(op.sink, Counts(rows_in=table.num_rows - lost))
            if lost:
                self.outcome.report.count_causes(op.sink, {NO_KEY: lost})

    def _delta(self, number: int) -> Delta:
        return self.deltas.get(number) or Delta(self.duck)

    def _put(self, number: int, rows: Rows) -> None:
        if rows:
            self.deltas[number] = Delta(self.duck, rows)

    def _count(self, step: str, counts: Counts) -> None:
        """Add counts to those of a step in the report, if there is anything to add."""
        if not any(vars(counts).values()):
            return
        total = self.outcome.report.counts.setdefault(step, Counts())
        total += counts

    # ---- failures ----

    def _try_without(self, place: int, op: Op) -> None:
        """Begin again without the rows on which an operation fails by themselves, if they are to be taken out."""
        if self.by_step and op.dead is not None and (op.checks or op.calls_users) and place not in self.careful:
            self.careful.add(place)
            raise _Again

    def _without_failing(self, op: Op, delta: Delta) -> Delta:
        """Return an operation's input without the rows on which it fails: their insertions are dead letters.

        A withdrawal fails as the insertion did, since what an expression gives depends on its row alone: so the step's
        output is that of a step which never saw the rows.
        """
        good = []
        for rows in delta.tables:
            failing = self._search(op, rows)
            good.append(without(rows, failing))
            inserted = [each for each in failing if rows.column("_weight")[each.row].as_py() > 0]
            if inserted and op.dead is not None:
                letters = _letters(op.dead, rows, inserted)
                self.letters.setdefault(op.dead, []).append(letters)
                self.outcome.report.count_dead(op.step, letters)
        return Delta(self.duck, good)

    def _search(self, op: Op, rows: pa.Table) -> list[FailingRow]:
        with closing(Duck(host=self.duck)) as search:  # outside the transaction, which a failure would end
            return failing_rows(search, op, rows)

    def _stage_letters(self) -> None:
        for topic, tables in self.letters.items():
            letters = pa.concat_tables(tables)
            self.outcome.report.staged.append(stage(self.task, self.level.number, DEAD_SINK + topic, letters))

    def _failure(self, op: Op, error: duckdb.Error) -> HeadraceError:
        if self.duck.blamed is not None:
            blamed, self.duck.blamed = self.duck.blamed, None
            return blamed
        if isinstance(error, _OURS):
            return InternalError(f'step "{op.step}" has SQL that DuckDB cannot read: {duckdb_text(error)}')
        culprit = self._culprit(op)
        return StepFailed(culprit.step, duckdb_text(error), row=self._first_row(culprit))

    def _first_row(self, op: Op) -> str:
        """Return the values that the failing expression reads of the first row that it fails on, if one is found."""
        with suppress(duckdb.Error, FunctionError):
            for rows in [rows for number in op.inputs for rows in self._delta(number).tables]:
                for failing in self._search(op, rows):
                    return str(failing)
        return ""

    def _culprit(self, failed: Op) -> Op:
        """Return the step whose expression failed: stateless steps are computed only where their rows are used."""
        self.duck.rollback()
        for op in self.level.ops[: self.level.ops.index(failed)]:
            if isinstance(op, Query) and (relation := self._delta(op.output).relation) is not None:
                try:
                    self.duck.arrow(f"SELECT * FROM {relation}")
                except duckdb.Error:
                    return op
        return failed

    # ---- state ----

    def _open(self, arrived: int) -> None:
        if self._caches:
            self.duck.begin()
        for op in self.level.stateful:
            tables, head, folder = op.tables(), self.task.heads.get(op.step), self.task.state_folder(op.step)
            if op.looks_up:
                self.states[op.step] = KeyedState(self.duck, tables, head, folder)
            else:
                columns = op.in_columns and reads_columns(self.duck, op.step, head, arrived)
                scanned = (ColumnState if columns else ScannedState)(self.duck, op.step, tables, head)
                scanned.restore(folder)
                self.states[op.step] = scanned

    def _save(self) -> None:
        for step, state in self.states.items():
            folder = self.task.state_folder(step)
            if state.writes_full:
                self.task.fault("during_snapshot")
            head = state.save(folder, self.task.epoch, self.task.attempt, sync=self.task.sync)
            if head is not None and head != self.task.heads.get(step):
                self.outcome.report.heads[step] = head
        if self._caches:
            self.duck.commit()

    @property
    def _caches(self) -> bool:
        """Whether the level changes tables of DuckDB's, which a failed epoch must leave as they were."""
        return any(not op.looks_up for op in self.level.stateful)


class _Again(Exception):
    """The level is to begin again, with an operation more in `careful`."""


def _letters(topic: str, rows: pa.Table, failing: Sequence[FailingRow]) -> pa.Table:
    """Return dead letters of rows that are computed: they have no offset."""
    nowhere = pa.array([-1] * len(failing), pa.int64())
    reasons = pa.array([each.reason for each in failing], pa.string())
    shown = rows.select([name for name in rows.column_names if not name.startswith("_")])
    return dead_letters(
        topic, nowhere.cast(pa.int32()), nowhere, reasons, shown.take(pa.array([each.row for each in failing]))
    )
