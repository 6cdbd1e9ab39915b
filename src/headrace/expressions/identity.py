"""What of an expression must stay equal for kept state to be right, as text that is compared at every start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.base.schema import type_name

if TYPE_CHECKING:
    from headrace.expressions.scalars import AggregateCall, Scalar


def sql_identity(scalar: Scalar) -> str:
    """Return an expression's SQL, with calls of the user's functions as they are written."""
    sql = scalar.sql
    for call in reversed(scalar.calls):
        arguments = ", ".join(map(typed_identity, call.arguments))
        sql = sql.replace(quote(call.column), f"{call.function.identity()}({arguments})")
    return sql


def typed_identity(scalar: Scalar) -> str:
    """Return an expression's SQL and its type."""
    return f"{sql_identity(scalar)} {type_name(scalar.type)}"


def call_identity(call: AggregateCall) -> str:
    """Return an aggregate with its arguments, fractions and filter."""
    function = call.function if call.user is None else call.user.identity()
    constants = [*(f"at {fraction!r}" for fraction in call.at), *call.options]
    arguments = ", ".join([*map(typed_identity, call.arguments), *constants])
    where = f" where {sql_identity(call.where)}" if call.where else ""
    return f"{function}({'distinct ' if call.distinct else ''}{arguments}){where}"
