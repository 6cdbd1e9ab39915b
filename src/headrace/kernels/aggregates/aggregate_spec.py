"""An aggregate as the kernels know it: the call, and what is kept for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.kernels.state.tables import Column

Layers = tuple[tuple[tuple[str, str], ...], ...]
"""Columns as names and SQL; those of a layer are computed from those that the layers before it left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAggregate:
    """A user's aggregate: an object with init, add, merge, result and perhaps remove; `state` is what it keeps."""

    name: str
    function: Any
    takes: tuple[pa.DataType, ...]
    state: pa.Schema
    returns: pa.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulator:
    """One accumulator of a group, as SQL.

    `partial` computes it from rows (columns by their names); several partial values are put together by the aggregate
    function `fold` and then `finish` (`{f}` is the result of that function); `merge` adds a partial value to a kept one
    (`{o}` kept, may be null; `{d}` partial). `whole`: the same as `partial` where it is a count, sum, min or max of one
    argument of whole numbers: its function, and its argument as SQL; counts and sums are by the rows' weights.
    """

    type: str
    partial: str
    fold: str
    finish: str
    merge: str
    whole: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """The value of a call: accumulator number `of`, or, where it is None, the count of rows.

    `where`: it is null unless the accumulator of this number is above 0. `mean`: it is divided by that one, as doubles.
    """

    of: int | None
    where: int | None = None
    mean: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiset:
    """Values kept for each group with their counts. `where` leaves rows out."""

    columns: tuple[Column, ...]
    partial: tuple[str, ...]
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateSpec:
    """An aggregate call to be kept: canonical function, arguments as SQL over the input, their types, result type.

    `at` are the fractions of a percentile; `options` SQL of what else a function needs; `user` is the user's own
    aggregate, given the rows that meet `where`.
    """

    function: str
    arguments: tuple[str, ...]
    argument_types: tuple[str, ...]
    distinct: bool
    type: str
    at: tuple[float, ...] = ()
    user: UserAggregate | None = None
    where: str | None = None
    options: tuple[str, ...] = ()
