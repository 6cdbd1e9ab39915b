"""What all parts of one query share: where names lead, how steps are named, what was said beside the text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.base.errors import InvalidQuery, UnknownRelation
from headrace.dsl.stream_table import Stream, Table
from headrace.expressions.table import AGGREGATES
from headrace.expressions.user import aggregate_names
from headrace.plan.nodes import Stateful
from headrace.plan.steps import step_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot import exp

    from headrace.dsl.registry import Registry
    from headrace.dsl.stream_table import StreamOrTable
    from headrace.plan.nodes import Emit, Node


@dataclass(frozen=True, slots=True)
class Common:
    """A query that has a name: `with name(columns) as (query)`, and what names mean inside it."""

    query: exp.Query
    columns: tuple[str, ...]
    inside: Mapping[str, Common]


@dataclass(slots=True)
class Context:
    """One call of `app.sql`."""

    registry: Registry
    relations: Mapping[str, StreamOrTable]
    grace: str | None
    emit: Emit
    name: str | None
    timed: bool = False
    _taken: dict[str, Node] = field(default_factory=dict)
    _made: dict[tuple[object, ...], tuple[exp.Query, StreamOrTable]] = field(
        default_factory=dict
    )  # the query lives on: its id

    def source(self, name: str) -> StreamOrTable:
        """Return the step that a name in `from` means: one that was given, else a declared source by its topic.

        Raises:
            UnknownRelation: there is none.
            InvalidQuery: several sources read the topic.

        """
        known: dict[str, list[StreamOrTable]] = {
            topic: [_handle(self.registry, node) for node in nodes] for topic, nodes in self.registry.sources.items()
        }
        known |= {given: [handle] for given, handle in self.relations.items()}
        found = known.get(name) or next((h for each, h in known.items() if each.lower() == name.lower()), [])
        if len(found) > 1:
            raise InvalidQuery(
                f'"{name}" may be any of the {len(found)} sources that read this topic',
                hint=f"Say which: app.sql(text, {name}=handle).",
            )
        if not found:
            raise UnknownRelation(name, known=sorted(known))
        self._know(found[0])
        return found[0]

    def once(self, made: StreamOrTable, query: exp.Query, *key: object) -> StreamOrTable:
        """Keep the step that a query is, so that a query that is named twice is one step."""
        return self._made.setdefault((id(query), *key), (query, made))[1]

    def kept(self, query: exp.Query, *key: object) -> StreamOrTable | None:
        """Return the step that is kept for a query."""
        return self._made.get((id(query), *key), (None, None))[1]

    def settled(self, handle: StreamOrTable) -> StreamOrTable:
        """Return a step that keeps state under a name that no other one of the query has."""
        name = derived = step_name(handle.node) if self.name is None else f"{self.name}_{step_name(handle.node)}"
        number = 2
        while name in self._taken:
            name, number = f"{derived}_{number}", number + 1
        made = handle if name == step_name(handle.node) else handle.named(name)
        self._know(made)
        return made

    def said_grace(self, what: str) -> str:
        """Return the grace, which has no default.

        Raises:
            InvalidQuery: it was not said.

        """
        self.timed = True
        if self.grace is None:
            raise InvalidQuery(
                f'"{what}" needs a grace: how long a window is corrected after the watermark has passed its end',
                hint='Say it beside the text: app.sql("…", grace="30 seconds").',
            )
        return self.grace

    @property
    def aggregates(self) -> set[str]:
        """The names of all functions that aggregate."""
        return {*AGGREGATES, *aggregate_names(self.registry.functions)}

    def _know(self, handle: StreamOrTable) -> None:
        for node in handle.node.walk():
            if isinstance(node, Stateful):
                self._taken[step_name(node)] = node


def _handle(registry: Registry, node: Node) -> StreamOrTable:
    return Table(registry, node) if node.is_table else Stream(registry, node)
