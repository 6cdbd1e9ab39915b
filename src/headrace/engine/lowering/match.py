"""Matches of patterns: conditions that read their own row alone before the exchange, the rest after it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.base.schema import duckdb_type
from headrace.engine.lowering.over import placed
from headrace.engine.lowering.walk import lowered
from headrace.expressions import drawn_apart
from headrace.kernels.aggregates.accumulators import Accumulators
from headrace.kernels.aggregates.aggregate_spec import AggregateSpec
from headrace.kernels.groups.grouping import Grouping
from headrace.kernels.operations import operator
from headrace.kernels.query import Query
from headrace.kernels.row_functions import Frame, RowFunctions
from headrace.kernels.row_pattern import BITS, MATCH, RowPattern
from headrace.plan.nodes import ROW_TIME, Match

if TYPE_CHECKING:
    from headrace.engine.lowering.walk import Lowering
    from headrace.expressions import Scalar


@lowered.register(Match)
def _match(node: Match, to: Lowering) -> None:
    step, here, there = to.plan.name(node), to.level(node.up), to.level(node)
    late = to.lates[id(node)] = to.number()
    output = to.deltas[id(node)] = to.number()
    names = node.up.schema.names
    functions, arguments = _functions(node)
    pattern = RowPattern(
        functions=functions,
        kept=tuple(i for i, name in enumerate(names) if name in node.keys or name in node.measured),
        symbols=node.pattern.automaton.symbols,
        follow=node.pattern.automaton.follow,
        within=node.within,
        overlapping=node.after == "next row",
        grouping=_grouping(node),
    )
    op = operator(node.kernel)(step=step, inputs=(), output=output, pattern=pattern)
    rows = to.before_exchange(op, 0, to.keyed(node, to.at(node.up, here), node.keys), here, late)
    rows = to.called(node, here, rows, arguments, names)
    columns = [f"{quote(name)} AS c{i}" for i, name in enumerate(names)]
    columns += [f"{scalar.sql} AS x{i}" for i, scalar in enumerate(arguments)]
    checks, dead, renamed = to.checks(arguments), to.dead(node), to.number()
    before = f"SELECT {', '.join(columns)}, _weight, {ROW_TIME} FROM"
    query = Query(step=step, inputs=(rows,), output=renamed, before=before, after="", shared=bool(checks and dead))
    to.add(here, replace(query, checks=checks, dead=dead))
    keys = tuple(f"c{i}" for i in functions.key)
    rows = to.carried(renamed, step, here, there, keys) if to.plan.exchanged(node) else renamed
    to.add(there, replace(op, inputs=(rows,)))


def _functions(node: Match) -> tuple[RowFunctions, list[Scalar]]:
    """Return how a row's symbols are computed, and the arguments that are columns of their own.

    These are the values of earlier rows, and conditions that read none of them: rows on which they fail are found.
    """
    names = node.up.schema.names
    calls = node.conditions.calls
    conditions = dict(node.conditions.results)
    own = [
        name for name, result in conditions.items() if not any(f"_a{i}" in result.columns for i in range(len(calls)))
    ]
    arguments = drawn_apart([*(a for call in calls for a in call.arguments), *(conditions[name] for name in own)])
    at = 0
    places: list[str] = []
    values: list[str] = []
    for call in calls:
        count = len(call.arguments)
        values.append(f"l{len(places)}")
        places.append(placed(call, [f"x{at + i}" for i in range(count)]))
        at += count
    lagged = [sum(len(call.arguments) for call in calls[:i]) for i in range(len(calls))]
    values += [f"x{at + i}" for i in range(len(own))]
    met = {name: quote(f"_a{len(calls) + i}") for i, name in enumerate(own)}
    bits = []
    for number, symbol in enumerate(node.pattern.symbols):
        condition = met.get(symbol) or (conditions[symbol].sql if symbol in conditions else "true")
        bits.append(f"CASE WHEN {condition} THEN {1 << number} ELSE 0 END::BIGINT")
    functions = RowFunctions(
        columns=tuple((field.name, duckdb_type(field.type)) for field in node.up.schema),
        key=tuple(names.index(key) for key in node.keys),
        arguments=tuple(duckdb_type(scalar.type) for scalar in arguments),
        frame=Frame(kind="rows"),
        accumulators=(),
        layers=(),
        exact=False,
        placed=tuple(places),
        lagged=tuple(lagged),
        calls=tuple(values),
        results=((BITS, f"({' + '.join(bits)})", "BIGINT"),),
        behind=node.behind,
        ahead=0,
    )
    return functions, arguments


def _grouping(node: Match) -> Grouping:
    """Return the measures as aggregates of the rows of each match."""
    state = Accumulators(insert_only=True, exact_sums=True)
    for call in node.measures.calls:
        state.add(
            AggregateSpec(
                function=call.function,
                arguments=tuple(scalar.sql for scalar in call.arguments),
                argument_types=tuple(duckdb_type(scalar.type) for scalar in call.arguments),
                distinct=call.distinct,
                type=duckdb_type(call.type),
                at=call.at,
                options=call.options,
            )
        )
    fields = [node.schema.field(name) for name in (*node.keys, "match_start", "match_end")]
    keys = tuple((field.name, quote(field.name), duckdb_type(field.type)) for field in fields)
    return Grouping(
        keys=((MATCH, MATCH, "BIGINT"), *keys),
        panes=None,
        final=True,
        insert_only=True,
        accumulators=tuple(state.accumulators),
        multisets=tuple(state.multisets),
        calls=tuple(state.calls),
        from_multiset=tuple(state.from_multiset),
        forms=tuple(state.forms),
        results=tuple((name, result.sql, duckdb_type(result.type)) for name, result in node.measures.results),
        layers=state.layers,
        exact=state.exact,
        ranked=frozenset(state.ranked),
    )
