"""The verb `over`, as a node of the plan: which rows count, and what is computed of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import pyarrow as pa

from headrace.base.errors import InvalidPlan, UnsupportedFunction
from headrace.base.time import duration
from headrace.expressions import aggregates
from headrace.plan import check
from headrace.plan.nodes import Emit, Over, Rows
from headrace.plan.steps import step_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.dsl.grouping import Grouping
    from headrace.expressions import AggregateCall

FUNCTIONS = (
    *("count", "sum", "avg", "min", "max", "min_by", "max_by"),
    *("stddev_samp", "stddev_pop", "var_samp", "var_pop"),
    *("lag", "lead", "first_value", "last_value", "row_number"),
)
"""What can be computed from what rows add up to; a frame is not a list of values."""
MOST_ROWS = 1_000_000


def counted_rows(group: Grouping, rows: int | tuple[int, int] | None, back: str | None, emit: Emit) -> Rows:
    """Return which rows count, from the arguments of `over`.

    Raises:
        InvalidPlan: they say nothing, or results cannot be final.
        InvalidTime: `back` is no duration.

    """
    step = f"{step_name(group.node)}_over"
    if emit not in get_args(Emit):
        raise InvalidPlan(f'step "{step}": emit={emit!r} is not known', hint='Say emit="changes" or emit="final".')
    if group.window is not None:
        raise InvalidPlan(f'step "{step}": over has no windows', hint='Leave .window(…) out, or say range="1 hour".')
    if emit == "final" and not group.node.append_only:
        raise InvalidPlan(
            f'step "{step}": rows of its input are withdrawn, so no result is final',
            hint='Say emit="changes", or call over on the stream before the table.',
        )
    if group.node.time_column is None:
        raise InvalidPlan(
            f'step "{step}": rows of its input are withdrawn, and nobody knows in which order they happened',
            hint='Say event_time="…" where the table is made, and keep that column up to here.',
        )
    if rows is not None and back is not None:
        raise InvalidPlan(f'step "{step}": rows and range are two frames', hint="Call over twice, once for each.")
    if back is not None:
        length = duration(back, what="range")
        if length < 0:
            raise InvalidPlan(f'step "{step}": range={back!r} is below zero')
        return Rows(kind="range", first=length)
    return Rows() if rows is None else _rows(rows, step)


def _rows(rows: object, step: str) -> Rows:
    first, last = (rows - 1, 0) if _is_number(rows) else (-1, -1)  # type: ignore[operator]
    if isinstance(rows, tuple) and len(rows) == 2 and all(map(_is_number, rows)):  # noqa: PLR2004 -- from and to
        first, last = rows
    if not 0 <= last <= first <= MOST_ROWS:
        raise InvalidPlan(
            f'step "{step}": rows={rows!r} is no frame',
            hint="Say rows=10 for the last ten rows, or rows=(10, 1) for the ten rows before the row.",
        )
    return Rows(kind="rows", first=first, last=last)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def over_node(group: Grouping, rows: Rows, emit: Emit, named: Mapping[str, str]) -> Over:
    """Return the step of `over(…).agg(…)`: each row with more columns.

    Raises:
        PlanError: an expression cannot be read, a name is taken, or a function cannot be computed over such rows.

    """
    up = group.node
    node = Over(up=up, schema=up.schema, keys=group.keys, rows=rows, emit=emit, aggregates=None)  # type: ignore[arg-type] # filled below, once the step has a name for errors
    step = step_name(node)
    if not named:
        raise InvalidPlan(f'step "{step}" computes nothing', hint='For example .agg(mean="avg(price)").')
    check.no_repeats([*up.schema.names, *named], step=step)
    check.reserved_keys(up.schema.names, step=step)
    computed = aggregates(
        named, up.schema, up.schema, step=step, functions=group.functions, sealed=up.sealed, ordered=True
    )
    check.aggregation(computed, step=step, withdrawn=not up.append_only, corrected=emit == "changes")
    for call in computed.calls:
        _check_call(call, rows, emit, step)
    for name, result in computed.results:
        if result.calls:
            raise InvalidPlan(
                f'step "{step}": {name} calls a function of yours over aggregates',
                hint=f'Call it after this step: .with_columns({name}="…").',
            )
    schema = pa.schema([*up.schema, *((name, result.type) for name, result in computed.results)])
    return replace(node, schema=schema, aggregates=computed)


def _check_call(call: AggregateCall, rows: Rows, emit: Emit, step: str) -> None:
    if call.user is not None or call.distinct or call.function not in FUNCTIONS:
        name = f"{call.function}(distinct …)" if call.distinct else call.function
        raise UnsupportedFunction(
            f'step "{step}": {name} cannot be computed over the rows before a row',
            detail="It needs all values of the frame; what is kept of rows is what they add up to.",
            hint="Use .window(hr.sliding(…)), whose aggregates may be any.",
        )
    if call.function == "lead" and emit == "final":
        raise InvalidPlan(
            f'step "{step}": a result of lead is not final before the next row has come',
            detail="The last row of each group would wait for ever, and hold the watermark back.",
            hint='Say emit="changes": the row comes out at once, and again when the next one is there.',
        )
    if call.function == "lead" and rows.kind == "range":
        raise InvalidPlan(
            f'step "{step}": lead goes by rows, and range by time',
            detail="A row that waits for the next one would keep its range of time for ever.",
            hint="Call over twice: once with range, once for lead.",
        )
