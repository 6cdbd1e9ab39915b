"""The verb `match`, as a node of the plan: a pattern, what its symbols mean, and what is computed of a match."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, get_args

import pyarrow as pa

from headrace.base.errors import InvalidExpression, InvalidPlan, WrongType
from headrace.base.schema import TIMESTAMP, type_name
from headrace.base.time import duration
from headrace.dsl.symbols import Symbols
from headrace.expressions import aggregates
from headrace.plan import check
from headrace.plan.nodes import MATCH_ROW, MATCH_SYMBOL, After, Match
from headrace.plan.patterns import Pattern, pattern, unknown_symbol
from headrace.plan.steps import step_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.dsl.grouping import Grouping
    from headrace.expressions import Aggregates

_BOUNDS = [pa.field("match_start", TIMESTAMP), pa.field("match_end", TIMESTAMP)]
_INSIDE = [pa.field(MATCH_ROW, pa.int64()), pa.field(MATCH_SYMBOL, pa.int32())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """What is searched for in the rows of a group: all of `match` but the measures."""

    pattern: Pattern
    conditions: Aggregates
    within: int
    after: After


def matching(group: Grouping, text: str, within: str, define: Mapping[str, str], after: str) -> Matching:
    """Return a pattern and the conditions of its symbols, from the arguments of `match`.

    Raises:
        PlanError: the pattern or a condition cannot be read, or the rows may be withdrawn.
        InvalidTime: `within` is no duration.

    """
    up, step = group.node, f"{step_name(group.node)}_match"
    if group.window is not None:
        raise InvalidPlan(f'step "{step}": match has no windows', hint='Leave .window(…) out; within="…" ends a match.')
    if not up.append_only:
        raise InvalidPlan(
            f'step "{step}": rows of its input are withdrawn, and a match that has come out is final',
            detail="Its input is a table: a row that changes is withdrawn and inserted again.",
            hint="Call match on the stream before the table, or on what happened to it: .changes().",
        )
    if after not in get_args(After):
        known = " or ".join(f'after="{each}"' for each in get_args(After))
        raise InvalidPlan(f'step "{step}": after={after!r} is not known', hint=f"Say {known}.")
    length = duration(within, what="within")
    if length < 0:
        raise InvalidPlan(f'step "{step}": within={within!r} is below zero')
    found = pattern(text, step=step)
    for symbol in found.symbols:
        column = next((name for name in up.schema.names if name.lower() == symbol.lower()), None)
        if column is not None:
            raise InvalidPlan(
                f'step "{step}": the symbol "{symbol}" has the name of a column',
                hint=f'Give it another one, such as "is_{symbol}": measures read columns and symbols.',
            )
    conditions = _conditions(group, found, define, step)
    return Matching(pattern=found, conditions=conditions, within=length, after=after)  # type: ignore[arg-type] # checked above


def _conditions(group: Grouping, found: Pattern, define: Mapping[str, str], step: str) -> Aggregates:
    up = group.node
    for name in define:
        if name not in found.symbols:
            raise unknown_symbol(name, found, step=step)
    check.reserved_keys(up.schema.names, step=step)
    named = {name: define[name] for name in found.symbols if name in define}

    symbols = Symbols(found.symbols, step, group.functions)
    rewritten = {name: symbols.condition(text, name) for name, text in named.items()}
    computed = aggregates(
        rewritten, up.schema, up.schema, step=step, functions=group.functions, sealed=up.sealed, ordered=True
    )
    check.aggregation(computed, step=step, withdrawn=False, corrected=True)
    for call in computed.calls:
        if call.function != "lag":
            raise InvalidExpression(
                f'step "{step}": a condition cannot call {call.function}: it reads its own row and those before it',
                hint="Say prev(x) for the row before, prev(x, 2) for the one before that; or compute it first with "
                ".over(…).agg(…).",
            )
    for name, result in computed.results:
        if result.type not in (pa.bool_(), pa.null()):
            raise WrongType(
                f'step "{step}": the condition of "{name}", {result.text!r}, is {type_name(result.type)}, not boolean'
            )
        if result.calls:
            raise InvalidPlan(
                f'step "{step}": the condition of "{name}" calls a function of yours',
                hint=f'Call it before this step: .with_columns(is_{name}="…").',
            )
    return computed


def match_node(group: Grouping, found: Matching, named: Mapping[str, str]) -> Match:
    """Return the step of `match(…).agg(…)`: a row for each match.

    Raises:
        PlanError: an expression cannot be read, or a name is taken.

    """
    up = group.node
    node = Match(
        up=up,
        schema=pa.schema([]),
        keys=group.keys,
        pattern=found.pattern,
        conditions=found.conditions,
        within=found.within,
        after=found.after,
        measures=None,  # type: ignore[arg-type] # filled below, once the step has a name for errors
    )
    step = step_name(node)
    keys = pa.schema([*(up.schema.field(key) for key in group.keys), *_BOUNDS])
    check.no_repeats([*keys.names, *named], step=step)
    check.reserved_keys([*keys.names, *up.schema.names], step=step)
    symbols = Symbols(found.pattern.symbols, step, group.functions)
    rewritten = {name: symbols.measure(text) for name, text in named.items()}
    rows = pa.schema([*up.schema, *_INSIDE])
    computed = aggregates(rewritten, rows, keys, step=step, functions=group.functions, sealed=up.sealed)
    check.aggregation(computed, step=step, withdrawn=False, corrected=False)
    for call in computed.calls:
        if call.user is not None:
            raise InvalidPlan(
                f'step "{step}": {call.function} is an aggregate of yours or a sketch; a match has others',
                hint="A match has few rows: ask for the exact answer, such as count(distinct x) or percentile(x, 0.5).",
            )
    calls_users = any(a.calls for call in computed.calls for a in (*call.arguments, *filter(None, (call.where,))))
    if calls_users or any(result.calls for _, result in computed.results):
        raise InvalidPlan(
            f'step "{step}": a measure calls a function of yours',
            hint='Call it before this step or after it: .with_columns(x="…").',
        )
    schema = pa.schema([*keys, *((name, result.type) for name, result in computed.results)])
    return replace(node, schema=schema, measures=computed)
