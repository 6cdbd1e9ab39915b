"""Where rows go: the sinks of streams and tables, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.base.errors import InvalidPlan
from headrace.base.names import check_identifier, check_topic
from headrace.dsl.formats import NO_FORMATS
from headrace.plan import check
from headrace.plan.nodes import AsTable, Keep, TableJoin, Top
from headrace.plan.sinks import Sink
from headrace.plan.steps import step_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dsl.formats import Formats
    from headrace.plan.nodes import Node


def view_sink(node: Node, view: str) -> Sink:
    """Return the sink that serves rows as a view.

    Raises:
        InvalidName: the name is not allowed.

    """
    return Sink(up=node, name=f"view:{check_identifier(view, what='view')}", view=view)


def target_sink(node: Node, target: Any) -> Sink:
    """Return the sink that hands each epoch's rows to a connector, or to an object.

    Raises:
        InvalidPlan: it is no connector's sink, and has no method `write`; or a connector takes changes by key, and the
            table has none.

    """
    connector = callable(getattr(target, "open", None)) and hasattr(target, "form")
    if not connector and not callable(getattr(target, "write", None)):
        raise InvalidPlan(
            f"{target!r} cannot take rows",
            hint="Give a connector's sink or an object with a method write(epoch, rows); or say .to_topic(name) or "
            ".to_view(name).",
        )
    if connector and hasattr(target, "for_step"):
        target = target.for_step(schema=node.schema, key=node.key, is_table=node.is_table, sealed=node.sealed)
    if connector and target.form == "changelog":
        table_key(node, "to")
    if connector and target.form == "rows" and not node.append_only:
        raise InvalidPlan(
            f'step "{step_name(node)}": its rows are withdrawn, and {type(target).__name__} takes rows that stay',
            hint="Give it the stream of what happened: .changes().to(…).",
        )
    name = getattr(target, "name", None) or type(target).__name__
    return Sink(up=node, name=f"call:{name}", target=target)


def topic_sink(node: Node, topic: str, key: str | Sequence[str] | None, formats: Formats = NO_FORMATS) -> Sink:
    """Return the sink that appends the rows of a stream to a topic; `key` chooses the partition.

    Raises:
        InvalidName: the topic's name is not allowed.
        UnknownColumn: a key is not there.
        SealedColumn: a key is private.

    """
    step = step_name(node)
    check_topic(topic)
    keys = check.columns(key, node.schema, step=step)
    check.not_sealed(keys, node.sealed, step=step, role="the key of a topic")
    return Sink(up=node, name=f"topic:{topic}", topic=topic, record_key=keys, **formats.checked()._asdict())


def changelog_sink(node: Node, topic: str, formats: Formats = NO_FORMATS) -> Sink:
    """Return the sink that writes a table's changelog to a topic, keyed by the table's key.

    Raises:
        InvalidName: the topic's name is not allowed.
        InvalidPlan: the table has no key.

    """
    check_topic(topic)
    key = table_key(node, "to_topic")
    return Sink(up=node, name=f"topic:{topic}", topic=topic, record_key=key, **formats.checked()._asdict())


def table_key(node: Node, verb: str) -> tuple[str, ...]:
    """Return the key of a table, which `verb` needs.

    Raises:
        InvalidPlan: the table has none; the detail says why, the hint what to do about it.

    """
    if node.key is None:
        why, hint = _without_key(node)
        raise InvalidPlan(f'step "{step_name(node)}_{verb}" needs the key of the table above, and {why}', hint=hint)
    return node.key


def _without_key(node: Node) -> tuple[str, str]:
    """Return why a table has no key, and what to do about it."""
    if isinstance(node, AsTable | Keep):
        return "the rows of a stream have none", 'Send the stream itself, or its last rows by key: stream.latest("id").'
    if isinstance(node, Top) and node.ties != "row_number":
        return "rows of one position share it", "Rank a table that has a key: its key stays."
    if isinstance(node, Top):
        return "the rows of a stream have none", 'Make the position a part of it: .top(…, rank="position").'
    if isinstance(node, TableJoin) and None not in (node.left.key, node.right.key):
        if node.where is not None:
            hint = 'Keep both keys: on={"id": "other_id"}, with .rename(other_id="id") on the right side.'
            return "rows of both sides that match none, because of where, may have the same one", hint
        hint = f'Say that they are there: .where("{node.on[0][0]} is not null") on one of the sides.'
        return "rows of both sides may have the same nulls in it", hint
    return "a step dropped it", "Keep the key's columns in .select(…)."
