"""What all handles of one app share: its functions, its sources, its sinks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.plan.plan import check_sink

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from headrace.expressions import UserFunction
    from headrace.plan.nodes import Node
    from headrace.plan.sinks import Sink


@dataclass(slots=True, eq=False)
class Registry:
    """What an app has declared so far; handles of one app hold the same registry.

    `functions` are the user's, by name in lower case. `sources` are the steps that read a topic, by topic, for queries.
    `constants` computes SQL that reads no table, and returns a source of its rows.
    """

    constants: Callable[[str, pa.Schema], Any]
    functions: dict[str, UserFunction] = field(default_factory=dict)
    sources: dict[str, list[Node]] = field(default_factory=dict)
    sinks: list[Sink] = field(default_factory=list)

    def add_source(self, topic: str, node: Node) -> None:
        """Let queries find the step that reads a topic."""
        self.sources.setdefault(topic, []).append(node)

    def add_sink(self, sink: Sink) -> None:
        """Add a sink to the plan.

        Raises:
            InvalidPlan: another step writes there.
            DuplicateStep: two stateful steps above the sinks have one name.

        """
        check_sink(self.sinks, sink)
        self.sinks.append(sink)
