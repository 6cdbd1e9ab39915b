"""The parts of an expression while it is compiled: typed, frozen, and ready for DuckDB."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from headrace.expressions import kinds as k

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa


class _Missing(Enum):
    """The type of `NOT_CONSTANT`, which is unlike every constant, None included."""

    NOT_CONSTANT = "not constant"


NOT_CONSTANT: Final = _Missing.NOT_CONSTANT


@dataclass(frozen=True, slots=True)
class Closure:
    """A function `x -> x + 1` as an argument; `body` returns its value for the values of its parameters.

    `names` are unused names for the parameters of DuckDB's lambdas.
    """

    names: tuple[str, ...]
    body: Callable[[Sequence[Value]], Value]


@dataclass(frozen=True, slots=True)
class Value:
    """A part of an expression while it is compiled.

    `text` is what the user wrote, for errors. `raises` says that computing it can fail for some row, so that it may
    not be computed where Spark would not. `constant` is a literal's Python value.
    """

    text: str
    sql: str
    type: pa.DataType
    columns: frozenset[str] = frozenset()
    raises: bool = False
    constant: object = NOT_CONSTANT

    def to(self, sql: str, kind: pa.DataType, *, raises: bool = False) -> Value:
        """Return the same part with other SQL and type; what raised before still does."""
        return replace(self, sql=sql, type=kind, raises=self.raises or raises)

    def apart(self) -> Value:
        """Return the same part as DuckDB does not simplify it together with what is around it.

        It would compute `j * 2 <= 0` as `j <= 0` and `(i + 1) + 2` as `i + 3`, which overflow for other rows.
        """
        return replace(self, sql=f"greatest({self.sql})") if self.raises and k.is_integral(self.type) else self

    @property
    def is_constant(self) -> bool:
        """Whether it is a literal."""
        return self.constant is not NOT_CONSTANT
