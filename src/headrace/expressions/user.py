"""Functions of the user's: what is known of one when it is declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.base.schema import to_ddl, type_name
from headrace.expressions import kinds as k
from headrace.expressions.coercion import implicit
from headrace.expressions.mismatch import Mismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from headrace.expressions.values import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFunction:
    """A function that the application declared.

    `least` and `most` are how many arguments it takes (`most` None: no limit). `takes` are their types, or None: any.
    `state` are the columns that an aggregate keeps for a group; None for a scalar function.
    """

    name: str
    function: Callable[..., Any]
    returns: pa.DataType
    takes: tuple[pa.DataType, ...] | None
    least: int
    most: int | None
    deterministic: bool
    version: str | None
    state: pa.Schema | None = None

    @property
    def is_aggregate(self) -> bool:
        """Whether it makes one value of the rows of a group."""
        return self.state is not None

    @property
    def withdraws(self) -> bool:
        """Whether an aggregate can take rows away again."""
        return callable(getattr(self.function, "remove", None))

    def arguments(self, values: Sequence[Value]) -> list[Value]:
        """Return the arguments of a call, cast to what the function takes.

        Raises:
            Mismatch: their number or the type of one is wrong.

        """
        count = len(values)
        if count < self.least or (self.most is not None and count > self.most):
            raise Mismatch(f"{self.name} takes {self._counted()}, not {count}", hint=self._usage())
        if self.takes is None:
            for value in values:
                self._known(value)
            return list(values)
        cast_values = [implicit(value, kind) for value, kind in zip(values, self.takes, strict=True)]
        if None in cast_values:
            given = ", ".join(k.shown(value.type) for value in values)
            raise Mismatch(f"{self.name} does not take ({given})", hint=self._usage())
        return [value for value in cast_values if value is not None]

    def _known(self, value: Value) -> None:
        if k.contains(value.type, lambda kind: kind == k.NULL or k.is_interval(kind)):
            raise Mismatch(
                f"{self.name} cannot be given {value.text or 'this'} of type {k.shown(value.type)}",
                hint='Cast it, for example cast(null as string), or say takes="…" where the function is declared.',
            )

    def _counted(self) -> str:
        if self.most is None:
            return f"{self.least} or more arguments"
        many = str(self.least) if self.least == self.most else f"{self.least} to {self.most}"
        return f"{many} argument{'' if many == '1' else 's'}"

    def _usage(self) -> str:
        if self.takes is None:
            return ""
        return f"It takes {self.name}({', '.join(type_name(kind) for kind in self.takes)})."

    def identity(self) -> str:
        """Return what must stay equal for kept results to be right, as far as it can be known."""
        version = f" version {self.version}" if self.version is not None else ""
        state = f" keeps ({to_ddl(self.state)})" if self.state is not None else ""
        return f"{self.name}{version}{state}"


def aggregate_names(functions: Mapping[str, UserFunction]) -> frozenset[str]:
    """Return the names of the aggregates among functions."""
    return frozenset(name for name, function in functions.items() if function.is_aggregate)
