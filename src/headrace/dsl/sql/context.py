"""What all parts of one query share: what names mean, how steps are named, and the options given with the text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.base.errors import InvalidQuery, UnknownRelation, UnsupportedQuery
from headrace.dsl.sql.parsing import sql_text
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
class CommonQuery:
    """A query of `with name(columns) as (query)`; `names` are the common queries that it may use itself."""

    query: exp.Query
    columns: tuple[str, ...]
    names: Mapping[str, CommonQuery]


def common_queries(tree: exp.Query, outer: Mapping[str, CommonQuery]) -> Mapping[str, CommonQuery]:
    """Return the common queries by name that a query may use: those of its own `with`, and those around it.

    Raises:
        UnsupportedQuery: one is recursive.

    """
    clause = tree.args.get("with_")
    if clause is None:
        return outer
    if clause.args.get("recursive"):
        raise UnsupportedQuery(sql_text(clause), "a recursive query has no end that is known")
    names = dict(outer)
    for each in clause.expressions:
        columns = tuple(name.name for name in each.args["alias"].args.get("columns") or ())
        names[each.alias.lower()] = CommonQuery(each.this, columns, dict(names))
    return names


@dataclass(slots=True)
class Context:
    """One call of `app.sql`; `timed` once a part of the query uses the grace, or may do without."""

    registry: Registry
    relations: Mapping[str, StreamOrTable]
    grace: str | None
    emit: Emit
    name: str | None
    timed: bool = False
    emits: bool = False
    _taken: dict[str, Node] = field(default_factory=dict)
    _sources: set[str] = field(default_factory=set)
    _steps: dict[tuple[object, ...], tuple[exp.Query, StreamOrTable]] = field(
        default_factory=dict
    )  # the query lives on: its id

    def source(self, name: str) -> StreamOrTable:
        """Return the step that a name in `from` means: one that was given, else a declared source by its topic.

        Raises:
            UnknownRelation: there is none.
            InvalidQuery: several sources read the topic.

        """
        handles: dict[str, list[StreamOrTable]] = {
            topic: [_handle(self.registry, node) for node in nodes] for topic, nodes in self.registry.sources.items()
        }
        handles |= {given: [handle] for given, handle in self.relations.items()}
        found = handles.get(name) or next((h for each, h in handles.items() if each.lower() == name.lower()), [])
        if len(found) > 1:
            raise InvalidQuery(
                f'"{name}" may be any of the {len(found)} sources that read this topic',
                hint=f"Say which: app.sql(text, {name}=handle).",
            )
        if not found:
            raise UnknownRelation(name, names=sorted(handles))
        self._take_names(found[0])
        return found[0]

    def remember(self, step: StreamOrTable, query: exp.Query, *key: object) -> StreamOrTable:
        """Remember the step that a query became, so that a query that is used twice is one step."""
        return self._steps.setdefault((id(query), *key), (query, step))[1]

    def remembered(self, query: exp.Query, *key: object) -> StreamOrTable | None:
        """Return the step that a query became, if it has been compiled."""
        return self._steps.get((id(query), *key), (None, None))[1]

    def uniquely_named(self, handle: StreamOrTable) -> StreamOrTable:
        """Return a step that keeps state under a name that no other one of the query has."""
        name = derived = step_name(handle.node) if self.name is None else f"{self.name}_{step_name(handle.node)}"
        number = 2
        while name in self._taken:
            name, number = f"{derived}_{number}", number + 1
        step = handle if name == step_name(handle.node) else handle.named(name)
        self._take_names(step)
        return step

    def free_source(self, name: str) -> str:
        """Return the name of a source that no other one of the query has."""
        found, number = name, 2
        while found in self._sources:
            found, number = f"{name}_{number}", number + 1
        self._sources.add(found)
        return found

    def require_grace(self, what: str) -> str:
        """Return the grace, which has no default.

        Raises:
            InvalidQuery: none was given.

        """
        self.timed = True
        if self.grace is None:
            raise InvalidQuery(
                f'"{what}" needs a grace: how long a window is corrected after the watermark has passed its end',
                hint='Give it with the text: app.sql("…", grace="30 seconds").',
            )
        return self.grace

    def window_emit(self) -> Emit:
        """Return when a window's results come out; from then on `emit` has an effect."""
        self.emits = True
        return self.emit

    @property
    def aggregates(self) -> set[str]:
        """The names of all functions that aggregate."""
        return {*AGGREGATES, *aggregate_names(self.registry.functions)}

    def _take_names(self, handle: StreamOrTable) -> None:
        for node in handle.node.walk():
            if isinstance(node, Stateful):
                self._taken[step_name(node)] = node


def _handle(registry: Registry, node: Node) -> StreamOrTable:
    return Table(registry, node) if node.is_table else Stream(registry, node)
