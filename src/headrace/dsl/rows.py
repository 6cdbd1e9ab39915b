"""The verbs that choose rows or put them together, as nodes of the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.errors import InvalidPlan, SealedColumn
from headrace.base.schema import to_ddl
from headrace.base.time import duration
from headrace.dsl.columns import select_node
from headrace.dsl.outputs import table_key
from headrace.dsl.verb import Verb
from headrace.expressions import Scalar, calls_of
from headrace.plan import check
from headrace.plan.nodes import (
    CHANGE_TYPE,
    AsTable,
    Changes,
    Dedupe,
    Keep,
    Late,
    Latest,
    Stateful,
    Suppress,
    Union,
    Where,
)
from headrace.plan.steps import step_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.plan.nodes import Node


def where_node(verb: Verb, condition: str) -> Where:
    """Return the step of `where`.

    Raises:
        PlanError: the text is no condition over the columns.

    """
    return Where(up=verb.node, schema=verb.schema, condition=verb.condition(condition))


def branch_nodes(verb: Verb, conditions: Mapping[str, str]) -> dict[str | None, Where]:
    """Return the steps of `branch` by name: each row goes to the first condition that is true, or to None.

    Raises:
        PlanError: a text is no condition over the columns.
        Nondeterministic: a condition calls a function that is not deterministic.

    """
    branches: dict[str | None, Where] = {}
    before: list[Scalar] = []
    for name, text in conditions.items():
        test = verb.condition(text)
        branches[name] = _branch(verb, text, test, before)
        before.append(test)
    branches[None] = _branch(verb, "none of them", None, before)
    return branches


def _branch(verb: Verb, text: str, test: Scalar | None, before: list[Scalar]) -> Where:
    tests = [*before, test] if test else before
    parts = [f"NOT coalesce(({each.sql}), false)" for each in before] + ([f"({test.sql})"] if test else [])
    condition = Scalar(
        text=text,
        sql=" AND ".join(parts) or "true",
        type=pa.bool_(),
        columns=frozenset[str]().union(*(each.columns for each in tests)),
        calls=calls_of(tests),
        raises=any(each.raises for each in tests),
    )
    check.branch_conditions(tests, step=verb.step)
    return Where(up=verb.node, schema=verb.schema, condition=condition)


def union_node(verb: Verb, others: Sequence[Node]) -> Union:
    """Return the step of `union`: the rows of several steps, columns matched by name.

    Raises:
        InvalidPlan: one has other columns.
        SealedColumn: a column is private in one of them alone.

    """
    return Union(streams=(verb.node, *(_in_order(verb, other) for other in others)), schema=verb.schema)


def _in_order(verb: Verb, other: Node) -> Node:
    """Bring the columns of `other` into the order of the first step, or say how they differ."""
    ours = {field.name: field.type for field in verb.schema}
    theirs = {field.name: field.type for field in other.schema}
    if ours != theirs:
        raise InvalidPlan(
            f'step "{verb.step}": its inputs have different columns',
            detail=f"{to_ddl(verb.schema)}  against  {to_ddl(other.schema)}",
            hint="Bring them to the same names and types with .select(…) first.",
        )
    if verb.node.sealed != other.sealed:
        only = ", ".join(sorted(verb.node.sealed ^ other.sealed))
        raise SealedColumn(
            f'step "{verb.step}": {only} is private in one of them, and clear in the other',
            hint="Declare it private in both topics, or give one of the columns another name.",
        )
    names = verb.schema.names
    return other if names == other.schema.names else select_node(Verb(other, "select", verb.functions), names, {})


def dedupe_node(verb: Verb, keys: Sequence[str], within: str) -> Dedupe:
    """Return the step of `dedupe`.

    Raises:
        UnknownColumn: a key is not there.
        InvalidPlan: there is no key, `within` is negative, or rows may be withdrawn.
        InvalidTime: `within` is no duration.

    """
    step = verb.step
    if not keys:
        raise InvalidPlan(
            f'step "{step}" has no key',
            hint='Name the columns that identify an event: dedupe("id", within="1 hour").',
        )
    named = tuple(check.named(key, verb.schema, step=step, verb="dedupe") for key in keys)
    check.no_repeats(named, step=step)
    check.groupable(named, verb.schema, step=step)
    check.not_sealed(named, verb.node.sealed, step=step, role="a key")
    horizon = duration(within, what="horizon of dedupe")
    if horizon < 0:
        raise InvalidPlan(f'step "{step}": within={within!r} is negative')
    if not verb.node.append_only:
        raise InvalidPlan(
            f'step "{step}": rows of its input may be withdrawn, and a row that was dropped cannot be',
            hint="Call dedupe on the stream before the table.",
        )
    return Dedupe(up=verb.node, schema=verb.schema, keys=named, within=horizon)


def latest_node(verb: Verb, key: Sequence[str]) -> Latest:
    """Return the step of `latest`: of each key the row of the greatest event time.

    Raises:
        UnknownColumn: a key is not there.
        InvalidPlan: there is no key, or rows are withdrawn.

    """
    step = verb.step
    keys = check.columns(key, verb.schema, step=step)
    if not keys:
        raise InvalidPlan(f'step "{step}" needs a key', hint='Name the columns that identify a row: latest("id").')
    check.groupable(keys, verb.schema, step=step)
    check.not_sealed(keys, verb.node.sealed, step=step, role="a key")
    if not verb.node.append_only:
        raise InvalidPlan(
            f'step "{step}": rows of the step above are withdrawn, so none of them is the last',
            detail="They are those of a table that is corrected, or its late rows.",
            hint='Take .latest(…) of a stream of facts, of windows that are final (emit="final"), or of .changes().',
        )
    return Latest(up=verb.node, schema=verb.schema, keys=keys, by_time=True)


def as_table_node(verb: Verb, keep: str | None) -> AsTable | Keep:
    """Return the step of `as_table`: the rows of a stream as a bag, for `keep` of event time or for ever.

    Raises:
        InvalidPlan: `keep` is negative, or rows of the stream are withdrawn.
        InvalidTime: `keep` is no duration.

    """
    step = verb.step
    if not verb.node.append_only:
        raise InvalidPlan(
            f'step "{step}": rows of its input are withdrawn already',
            detail="They are the late rows of an aggregate over a table.",
            hint="Use the table itself.",
        )
    if keep is None:
        return AsTable(up=verb.node, schema=verb.schema)
    length = duration(keep, what="keep")
    if length < 0:
        raise InvalidPlan(f'step "{step}": keep={keep!r} is below zero')
    return Keep(up=verb.node, schema=verb.schema, keys=Keep.spread_by(verb.schema), keep=length)


def latest_of_table_node(verb: Verb, key: Sequence[str]) -> Latest:
    """Return the step of a table's `latest`: by default by the groups of its windows.

    Raises:
        UnknownColumn: a key is not there.
        InvalidPlan: there is no key, or rows are withdrawn.

    """
    grouped = [name for name in verb.node.key or () if name not in ("window_start", "window_end")]
    return latest_node(verb, key or grouped)


def suppress_node(verb: Verb, every: str | None, size: int | None, *, early: bool = False) -> Suppress:
    """Return the step of `suppress`: the last change of each key in a period, or when too many wait.

    Raises:
        InvalidPlan: neither is given, one is below what is possible, or the table has no key.
        InvalidTime: `every` is no duration.

    """
    step = verb.step
    key = table_key(verb.node, "suppress")
    if every is None and size is None:
        raise InvalidPlan(f'step "{step}": suppress needs every or size', hint='Say every="10 seconds".')
    period = None if every is None else duration(every, what="period of suppress")
    if period is not None and period <= 0:
        raise InvalidPlan(f'step "{step}": every={every!r} is not above zero')
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
        raise InvalidPlan(f'step "{step}": size={size!r} is no number of keys')
    return Suppress(up=verb.node, schema=verb.schema, keys=key, every=period, size=size, early=early)


def changes_node(verb: Verb) -> Changes:
    """Return the step of `changes`: what happened to the rows of a table that has a key.

    Raises:
        InvalidPlan: a column has the name of the one that it adds.

    """
    schema = verb.schema.append(pa.field(CHANGE_TYPE, pa.string()))
    check.no_repeats(schema.names, step=verb.step)
    return Changes(up=verb.node, schema=schema)


def late_of_stream(node: Node) -> Late:
    """Return the late rows of a step whose output is a stream.

    Raises:
        InvalidPlan: the step does not compare its rows with the watermark.

    """
    if not isinstance(node, Stateful) or not node.detects_late:
        raise InvalidPlan(
            f'step "{step_name(node)}" has no late rows',
            hint="Windows, dedupe and joins by time have late rows; take .late right after the verb.",
        )
    return Late(of=node, schema=node.late_schema)


def late_of_table(verb: Verb) -> Late:
    """Return the late rows of a step whose output is a table.

    Raises:
        InvalidPlan: the step has no late rows, or a column has the name of the one that late rows get.

    """
    node = verb.node.up if isinstance(verb.node, Suppress) and verb.node.early else verb.node
    if not isinstance(node, Stateful) or not node.detects_late:
        raise InvalidPlan(
            f'step "{step_name(verb.node)}" has no late rows',
            hint="Only steps with a window do, and .as_table(keep=…); take .late right after .agg(…) or .top(…).",
        )
    schema = node.late_schema
    check.no_repeats(schema.names, step=verb.step)
    return Late(of=node, schema=schema)
