"""A verb on a step: it reads the user's texts over the columns of the step, and names the new step in errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.base.errors import Nondeterministic
from headrace.base.names import quote
from headrace.expressions import Scalar, condition, scalar
from headrace.plan import check
from headrace.plan.steps import step_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from headrace.expressions import UserFunction
    from headrace.plan.nodes import Node


@dataclass(frozen=True, slots=True)
class Verb:
    """The verb `name`, called on the step `node`; `functions` are the user's, by name in lower case.

    `in_epoch`: the step is computed in an epoch, so that there is a time of it.
    """

    node: Node
    name: str
    functions: Mapping[str, UserFunction]
    in_epoch: bool = True

    @property
    def step(self) -> str:
        """What errors call the new step."""
        return f"{step_name(self.node)}_{self.name}"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the step."""
        return self.node.schema

    def scalar(self, text: str) -> Scalar:
        """Return an expression over the columns of the step.

        Raises:
            UnknownColumn: it names a column that is not there.
            PlanError: it cannot be read, computes with private columns, or is not deterministic over rows that may be
                withdrawn.

        """
        sealed = self.node.sealed
        return self._checked(scalar(text, self.schema, step=self.step, functions=self.functions, sealed=sealed))

    def condition(self, text: str) -> Scalar:
        """Return a condition over the columns of the step.

        Raises:
            UnknownColumn: it names a column that is not there.
            PlanError: as `scalar`, or it is not boolean.

        """
        sealed = self.node.sealed
        return self._checked(condition(text, self.schema, step=self.step, functions=self.functions, sealed=sealed))

    def column(self, name: str) -> Scalar:
        """Return a column of the step as an expression."""
        return Scalar(text=name, sql=quote(name), type=self.schema.field(name).type, columns=frozenset({name}))

    def columns(self) -> list[tuple[str, Scalar]]:
        """Return all columns of the step by name, in order."""
        return [(name, self.column(name)) for name in self.schema.names]

    def _checked(self, expression: Scalar) -> Scalar:
        check.require_deterministic(expression, step=self.step, withdrawn=not self.node.append_only)
        if expression.reads_clock and not self.in_epoch:
            raise Nondeterministic(
                f'step "{self.step}": records land outside of epochs, so there is no time of the epoch',
                hint="Compute it in the app that reads the topic.",
            )
        return expression
