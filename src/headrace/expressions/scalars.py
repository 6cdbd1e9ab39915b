"""What expressions become: frozen values, picklable, with the SQL that DuckDB computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.base.schema import type_name

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.expressions.user import UserFunction

EPOCH_TIME = "CAST(getvariable('headrace_epoch_time') AS TIMESTAMP)"
"""SQL for the time of the epoch, which is the same for all of its rows and in all of its tasks."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """One typed expression over the columns of its input.

    `sql` gives exactly `type` when DuckDB computes it over columns that have the declared types (a `timestamp` is a
    naive `TIMESTAMP` in UTC there). `columns` are the input columns that it reads. What Spark raises, `sql` raises.
    `calls` are calls of the user's functions, in the order of computing: `sql` reads their columns, too. `raises`:
    `sql` may fail on some row.
    """

    text: str
    sql: str
    type: pa.DataType
    columns: frozenset[str]
    deterministic: bool = True
    calls: tuple[FunctionCall, ...] = ()
    raises: bool = False

    @property
    def reads_clock(self) -> bool:
        """Whether it has the time of the epoch."""
        return EPOCH_TIME in self.sql or any(a.reads_clock for call in self.calls for a in call.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """A call of a scalar function: the column that it makes of its arguments."""

    column: str
    function: UserFunction
    arguments: tuple[Scalar, ...]

    @property
    def deterministic(self) -> bool:
        """Whether the function, and what it is given, is the same each time."""
        return self.function.deterministic and all(argument.deterministic for argument in self.arguments)

    @property
    def shown(self) -> str:
        """The call for comparison and for people."""
        return f"{self.function.identity()}({', '.join(f'{a.sql} {type_name(a.type)}' for a in self.arguments)})"


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate over the rows of a group, under its canonical name (`mean` is `avg`); Spark's meaning.

    A `FILTER` is already inside the arguments, as null where the row does not count. `count(*)` has no arguments.
    `at` are the fractions of a percentile. `options` are the delimiter of `listagg` and the terms of its order, as SQL
    over the arguments `v0…`. `user` is the user's own aggregate, to which null is a value: its `FILTER`
    is `where`.
    """

    function: str
    arguments: tuple[Scalar, ...]
    distinct: bool
    type: pa.DataType
    user: UserFunction | None = None
    where: Scalar | None = None
    at: tuple[float, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregates:
    """What an `agg` computes: `calls[i]` is the column `_a{i}`, which the `results` read, as they do the keys.

    The results that are `sealed` are private values, passed on as they are.
    """

    calls: tuple[AggregateCall, ...]
    results: tuple[tuple[str, Scalar], ...]
    sealed: frozenset[str] = frozenset()
