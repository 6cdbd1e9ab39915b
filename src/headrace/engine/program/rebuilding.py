"""Which steps and views can be computed anew after a change, from what the steps above keep."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.engine.program.fill import history

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from headrace.engine.program.changes import Change
    from headrace.plan.nodes import Node
    from headrace.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """What is computed anew where a step or a sink is: it, and all that it feeds, directly or not.

    `above`: the steps whose state it is computed from. `why_not`: why that is not possible, or nothing.
    """

    steps: frozenset[str] = frozenset()
    sinks: frozenset[str] = frozenset()
    above: tuple[str, ...] = ()
    why_not: str = ""


def with_rebuilds(plan: Plan, entries: Iterable[Change], new: Collection[str]) -> tuple[tuple[Change, ...], Rebuild]:
    """Return changes of which those that would be refused are rebuilds, where that is possible; and what that takes.

    Args:
        plan: the program.
        entries: its changes.
        new: the steps that are new in the program.

    """
    steps = {plan.name(node): node for node in plan.stateful()}
    views = {sink.view: sink for sink in plan.sinks if sink.view is not None}
    decided, whole = [], Rebuild()
    for entry in entries:
        part = None
        if entry.outcome == "refused" and entry.kind == "changed":
            if entry.part == "step":
                part = rebuild(plan, steps[entry.name], entry.name, new)
            elif entry.part == "view":
                part = rebuild(plan, views[entry.name].up, views[entry.name].name, new)
        if part is None:
            decided.append(entry)
        elif part.why_not:
            decided.append(replace(entry, detail=f"{entry.detail} It cannot be computed anew: {part.why_not}."))
        else:
            whole = Rebuild(steps=whole.steps | part.steps, sinks=whole.sinks | part.sinks)
            decided.append(_rebuilt(entry, part))
    return tuple(decided), whole


def _rebuilt(entry: Change, part: Rebuild) -> Change:
    above = " and ".join(f'"{name}"' for name in part.above)
    also = sorted({*part.steps, *(sink.partition(":")[2] for sink in part.sinks)} - {entry.name})
    with_it = f", and with it {', '.join(also)}" if also else ""
    return replace(
        entry,
        outcome="rebuilt",
        what=f'the {entry.part} "{entry.name}" is computed anew from what {above} keeps{with_it}',
        hint="",
    )


def rebuild(plan: Plan, root: Node, name: str, new: Collection[str]) -> Rebuild:
    """Return what is to be computed anew with a step, or with a sink below a step, and whether it can be.

    It can where all steps above that stay as they are keep all of their output, and only views take the results: a
    topic, or a sink outside, would get them a second time.

    Args:
        plan: the program.
        root: the step, or the step whose rows the sink takes.
        name: the name of the step or of the sink.
        new: the steps that are new in the program; they are filled as well.

    """
    stateful = {plan.name(node): node for node in plan.stateful()}
    step = stateful.get(name) if stateful.get(name) is root else None
    steps = {other for other, node in stateful.items() if step is not None and _reaches(node, step)}
    sinks = {sink.name: sink for sink in plan.sinks if not sink.is_probe}
    fed = [sink for sink in sinks.values() if sink.name == name or (step is not None and _reaches(sink.up, step))]
    ups = [up for other in steps for up in stateful[other].ups] + [sink.up for sink in fed]
    gives = {above: kept for up in ups for above, kept in history(plan, up, {*new, *steps}).items()}
    return Rebuild(
        steps=frozenset(steps),
        sinks=frozenset(sink.name for sink in fed),
        above=tuple(sorted(gives)),
        why_not=_why_not([sink.name for sink in fed if sink.view is None], gives),
    )


def _reaches(node: Node, step: Node) -> bool:
    return any(up is step for up in node.walk())


def _why_not(others: list[str], gives: Mapping[str, str]) -> str:
    if others:
        kind, _, place = others[0].partition(":")
        return f'the {"sink" if kind == "call" else kind} "{place}" would get its rows again'
    lacking = next((above for above, kept in sorted(gives.items()) if kept != "all"), None)
    return "" if lacking is None else f'"{lacking}" does not keep all of its rows'
