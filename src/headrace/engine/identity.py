"""The identity of stateful steps: what their kept state means. Compared at every start, so that no state is misread."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from headrace.base.errors import PlanChanged
from headrace.base.schema import type_name

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from headrace.engine.storage import Commit
    from headrace.plan.nodes import Node, Stateful
    from headrace.plan.plan import Plan

FORMAT = 4
"""The version of the state's files; raised when their meaning changes."""


def identity(plan: Plan, shards: int) -> dict[str, Any]:
    """Return what must stay equal for the kept state to be right."""
    return {
        "format": FORMAT,
        "shards": shards,
        "steps": {plan.name(node): _step(plan, node) for node in plan.stateful()},
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
        "sources": sorted(plan.name(up) for up in node.walk() if not up.ups),
    }


def _keys(node: Stateful) -> Any:
    sides = [
        {key: type_name(up.schema.field(key).type) for key in keys}
        for up, keys in zip(node.ups, node.partition_keys, strict=True)
    ]
    return sides[0] if len(sides) == 1 else sides


def check(stored: Mapping[str, Any] | None, now: Mapping[str, Any], *, app: str) -> None:
    """Refuse a plan whose stateful steps are not those whose state is kept.

    Stateless changes pass, and new stateful steps do; so do steps that are gone, whose state is no longer used.

    Raises:
        PlanChanged: what changed, what would be lost, and the command that resets only that step.

    """
    if stored is None:
        return
    if stored["format"] != now["format"]:
        raise PlanChanged(
            f'the state of app "{app}" was written in format {stored["format"]}, this version writes {now["format"]}',
            hint="Run it with the version that wrote it, or reset the app.",
        )
    if stored["shards"] != now["shards"]:
        raise PlanChanged(
            f'the state of app "{app}" is cut into {stored["shards"]} shards, not {now["shards"]}',
            detail="A row's shard follows from their number, so state would be looked for in the wrong place.",
            hint=f"Say hr.App(…, shards={stored['shards']}) or leave shards out; or reset the app.",
        )
    for step, old in stored["steps"].items():
        new = now["steps"].get(step)
        if new is not None and new != old:
            raise PlanChanged(
                f'the stateful step "{step}" is not the one whose state is kept',
                detail=_difference(old, new) + " Going on would mix old and new results.",
                hint=f"Undo the change, give the step another name with .named(…), or drop its state and its views: "
                f"headrace reset FILE --step {step}",
            )


def check_returned(steps: Iterable[str], last: Commit) -> None:
    """Refuse a stateful step that was left out of the app for some epochs: its state misses the rows of those epochs.

    Raises:
        PlanChanged: names the step, and the command that resets it.

    """
    for step in steps:
        if last.heads.get(step) and step not in last.watermarks:
            raise PlanChanged(
                f'the stateful step "{step}" was not in the app when epoch {last.epoch} ran',
                detail="Its kept state misses the rows since it was left out.",
                hint=f"Give it another name with .named(…), or start it again: headrace reset FILE --step {step}",
            )


def check_begun(plan: Plan, known_steps: Container[str], last: Commit) -> None:
    """Refuse a new step over a table that has rows: it would see them withdrawn, but never inserted.

    The same for a new as-of join with a table whose records have been read.

    Raises:
        PlanChanged: names the step, the table, and the commands that reset both.

    """
    for node in plan.stateful():
        step = plan.name(node)
        table = next((name for name in withdrawing(plan, node) if last.heads.get(name)), None)
        if step not in known_steps and table is not None:
            raise PlanChanged(
                f'the new step "{step}" would begin without the rows that the table of step "{table}" has',
                detail=f"Epoch {last.epoch} left rows there; a change would withdraw a row that the step never had.",
                hint=f"Start both again with the rows from now on: headrace reset FILE --step {table}; or compute "
                "everything again from the topics: headrace reset FILE",
            )
        source = next((name for name in _versions(plan, node) if _has_read(last, name)), None)
        if step not in known_steps and source is not None:
            raise PlanChanged(
                f'the new step "{step}" would begin without the versions that were read from "{source}"',
                detail=f"They were read up to epoch {last.epoch}; rows would find no version.",
                hint="Compute everything again from the topics: headrace reset FILE; or read them in another app.",
            )


def _versions(plan: Plan, node: Stateful) -> Iterator[str]:
    """Yield the sources whose records are versions to a step."""
    if node.versions is not None:
        yield from (plan.name(up) for up in node.versions.walk() if not up.ups)


def _has_read(last: Commit, source: str) -> bool:
    return source in last.sources and any(last.sources[source].offsets.values())


def withdrawing(plan: Plan, node: Node) -> Iterator[str]:
    """Yield the names of the steps that keep the rows which may be withdrawn from a step."""
    for up in node.ups:
        if not up.append_only:
            if up.stateful:
                yield plan.name(up)
            else:
                yield from withdrawing(plan, up)


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    parts = [f"{name}: was {old[name]}, is {new.get(name)}." for name in old if old[name] != new.get(name)]
    return " ".join(parts)
