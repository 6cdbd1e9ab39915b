"""The whole plan of an app: its steps in order, their levels, and where an exchange is needed.

A step's level is the number of exchanges before it. An exchange is needed only where rows that must meet may be
in different shards: a group by `user, day` below a group by `user` stays where it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.base.errors import InvalidPlan
from headrace.base.names import quote
from headrace.plan.nodes import (
    Aggregate,
    Changes,
    Explode,
    Late,
    Node,
    ReadSource,
    Select,
    Sink,
    Stateful,
    Top,
    TopicSink,
    TopicSource,
    ViewSink,
    Where,
)
from headrace.plan.steps import names
from headrace.plan.windows import SessionWindow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Partition = tuple[str, ...] | None


@dataclass(frozen=True)
class Plan:
    """Steps (each before those that read it) with their names, levels and partitions, and the sinks.

    `partition` of a step: the columns whose values decide the shard of its rows; None: any row may be anywhere.
    """

    app: str
    nodes: tuple[Node, ...]
    sinks: tuple[Sink, ...]
    names: dict[int, str]
    levels: dict[int, int]
    partitions: dict[int, Partition]

    def name(self, node: Node) -> str:
        """Return the step's name."""
        return self.names[id(node)]

    def level(self, node: Node) -> int:
        """Return how many exchanges are before the step."""
        return self.levels[id(node)]

    def exchanged(self, node: Node) -> bool:
        """Return whether the rows of a stateful step come to it through an exchange."""
        return node.stateful and self.level(node) > self.level(node.ups[0])

    @property
    def depth(self) -> int:
        """The greatest level."""
        return max(self.levels.values(), default=0)

    def sources(self) -> Iterator[TopicSource | ReadSource]:
        """Yield the sources."""
        return (node for node in self.nodes if isinstance(node, TopicSource | ReadSource))

    def stateful(self) -> Iterator[Stateful]:
        """Yield the steps that keep state."""
        return (node for node in self.nodes if isinstance(node, Stateful))


def make_plan(app: str, sinks: Sequence[Sink]) -> Plan:
    """Put the steps that lead to the sinks in order and judge them as a whole.

    Raises:
        DuplicateStep: two stateful steps have one name.
        InvalidPlan: there is nothing to do, or two sinks go to one place.

    """
    if not sinks:
        raise InvalidPlan(
            f'app "{app}" sends its rows nowhere',
            hint="End a stream or a table with .to_view(name), .to_topic(name) or .to(sink).",
        )
    nodes = _in_order(sinks)
    levels: dict[int, int] = {}
    partitions: dict[int, Partition] = {}
    for node in nodes:
        levels[id(node)], partitions[id(node)] = _placed(node, levels, partitions)
    return Plan(app, nodes, tuple(sinks), names(nodes), levels, partitions)


def check_sink(sinks: Sequence[Sink], new: Sink) -> None:
    """Refuse a sink that another step of the app has already, or that makes two stateful steps of one name."""
    for sink in sinks:
        if sink.name == new.name:
            kind, _, place = new.name.partition(":")
            raise InvalidPlan(
                f'two steps write to the {kind} "{place}"',
                hint="Bring them together with .union(…) first, or give one another name."
                if not isinstance(new, ViewSink)
                else "Give one of the views another name.",
            )
    names(_in_order([*sinks, new]))
    _no_circle([*sinks, new])


def _no_circle(sinks: Sequence[Sink]) -> None:
    """Refuse an app that writes to a topic that it reads: its input would never end."""
    read = {node.topic for node in _in_order(sinks) if isinstance(node, TopicSource)}
    for sink in sinks:
        if isinstance(sink, TopicSink) and sink.topic in read:
            raise InvalidPlan(
                f'the app reads the topic "{sink.topic}" and writes to it',
                detail="Each epoch would feed the next one, without end.",
                hint="Write to a topic of another name.",
            )


def _in_order(sinks: Sequence[Sink]) -> tuple[Node, ...]:
    ordered: dict[int, Node] = {}
    for sink in sinks:
        for node in sink.up.walk():
            ordered.setdefault(id(node), node)
    return tuple(ordered.values())


def _placed(node: Node, levels: dict[int, int], partitions: dict[int, Partition]) -> tuple[int, Partition]:
    if isinstance(node, Late):  # the rows are judged where they still are what the step was given, but for sessions:
        beside_state = isinstance(node.of, Aggregate) and isinstance(node.of.window, SessionWindow)
        up = node.of if beside_state else node.of.up
        return levels[id(up)], partitions[id(up)]
    level = max((levels[id(up)] for up in node.ups), default=0)
    above = partitions[id(node.ups[0])] if len(node.ups) == 1 else None
    if isinstance(node, Top) and node.part and above is not None:
        return level, above
    if isinstance(node, Stateful):
        if above is not None and set(above) <= set(node.keys):
            return level, above
        return level + 1, node.keys
    return level, _carried(node, above)


def _carried(node: Node, above: Partition) -> Partition:
    """Return the partition that a stateless step leaves of the one above it."""
    if above is None or isinstance(node, Where | Changes):
        return above
    if isinstance(node, Explode):
        return None if set(node.into) & set(above) else above
    if isinstance(node, Select):
        kept = {made.sql: name for name, made in reversed(node.columns)}
        renamed = [kept.get(quote(column)) for column in above]
        return None if None in renamed else tuple(name for name in renamed if name is not None)
    return None
