"""`values (1, 'a'), (2, 'b')`: rows that a query has itself: a table that never changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from headrace.base.errors import InvalidQuery, UnsupportedQuery
from headrace.base.names import check_topic, quote
from headrace.dsl.sql.parsing import check_parts, sql_text
from headrace.dsl.stream_table import Table
from headrace.expressions import scalar
from headrace.plan.nodes import Values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dsl.sql.context import Context
    from headrace.expressions import Scalar

_STEP = "values"
_NO_ALIAS = "_values"
"""What the parser puts where a query is `values` alone."""


def values_table(context: Context, tree: exp.Values) -> tuple[Table, str]:
    """Return the table of `values … as t(a, b)`, and its alias; without names its columns are `col1`, `col2`, ….

    Values of one column have the type that `array(…)` of them has.

    Raises:
        InvalidQuery: rows differ in length, or a value cannot be computed.
        PlanError: a value cannot be read, or is no constant.

    """
    check_parts(tree)
    rows, alias = _rows(tree)
    declared = tree.args.get("alias")
    names = [name.name for name in declared.args.get("columns") or ()] if declared is not None else []
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        raise InvalidQuery(f'"{sql_text(tree)}" has rows of different lengths')
    names = names or [f"col{number}" for number in range(1, width + 1)]
    if len(names) != width:
        raise InvalidQuery(f'"{sql_text(tree)}" names {len(names)} columns of {width}')
    columns = [_column(context, [row[place] for row in rows]) for place in range(width)]
    schema = pa.schema([(name, column.type.value_type) for name, column in zip(names, columns, strict=True)])
    lists = ", ".join(f"unnest({c.sql}) AS {quote(name)}" for name, c in zip(names, columns, strict=True))
    label = "_".join(filter(None, [context.name, "values", alias]))
    node = Values(
        schema=schema,
        topic=check_topic(context.free_source(label)),
        connector=context.registry.constants(f"SELECT {lists}", schema),
        event_time=None,
        out_of_order=0,
        idle_after=None,
        count=len(rows),
    )
    return Table(context.registry, node), alias


def _rows(tree: exp.Values) -> tuple[list[list[exp.Expression]], str]:
    """Return the rows, and the alias: of `values 1, 2 as t(a)` the parser leaves it at the last value."""
    rows = [list(row.expressions) if isinstance(row, exp.Tuple) else [row] for row in tree.expressions]
    declared = tree.args.get("alias")
    alias = declared.name if declared is not None and declared.name != _NO_ALIAS else ""
    last = rows[-1][-1]
    if not alias and isinstance(last, exp.Alias):
        rows[-1][-1], alias = last.this, last.alias
    return rows, alias


def _column(context: Context, values: Sequence[exp.Expression]) -> Scalar:
    """Return the values of a column as one array."""
    text = sql_text(exp.Anonymous(this="array", expressions=[value.copy() for value in values]))
    column = scalar(text, pa.schema([]), step=_STEP, functions=context.registry.functions)
    if column.calls or not column.deterministic:
        raise UnsupportedQuery(
            ", ".join(map(sql_text, values)),
            "values are constants: they are computed once, when the query is declared",
            hint="Compute it in the select list.",
        )
    return column
