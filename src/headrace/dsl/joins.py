"""The verb `join` with its four meanings: which one it is follows from the types of both sides and the arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from headrace.base import arguments
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
    SideJoin,
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
    """The arguments of a join, as the user gave them."""

    on: str | Sequence[str] | Mapping[str, str]
    how: str
    within: str | tuple[str, str] | None = None
    as_of: str | None = None
    grace: str | None = None
    where: str | None = None
    suffix: str = "_right"


def join_node(left: Node, right: Node, options: JoinOptions, functions: Mapping[str, UserFunction]) -> Node:
    """Return the step of `join`, checked.

    Raises:
        UnknownColumn: a key is not there.
        PlanError: the arguments do not fit the sides, or each other.

    """
    node = _join_of(left, right, options)
    step = step_name(node)
    _check_how(node, options.how, step)
    for name_left, name_right in node.on:
        _key_type(name_left, name_right, node, step)
    columns = _columns(node, options.suffix, step)
    node = replace(node, columns=columns)
    where = None if options.where is None else _condition(options.where, node, step, functions)
    output = [column for column in columns if node.how not in ("semi", "anti") or column.left is not None]
    join = replace(node, where=where, schema=pa.schema([(column.name, column.type) for column in output]))
    return (SideJoin.instead_of(join) if isinstance(join, LookupJoin) else None) or join


# ---- which join ----


def _join_of(left: Node, right: Node, options: JoinOptions) -> Join:
    common: dict[str, Any] = {
        "left": left,
        "right": right,
        "on": _pairs(options.on, left, right),
        "how": options.how,
        "columns": (),
        "where": None,
        "schema": pa.schema([]),
    }
    if left.is_table:
        if not right.is_table:
            raise InvalidPlan(
                "a table cannot be joined with a stream",
                detail="A join of a stream with a table is a stream: each row of the stream looks the table up.",
                hint="Swap the sides: stream.join(table, …), or make the stream a table: stream.latest(key).",
            )
        _refuse_options(
            options,
            ("within", "as_of", "grace"),
            "Two tables are joined as they are now, and again whenever one changes.",
        )
        return TableJoin(**common)
    _check_append_only(left)
    if right.is_table:
        _refuse_options(options, ("within",), "A table has one row a key, whatever its time.")
        if options.as_of is None:
            _refuse_options(options, ("grace",), "A row is joined when it arrives; grace is for as_of, which waits.")
            return LookupJoin(**common)
        return _as_of_join(common, right, at=_time(options.as_of, left), grace=_grace(options.grace))
    _check_append_only(right)
    _refuse_options(options, ("as_of",), "as_of looks a table up; make the right side one: stream.latest(key).")
    low, high = _interval(options.within)
    return StreamJoin(
        **common, low=low, high=high, grace=_grace("0 seconds" if options.grace is None else options.grace)
    )


def _as_of_join(common: dict[str, Any], table: Node, *, at: str, grace: int) -> AsOfJoin:
    """Return the join with the versions of a table: its right side are the records of the table."""
    records, latest = _records(table), table
    while isinstance(latest, Select | Where):
        latest = latest.up
    if records is None or not isinstance(latest, Latest):
        raise InvalidPlan(
            f'the rows of "{step_name(table)}" have no versions: they are computed, and known as they are now',
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
            detail=f"The versions of a row have equal values in its key ({', '.join(table.key)}) only.",
            hint='Join on the key, and test the rest with where="…".',
        )
    return AsOfJoin(**{**common, "right": records}, at=at, table_key=table.key, grace=grace, history=latest.history)


def _records(table: Node) -> Node | None:
    """Return the records of a table, with the table's `select` and `where` applied to them; None for other tables."""
    if isinstance(table, Latest):
        return table.up
    if isinstance(table, Select | Where):
        above = _records(table.up)
        if above is None or isinstance(table, Select):
            return None if above is None else replace(table, up=above)
        return Ending(up=above, schema=table.schema, name=table.name, condition=table.condition)
    return None


def _pairs(on: object, left: Node, right: Node) -> tuple[tuple[str, str], ...]:
    """Return the pairs of equal columns, left and right."""
    if isinstance(on, Mapping):
        pairs = tuple(on.items())
    elif isinstance(on, str):
        pairs = ((on, on),)
    else:
        pairs = tuple((name, name) for name in on) if isinstance(on, list | tuple) else ()
    if not pairs:
        raise InvalidPlan(
            f"on={on!r} names no columns to join on",
            hint='Say on="id", on=("id", "day"), or on={"buyer": "id"} where the names differ.',
        )
    for name, other in pairs:
        check.has_column(name, left.schema, step="the left side of the join")
        check.has_column(other, right.schema, step="the right side of the join")
    check.no_repeats([name for name, _ in pairs], step="join")
    check.no_repeats([other for _, other in pairs], step="join")
    check.groupable([name for name, _ in pairs], left.schema, step="join")
    check.not_sealed([name for name, _ in pairs], left.sealed, step="join", role="a key of a join")
    check.not_sealed([other for _, other in pairs], right.sealed, step="join", role="a key of a join")
    return pairs


def _refuse_options(options: JoinOptions, names: Sequence[str], why: str) -> None:
    for name in names:
        if getattr(options, name) is not None:
            raise InvalidPlan(
                f"{name}={getattr(options, name)!r} has no effect here", detail=why, hint=f"Leave {name} out."
            )


def _check_append_only(node: Node) -> None:
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
            "a join of two streams needs the argument within",
            detail="Without a bound in time, every row would be kept for ever.",
            hint='Say within="1 hour" (either way), or within=("-10 seconds", "1 hour") for right time - left time.',
        )
    if isinstance(within, str | timedelta):
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
    time = check.event_time(column, left.schema, step="the left side of the join")
    assert time is not None  # noqa: S101 -- a column was given
    check.not_sealed([time], left.sealed, step="join", role="a time")
    return time


def _grace(text: str | None) -> int:
    if text is None:
        raise InvalidPlan(
            "a join with as_of needs a grace: how long it waits for late changes of the table",
            hint='Say grace="0 seconds" if the table is never late, or as long as it may be.',
        )
    length = duration(text, what="grace")
    if length < 0:
        raise InvalidPlan(f"grace={text!r} is below zero")
    return length


# ---- whether it is possible ----


def _check_how(node: Join, how: str, step: str) -> None:
    if how not in get_args(How):
        raise InvalidPlan(f'step "{step}": how={how!r} is not known', hint=f"Say one of {', '.join(get_args(How))}.")
    hows: tuple[str, ...] = get_args(How)
    if isinstance(node, LookupJoin | AsOfJoin):
        hows = ("inner", "left")
    if how not in hows:
        raise InvalidPlan(
            f'step "{step}": how={how!r} is not possible between these sides',
            hint=f"Possible here: {', '.join(hows)}.",
        )


def _key_type(left: str, right: str, node: Join, step: str) -> pa.DataType:
    """Return the type of a shared key. Equal values must have equal hashes, so not every pair of types is possible.

    Raises:
        WrongColumnType: the types have no equality, or equal values of them have different hashes.

    """
    left_type, right_type = node.left.schema.field(left).type, node.right.schema.field(right).type
    shared = shared_type(left_type, right_type)
    if shared is None:
        raise WrongColumnType(
            right, step=step, is_type=type_name(right_type), needs=type_name(left_type), role=f"joined with {left}"
        )
    return shared


def shared_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type in which columns of two types are compared as they are, or None."""
    if left == right:
        return left
    for kind in (pa.types.is_integer, pa.types.is_floating):
        if kind(left) and kind(right):
            return left if left.bit_width >= right.bit_width else right
    if pa.types.is_decimal(left) and pa.types.is_decimal(right) and left.scale == right.scale:
        return left if left.precision >= right.precision else right
    return None


# ---- its columns ----


def _columns(node: Join, suffix: str, step: str) -> tuple[JoinColumn, ...]:
    """Return the columns of both sides: left ones, then right ones; equal names become one column, or get a suffix."""
    arguments.a_text(suffix, "suffix")
    shared = {name for name, other in node.on if name == other}
    taken = set(node.left.schema.names)
    columns = [
        JoinColumn(name=name, type=_key_type(name, name, node, step), left=name, right=name)
        if name in shared
        else JoinColumn(name=name, type=node.left.schema.field(name).type, left=name)
        for name in node.left.schema.names
    ]
    columns += [
        JoinColumn(
            name=f"{field.name}{suffix}" if field.name in taken else field.name, type=field.type, right=field.name
        )
        for field in node.right.schema
        if field.name not in shared
    ]
    check.no_repeats([column.name for column in columns], step=step)
    return tuple(columns)


def _condition(text: str, node: Join, step: str, functions: Mapping[str, UserFunction]) -> Scalar:
    both = pa.schema([(column.name, column.type) for column in node.columns])
    column_sql = {column.name: node.inside(column) for column in node.columns}
    sealed = node.left.sealed | node.right.sealed
    test = condition(text, both, step=step, functions=functions, sealed=sealed, column_sql=column_sql)
    check.require_deterministic(test, step=step, withdrawn=True)
    if test.calls:
        raise InvalidPlan(
            f'step "{step}": a function of yours cannot be called in the condition of a join',
            detail="It would be called for every pair of rows.",
            hint="Compute it before, as a column of its side, or filter an inner join with .where(…) after it.",
        )
    return test
