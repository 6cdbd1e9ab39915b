"""What a grouped aggregate keeps, and how its results are made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.base.schema import duckdb_type
from headrace.expressions import calls_of, drawn_apart
from headrace.expressions.sketches import Sketch
from headrace.kernels.aggregates import sketches
from headrace.kernels.aggregates.accumulators import Accumulators
from headrace.kernels.aggregates.aggregate_spec import AggregateSpec
from headrace.kernels.spec import Grouping, Panes, Session, Sliding, UserAggregate
from headrace.plan.windows import AlignedWindow, SessionWindow, SlidingWindow

if TYPE_CHECKING:
    from headrace.expressions import AggregateCall, Scalar
    from headrace.plan.nodes import Aggregate


def grouping_of(node: Aggregate) -> Grouping:
    """Return what a grouped aggregate is to the kernels."""
    kept = Accumulators(insert_only=node.up.append_only)
    read = iter(read_by(node))
    arguments = [[next(read) for _ in call.arguments] for call in node.aggregates.calls]
    for call, given in zip(node.aggregates.calls, arguments, strict=True):
        where = next(read).sql if call.where else None
        kept.add(
            AggregateSpec(
                function=call.function,
                arguments=tuple(made.sql for made in given),
                argument_types=tuple(duckdb_type(made.type) for made in given),
                distinct=call.distinct,
                type=duckdb_type(call.type),
                at=call.at,
                user=None if call.user is None else _user(call),
                where=where,
            )
        )
    w = node.window
    fields = [node.up.schema.field(key) for key in node.keys]
    return Grouping(
        keys=tuple((field.name, quote(field.name), duckdb_type(field.type)) for field in fields),
        panes=panes_of(w) if isinstance(w, AlignedWindow) else None,
        session=Session(gap=w.gap, grace=w.grace) if isinstance(w, SessionWindow) else None,
        sliding=Sliding(size=w.size, grace=w.grace) if isinstance(w, SlidingWindow) else None,
        final=node.emit == "final",
        insert_only=node.up.append_only,
        pieces=tuple(kept.pieces),
        values=tuple(kept.values),
        calls=tuple(kept.calls),
        from_values=tuple(kept.from_values),
        results=_results(node),
        users=tuple(kept.users),
        layers=kept.layers,
        exact=kept.exact,
        placed=frozenset(kept.placed),
    )


def read_by(node: Aggregate) -> list[Scalar]:
    """Return the expressions that an aggregate reads of its input's rows."""
    calls = node.aggregates.calls
    return drawn_apart([*(a for call in calls for a in call.arguments), *(c.where for c in calls if c.where)])


def called_by(node: Aggregate) -> bool:
    """Whether the results call functions of the user's, so that they cannot be SQL alone."""
    return bool(calls_of(made for _, made in node.aggregates.results))


def _results(node: Aggregate) -> tuple[tuple[str, str, str], ...]:
    if called_by(node):
        return tuple((f"_a{i}", f"_a{i}", duckdb_type(call.type)) for i, call in enumerate(node.aggregates.calls))
    return tuple((name, made.sql, duckdb_type(made.type)) for name, made in node.aggregates.results)


def panes_of(w: AlignedWindow) -> Panes:
    """Return what windows are to the kernels."""
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
        function = sketches.made(function.kind, parameters, many=function.many, takes=takes[0], returns=returns)
    return UserAggregate(
        name=call.function,
        function=function,
        takes=takes,
        state=call.user.state,
        returns=call.user.returns,
    )
