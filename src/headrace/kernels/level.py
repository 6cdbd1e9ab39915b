"""The level runner: all operations of one level for one shard and one epoch, in order.

It is a function of its inputs, the state at the epoch before, and the epoch's watermarks; it writes state and
staged files under names that no other attempt uses, and says what it wrote in its report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

from headrace.base.errors import HeadraceError, InternalError, StepFailed
from headrace.kernels.aggregates import superaccumulator
from headrace.kernels.aggregates.users import define
from headrace.kernels.groups.grouped import Counts
from headrace.kernels.operations import do, kept, looked_up
from headrace.kernels.spec import Merge, Partial, Query
from headrace.kernels.state.keyed import KeyedState
from headrace.kernels.state.state import StepState
from headrace.kernels.task import Outcome, Report

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from headrace.kernels.duck import Duck
    from headrace.kernels.spec import Level, Op
    from headrace.kernels.state.state import State
    from headrace.kernels.task import Task


_OURS = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)


class LevelRun:
    """Runs one level once."""

    def __init__(self, duck: Duck, level: Level, task: Task) -> None:
        self.duck = duck
        self.level = level
        self.task = task
        self.states: dict[str, State] = {}
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
            self.define(self.level.ops)
            if self.level.stateful:
                self._open()
            for number, parts in inputs.items():
                self.came(number, [part for part in parts if part.num_rows])
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
        steps = [op.step for op in self.level.stateful if op.timed]
        return any(self.task.watermarks.get(step) != self.task.previous.get(step) for step in steps)

    def _run_all(self) -> None:
        for op in self.level.ops:
            try:
                do(op, self)
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

    def define(self, ops: Iterable[Op]) -> None:
        """Make callable what aggregates call; when the last op defined a user's one, failures are of its step."""
        for op in ops:
            if isinstance(op, Partial | Merge):
                define(self.duck, op.step, op.grouping.users)
                if op.grouping.exact:
                    superaccumulator.define(self.duck)

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
        for op in self.level.stateful:
            tables, head, folder = kept(op), self.task.heads.get(op.step), self.task.state_folder(op.step)
            if looked_up(op):
                self.states[op.step] = KeyedState(self.duck, tables, head, folder)
            else:
                self.states[op.step] = scanned = StepState(self.duck, op.step, tables, head)
                scanned.restore(folder)

    def keyed(self, step: str) -> KeyedState:
        """Return the state of a step whose rows are looked up."""
        state = self.states[step]
        assert isinstance(state, KeyedState)  # noqa: S101 -- its operation keeps no other
        return state

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

    def came(self, number: int, parts: list[pa.Table]) -> None:
        """Keep rows as a delta; a delta without rows is absent, and so is what is made of it alone."""
        if parts:
            self.tables[number] = parts

    def relation(self, number: int) -> str | None:
        """Return a delta as SQL to select from, or None if it has no rows."""
        if number not in self.relations and number in self.tables:
            names = [self.duck.register(part) for part in self.tables[number]]
            union = " UNION ALL ".join(f"SELECT * FROM {name}" for name in names)
            self.relations[number] = names[0] if len(names) == 1 else f"({union})"
        return self.relations.get(number)

    def materialized(self, number: int) -> list[pa.Table]:
        """Return a delta's rows as tables, none of them empty."""
        if number not in self.tables and number in self.relations:
            self.tables[number] = [self.duck.arrow(f"SELECT * FROM {self.relations[number]}")]
            self.relations.pop(number)
        return [part for part in self.tables.get(number, []) if part.num_rows]

    def count(self, step: str, counts: Counts) -> None:
        """Add to what the report says of a step."""
        known = self.outcome.report.counts.setdefault(step, Counts())
        known += counts


def _said(error: duckdb.Error) -> str:
    """Return what DuckDB said, in one line and without its class."""
    return str(error).strip().splitlines()[0].removeprefix("Invalid Input Error: ")
