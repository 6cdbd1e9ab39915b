"""Columns of different types that SQL compares or puts in one column: both are cast to the wider type, as in Spark.

A text is never read as a number or a time without a cast in the query.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from headrace.base.errors import PlanError
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


def cast_to(kind: pa.DataType, tree: exp.Expression) -> exp.Expression:
    """Return an expression, cast to a type."""
    return exp.cast(tree, type_name(kind), dialect="spark")


def comparable(
    left: exp.Expression, of_left: StreamOrTable, right: exp.Expression, of_right: StreamOrTable
) -> tuple[exp.Expression, exp.Expression]:
    """Return two expressions over two steps as a join can compare them: as they are, unless it would refuse them."""
    kinds = [_type(tree, handle) for tree, handle in ((left, of_left), (right, of_right))]
    if kinds[0] is None or kinds[1] is None or shared_type(kinds[0], kinds[1]) is not None:
        return left, right
    wider = wider_type(kinds[0], kinds[1])
    if wider is None:
        return left, right
    cast = [tree if kind == wider else cast_to(wider, tree) for tree, kind in zip((left, right), kinds, strict=True)]
    return cast[0], cast[1]


def _type(tree: exp.Expression, handle: StreamOrTable) -> pa.DataType | None:
    """Return the type of an expression; None where it has none, which whoever computes it will say."""
    with suppress(PlanError):
        return scalar(sql_text(tree), handle.schema, step=_STEP, functions=handle.registry.functions).type
    return None
