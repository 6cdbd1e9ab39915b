"""Functions of the user's: what is known of one when it is declared, and what a call of one becomes.

A call does not stand in the SQL: it becomes a column of its own, made by the function over a whole batch before the
rest of the expression is computed, and the SQL reads that column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from headrace.base.errors import InvalidExpression
from headrace.base.names import quote
from headrace.base.schema import to_ddl, type_name
from headrace.expressions import kinds as k
from headrace.expressions.coercion import implicit
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Scalar, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

_PREFIX = "_call_"


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
        made = [implicit(value, kind) for value, kind in zip(values, self.takes, strict=True)]
        if None in made:
            given = ", ".join(k.shown(value.type) for value in values)
            raise Mismatch(f"{self.name} does not take ({given})", hint=self._usage())
        return [value for value in made if value is not None]

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
        kept = f" keeps ({to_ddl(self.state)})" if self.state is not None else ""
        return f"{self.name}{version}{kept}"


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


class Calls:
    """The calls that one expression makes, in the order in which they can be computed."""

    def __init__(self) -> None:
        self._made: dict[str, FunctionCall] = {}
        self._drawn = 0

    def add(self, function: UserFunction, values: Sequence[Value], text: str) -> Value:
        """Return the value of a call: the column that will hold it.

        Raises:
            Mismatch: the arguments are not what the function takes.

        """
        if function.is_aggregate:
            raise Mismatch(
                f"{function.name} is an aggregate",
                hint="Aggregates stand in .group_by(…).agg(…) only.",
                condition=InvalidExpression,
            )
        made = function.arguments(values)
        arguments = tuple(scalar_of(value, self) for value in made)
        call = FunctionCall(column="", function=function, arguments=arguments)
        text_of_it = call.shown
        if not function.deterministic:  # each call that is written is a call of its own
            self._drawn += 1
            text_of_it += f" #{self._drawn}"
        column = f"{_PREFIX}{sha256(text_of_it.encode()).hexdigest()[:16]}"
        self._made.setdefault(column, replace(call, column=column))
        columns = frozenset[str]().union(*(value.columns for value in made))
        return Value(text, quote(column), function.returns, columns)

    def within(self, sql: str) -> tuple[FunctionCall, ...]:
        """Return the calls that SQL reads, those that their arguments read first."""
        needed: dict[str, FunctionCall] = {}
        for column, call in self._made.items():
            if quote(column) in sql:
                needed |= {inner.column: inner for argument in call.arguments for inner in argument.calls}
                needed[column] = call
        return tuple(needed.values())


def scalar_of(value: Value, calls: Calls, text: str | None = None) -> Scalar:
    """Return a compiled value as an expression, with the calls that it reads."""
    made = calls.within(value.sql)
    return Scalar(
        value.text if text is None else text,
        value.sql,
        value.type,
        value.columns,
        deterministic=all(call.function.deterministic for call in made),
        calls=made,
    )


def calls_of(scalars: Iterable[Scalar]) -> tuple[FunctionCall, ...]:
    """Return the calls of several expressions, each once, in the order in which they can be computed."""
    found = {call.column: call for scalar in scalars for call in scalar.calls}
    return tuple(found.values())


def drawn_apart(scalars: Sequence[Scalar]) -> list[Scalar]:
    """Return a step's expressions with a column of its own for each call of a function that is not deterministic."""
    return [_renamed(scalar, str(i)) for i, scalar in enumerate(scalars)]


def _renamed(scalar: Scalar, mark: str) -> Scalar:
    moving = {call.column: f"{call.column}_{mark}" for call in scalar.calls if not call.deterministic}
    if not moving:
        return scalar

    def moved(one: Scalar) -> Scalar:
        sql = one.sql
        for old, new in moving.items():
            sql = sql.replace(quote(old), quote(new))
        return replace(one, sql=sql, calls=tuple(map(again, one.calls)))

    def again(call: FunctionCall) -> FunctionCall:
        return replace(call, column=moving.get(call.column, call.column), arguments=tuple(map(moved, call.arguments)))

    return moved(scalar)


def aggregate_names(functions: Mapping[str, UserFunction]) -> frozenset[str]:
    """Return the names of the aggregates among functions."""
    return frozenset(name for name, function in functions.items() if function.is_aggregate)
