"""What a sink takes of the rows of its step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.kernels.staging import Stage

if TYPE_CHECKING:
    from headrace.plan.sinks import Sink


def stage_of(sink: Sink, number: int) -> Stage:
    """Return the operation that stages a delta for a sink."""
    node = sink.up
    return Stage(
        step=sink.name,
        inputs=(number,),
        sink=sink.name,
        schema=node.schema,
        form=sink.form,
        key=node.key,
        net=sink.nets and not node.delta_is_net,
        before=sink.before,
        needs_key=sink.topic is not None and sink.form == "changelog",
    )
