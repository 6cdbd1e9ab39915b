"""Calls of the user's scalar functions.

The SQL of an expression has no call in it. A call becomes a column of its own: the function computes it over a whole
batch, before the rest of the expression is computed, and the SQL reads that column.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from headrace.base.errors import InvalidExpression
from headrace.base.names import quote
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.scalars import EPOCH_TIME, FunctionCall, Scalar
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.expressions.user import UserFunction

_PREFIX = "_call_"


class Calls:
    """The calls that one expression makes, in the order in which they can be computed."""

    def __init__(self) -> None:
        self._calls: dict[str, FunctionCall] = {}
        self._drawn = 0

    def add(self, function: UserFunction, values: Sequence[Value], text: str) -> Value:
        """Return the value of a call: the column that will hold it.

        Raises:
            Mismatch: the arguments are not what the function takes.

        """
        if function.is_aggregate:
            raise Mismatch(
                f"{function.name} is an aggregate",
                hint="Aggregates are possible in .group_by(…).agg(…) only.",
                condition=InvalidExpression,
            )
        cast_values = function.arguments(values)
        arguments = tuple(scalar_of(value, self) for value in cast_values)
        call = FunctionCall(column="", function=function, arguments=arguments)
        text_of_it = call.shown
        if not function.deterministic:  # each call that is written is a call of its own
            self._drawn += 1
            text_of_it += f" #{self._drawn}"
        column = f"{_PREFIX}{sha256(text_of_it.encode()).hexdigest()[:16]}"
        self._calls.setdefault(column, replace(call, column=column))
        columns = frozenset[str]().union(*(value.columns for value in cast_values))
        return Value(text, quote(column), function.returns, columns)

    def within(self, sql: str) -> tuple[FunctionCall, ...]:
        """Return the calls that SQL reads, those that their arguments read first."""
        needed: dict[str, FunctionCall] = {}
        for column, call in self._calls.items():
            if quote(column) in sql:
                needed |= {inner.column: inner for argument in call.arguments for inner in argument.calls}
                needed[column] = call
        return tuple(needed.values())


def scalar_of(value: Value, calls: Calls, text: str | None = None) -> Scalar:
    """Return a compiled value as an expression, with the calls that it reads."""
    user_calls = calls.within(value.sql)
    return Scalar(
        value.text if text is None else text,
        value.sql,
        value.type,
        value.columns,
        deterministic=EPOCH_TIME not in value.sql and all(call.deterministic for call in user_calls),
        calls=user_calls,
        raises=value.raises,
    )


def calls_of(scalars: Iterable[Scalar]) -> tuple[FunctionCall, ...]:
    """Return the calls of several expressions, each once, in the order in which they can be computed."""
    found = {call.column: call for scalar in scalars for call in scalar.calls}
    return tuple(found.values())


def drawn_apart(scalars: Sequence[Scalar]) -> list[Scalar]:
    """Return a step's expressions with a column of its own for each call of a function that is not deterministic."""
    return [_renamed(scalar, str(i)) for i, scalar in enumerate(scalars)]


def _renamed(scalar: Scalar, mark: str) -> Scalar:
    new_names = {call.column: f"{call.column}_{mark}" for call in scalar.calls if not call.deterministic}
    if not new_names:
        return scalar

    def renamed_scalar(scalar: Scalar) -> Scalar:
        sql = scalar.sql
        for old, new in new_names.items():
            sql = sql.replace(quote(old), quote(new))
        return replace(scalar, sql=sql, calls=tuple(map(renamed_call, scalar.calls)))

    def renamed_call(call: FunctionCall) -> FunctionCall:
        return replace(
            call, column=new_names.get(call.column, call.column), arguments=tuple(map(renamed_scalar, call.arguments))
        )

    return renamed_scalar(scalar)
