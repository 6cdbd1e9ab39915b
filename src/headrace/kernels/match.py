"""Matches of a pattern in the rows of each key, in the order of event time.

Rows wait until the watermark has passed them; then it is known which symbols they meet (`over` computes it), and they
are searched. What is kept of a key are the rows since the first one of which it is not known yet whether a match begins
there. This is known at the latest when the watermark is `within` behind it: `starts` has the keys by that row's time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.kernels.aggregates import higher_moments, superaccumulator
from headrace.kernels.counts import Counts
from headrace.kernels.late import SplitLate
from headrace.kernels.match_run import MatchRun
from headrace.kernels.op import Operator, StatefulOp, StepResult
from headrace.kernels.over import Over
from headrace.kernels.row_pattern import KEPT, STARTS
from headrace.kernels.state.tables import TableSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.delta import Delta
    from headrace.kernels.duck import Duck
    from headrace.kernels.op import Context
    from headrace.kernels.row_pattern import RowPattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Match(StatefulOp):
    """A row for each match.

    Its input has the names inside.
    """

    pattern: RowPattern

    def define(self, duck: Duck) -> None:
        """Make exact sums and higher moments callable."""
        if self.pattern.grouping.exact:
            superaccumulator.define(duck)
            higher_moments.define(duck)

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the rows that the watermark has not passed, what later rows need, and what is not decided yet."""
        functions = self.pattern.functions
        inside = tuple((f"c{i}", kind) for i, (_, kind) in enumerate(functions.columns))
        key = tuple(inside[i] for i in functions.key)
        values = tuple(inside[i] for i in self.pattern.kept if i not in functions.key)
        numbers = (("_symbols", "BIGINT"), ("_done", "BIGINT"), ("_time", "BIGINT"))
        kept = TableSpec(
            name=KEPT, keys=(*key, ("_nr", "BIGINT")), values=(*values, *numbers), by=(tuple(n for n, _ in key),)
        )
        starts = TableSpec(name=STARTS, keys=key, values=(("_time", "BIGINT"),), ages="_time")
        over = Over(step=self.step, inputs=(), output=0, functions=functions, emit="final", withdraws=False)
        return (*over.tables(), kept, starts)

    def before_exchange(self, side: int, rows: int, *, output: int, late: int | None) -> Operator:
        """Split off the late rows: those behind the watermark, since rows after them may be in a match."""
        del side
        return SplitLate(step=self.step, inputs=(rows,), output=output, late=late, reach=0)

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Take in rows, and return the matches that are final."""
        delta = MatchRun(self.pattern, context).run(inputs[0].tables)
        return StepResult([] if delta is None else [delta], counts=Counts())

    @property
    def emits_on_watermark(self) -> bool:
        """Rows are matched when the watermark passes them."""
        return True
