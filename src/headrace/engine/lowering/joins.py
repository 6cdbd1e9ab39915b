"""Joins: both sides brought to where they meet, under the names inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.base.schema import duckdb_type
from headrace.engine.lowering.walk import DELTA, lowered
from headrace.kernels import spec
from headrace.kernels.joins.join_spec import JoinSpec
from headrace.kernels.spec import EffectiveTimes, NumberArrivals, Query
from headrace.plan.nodes import AsOfJoin, LookupJoin, StreamJoin, TableJoin

if TYPE_CHECKING:
    from headrace.engine.lowering.walk import Lowering
    from headrace.plan.nodes import Join, Node


@lowered.register(StreamJoin)
def _stream_join(node: StreamJoin, to: Lowering) -> None:
    inputs = brought(node, to)
    late = to.lates[id(node)] = to.number()
    output = to.deltas[id(node)] = to.number()
    op = spec.StreamJoin(
        step=to.plan.name(node),
        inputs=inputs,
        output=output,
        late=late,
        join=meeting_of(node),
        low=node.low,
        high=node.high,
        grace=node.grace,
    )
    to.add(to.level(node), op)


@lowered.register(LookupJoin)
def _lookup(node: LookupJoin, to: Lowering) -> None:
    left, right = brought(node, to)
    output = to.deltas[id(node)] = to.number()
    ordered, join = in_order(node, to), meeting_of(node)
    made = spec.LookupJoin(step=to.plan.name(node), left=left, right=right, output=output, join=join, ordered=ordered)
    to.add(to.level(node), made)


@lowered.register(TableJoin)
def _table_join(node: TableJoin, to: Lowering) -> None:
    inputs = brought(node, to)
    output = to.deltas[id(node)] = to.number()
    op = spec.TableJoin(step=to.plan.name(node), inputs=inputs, output=output, join=meeting_of(node))
    to.add(to.level(node), op)


@lowered.register(AsOfJoin)
def _version(node: AsOfJoin, to: Lowering) -> None:
    left, right = brought(node, to)
    late = to.lates[id(node)] = to.number()
    output = to.deltas[id(node)] = to.number()
    inside = _inside("r", node.right)
    op = spec.AsOfJoin(
        step=to.plan.name(node),
        left=left,
        right=right,
        output=output,
        late=late,
        join=meeting_of(node),
        at=_inside("l", node.left)[node.at],
        identity=tuple(inside[name] for name in node.table_key),
        grace=node.grace,
        history=node.history,
    )
    to.add(to.level(node), op)


def meeting_of(node: Join) -> JoinSpec:
    """Return what a join is to the kernels."""
    names = [_inside(letter, up) for letter, up in _sides(node)]
    sides = list(zip(names, node.ups, strict=True))
    left, right = ([(inside[f.name], duckdb_type(f.type)) for f in up.schema] for inside, up in sides)
    keys = tuple(None if up.key is None else tuple(inside[name] for name in up.key) for inside, up in sides)
    by_name = {column.name: column for column in node.columns}
    return JoinSpec(
        left=tuple(left),
        right=tuple(right),
        on=tuple((names[0][one], names[1][other]) for one, other in node.on),
        where=None if node.where is None else node.where.sql,
        keys=(keys[0], keys[1]),
        appends=(node.left.append_only, node.right.append_only),
        gives=tuple((f.name, node.inside(by_name[f.name]), duckdb_type(f.type)) for f in node.schema),
        how=node.how,
    )


def brought(node: Join, to: Lowering) -> tuple[int, int]:
    """Return the deltas of both sides at the join's level, their columns under the names inside.

    Each keeps the order of its rows as far as an exchange does: of rows that came from one task. The records that a
    join of versions takes have theirs in a column.
    """
    step, there = to.plan.name(node), to.level(node)
    made = []
    for (letter, up), by in zip(_sides(node), to.plan.moves[id(node)], strict=True):
        here = to.level(up)
        inside = _inside(letter, up)
        columns = ", ".join(f"{quote(name)} AS {short}" for name, short in inside.items())
        number = to.number()
        before = f"SELECT {columns}, {DELTA} FROM"
        to.add(here, Query(step=step, inputs=(to.at(up, here),), output=number, before=before, after="", shared=False))
        if letter == "r":
            number = _prepared(node, to, number)
        if here < there:
            keys = None if by is None else tuple(inside[name] for name in by)
            number = to.carried(number, step, here, there, keys)
        made.append(number)
    return made[0], made[1]


def _prepared(node: Join, to: Lowering, arrived: int) -> int:
    """Return the right side's rows with what must be said of them before an exchange parts them."""
    here, step, made = to.level(node.right), to.plan.name(node), to.number()
    if isinstance(node, AsOfJoin):
        to.add(here, NumberArrivals(step=step, input=arrived, output=made))
        return made
    if (
        isinstance(node, LookupJoin)
        and in_order(node, to)
        and not set(node.partition_keys[1]) <= set(node.right.key or ())
    ):
        inside = _inside("r", node.right)
        key = tuple(inside[name] for name in node.right.key or ())
        to.add(here, EffectiveTimes(step=step, input=arrived, output=made, key=key))
        return made
    return arrived


def in_order(node: Join, to: Lowering) -> bool:
    """Return whether the right side is a table whose changes of a key come in the order in which it made them."""
    at, key = to.plan.partitions[id(node.right)], node.right.key
    return at is not None and key is not None and set(at) <= set(key)


def _sides(node: Join) -> tuple[tuple[str, Node], tuple[str, Node]]:
    return ("l", node.left), ("r", node.right)


def _inside(letter: str, up: Node) -> dict[str, str]:
    """Return for each column of a side its name inside."""
    return {name: f"{letter}{i}" for i, name in enumerate(up.schema.names)}
