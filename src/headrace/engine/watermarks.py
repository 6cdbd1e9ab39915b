"""Watermarks of sources and steps (DESIGN.md §6).

A partition's watermark is the greatest event time read from it, less `out_of_order`. A source's watermark is the least
of its partitions'. In epoch n a step works with the watermark that was committed with epoch n - 1. It passes on to the
steps below the watermark that it worked with, less its hold: how far behind it a result may still be (`grace` for
windows).

Rows are always judged late so. But where the log's time index tells beforehand which watermark an epoch's own input
reaches, steps may emit by that one (`Node.emits_ahead`): it is the next epoch's, which has nothing to emit then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from headrace.base.time import END_OF_TIME, MICROS

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from headrace.connect.source import Bounds
    from headrace.engine.input import Input
    from headrace.engine.storage import SourceProgress
    from headrace.plan.nodes import Stateful
    from headrace.plan.plan import Plan


UNPARTITIONED = ""
"""The one partition of a source whose partitions are not known before its first row."""


@dataclass(frozen=True, slots=True)
class SourceWatermark:
    """No more rows before `before` are expected (None: not known yet). An idle source does not hold others back."""

    before: int | None
    idle: bool = False


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """What all tasks of an epoch know: its time, and watermarks that its own input reaches, by step; microseconds."""

    now: int
    reached: Mapping[str, int] = field(default_factory=dict)


def of_source(
    source: Input, progress: SourceProgress, bounds: Bounds | None, before: int | None, now: int
) -> SourceWatermark:
    """Return a source's watermark after `progress`; it never goes back behind `before`, its last one.

    When all partitions are idle, the watermark advances with the clock, so that windows close without new rows.
    """
    if progress.ended or _is_complete(source, progress, bounds):
        return SourceWatermark(END_OF_TIME)
    partitions = (set(progress.times) or {UNPARTITIONED}) if bounds is None else set(bounds.end)
    active: list[int | None] = []
    idle: list[int | None] = []
    for partition in sorted(partitions):
        unread = 0 if bounds is None else bounds.unread(partition, progress.offsets.get(partition, 0))
        time = progress.times.get(partition)
        if time is None and not unread and progress.times:
            continue  # an empty partition does not hold the others back
        watermark = None if time is None else time - source.out_of_order
        (idle if _is_idle(source, progress, partition, unread, now) else active).append(watermark)
    watermarks = [watermark for watermark in active or idle if watermark is not None]
    complete = len(watermarks) == len(active or idle)
    if active:
        return SourceWatermark(_later(before, min(watermarks) if complete else None))
    greatest = max(watermarks) + _idle_time(source, progress, now) if watermarks else None
    return SourceWatermark(_later(before, greatest), idle=bool(idle))


def holds_nothing_back(source: Input, progress: SourceProgress, bounds: Bounds, now: int) -> bool:
    """Whether a partition of a source, by these bounds, lets the others go on: it is idle, or never had a row."""
    if progress.ended or _is_complete(source, progress, bounds):
        return False
    return any(
        not unread and (partition not in progress.times or _is_idle(source, progress, partition, unread, now))
        for partition in bounds.end
        for unread in [bounds.unread(partition, progress.offsets.get(partition, 0))]
    )


def _is_complete(source: Input, progress: SourceProgress, bounds: Bounds | None) -> bool:
    """Whether a source that has an end was read up to it."""
    if source.source is None or not source.source.bounded or bounds is None:
        return False
    return not any(bounds.unread(partition, progress.offsets.get(partition, 0)) for partition in bounds.end)


def _idle_time(source: Input, progress: SourceProgress, now: int) -> int:
    """Return how long a source has been idle, rounded down to steps of `idle_after`: each costs an empty epoch."""
    step = max(source.idle_after or 0, MICROS)
    return max(0, now - max(progress.active.values(), default=now) - (source.idle_after or 0)) // step * step


def _is_idle(source: Input, progress: SourceProgress, partition: str, unread: int, now: int) -> bool:
    if unread or source.idle_after is None:
        return False
    return now - progress.active.get(partition, now) >= source.idle_after


def advance(
    plan: Plan,
    sources: Mapping[str, SourceWatermark],
    used: Mapping[str, int | None],
    waiting: Mapping[str, int],
    until: Mapping[str, int | None] | None = None,
) -> tuple[dict[str, int | None], dict[str, int | None]]:
    """Return the watermark that each step passes on after an epoch, and each stateful step's watermark for the next.

    Args:
        plan: the steps.
        sources: the watermarks of the sources, by step.
        used: the watermarks that the stateful steps worked with in the epoch, by step.
        waiting: by step, the least event time of the rows that wait in it; steps without such rows are not in it.
        until: the latest watermarks that the stateful steps may have for the next, by step; others have no bound.

    """
    outputs: dict[int, SourceWatermark] = {}
    watermarks: dict[str, int | None] = {}
    for node in plan.nodes:
        name = plan.name(node)
        if not node.ups:
            outputs[id(node)] = sources[name]
            continue
        incoming = _least([outputs[id(up)] for up in node.watermark_inputs])
        if node.stateful:
            watermarks[name] = _earlier(_later(used.get(name), incoming.before), name, until or {})
            output = _output_watermark(used.get(name), waiting.get(name), cast("Stateful", node))
            outputs[id(node)] = SourceWatermark(output, incoming.idle)
        else:
            outputs[id(node)] = incoming
    return {plan.name(node): outputs[id(node)].before for node in plan.nodes}, watermarks


def ahead(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return the steps that emit by the watermark that an epoch's input reaches, with their sources.

    What is below a stateful step is not among them: what that one passes on is known when it has run.
    """
    above: dict[int, frozenset[str] | None] = {}
    found = {}
    for node in plan.nodes:
        ups = [above[id(up)] for up in node.watermark_inputs]
        known = [up for up in ups if up is not None]
        sources = frozenset[str]().union(*known) if len(known) == len(ups) else None
        if not node.ups:
            sources = frozenset([plan.name(node)])
        elif node.stateful:
            if node.emits_ahead and sources:
                found[plan.name(node)] = tuple(sorted(sources))
            sources = None
        above[id(node)] = sources
    return found


def reached(
    steps: Mapping[str, Sequence[str]],
    sources: Mapping[str, int | None],
    used: Mapping[str, int | None],
    until: Mapping[str, int | None] | None = None,
) -> dict[str, int]:
    """Return the watermarks that steps are known to have after an epoch, where those are later than in it.

    Args:
        steps: their sources, as `ahead` returns them.
        sources: by source, at most the watermark that it will have.
        used: the watermarks that the stateful steps work with in the epoch, by step.
        until: the latest watermarks that they may have, by step; other steps have no bound.

    """
    found = {}
    for step, names in steps.items():
        before, known = used.get(step), [time for name in names if (time := sources.get(name)) is not None]
        least = _earlier(min(known) if len(known) == len(names) else None, step, until or {})
        if least is not None and (before is None or least > before):
            found[step] = least
    return found


def no_later(watermarks: Mapping[str, int | None], until: Mapping[str, int | None]) -> dict[str, int | None]:
    """Return the steps' watermarks, or those of `until` where these are earlier; it need not name all steps."""
    return {step: _earlier(time, step, until) for step, time in watermarks.items()}


def empty_epoch_due(
    plan: Plan,
    used: Mapping[str, int | None],
    watermarks: Mapping[str, int | None],
    keeps: Container[str],
    emitted: Mapping[str, int],
) -> bool:
    """Whether an epoch without input would change the output.

    It would in three cases: the watermark of a step that keeps rows moved, and may release some, as the step emits on
    its watermark; such a step, or one that detects late rows, waits for the watermark of a step above it; the end of
    time is reached. What a step would only forget, it forgets in the next epoch that has rows.

    Args:
        plan: the steps.
        used: the watermarks that the stateful steps worked with in the last epoch.
        watermarks: those that they would work with in the next.
        keeps: the steps that keep rows which a later watermark may release.
        emitted: the watermarks by which steps have emitted what they keep, ahead of those that they work with.

    """
    moved = {step for step, watermark in watermarks.items() if watermark != used.get(step)}
    if any(watermarks[step] == END_OF_TIME for step in moved):
        return True
    for node in plan.stateful():
        name = plan.name(node)
        ahead_of = emitted.get(name) == watermarks.get(name)
        if node.emits_on_watermark and name in moved and name in keeps and not ahead_of:
            return True
        above = (plan.name(up) for up in node.walk() if up is not node and up.stateful)
        waits = node.detects_late or (node.emits_on_watermark and name in keeps)
        if waits and not moved.isdisjoint(above):
            return True
    return False


def _output_watermark(used: int | None, waiting: int | None, node: Stateful) -> int | None:
    if used is None or used >= END_OF_TIME:
        return used
    output = used - node.hold
    return output if waiting is None else min(output, waiting)


def _earlier(time: int | None, step: str, until: Mapping[str, int | None]) -> int | None:
    if step not in until:
        return time
    bound = until[step]
    return None if time is None or bound is None else min(time, bound)


def _later(first: int | None, second: int | None) -> int | None:
    return max((watermark for watermark in (first, second) if watermark is not None), default=None)


def _least(inputs: list[SourceWatermark]) -> SourceWatermark:
    active = [watermark for watermark in inputs if not watermark.idle]
    if not active:  # an input that never had a row does not hold the others back
        known = [watermark.before for watermark in inputs if watermark.before is not None]
        return SourceWatermark(min(known, default=None), bool(inputs))
    if any(watermark.before is None for watermark in active):
        return SourceWatermark(None)
    return SourceWatermark(min(watermark.before for watermark in active if watermark.before is not None))
