"""What a sink takes of the rows that come to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.lowering.grouping import called_by
from headrace.kernels.spec import Stage
from headrace.plan.nodes import Aggregate, TableJoin, Top
from headrace.plan.sinks import CallSink, TopicSink

if TYPE_CHECKING:
    from headrace.plan.sinks import Sink


def stage_of(sink: Sink, number: int) -> Stage:
    """Return the operation that stages a delta for a sink."""
    node = sink.up
    changelog = isinstance(sink, TopicSink) and node.is_table
    form = "changelog" if changelog else "rows" if isinstance(sink, TopicSink) else "delta"
    whole = isinstance(node, Top | TableJoin) or (isinstance(node, Aggregate) and not called_by(node))
    plain = whole or not node.is_table  # nothing in it can cancel out
    if isinstance(sink, CallSink):
        plain = True
    return Stage(
        step=sink.name,
        input=number,
        sink=sink.name,
        schema=node.schema,
        form=form,  # type: ignore[arg-type] # a literal, chosen above
        key=node.key,
        net=not plain,
    )
