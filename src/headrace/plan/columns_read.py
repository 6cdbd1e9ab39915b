"""Which columns of its rows each step is asked for: of a source, the others are not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.plan.nodes import Late

if TYPE_CHECKING:
    from headrace.plan.nodes import Node
    from headrace.plan.plan import Plan


def columns_read(plan: Plan) -> dict[int, frozenset[str]]:
    """Return for each step, by its id, the columns that sinks and the steps below it read of its rows.

    It changes no step, so it changes the identity of none: a step that keeps rows is asked for the columns that it
    keeps, and goes on keeping them.
    """
    read: dict[int, frozenset[str]] = {id(node): frozenset() for node in plan.nodes}

    def add(node: Node, columns: frozenset[str]) -> None:
        read[id(node)] = read.get(id(node), frozenset()) | (columns & frozenset(node.schema.names))

    for sink in plan.sinks:
        add(sink.up, frozenset(sink.up.schema.names))
    for node in reversed(plan.nodes):
        if isinstance(node, Late):  # rows as they arrived at the step that found them late
            for up in node.of.ups:
                add(up, frozenset(up.schema.names))
        for up, columns in zip(node.ups, node.reads_for(read[id(node)]), strict=True):
            add(up, columns)
    return read
