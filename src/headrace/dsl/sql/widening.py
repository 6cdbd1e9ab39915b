"""Columns of different types that SQL compares or puts in one column: both are cast to the wider type, as in Spark.

A text is never read as a number or a time without a cast in the query.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from headrace.base.errors import PlanError, UnknownFunction, UnsupportedFunction
from headrace.base.schema import type_name
from headrace.dsl.joins import shared_type
from headrace.dsl.sql.parsing import sql_text
from headrace.expressions import scalar

if TYPE_CHECKING:
    from headrace.dsl.stream_table import StreamOrTable

_STEP = "the query"


def wider_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that `array(…)` of both has; None where there is none, or texts would be read as another type."""
    if one == other:
        return one
    with suppress(PlanError):
        if not pa.types.is_string(one) and not pa.types.is_string(other):
            return scalar("array(l, r)", pa.schema([("l", one), ("r", other)]), step=_STEP).type.value_type
    return None


def widened(tree: exp.Expression, kind: pa.DataType, wider: pa.DataType | None) -> exp.Expression:
    """Return an expression of a type, cast to the wider one if there is one and it has another."""
    return tree if wider is None or kind == wider else exp.cast(tree, type_name(wider), dialect="spark")


def comparable(
    left: exp.Expression, of_left: StreamOrTable, right: exp.Expression, of_right: StreamOrTable
) -> tuple[exp.Expression, exp.Expression]:
    """Return two expressions over two steps as a join can compare them: as they are, unless it would refuse them."""
    kinds = [type_of(tree, handle) for tree, handle in ((left, of_left), (right, of_right))]
    if kinds[0] is None or kinds[1] is None or shared_type(kinds[0], kinds[1]) is not None:
        return left, right
    wider = wider_type(kinds[0], kinds[1])
    return widened(left, kinds[0], wider), widened(right, kinds[1], wider)


def check_functions(tree: exp.Expression, handle: StreamOrTable) -> None:
    """Refuse an expression that calls a function which nobody knows.

    Raises:
        UnknownFunction: it does.
        UnsupportedFunction: the function is Spark's alone.

    """
    for call in tree.find_all(exp.Anonymous):
        try:
            scalar(sql_text(call), handle.schema, step=_STEP, functions=handle.registry.functions)
        except (UnknownFunction, UnsupportedFunction):
            raise
        except PlanError:
            continue  # another reason is not looked for here


def type_of(tree: exp.Expression, handle: StreamOrTable) -> pa.DataType | None:
    """Return the type of an expression; None where it has none, which whoever computes it will say."""
    with suppress(PlanError):
        return scalar(sql_text(tree), handle.schema, step=_STEP, functions=handle.registry.functions).type
    return None
