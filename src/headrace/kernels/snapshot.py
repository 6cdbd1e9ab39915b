"""A step of old whose rows fill a new one below it: what it has emitted, from its state, in the place of a delta."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.kernels.op import StatefulOp, StepResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.delta import Delta
    from headrace.kernels.duck import Duck
    from headrace.kernels.op import Context
    from headrace.kernels.state.tables import TableSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(StatefulOp):
    """The output of a stateful operator so far, as inserts; it has no input, and leaves the state as it is."""

    begins: ClassVar[bool] = True

    of: StatefulOp

    @staticmethod
    def instead_of(op: StatefulOp) -> Snapshot:
        """Return the snapshot whose rows are where those of an operator would be."""
        return Snapshot(step=op.step, inputs=(), output=op.output, of=op)

    @property
    def calls_users(self) -> bool:
        """Whether functions of the user's run in it."""
        return self.of.calls_users

    def define(self, duck: Duck) -> None:
        """Make callable what its SQL calls."""
        self.of.define(duck)

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the tables that the operator keeps."""
        return self.of.tables()

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Return the rows."""
        del inputs
        return StepResult(self.of.snapshot(context))
