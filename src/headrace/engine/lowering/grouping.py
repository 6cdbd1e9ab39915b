"""What a grouped aggregate keeps, and how its results are computed from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.base.schema import duckdb_type
from headrace.expressions import calls_of, drawn_apart
from headrace.expressions.sketches import Sketch
from headrace.kernels.aggregates import sketches
from headrace.kernels.aggregates.accumulators import Accumulators
from headrace.kernels.aggregates.aggregate_spec import AggregateSpec, UserAggregate
from headrace.kernels.groups.grouping import Grouping, with_kept_values
from headrace.kernels.groups.windows import Panes, Session, Sliding
from headrace.plan.windows import AlignedWindow, SessionWindow, SlidingWindow

if TYPE_CHECKING:
    from headrace.expressions import AggregateCall, Scalar
    from headrace.plan.nodes import Aggregate


def grouping_of(node: Aggregate) -> Grouping:
    """Return a grouped aggregate as the kernels know it."""
    state = Accumulators(insert_only=node.up.append_only)
    read = iter(read_by(node))
    arguments = [[next(read) for _ in call.arguments] for call in node.aggregates.calls]
    for call, scalars in zip(node.aggregates.calls, arguments, strict=True):
        where = next(read).sql if call.where else None
        state.add(
            AggregateSpec(
                function=call.function,
                arguments=tuple(scalar.sql for scalar in scalars),
                argument_types=tuple(duckdb_type(scalar.type) for scalar in scalars),
                distinct=call.distinct,
                type=duckdb_type(call.type),
                at=call.at,
                user=None if call.user is None else _user(call),
                where=where,
                options=call.options,
            )
        )
    w = node.window
    fields = [node.up.schema.field(key) for key in node.keys]
    grouping = Grouping(
        keys=tuple((field.name, quote(field.name), duckdb_type(field.type)) for field in fields),
        panes=panes_of(w) if isinstance(w, AlignedWindow) else None,
        session=Session(gap=w.gap, grace=w.grace) if isinstance(w, SessionWindow) else None,
        sliding=Sliding(size=w.size, grace=w.grace) if isinstance(w, SlidingWindow) else None,
        final=node.emit == "final",
        insert_only=node.up.append_only,
        accumulators=tuple(state.accumulators),
        multisets=tuple(state.multisets),
        calls=tuple(state.calls),
        from_multiset=tuple(state.from_multiset),
        forms=tuple(state.forms),
        results=_results(node),
        users=tuple(state.users),
        layers=state.layers,
        exact=state.exact,
        ranked=frozenset(state.ranked),
        held=_held(node),
    )
    return with_kept_values(grouping) if node.keeps_values else grouping


def _held(node: Aggregate) -> tuple[tuple[str, str], ...]:
    """Return the columns of rows that may wait in a sliding window."""
    if not node.holds_rows:
        return ()
    return tuple((field.name, duckdb_type(field.type)) for field in node.up.schema)


def read_by(node: Aggregate) -> list[Scalar]:
    """Return the expressions over its input's rows that an aggregate reads."""
    calls = node.aggregates.calls
    return drawn_apart([*(a for call in calls for a in call.arguments), *(c.where for c in calls if c.where)])


def called_by(node: Aggregate) -> bool:
    """Whether the results call functions of the user's, so that they cannot be SQL alone."""
    return bool(calls_of(result for _, result in node.aggregates.results))


def _results(node: Aggregate) -> tuple[tuple[str, str, str], ...]:
    if called_by(node):
        return tuple((f"_a{i}", f"_a{i}", duckdb_type(call.type)) for i, call in enumerate(node.aggregates.calls))
    return tuple((name, result.sql, duckdb_type(result.type)) for name, result in node.aggregates.results)


def panes_of(w: AlignedWindow) -> Panes:
    """Return windows as the kernels know them."""
    return Panes(
        size=w.size,
        every=w.every,
        pane=w.pane,
        grace=w.grace,
        offset=w.offset,
        cumulating=w.kind == "cumulating",
        calendar=w.calendar,
    )


def _user(call: AggregateCall) -> UserAggregate:
    assert call.user is not None  # noqa: S101 -- asked before
    assert call.user.state is not None  # noqa: S101 -- an aggregate has one
    function, takes = call.user.function, tuple(argument.type for argument in call.arguments)
    if isinstance(function, Sketch):
        parameters, returns = function.parameters, call.user.returns
        function = sketches.sketch_aggregate(
            function.kind, parameters, many=function.many, takes=takes[0], returns=returns
        )
    return UserAggregate(
        name=call.function,
        function=function,
        takes=takes,
        state=call.user.state,
        returns=call.user.returns,
    )
