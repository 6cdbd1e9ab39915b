"""Columns of rows that arrived from an exchange, under the names that an operator has for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.kernels.op import Operator, StepResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.delta import Delta
    from headrace.kernels.op import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename(Operator):
    """Rows with these columns alone: `names` are pairs of an old name and a new one. Nothing is copied."""

    names: tuple[tuple[str, str], ...]

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Return the renamed rows."""
        del context
        old, new = ([pair[i] for pair in self.names] for i in (0, 1))
        return StepResult([part.select(old).rename_columns(new) for part in inputs[0].tables])
