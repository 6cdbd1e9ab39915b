"""A stream as a table whose rows leave by event time.

State is a buffer of the rows, which ages by their time. A row enters the table when it arrives. It is withdrawn when
the watermark has passed its time by more than `keep`; the withdrawal has the time at which it left. A row that is as
far behind the watermark when it arrives never enters: it is late.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.base.time import END_OF_TIME
from headrace.kernels.late import SplitLate
from headrace.kernels.op import Operator, StatefulOp, StepResult
from headrace.kernels.state.tables import Column, TableSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headrace.kernels.delta import Delta
    from headrace.kernels.duck import Duck
    from headrace.kernels.op import Context

ROWS = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep(StatefulOp):
    """Rows, each until the watermark has passed its time by more than `keep` microseconds."""

    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    keep: int

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the buffer of the rows."""
        columns = tuple((f"c{i}", kind) for i, (_, kind) in enumerate(self.columns))
        return (TableSpec(name=ROWS, keys=columns, values=(("_time", "BIGINT"),), ages="_time"),)

    def before_exchange(self, side: int, rows: int, *, output: int, late: int | None) -> Operator:
        """Split off the late rows."""
        del side
        return SplitLate(step=self.step, inputs=(rows,), output=output, late=late, reach=self.keep)

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Withdraw the rows that leave, and add those that arrive."""
        delta, duck, state = [], context.duck, context.keyed
        first = self._first(context.watermark_moved)
        if first is not None:
            leaving = state.between(ROWS, None, first - 1)
            delta += [
                self._named(duck, part, f"-1::INTEGER AS _weight, _time + {self.keep} AS _time") for part in leaving
            ]
            state.expire(ROWS, first)
        rows = inputs[0].relation
        if rows is not None:
            columns = ", ".join(f"{quote(name)} AS c{i}" for i, (name, _) in enumerate(self.columns))
            arrived = duck.arrow(f"SELECT {columns}, _time FROM {rows}")
            state.append(ROWS, arrived)
            delta.append(self._named(duck, arrived, "1::INTEGER AS _weight, _time"))
        return StepResult(delta)

    def _first(self, watermark: int | None) -> int | None:
        """Return the least time of rows that stay; at the end of the input no time passes, and all stay."""
        return None if watermark is None or watermark >= END_OF_TIME else watermark - self.keep

    def _named(self, duck: Duck, rows: pa.Table, rest: str) -> pa.Table:
        """Return rows of the buffer under their own names."""
        columns = ", ".join(f"c{i} AS {quote(name)}" for i, (name, _) in enumerate(self.columns))
        return duck.arrow(f"SELECT {columns}, {rest} FROM {duck.register(rows)}")

    def snapshot(self, context: Context) -> str:
        """Return the rows of the table, each with its time."""
        columns = ", ".join(f"c{i} AS {quote(name)}" for i, (name, _) in enumerate(self.columns))
        return f"(SELECT {columns}, 1::INTEGER AS _weight, _time FROM {context.keyed.during(ROWS, None, None)})"
