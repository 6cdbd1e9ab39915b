"""The values that expressions become: frozen, picklable, and ready for DuckDB."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from headrace.expressions.user import FunctionCall, UserFunction


class _Missing(Enum):
    """The type of `NOT_CONSTANT`, which is unlike every constant, None included."""

    NOT_CONSTANT = "not constant"


NOT_CONSTANT: Final = _Missing.NOT_CONSTANT


@dataclass(frozen=True, slots=True)
class Scalar:
    """One typed expression over the columns of its input.

    `sql` gives exactly `type` when DuckDB computes it over columns that have the declared types (a `timestamp` is a
    naive `TIMESTAMP` in UTC there). `columns` are the input columns that it reads. What Spark raises, `sql` raises.
    `calls` are calls of the user's functions, in the order of computing: `sql` reads their columns, too.
    """

    text: str
    sql: str
    type: pa.DataType
    columns: frozenset[str]
    deterministic: bool = True
    calls: tuple[FunctionCall, ...] = ()


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate over the rows of a group, under its canonical name (`mean` is `avg`); Spark's meaning.

    A `FILTER` is already inside the arguments, as null where the row does not count. `count(*)` has no arguments.
    `at` are the fractions that a percentile is asked at. `user` is the user's own aggregate, to which null is a value:
    its `FILTER` is `where`.
    """

    function: str
    arguments: tuple[Scalar, ...]
    distinct: bool
    type: pa.DataType
    user: UserFunction | None = None
    where: Scalar | None = None
    at: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregates:
    """What an `agg` computes: `calls[i]` is the column `_a{i}` that the `results` read beside the keys.

    The results that are `sealed` are private values, passed on as they are.
    """

    calls: tuple[AggregateCall, ...]
    results: tuple[tuple[str, Scalar], ...]
    sealed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Closure:
    """A function `x -> x + 1` that stands as an argument; `body` gives its value for the values of its parameters.

    `names` are free for lambdas of DuckDB's in which the parameters stand.
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

    @property
    def is_constant(self) -> bool:
        """Whether it is a literal."""
        return self.constant is not NOT_CONSTANT
