"""What the handler of a syntax may ask of the compiler that called it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import exp

    from headrace.base.errors import PlanError
    from headrace.expressions.calls import Calls
    from headrace.expressions.user import UserFunction
    from headrace.expressions.values import Value


class Compiling(Protocol):
    """A compiler at work on one expression: its step, the user's functions and their calls, and the parts below."""

    step: str
    functions: Mapping[str, UserFunction]
    user_calls: Calls

    @property
    def inside_lambda(self) -> bool:
        """Whether the part that is compiled is inside `x -> …`: it is computed for elements, not for rows."""

    def compile(self, tree: exp.Expression) -> Value:
        """Return the value of one part."""

    def all(self, trees: Sequence[exp.Expression]) -> list[Value]:
        """Return the values of several parts."""

    def closure(self, tree: exp.Expression) -> Value:
        """Return a function `x -> …`, which is compiled when it is known what it is applied to."""

    def field(self, value: Value, name: str, text: str) -> Value:
        """Return a field of a struct, of every struct in an array, or a map's value."""

    def unsupported(self, tree: exp.Expression) -> PlanError:
        """Return the error for a syntax that is Spark's but not ours."""
