"""Rows with aggregates over the rows before them: arguments before the exchange, the rest after it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.base.schema import duckdb_type
from headrace.engine.lowering.walk import lowered
from headrace.expressions import drawn_apart
from headrace.kernels.aggregates.accumulators import Accumulators
from headrace.kernels.aggregates.aggregate_spec import Accumulator, AggregateSpec
from headrace.kernels.operations import operator
from headrace.kernels.query import Query
from headrace.kernels.row_functions import Frame, RowFunctions
from headrace.plan.nodes import ROW_TIME, Over

if TYPE_CHECKING:
    from headrace.engine.lowering.walk import Lowering
    from headrace.expressions import AggregateCall, Scalar


@lowered.register(Over)
def _over(node: Over, to: Lowering) -> None:
    step, here, there = to.plan.name(node), to.level(node.up), to.level(node)
    late = to.number() if node.detects_late else None
    to.lates[id(node)] = late or 0
    output = to.deltas[id(node)] = to.number()
    names = node.up.schema.names
    read = drawn_apart([argument for call in node.aggregates.calls for argument in call.arguments])
    functions, arguments = _functions(node, read)
    op = operator(node.kernel)(
        step=step, inputs=(), output=output, functions=functions, emit=node.emit, withdraws=not node.up.append_only
    )
    # late rows go as they are: they are split off before anything is computed
    rows = to.before_exchange(op, 0, to.keyed(node, to.at(node.up, here), node.keys), here, late)
    rows = to.called(node, here, rows, read, names)
    columns = [f"{quote(name)} AS c{i}" for i, name in enumerate(names)]
    columns += [f"{scalar.sql} AS x{i}" for i, scalar in enumerate(arguments)]
    time = node.up.time_column or ROW_TIME
    stamp = ROW_TIME if time == ROW_TIME else f"epoch_us({quote(time)}) AS {ROW_TIME}"
    checks, dead, renamed = to.checks(arguments), to.dead(node), to.number()
    before = f"SELECT {', '.join(columns)}, _weight, {stamp} FROM"
    query = Query(step=step, inputs=(rows,), output=renamed, before=before, after="", shared=bool(checks and dead))
    to.add(here, replace(query, checks=checks, dead=dead))
    rows = to.carried(renamed, step, here, there, op.exchange_keys(node.keys)) if to.plan.exchanged(node) else renamed
    to.add(there, replace(op, inputs=(rows,)))


def _functions(node: Over, read: list[Scalar]) -> tuple[RowFunctions, list[Scalar]]:
    """Return what is computed, and the arguments that are columns of their own."""
    names = node.up.schema.names
    bare = {quote(name): f"c{i}" for i, name in enumerate(names)}
    arguments: list[Scalar] = []
    kept = Accumulators(insert_only=True, exact_sums=True)
    others: list[str] = []
    lagged: set[int] = set()
    calls: list[str] = []
    scalars = iter(read)
    for call in node.aggregates.calls:
        inside = []
        for _ in call.arguments:
            scalar = next(scalars)
            looks = call.function in ("lag", "lead")
            if scalar.sql in bare and not looks:
                inside.append((bare[scalar.sql], scalar))
                continue
            arguments.append(scalar)
            inside.append((f"x{len(arguments) - 1}", scalar))
        if call.function in ("lag", "lead", "row_number"):
            calls.append(f"l{len(others)}")
            others.append(placed(call, [name for name, _ in inside]))
            lagged |= {len(arguments) - len(inside)} if call.function == "lag" else set()
        elif call.function in ("first_value", "last_value"):
            calls.append(_at_an_end(call, inside[0][0], kept))
        else:
            kept.add(_spec(call, inside))
            calls.append(kept.calls[-1])
    functions = RowFunctions(
        columns=tuple((field.name, duckdb_type(field.type)) for field in node.up.schema),
        key=tuple(names.index(key) for key in node.keys),
        arguments=tuple(duckdb_type(scalar.type) for scalar in arguments),
        frame=Frame(kind=node.rows.kind, first=node.rows.first, last=node.rows.last),
        accumulators=tuple(kept.accumulators),
        layers=kept.layers,
        exact=kept.exact,
        placed=tuple(others),
        lagged=tuple(sorted(lagged)),
        calls=tuple(calls),
        results=tuple((name, result.sql, duckdb_type(result.type)) for name, result in node.aggregates.results),
        behind=node.behind,
        ahead=node.ahead,
    )
    return functions, arguments


def _spec(call: AggregateCall, inside: list[tuple[str, Scalar]]) -> AggregateSpec:
    """Return an aggregate over arguments under the names inside; that of all rows counts ones."""
    return AggregateSpec(
        function=call.function,
        arguments=tuple(name for name, _ in inside) or ("1",),
        argument_types=tuple(duckdb_type(scalar.type) for _, scalar in inside) or ("INTEGER",),
        distinct=call.distinct,
        type=duckdb_type(call.type),
        at=call.at,
    )


def placed(call: AggregateCall, names: list[str]) -> str:
    """Return SQL for a function of another row; `{by}` is the order."""
    if call.function == "row_number":
        return "_nr::INTEGER"
    default = f", {names[1]}" if len(names) > 1 else ""
    return f"{call.function}({names[0]}, {int(call.at[0])}{default}) OVER {{by}}"


def _at_an_end(call: AggregateCall, value: str, kept: Accumulators) -> str:
    """Keep the value of the first or the last row of a frame, by time and number; it may be of those with a value."""
    kind = duckdb_type(call.type)
    function, sign = ("min", "<") if call.function == "first_value" else ("max", ">")
    only = f" FILTER (WHERE {value} IS NOT NULL)" if call.at[0] else ""
    row = f"any_value(struct_pack(t := _time, nr := _nr, x := {value})){only}"
    name = kept.accumulator(
        Accumulator(
            type=f"STRUCT(t BIGINT, nr BIGINT, x {kind})",
            partial=row,
            fold=function,
            finish="{f}",
            merge=f"CASE WHEN {{o}} IS NULL OR {{d}} {sign} {{o}} THEN {{d}} ELSE {{o}} END",
        )
    )
    return f"{name}.x"
