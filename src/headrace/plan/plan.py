"""The whole plan of an app: its steps in order, their levels, and where an exchange is needed.

A step's level is the number of exchanges before it. An exchange is needed only where rows that belong together
may be in different shards: a group by `user, day` below a group by `user` stays where it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.base.errors import InvalidPlan
from headrace.plan.arrival import arrivals, read_in_order
from headrace.plan.filters import filtered_early
from headrace.plan.nodes import Changes, Late, Node, Partition, Source, Stateful
from headrace.plan.steps import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.plan.arrival import ReadInOrder
    from headrace.plan.sinks import Sink

Spread = tuple[Partition, ...]


@dataclass(frozen=True)
class Plan:
    """Steps (each before those that read it) with their names, levels and partitions, and the sinks.

    `partition` of a step: the columns whose values decide the shard of its rows; None: any row may be anywhere.
    `moves` of a stateful step, or of changes: for each step above, the columns by which its rows go through an
    exchange; None: they are in their shards already. `arrivals`: the steps whose rows say when they were stored.
    `in_order`: the sources that are read in that order. `views`: the value of `App(views=)`.
    """

    app: str
    nodes: tuple[Node, ...]
    sinks: tuple[Sink, ...]
    names: dict[int, str]
    levels: dict[int, int]
    partitions: dict[int, Partition]
    moves: dict[int, Spread]
    arrivals: frozenset[int] = frozenset()
    in_order: Mapping[int, ReadInOrder] = field(default_factory=dict)
    views: str | None = None

    def name(self, node: Node) -> str:
        """Return the step's name."""
        return self.names[id(node)]

    def level(self, node: Node) -> int:
        """Return how many exchanges are before the step."""
        return self.levels[id(node)]

    def exchanged(self, node: Node) -> bool:
        """Return whether rows reach a step through an exchange."""
        return any(columns is not None for columns in self.moves.get(id(node), ()))

    @property
    def depth(self) -> int:
        """The greatest level."""
        return max(self.levels.values(), default=0)

    def sources(self) -> Iterator[Source]:
        """Yield the sources."""
        return (node for node in self.nodes if isinstance(node, Source))

    def stateful(self) -> Iterator[Stateful]:
        """Yield the steps that keep state."""
        return (node for node in self.nodes if isinstance(node, Stateful))


def make_plan(app: str, sinks: Sequence[Sink], *, views: str | None = None) -> Plan:
    """Put the steps that lead to the sinks in order and check them together.

    Raises:
        DuplicateStep: two stateful steps have one name.
        InvalidPlan: there is nothing to do, or two sinks go to one place.

    """
    if not sinks:
        raise InvalidPlan(
            f'app "{app}" sends its rows nowhere',
            hint="End a stream or a table with .to_view(name), .to_topic(name) or .to(sink).",
        )
    sinks = filtered_early(_in_order(sinks), sinks)
    nodes = _in_order(sinks)
    levels: dict[int, int] = {}
    partitions: dict[int, Partition] = {}
    moves: dict[int, Spread] = {}
    for node in nodes:
        placing = _placed(node, levels, partitions)
        levels[id(node)], partitions[id(node)] = placing.level, placing.partition
        if isinstance(node, Stateful) or placing.moves:
            moves[id(node)] = placing.moves
    named, in_order = names(nodes), read_in_order(nodes)
    return Plan(app, nodes, tuple(sinks), named, levels, partitions, moves, arrivals(nodes), in_order, views)


def check_sink(sinks: Sequence[Sink], new: Sink) -> None:
    """Refuse a sink that another step of the app has already, or that makes two stateful steps of one name."""
    for sink in sinks:
        if sink.name == new.name:
            kind, _, place = new.name.partition(":")
            raise InvalidPlan(
                f'two steps write to the {kind} "{place}"',
                hint="Combine them with .union(…) first, or give one another name."
                if new.view is None
                else "Give one of the views another name.",
            )
        if sink.overlaps(new):
            raise InvalidPlan(
                f"two steps write to one place: {sink.target.where} and {new.target.where}",
                detail="Each would overwrite and delete rows of the other.",
                hint="Give one of them a place of its own.",
            )
    names(_in_order([*sinks, new]))
    _no_circle([*sinks, new])


def _no_circle(sinks: Sequence[Sink]) -> None:
    """Refuse an app that writes to a topic that it reads: its input would never end."""
    read = {node.topic for node in _in_order(sinks) if isinstance(node, Source) and node.topic is not None}
    for sink in sinks:
        if sink.topic in read:
            raise InvalidPlan(
                f'the app reads the topic "{sink.topic}" and writes to it',
                detail="Each epoch would feed the next one, without end.",
                hint="Write to a topic of another name.",
            )
        if sink.topic is not None and sink.topic.removesuffix(".dead") in read - {sink.topic}:
            raise InvalidPlan(
                f'the dead letters of the topic "{sink.topic.removesuffix(".dead")}" go to "{sink.topic}"',
                hint="Write to a topic of another name.",
            )


def _in_order(sinks: Sequence[Sink]) -> tuple[Node, ...]:
    ordered: dict[int, Node] = {}
    for sink in sinks:
        for node in sink.up.walk():
            ordered.setdefault(id(node), node)
    return tuple(ordered.values())


@dataclass(frozen=True, slots=True)
class _Placing:
    level: int
    partition: Partition
    moves: Spread = ()


def _placed(node: Node, levels: dict[int, int], partitions: dict[int, Partition]) -> _Placing:
    if isinstance(node, Late):
        where = node.of.ups[0] if node.of.late_before_exchange else node.of
        return _Placing(levels[id(where)], node.of.late_partition_keys(partitions[id(where)]))
    above = [partitions[id(up)] for up in node.ups]
    if isinstance(node, Stateful):
        if node.works_in_place and above[0] is not None:
            return _Placing(levels[id(node.ups[0])], above[0], (None,))
        if node.to_all_shards:
            return _everywhere(node, [levels[id(up)] for up in node.ups], above[1])
        return _gathered(node, [levels[id(up)] for up in node.ups], above)
    level = max((levels[id(up)] for up in node.ups), default=0)
    if isinstance(node, Changes) and node.up.key is not None and not _together(above[0], node.up.key):
        return _Placing(level + 1, node.up.key, (node.up.key,))
    return _Placing(level, node.partition_after(above[0]) if len(above) == 1 else None)


def _together(there: Partition, key: tuple[str, ...]) -> bool:
    """Whether all rows of a key are in one shard, also those of before and after a change of the row."""
    return there is not None and set(there) <= set(key)


def _everywhere(node: Stateful, levels: Sequence[int], there: Partition) -> _Placing:
    """Bring the rows of one input to all shards; those of the other stay where they are, or go by their key."""
    move = None if there is not None else node.ups[1].key
    return _Placing(max(levels[0] + 1, levels[1] + (move is not None)), None, ((), move))


def _gathered(node: Stateful, levels: Sequence[int], above: Sequence[Partition]) -> _Placing:
    """Bring the rows that belong together into one shard, with as few exchanges as possible.

    Rows may be spread by any part of the partition keys. So the partition of one side may fit the other side too, and
    only that other side is moved.
    """
    whole = tuple(range(len(node.partition_keys[0])))
    ways = [
        whole,
        *(at for columns, there in zip(node.partition_keys, above, strict=True) if (at := _within(there, columns))),
    ]
    if len(above) == 1 and above[0] == ():
        ways.append(())
    return min(
        (_moved(node, at, levels, above) for at in ways),
        key=lambda way: (way.level, sum(by is not None for by in way.moves)),
    )


def _within(there: Partition, columns: tuple[str, ...]) -> tuple[int, ...] | None:
    """Return which of the columns a partition consists of, if it does."""
    if not there or not set(there) <= set(columns):
        return None
    return tuple(columns.index(name) for name in there)


def _moved(node: Stateful, at: tuple[int, ...], levels: Sequence[int], above: Sequence[Partition]) -> _Placing:
    """Return the placing of a step whose rows are spread by the partition keys at these indexes."""
    wanted = [tuple(columns[i] for i in at) for columns in node.partition_keys]
    moves = tuple(None if there == by else by for there, by in zip(above, wanted, strict=True))
    level = max(before + (by is not None) for before, by in zip(levels, moves, strict=True))
    return _Placing(level, node.partition_keys_after(at), moves)
