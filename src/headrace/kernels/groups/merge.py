"""The operator of grouped aggregates, after the exchange; its windows decide how groups are merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.kernels.groups.aggregate import MergeRun
from headrace.kernels.groups.grouping import CallsAggregates, tables
from headrace.kernels.groups.sessions import SessionMergeRun
from headrace.kernels.groups.sliding import SlidingMergeRun
from headrace.kernels.op import StatefulOp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.delta import Delta, Rows
    from headrace.kernels.groups.grouping import Grouping
    from headrace.kernels.op import Context, StepResult
    from headrace.kernels.state.tables import TableSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge(CallsAggregates, StatefulOp):
    """Partial groups into the state. The result is the table's delta, and of sessions the late rows."""

    grouping: Grouping

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the groups and the multisets."""
        return tables(self.grouping)

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Merge one epoch's partial groups."""
        return self._run(context, context.watermark).run([delta.tables for delta in inputs])

    def snapshot(self, context: Context) -> Rows:
        """Return the results of all groups, or of all open windows of theirs, unless these are final."""
        if self.grouping.final:
            return ()
        return [self._run(context, context.previous).current(context.emitted_until)]

    def _run(self, context: Context, watermark: int | None) -> MergeRun:
        kind = SessionMergeRun if self.grouping.session else SlidingMergeRun if self.grouping.sliding else MergeRun
        return kind(context.duck, self.grouping, context.state, watermark, context.previous)

    @property
    def in_columns(self) -> bool:
        """Where windows do not slide."""
        return self.grouping.sliding is None

    @property
    def emits_on_watermark(self) -> bool:
        """Where results come when a window closes."""
        return self.grouping.windowed and self.grouping.final
