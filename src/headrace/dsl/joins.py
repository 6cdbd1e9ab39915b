"""The one verb with four meanings: `join`, chosen by the types of its sides and spelled by its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from headrace.base.errors import InvalidPlan, WrongColumnType
from headrace.base.schema import type_name
from headrace.base.time import duration
from headrace.expressions import Scalar, condition
from headrace.plan import check
from headrace.plan.nodes import (
    AsOfJoin,
    Ending,
    How,
    Join,
    JoinColumn,
    Latest,
    LookupJoin,
    Select,
    StreamJoin,
    TableJoin,
    Where,
)
from headrace.plan.steps import step_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expressions import UserFunction
    from headrace.plan.nodes import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOptions:
    """What the user said of a join, as it was said."""

    on: str | Sequence[str] | Mapping[str, str]
    how: str
    within: str | tuple[str, str] | None = None
    as_of: str | None = None
    grace: str | None = None
    where: str | None = None
    suffix: str = "_right"


def join_node(left: Node, right: Node, said: JoinOptions, functions: Mapping[str, UserFunction]) -> Join:
    """Return the step that a `join` is, all of it checked.

    Raises:
        UnknownColumn: a key is not there.
        PlanError: the arguments do not fit the sides, or each other.

    """
    node = _chosen(left, right, said)
    step = step_name(node)
    _allowed(node, said.how, step)
    for name_left, name_right in node.on:
        _agree(name_left, name_right, node, step)
    columns = _columns(node, said.suffix, step)
    node = replace(node, columns=columns)
    where = None if said.where is None else _condition(said.where, node, step, functions)
    given = [column for column in columns if node.how not in ("semi", "anti") or column.left is not None]
    return replace(node, where=where, schema=pa.schema([(column.name, column.type) for column in given]))


# ---- which join it is ----


def _chosen(left: Node, right: Node, said: JoinOptions) -> Join:
    common: dict[str, Any] = {
        "left": left,
        "right": right,
        "on": _pairs(said.on, left, right),
        "how": said.how,
        "columns": (),
        "where": None,
        "schema": pa.schema([]),
    }
    if left.is_table:
        if not right.is_table:
            raise InvalidPlan(
                "a table cannot be joined with a stream",
                detail="A stream that meets a table gives a stream: each of its rows looks the table up.",
                hint="Turn it round: stream.join(table, …), or make the stream a table: stream.latest(key).",
            )
        _unsaid(said, ("within", "as_of", "grace"), "Two tables meet as they are now, whenever they change.")
        return TableJoin(**common)
    _appends(left)
    if right.is_table:
        _unsaid(said, ("within",), "A table has one row a key, whenever it came.")
        if said.as_of is None:
            _unsaid(said, ("grace",), "A row is joined when it arrives; grace is for as_of, which waits.")
            return LookupJoin(**common)
        return _versioned(common, right, at=_time(said.as_of, left), grace=_grace(said.grace))
    _appends(right)
    _unsaid(said, ("as_of",), "as_of looks a table up; make the right side one: stream.latest(key).")
    low, high = _interval(said.within)
    return StreamJoin(**common, low=low, high=high, grace=_grace(said.grace or "0 seconds"))


def _versioned(common: dict[str, Any], table: Node, *, at: str, grace: int) -> AsOfJoin:
    """Return the join with the versions of a table: with the records that it is made of."""
    records, latest = _records(table), table
    while isinstance(latest, Select | Where):
        latest = latest.up
    if records is None or not isinstance(latest, Latest):
        raise InvalidPlan(
            f'the rows of "{step_name(table)}" have no versions: they are computed, and known only as they are now',
            detail="as_of takes a topic's table or the latest of a stream, and .select(…) and .where(…) of them.",
            hint="Leave as_of out to join rows as they arrive, or write the table to a topic that another app reads.",
        )
    if table.key is None:
        raise InvalidPlan(
            f'the table "{step_name(table)}" has lost its key, so its rows have no versions',
            hint="Keep the key's columns in .select(…).",
        )
    outside = [other for _, other in common["on"] if other not in table.key]
    if outside:
        raise InvalidPlan(
            f"as_of needs columns of the table's key in on: {', '.join(outside)} is none of them",
            detail=f"The versions of a row agree in its key ({', '.join(table.key)}), and in nothing else.",
            hint='Join on the key, and ask for the rest in where="…".',
        )
    return AsOfJoin(**{**common, "right": records}, at=at, table_key=table.key, grace=grace, history=latest.history)


def _records(table: Node) -> Node | None:
    """Return the records that a table is made of, with what was done to its rows done to them."""
    if isinstance(table, Latest):
        return table.up
    if isinstance(table, Select | Where):
        above = _records(table.up)
        if above is None or isinstance(table, Select):
            return None if above is None else replace(table, up=above)
        return Ending(up=above, schema=table.schema, name=table.name, condition=table.condition)
    return None


def _pairs(on: object, left: Node, right: Node) -> tuple[tuple[str, str], ...]:
    """Return the columns in which rows agree, each known to its side."""
    if isinstance(on, Mapping):
        pairs = tuple(on.items())
    elif isinstance(on, str):
        pairs = ((on, on),)
    else:
        pairs = tuple((name, name) for name in on) if isinstance(on, list | tuple) else ()
    if not pairs:
        raise InvalidPlan(
            f"on={on!r} names no columns in which the sides agree",
            hint='Say on="id", on=("id", "day"), or on={"buyer": "id"} where the names differ.',
        )
    for name, other in pairs:
        check.has_column(name, left.schema, step="the left side of the join")
        check.has_column(other, right.schema, step="the right side of the join")
    check.no_repeats([name for name, _ in pairs], step="join")
    check.groupable([name for name, _ in pairs], left.schema, step="join")
    check.clear([name for name, _ in pairs], left.sealed, step="join", role="a key of a join")
    check.clear([other for _, other in pairs], right.sealed, step="join", role="a key of a join")
    return pairs


def _unsaid(said: JoinOptions, names: Sequence[str], why: str) -> None:
    for name in names:
        if getattr(said, name) is not None:
            raise InvalidPlan(
                f"{name}={getattr(said, name)!r} says nothing here", detail=why, hint=f"Leave {name} out."
            )


def _appends(node: Node) -> None:
    if not node.append_only:
        raise InvalidPlan(
            f'the rows of "{step_name(node)}" are withdrawn, so it cannot be joined as a stream',
            detail="They are the late rows of an aggregate over a table.",
            hint="Join the table itself, or its .changes().",
        )


def _interval(within: object) -> tuple[int, int]:
    """Return the least and the greatest of right time - left time."""
    if within is None:
        raise InvalidPlan(
            "two streams meet within a time, which is not said",
            detail="Without it every row would have to be kept for ever.",
            hint='Say within="1 hour" (either way), or within=("-10 seconds", "1 hour") for right time - left time.',
        )
    if isinstance(within, str):
        high = duration(within, what="within")
        low = -high
    elif isinstance(within, tuple | list) and len(within) == 2:  # noqa: PLR2004 -- two ends
        low, high = (duration(end, what="within") for end in within)
    else:
        raise InvalidPlan(f"within={within!r} is no interval", hint='Say "1 hour" or ("-10 seconds", "1 hour").')
    if low > high:
        raise InvalidPlan(
            f"within={within!r} has its low end above its high end",
            hint="The first is the least, the second the greatest of right time - left time.",
        )
    return low, high


def _time(column: str, left: Node) -> str:
    made = check.event_time(column, left.schema, step="the left side of the join")
    assert made is not None  # noqa: S101 -- a column was given
    check.clear([made], left.sealed, step="join", role="a time")
    return made


def _grace(text: str | None) -> int:
    if text is None:
        raise InvalidPlan(
            "a join with as_of waits for late changes of the table, and how long is not said",
            hint='Say grace="0 seconds" if the table is never late, or as long as it may be.',
        )
    length = duration(text, what="grace")
    if length < 0:
        raise InvalidPlan(f"grace={text!r} is below zero")
    return length


# ---- whether it can be ----


def _allowed(node: Join, how: str, step: str) -> None:
    if how not in get_args(How):
        raise InvalidPlan(f'step "{step}": how={how!r} is not known', hint=f"Say one of {', '.join(get_args(How))}.")
    hows: tuple[str, ...] = get_args(How)
    if isinstance(node, StreamJoin):
        hows = ("inner", "left", "right", "full")
    elif isinstance(node, LookupJoin | AsOfJoin):
        hows = ("inner", "left")
    if how not in hows:
        raise InvalidPlan(
            f'step "{step}": how={how!r} is not possible between these sides',
            hint=f"Possible here: {', '.join(hows)}.",
        )


def _agree(left: str, right: str, node: Join, step: str) -> pa.DataType:
    """Return the type of a shared key: values that are equal must be spread alike, so not every pair of types will do.

    Raises:
        WrongColumnType: the types have no equality, or one that says more than their hash.

    """
    one, other = node.left.schema.field(left).type, node.right.schema.field(right).type
    if one == other:
        return one
    for kind in (pa.types.is_integer, pa.types.is_floating):
        if kind(one) and kind(other):
            return one if one.bit_width >= other.bit_width else other
    if pa.types.is_decimal(one) and pa.types.is_decimal(other) and one.scale == other.scale:
        return one if one.precision >= other.precision else other
    raise WrongColumnType(right, step=step, is_type=type_name(other), needs=type_name(one), role=f"joined with {left}")


# ---- what comes out ----


def _columns(node: Join, suffix: str, step: str) -> tuple[JoinColumn, ...]:
    """Return the columns of both sides: left ones, then right ones, those of equal names under one or with a suffix."""
    shared = {name for name, other in node.on if name == other}
    taken = set(node.left.schema.names)
    made = [
        JoinColumn(name=name, type=_agree(name, name, node, step), left=name, right=name)
        if name in shared
        else JoinColumn(name=name, type=node.left.schema.field(name).type, left=name)
        for name in node.left.schema.names
    ]
    made += [
        JoinColumn(
            name=f"{field.name}{suffix}" if field.name in taken else field.name, type=field.type, right=field.name
        )
        for field in node.right.schema
        if field.name not in shared
    ]
    check.no_repeats([column.name for column in made], step=step)
    return tuple(made)


def _condition(text: str, node: Join, step: str, functions: Mapping[str, UserFunction]) -> Scalar:
    both = pa.schema([(column.name, column.type) for column in node.columns])
    column_sql = {column.name: node.inside(column) for column in node.columns}
    sealed = node.left.sealed | node.right.sealed
    made = condition(text, both, step=step, functions=functions, sealed=sealed, column_sql=column_sql)
    check.require_deterministic(made, step=step, withdrawn=True)
    if made.calls:
        raise InvalidPlan(
            f'step "{step}": a function of yours cannot stand in the condition of a join',
            detail="It would be called for every pair of rows.",
            hint="Compute it before, as a column of its side, or keep rows of an inner join with .where(…) after it.",
        )
    return made
