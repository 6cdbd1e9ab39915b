"""Joins: both sides at the level where they are matched, under the names inside."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.names import quote
from headrace.base.schema import duckdb_type
from headrace.engine.lowering.keys import replaced
from headrace.engine.lowering.walk import DELTA, lowered
from headrace.kernels.joins import side_join as operators
from headrace.kernels.joins.join_spec import JoinSpec
from headrace.kernels.joins.lookup_join import ARRIVAL, FIRST, LAST
from headrace.kernels.operations import operator
from headrace.kernels.query import Query
from headrace.kernels.rename import Rename
from headrace.plan.nodes import ARRIVED, Join, LookupJoin, SideJoin, TableJoin

if TYPE_CHECKING:
    from headrace.engine.lowering.walk import Lowering
    from headrace.kernels.op import StatefulOp


@lowered.register(Join)
def _join(node: Join, to: Lowering) -> None:
    late = to.number() if node.detects_late else None
    to.lates[id(node)] = late or 0
    output = to.deltas[id(node)] = to.number()
    join = join_spec(node, ordered=ordered(node, to))
    build = operator(node.kernel)
    more = {"arrived": ARRIVED} if id(node) in to.plan.arrivals else {}
    op = build(step=to.plan.name(node), inputs=(), output=output, late=late, join=join, **node.parameters(), **more)
    to.add(to.level(node), replace(op, inputs=(_side(node, 0, op, to), _side(node, 1, op, to))))


@lowered.register(SideJoin)
def _side_join(node: SideJoin, to: Lowering) -> None:
    level = to.level(node)
    read = to.columns_read(node)
    output = to.deltas[id(node)] = to.number()
    columns = [each for each in node.columns if each.name in read]
    op = operators.SideJoin(
        step=to.plan.name(node),
        inputs=(to.at(node.up, level),),
        output=output,
        side=node.side.connector,
        key=node.side.record_key,
        on=node.on,
        left=node.how == "left",
        columns=tuple((each.name, each.left, each.right, _inside(each.type)) for each in columns),
        passed=("_weight", "_time", *([ARRIVED] if id(node) in to.plan.arrivals else [])),
    )
    to.add(level, op)


def _inside(kind: pa.DataType) -> pa.DataType:
    """Return a type as rows have it inside a level: instants are readings in UTC."""
    return pa.timestamp("us") if pa.types.is_timestamp(kind) else kind


def join_spec(node: Join, *, ordered: bool) -> JoinSpec:
    """Return a join as the kernels know it."""
    names = [node.inside_names(side) for side in (0, 1)]
    sides = list(zip(names, node.ups, strict=True))
    left, right = ([(inside[f.name], duckdb_type(f.type)) for f in up.schema] for inside, up in sides)
    keys = tuple(None if up.key is None else tuple(inside[name] for name in up.key) for inside, up in sides)
    by_name = {column.name: column for column in node.columns}
    return JoinSpec(
        left=tuple(left),
        right=tuple(right),
        on=tuple((names[0][ours], names[1][theirs]) for ours, theirs in node.on),
        where=None if node.where is None else node.where.sql,
        keys=(keys[0], keys[1]),
        ordered=ordered,
        output=tuple((f.name, node.inside(by_name[f.name]), duckdb_type(f.type)) for f in node.schema),
        how=node.how,
        growing=(node.grows(0), node.grows(1)),
    )


def _side(node: Join, side: int, op: StatefulOp, to: Lowering) -> int:
    """Return the delta of a side at the join's level, its columns under the names inside.

    An exchange keeps the order of rows that one task sends to one shard, and no other. Rows that are only renamed go
    through it under their own names, so that several joins may share it.
    """
    up, by, step, there = node.ups[side], to.plan.moves[id(node)][side], to.plan.name(node), to.level(node)
    inside, here, rows = node.inside_names(side), to.level(up), to.number()
    counted = isinstance(node, TableJoin) and node.counts(side)
    forms = replaced(up.schema.names if counted else node.partition_keys[side], up.schema)
    sent_as_is = not (forms or isinstance(node, LookupJoin))
    if here < there and sent_as_is and op.before_exchange(side, 0, output=0, late=None) is None:
        arrived = to.carried(to.facts(up) or to.at(up, here), step, here, there, by)
        names = (*inside.items(), *((name, name) for name in DELTA.split(", ")))
        to.add(there, Rename(step=step, inputs=(arrived,), output=rows, names=names))
        return rows
    columns = ", ".join(f"{forms.get(name, quote(name))} AS {short}" for name, short in inside.items())
    before = f"SELECT {columns}, {delta_columns(node, side, to)} FROM"
    to.add(here, Query(step=step, inputs=(to.at(up, here),), output=rows, before=before, after="", shared=False))
    rows = to.before_exchange(op, side, rows, here)
    if here < there:
        rows = to.carried(rows, step, here, there, None if by is None else tuple(inside[name] for name in by))
    return rows


def delta_columns(node: Join, side: int, to: Lowering) -> str:
    """Return the columns besides a side's own: for a lookup those with the arrival of its rows.

    The changes of a table that have none are there before all rows of the stream, which see what they leave.
    """
    if not isinstance(node, LookupJoin):
        return DELTA
    known = id(node.ups[side]) in to.plan.arrivals
    if side == 0:
        return f"{DELTA}, {quote(ARRIVED) if known else LAST} AS {ARRIVAL}"
    return f"_weight, {quote(ARRIVED) if known else FIRST} AS _time"


def ordered(node: Join, to: Lowering) -> bool:
    """Return whether the right side is a table whose changes of a key arrive in the order in which it changed."""
    at, key = to.plan.partitions[id(node.right)], node.right.key
    return at is not None and key is not None and set(at) <= set(key)
