"""The verbs after `group_by`, as nodes of the plan: aggregates and ranks, of all time or by windows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast, get_args

import pyarrow as pa

from headrace.base.errors import InvalidPlan, WrongColumnType
from headrace.base.names import check_identifier
from headrace.base.schema import TIMESTAMP, type_name
from headrace.dsl.columns import with_columns_node
from headrace.dsl.rows import suppress_node
from headrace.dsl.verb import Verb
from headrace.expressions import aggregates, order
from headrace.plan import check
from headrace.plan.nodes import Aggregate, Emit, Ties, Top
from headrace.plan.steps import step_name
from headrace.plan.windows import Window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.expressions import Term, UserFunction
    from headrace.plan.nodes import Node

_WINDOW = [pa.field("window_start", TIMESTAMP), pa.field("window_end", TIMESTAMP)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """The rows of `node` grouped by `keys`, and by windows if there is one."""

    node: Node
    keys: tuple[str, ...]
    functions: Mapping[str, UserFunction]
    window: Window | None = None
    emit: Emit = "changes"
    early: str | None = None
    """How often results of windows come out that are not final, if that is limited."""


def grouping(verb: Verb, keys: Sequence[str], named: Mapping[str, str]) -> Grouping:
    """Return rows grouped by columns, and by the expressions of `named`.

    Raises:
        UnknownColumn: a key is not there.
        PlanError: an expression cannot be read, or a key has no equality or is private.

    """
    step = verb.step
    plain = tuple(check.named(key, verb.schema, step=step, verb="group_by") for key in keys)
    check.no_repeats([*plain, *named], step=step)
    node = with_columns_node(Verb(verb.node, "with_columns", verb.functions), named) if named else verb.node
    every = (*plain, *named)
    check.groupable(every, node.schema, step=step)
    check.not_sealed(every, node.sealed, step=step, role="a key")
    return Grouping(node=node, keys=every, functions=verb.functions)


def windowed(group: Grouping, window: Window, emit: str) -> Grouping:
    """Return the groups cut into windows.

    Raises:
        InvalidPlan: `window` is no window, or `emit` neither "changes", nor "final", nor "every" and a duration.

    """
    if not isinstance(window, Window):
        raise InvalidPlan(f"{window!r} is no window", hint='For example hr.tumbling("1 minute", grace="30 seconds").')
    if isinstance(emit, str) and emit.startswith("every "):
        return replace(group, window=window, emit="changes", early=emit.removeprefix("every "))
    if emit not in get_args(Emit):
        raise InvalidPlan(
            f"emit={emit!r} is not known", hint='Say emit="changes" or emit="final", or emit="every 10 seconds".'
        )
    return replace(group, window=window, emit=cast("Emit", emit))


def less_often(group: Grouping, node: Node) -> Node:
    """Return the step of a window's results, and below it that of their early ones, if these are limited.

    Raises:
        InvalidPlan: the period is not above zero, or the results have no key.
        InvalidTime: it is no duration.

    """
    if group.early is None:
        return node
    return suppress_node(Verb(node, "early", group.functions), group.early, None, early=True)


def aggregate_node(group: Grouping, named: Mapping[str, str]) -> Aggregate:
    """Return the step of `agg`: a row for each group (and window).

    Raises:
        PlanError: an expression cannot be read, a name is taken, or the rows of a group may be withdrawn where its
            windows or functions do not allow it.

    """
    up = group.node
    node = Aggregate(
        up=up,
        schema=pa.schema([]),
        keys=group.keys,
        window=group.window,
        emit=group.emit,
        aggregates=None,  # type: ignore[arg-type] # filled below, once the step has a name for errors
    )
    step = step_name(node)
    keys = [up.schema.field(key) for key in group.keys] + (_WINDOW if group.window else [])
    check.no_repeats([*(field.name for field in keys), *named], step=step)
    check.reserved_keys(group.keys, step=step)
    if not keys and not named:
        raise InvalidPlan(f'step "{step}" has neither keys nor aggregates')
    key_schema = pa.schema([(field.name, field.type) for field in keys])
    computed = aggregates(named, up.schema, key_schema, step=step, functions=group.functions, sealed=up.sealed)
    check.aggregation(computed, step=step, withdrawn=not up.append_only, corrected=not node.append_only)
    check.sessions(group.window, step=step, withdrawn=not up.append_only)
    check.row_times(group.window, up, step=step)
    check.bounds(computed, group.keys, step=step)
    schema = pa.schema([*key_schema, *((name, result.type) for name, result in computed.results)])
    return replace(node, schema=schema, aggregates=computed)


def top_node(group: Grouping, n: int | str, by: str, rank: str | None, ties: Ties) -> Top:
    """Return the step of `top`: the first `n` rows of each group (and window) in the order `by`.

    Raises:
        PlanError: `n` is neither a positive integer nor an integer key, `by` no order, `rank` a column that is there,
            `ties` not known, or the window cannot be ranked in.

    """
    up = group.node
    node = Top(up=up, schema=up.schema, keys=group.keys, n=n, order=(), rank=rank, ties=ties)
    step = step_name(node)
    window = check.ranked_window(group.window, step=step)
    check.row_times(window, up, step=step)
    _check_size(group, n, step)
    if ties not in get_args(Ties):
        raise InvalidPlan(
            f'step "{step}": ties={ties!r} is not known', hint=f"Say one of {', '.join(map(repr, get_args(Ties)))}."
        )
    fields = [*up.schema, *(_WINDOW if window else [])]
    if rank is not None:
        fields.append(pa.field(check_identifier(rank, what="column"), pa.int32()))
    check.no_repeats([field.name for field in fields], step=step)
    terms = _order(group, by, step)
    if not group.keys and not up.append_only and window is None:
        # each shard ranks its own rows first, so that few of them are sent to the one task that ranks them all
        up = replace(node, order=terms, rank=None, part=True)
    return replace(node, up=up, schema=pa.schema(fields), order=terms, window=window, emit=group.emit)


def _check_size(group: Grouping, n: object, step: str) -> None:
    """Refuse a number of rows that is none, or that is not one number for each group."""
    if isinstance(n, str):
        kind = group.node.schema.field(check.has_column(n, group.node.schema, step=step)).type
        if n not in group.keys:
            raise InvalidPlan(
                f'step "{step}": "{n}" may differ between the rows of a group, so it is no number of rows',
                hint=f'Make it a key: group_by(…, "{n}").top("{n}", …).',
            )
        if not pa.types.is_integer(kind):
            raise WrongColumnType(n, step=step, is_type=type_name(kind), needs="an integer", role="a number of rows")
    elif not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise InvalidPlan(f'step "{step}": top({n!r}, …) needs a positive number of rows')


def _order(group: Grouping, by: str, step: str) -> tuple[Term, ...]:
    up = group.node
    terms = order(by, up.schema, step=step, functions=group.functions)
    for term in terms:
        check.not_sealed(term.value.columns, up.sealed, step=step, role="what rows are ordered by")
        check.require_deterministic(term.value, step=step, withdrawn=not up.append_only)
    return terms
