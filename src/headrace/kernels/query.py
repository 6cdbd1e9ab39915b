"""Stateless steps as SQL: composed, and computed only where rows are needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.kernels.op import Operator, StepResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.delta import Delta
    from headrace.kernels.op import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Operator):
    """SQL over the rows of one delta or, all treated alike, of several: `before`, the rows, `after`.

    `shared` results are computed once.
    """

    before: str
    after: str
    shared: bool

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Return the SQL, or what it computes."""
        sources = [rows for delta in inputs if (rows := delta.relation) is not None]
        if not sources:
            return StepResult()
        sql = f"({' UNION ALL '.join(f'{self.before} {rows} {self.after}' for rows in sources)})"
        return StepResult([context.duck.arrow(f"SELECT * FROM {sql}")] if self.shared else sql)
