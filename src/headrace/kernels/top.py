"""The n first rows of each group, or of each window of a group, as operators: before the exchange, and after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.kernels.counts import Counts
from headrace.kernels.first_rows import AddedRowsRun, first_of_part
from headrace.kernels.groups.window_top import WindowRankingRun
from headrace.kernels.op import Operator, StatefulOp, StepResult
from headrace.kernels.ranking import RankingRun, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.delta import Delta, Rows
    from headrace.kernels.op import Context
    from headrace.kernels.ranking import Ranking
    from headrace.kernels.state.tables import TableSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialTop(Operator):
    """Before the exchange, of rows that are only added: the first of each group in this part."""

    ranking: Ranking

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Return the first rows of each group; rows with panes were counted before."""
        parts = inputs[0].tables
        counts = Counts(rows_in=sum(part.num_rows for part in parts) if self.ranking.panes is None else 0)
        return StepResult(delta=[first_of_part(context.duck, self.ranking, parts)] if parts else [], counts=counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Top(StatefulOp):
    """Rows into the ranking that is kept. The result is the delta of the first rows of each group.

    `counts`: its rows have not been counted before.
    """

    ranking: Ranking
    counts: bool

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the best rows and, where rows can be withdrawn, all."""
        return tables(self.ranking)

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Rank what changed."""
        parts = inputs[0].tables
        counts = Counts(rows_in=sum(part.num_rows for part in parts) if self.counts else 0)
        delta = self._run(context).run(parts)
        return StepResult(delta=[] if delta is None else [delta], counts=counts)

    def _run(self, context: Context) -> RankingRun:
        duck, ranking = context.duck, self.ranking
        if ranking.panes is not None:
            return WindowRankingRun(duck, ranking, context.state, context.watermark, context.previous)
        if ranking.insert_only:
            return AddedRowsRun(duck, ranking, context.keyed, ranked=not self.counts)
        return RankingRun(duck, ranking, context.state)

    def snapshot(self, context: Context) -> Rows:
        """Return the first rows of each group; of windows, those of the open ones, unless results are final."""
        if self.ranking.panes is None:
            return [RankingRun(context.duck, self.ranking, context.state).current(context.emitted_until)]
        if self.ranking.final:
            return ()
        run = WindowRankingRun(context.duck, self.ranking, context.state, context.previous, context.previous)
        return [run.current(context.emitted_until)]

    @property
    def emits_on_watermark(self) -> bool:
        """Where results come when a window closes."""
        return self.ranking.panes is not None and self.ranking.final
