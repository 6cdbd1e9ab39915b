"""What `plan.json` keeps of a program: its steps with state, what feeds them, its sinks and its sources.

It is compared at every start (`changes`), so that no state is misread and no results are mixed.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from headrace.base.schema import type_name
from headrace.base.time import show_duration
from headrace.plan.chains import chain, chains

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from headrace.plan.nodes import Node, Source, Stateful
    from headrace.plan.plan import Plan
    from headrace.plan.sinks import Sink

FORMAT = 4
"""The version of the state's files; raised when their meaning changes."""
ORDERS = ("kept in order", "keys in order")
"""What a step's identity calls the columns of rows that are kept by their places, and several keys, which all are."""


def identity(plan: Plan, shards: int, name: Callable[[Node], str] | None = None) -> dict[str, Any]:
    """Return what must stay equal for kept state and outputs to be right, as `plan.json` has it.

    Args:
        plan: the program.
        shards: how many parts the state is cut into.
        name: what steps are called, if not as in the plan: a step whose state moves is compared under its old name.

    """
    name = name or plan.name
    return {
        "format": FORMAT,
        "shards": shards,
        "steps": {name(node): _step(plan, node) for node in plan.stateful()},
        "inputs": {name(node): [each.to_json() for each in chains(node, name)] for node in plan.stateful()},
        "sinks": {sink.name: _sink(sink, name) for sink in plan.sinks if not sink.is_probe},
        "sources": {plan.name(node): _source(node) for node in plan.sources()},
    }


def fingerprint(now: Mapping[str, Any]) -> str:
    """Return a short text that is equal for equal identities: a commit says which program computed it."""
    return blake2b(json.dumps(now, sort_keys=True).encode(), digest_size=8).hexdigest()


def _step(plan: Plan, node: Stateful) -> dict[str, Any]:
    return {
        "verb": node.verb,
        "keys": _keys(node),
        **node.identity(),
        "spread by": list(plan.partitions[id(node)] or ()),
        **_in_order(node),
        "sources": sorted(plan.name(up) for up in node.walk() if not up.ups),
    }


def _in_order(node: Stateful) -> dict[str, Any]:
    several = any(len(keys) > 1 for keys in node.partition_keys)
    orders = (node.kept_order, node.partition_keys if several else ())
    return {name: list(map(list, columns)) for name, columns in zip(ORDERS, orders, strict=True) if columns}


def _keys(node: Stateful) -> Any:
    sides = [
        {key: type_name(up.schema.field(key).type) for key in keys}
        for up, keys in zip(node.ups, node.partition_keys, strict=True)
    ]
    return sides[0] if len(sides) == 1 else sides


def _sink(sink: Sink, name: Callable[[Node], str]) -> dict[str, Any]:
    view = sink.view is not None
    return {
        "form": sink.form,
        "key": None if not sink.up.is_table or sink.up.key is None else list(sink.up.key),
        "columns": {field.name: type_name(field.type) for field in sink.up.schema} if view else None,
        "input": chain(sink.up, name).to_json(),
    } | ({} if _formats(sink) is None else {"format": _formats(sink)})


def _source(node: Source) -> dict[str, Any]:
    return {
        "topic": node.topic,
        "connector": None if node.connector is None else str(getattr(node.connector, "identity", "")),
        "format": _formats(node),
        "event time": node.time_text,
        "sent time": node.sent_time,
        "out of order": show_duration(node.out_of_order),
        "key": list(node.record_key),
        "on error": node.on_error or "dead_letter",
    }


def _formats(end: Source | Sink) -> str | None:
    """Return how records are written, and their keys where that was said."""
    named = [None if each is None else getattr(each, "identity", str(each)) for each in (end.format, end.key_format)]
    if named[1] is not None:
        return f"{named[0] or 'json'}, keys: {named[1]}"
    return named[0]


def forget(stored: Mapping[str, Any], steps: Collection[str], sinks: Collection[str]) -> dict[str, Any]:
    """Return `plan.json` without steps and sinks that a reset has emptied: they begin like new ones."""
    gone = {"steps": steps, "inputs": steps, "sinks": sinks}
    return {
        part: {name: value for name, value in content.items() if name not in gone[part]} if part in gone else content
        for part, content in stored.items()
    }


def emptied(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return `plan.json` after a reset of all but the offsets: only the sources are as they were."""
    sources = {"sources": stored["sources"]} if "sources" in stored else {}
    return {"format": FORMAT, "shards": None, "steps": {}, "inputs": {}, "sinks": {}, **sources}


def kept_over(stored: Mapping[str, Any] | None, now: dict[str, Any], *, last: int | None) -> dict[str, Any]:
    """Return what `plan.json` has from now on: also the steps and sinks that are gone, which may return.

    Args:
        stored: what it had.
        now: the program that starts.
        last: the last epoch whose rows a sink that is gone has.

    """
    if stored is None:
        return now
    gone = {
        name: {"left after": last, **sink} for name, sink in stored.get("sinks", {}).items() if name not in now["sinks"]
    }
    return {
        **now,
        "steps": stored["steps"] | now["steps"],
        "inputs": stored.get("inputs", {}) | now["inputs"],
        "sinks": gone | now["sinks"],
    }


def withdrawing(plan: Plan, node: Node) -> Iterator[str]:
    """Yield the names of the steps that keep the rows which may be withdrawn from a step."""
    for up in node.ups:
        if not up.append_only:
            if up.stateful:
                yield plan.name(up)
            else:
                yield from withdrawing(plan, up)
