"""Each row with aggregates over the rows of its key before it, in the order of event time.

Rows that may still get rows before them are *open*: those at or after the watermark. Final results are computed when
the watermark has passed a row; corrected ones at once, and again while it is open. Then the row is part of the past, of
which only what later rows need is kept: the `last` rows of each key, with the sums up to the last one where all rows
count, and for a range of time `past`, what each row adds.

Inside, columns are `c0…`, arguments `x0…`, what a row adds `q0…`, folded over its frame `p0…`, values of other rows
`l0…`, results `r0…`; `_nr` is the number of a row among those of its key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headrace.base.names import quote
from headrace.kernels.aggregates import superaccumulator
from headrace.kernels.counts import Counts
from headrace.kernels.late import SplitLate
from headrace.kernels.op import Operator, StatefulOp, StepResult
from headrace.kernels.over_run import FinalRun, OpenRun
from headrace.kernels.row_functions import LAST, PAST, ROWS, RowFunctions
from headrace.kernels.state.tables import TableSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.delta import Delta, Rows
    from headrace.kernels.duck import Duck
    from headrace.kernels.op import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Over(StatefulOp):
    """Rows with `functions` of the rows before them, final or corrected.

    `withdraws`: rows of the input may be withdrawn, so none is ever final. Its input has the names inside.
    """

    functions: RowFunctions
    emit: Literal["changes", "final"]
    withdraws: bool

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the open rows, and of the past what is needed."""
        functions = self.functions
        columns = tuple((f"c{i}", kind) for i, (_, kind) in enumerate(functions.columns))
        arguments = tuple((f"x{i}", kind) for i, kind in enumerate(functions.arguments))
        key = tuple(columns[i] for i in functions.key)
        by = (tuple(name for name, _ in key),)
        adds = tuple((f"q{i}", kept.type) for i, kept in enumerate(functions.accumulators))
        if self.emit == "final":
            values = (*arguments, ("_time", "BIGINT"))
            specs = [TableSpec(name=ROWS, keys=columns, values=values, ages="_time")]
        else:
            results = tuple((f"r{i}", kind) for i, (_, _, kind) in enumerate(functions.results))
            values = (*arguments, ("_time", "BIGINT"), ("_nr", "BIGINT"), *results)
            specs = [TableSpec(name=ROWS, keys=columns, values=values, by=by)]
        if functions.behind and not self.withdraws:
            seen = tuple(arguments[i] for i in functions.lagged)
            sums = () if functions.frame.kind == "range" else adds
            specs.append(TableSpec(name=LAST, keys=(*key, ("_nr", "BIGINT")), values=(*seen, *sums), by=by))
        if functions.frame.kind == "range" and not self.withdraws:
            specs.append(TableSpec(name=PAST, keys=key, values=(("_time", "BIGINT"), *adds), by=by, ages="_time"))
        return tuple(specs)

    def define(self, duck: Duck) -> None:
        """Make exact sums callable."""
        if self.functions.exact:
            superaccumulator.define(duck)

    def before_exchange(self, side: int, rows: int, *, output: int, late: int | None) -> Operator | None:
        """Split off the late rows: those behind the watermark, since rows after them may be final."""
        del side
        if self.withdraws:
            return None
        return SplitLate(step=self.step, inputs=(rows,), output=output, late=late, reach=0)

    def exchange_keys(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Return the keys under their names inside."""
        del keys
        return tuple(f"c{i}" for i in self.functions.key)

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Take in rows, and return final results or corrected ones."""
        parts = inputs[0].tables
        counts = Counts(rows_in=sum(part.num_rows for part in parts) if self.withdraws else 0)
        make = FinalRun if self.emit == "final" else OpenRun
        delta = make(self.functions, context, withdraws=self.withdraws).run(parts)
        waits = self.emit == "final" or not (self.withdraws or self.functions.ahead)
        context.keyed.wait_since(context.keyed.minimum(ROWS, "_time") if waits else None)
        return StepResult([] if delta is None else [delta], counts=counts)

    def snapshot(self, context: Context) -> Rows:
        """Return the results of the open rows, where these have come out."""
        if self.emit == "final":
            return ()
        functions = self.functions
        columns = [f"c{i} AS {quote(name)}" for i, (name, _) in enumerate(functions.columns)]
        columns += [f"r{i} AS {quote(name)}" for i, (name, _, _) in enumerate(functions.results)]
        return f"(SELECT {', '.join(columns)}, 1::INTEGER AS _weight, _time FROM {context.state.name(ROWS)})"

    @property
    def emits_on_watermark(self) -> bool:
        """Where results come when the watermark passes."""
        return self.emit == "final"
