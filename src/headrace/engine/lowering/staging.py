"""What a sink takes of the rows of its step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.kernels.staging import Stage
from headrace.plan.sinks import CallSink, TopicSink

if TYPE_CHECKING:
    from headrace.plan.sinks import Sink


def stage_of(sink: Sink, number: int) -> Stage:
    """Return the operation that stages a delta for a sink."""
    node = sink.up
    changelog = isinstance(sink, TopicSink) and node.is_table
    form = "changelog" if changelog else "rows" if isinstance(sink, TopicSink) else "delta"
    net = not node.delta_is_net and not isinstance(sink, CallSink)
    return Stage(
        step=sink.name,
        inputs=(number,),
        sink=sink.name,
        schema=node.schema,
        form=form,  # type: ignore[arg-type] # a literal, chosen above
        key=node.key,
        net=net,
    )
