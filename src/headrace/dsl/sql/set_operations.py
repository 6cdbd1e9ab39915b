"""`union`, `intersect` and `except`: rows of two queries, whose columns are paired by their places.

Rows are compared as `group by` does it: nulls are equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidQuery
from headrace.dsl.sql.output import column, distinct, free_name, select_outputs
from headrace.dsl.sql.widening import widened, wider_type
from headrace.dsl.stream_table import Table

if TYPE_CHECKING:
    from headrace.dsl.sql.context import Context
    from headrace.dsl.stream_table import StreamOrTable


def combined(tree: exp.SetOperation, left: StreamOrTable, right: StreamOrTable, context: Context) -> StreamOrTable:
    """Return the rows of a set operation, under the names of the left columns, of the wider of two types.

    Raises:
        InvalidQuery: one side has more columns.
        PlanError: the types of two columns have no wider one.

    """
    word = type(tree).__name__.lower()
    if len(left.columns) != len(right.columns):
        raise InvalidQuery(
            f"{word} of {len(left.columns)} columns with {len(right.columns)}",
            detail=f"{', '.join(left.columns)}  against  {', '.join(right.columns)}",
        )
    names = left.columns
    wider = [wider_type(one.type, other.type) for one, other in zip(left.schema, right.schema, strict=True)]
    left, right = (
        select_outputs(
            side,
            [
                (name, widened(column(field.name), field.type, kind))
                for name, field, kind in zip(names, side.schema, wider, strict=True)
            ],
        )
        for side in (left, right)
    )
    if isinstance(tree, exp.Union):
        rows = _united(left, right)
        return distinct(rows, context) if tree.args.get("distinct") else rows
    return _counted(tree, left, right, context)


def _united(left: StreamOrTable, right: StreamOrTable) -> StreamOrTable:
    if isinstance(left, Table):
        return left.union(right)
    if isinstance(right, Table):
        return select_outputs(right.union(left), [(name, column(name)) for name in left.columns])
    return left.union(right)


def _counted(tree: exp.SetOperation, left: StreamOrTable, right: StreamOrTable, context: Context) -> StreamOrTable:
    """Return the rows that both sides have, or only the left one: each once, or as often as `all` says."""
    columns = left.columns
    side, ours, theirs, copy = (free_name(name, columns) for name in ("_side", "_left", "_right", "_copy"))
    both = _united(left.with_columns(**{side: "1"}), right.with_columns(**{side: "2"}))
    counts = {ours: f"count_if({side} = 1)", theirs: f"count_if({side} = 2)"}
    groups = context.uniquely_named(both.group_by(*columns).agg(**counts))
    intersects, outputs = isinstance(tree, exp.Intersect), [(name, column(name)) for name in columns]
    if tree.args.get("distinct"):
        found = groups.where(f"{ours} > 0 and {theirs} {'>' if intersects else '='} 0")
        return select_outputs(found, outputs)
    times = f"least({ours}, {theirs})" if intersects else f"{ours} - {theirs}"
    found = groups.where(f"{times} > 0")
    return select_outputs(found.explode(f"sequence(1, {times})", copy), outputs)
