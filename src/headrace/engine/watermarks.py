"""Event time: what each step may expect no more of (DESIGN.md §6).

A source's watermark is the least over its partitions of the greatest event time read, less `out_of_order`. A step
works in epoch n with the watermark committed with epoch n - 1; what it promises to those below is the watermark it
worked with, less how far back its results may still carry their event time (`grace` for windows).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.base.time import END_OF_TIME, MICROS
from headrace.plan.nodes import Late, LookupJoin, Node, Stateful

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from headrace.connect.source import Bounds
    from headrace.engine.outside import Input
    from headrace.engine.storage import SourceProgress
    from headrace.plan.plan import Plan


WHOLE = ""
"""A source that says nothing of its partitions is timed as a whole until its first row."""


@dataclass(frozen=True, slots=True)
class SourceWatermark:
    """No more rows before `before` (None: no promise yet). An idle source holds nobody back."""

    before: int | None
    idle: bool = False


def of_source(
    source: Input, progress: SourceProgress, bounds: Bounds | None, before: int | None, now: int
) -> SourceWatermark:
    """Return a source's watermark after what has been read of it; it never goes back from `before`.

    Once all of it is idle, its watermark goes on with the clock, so that windows close when nothing comes.
    """
    if progress.ended:
        return SourceWatermark(END_OF_TIME)
    partitions = (set(progress.times) or {WHOLE}) if bounds is None else set(bounds.end)
    active: list[int | None] = []
    idle: list[int | None] = []
    for partition in sorted(partitions):
        unread = 0 if bounds is None else bounds.unread(partition, progress.offsets.get(partition, 0))
        time = progress.times.get(partition)
        if time is None and not unread and progress.times:
            continue  # an empty partition does not hold the others back
        watermark = None if time is None else time - source.out_of_order
        (idle if _is_idle(source, progress, partition, unread, now) else active).append(watermark)
    known = [watermark for watermark in active or idle if watermark is not None]
    complete = len(known) == len(active or idle)
    if active:
        return SourceWatermark(_later(before, min(known) if complete else None))
    greatest = max(known) + _silent(source, progress, now) if known else None
    return SourceWatermark(_later(before, greatest), idle=bool(idle))


def _silent(source: Input, progress: SourceProgress, now: int) -> int:
    """Return for how long an idle source has been idle, in steps of `idle_after`: each is an epoch without rows."""
    step = max(source.idle_after or 0, MICROS)
    return max(0, now - max(progress.active.values(), default=now) - (source.idle_after or 0)) // step * step


def _is_idle(source: Input, progress: SourceProgress, partition: str, unread: int, now: int) -> bool:
    if unread or source.idle_after is None:
        return False
    return now - progress.active.get(partition, now) >= source.idle_after


def advance(
    plan: Plan, sources: Mapping[str, SourceWatermark], used: Mapping[str, int | None], waiting: Mapping[str, int]
) -> tuple[dict[str, int | None], dict[str, int | None]]:
    """Return what each step promises after an epoch, and what each stateful step works with in the next.

    `used` is what the stateful steps worked with in the epoch, `waiting` the least event time of the rows that wait in
    a step, where some do.
    """
    promises: dict[int, SourceWatermark] = {}
    watermarks: dict[str, int | None] = {}
    for node in plan.nodes:
        name = plan.name(node)
        if not node.ups:
            promises[id(node)] = sources[name]
            continue
        incoming = _least([promises[id(up)] for up in _feeds(node)])
        if isinstance(node, Stateful):
            watermarks[name] = _later(used.get(name), incoming.before)
            promises[id(node)] = SourceWatermark(_held(used.get(name), waiting.get(name), node), incoming.idle)
        else:
            promises[id(node)] = incoming
    return {plan.name(node): promises[id(node)].before for node in plan.nodes}, watermarks


def due(
    plan: Plan, used: Mapping[str, int | None], watermarks: Mapping[str, int | None], keeps: Container[str]
) -> bool:
    """Whether an epoch without input would change what comes out; `keeps` are the steps that keep rows.

    It would where a step that keeps rows may give some out for its new watermark alone, where the watermark of a step
    that judges rows waits for a step above it to move, and at the end of time. What a step would only forget, it
    forgets in the next epoch that has rows.
    """
    moved = {step for step, watermark in watermarks.items() if watermark != used.get(step)}
    if any(watermarks[step] == END_OF_TIME for step in moved):
        return True
    for node in plan.stateful():
        name = plan.name(node)
        if node.emits_on_watermark and name in moved and name in keeps:
            return True
        above = (plan.name(up) for up in node.walk() if up is not node and up.stateful)
        if node.detects_late and not moved.isdisjoint(above):
            return True
    return False


def _feeds(node: Node) -> tuple[Node, ...]:
    """Return the steps whose promises a step rests on; the rows of a lookup are those of its stream alone."""
    if isinstance(node, LookupJoin):
        return (node.left,)
    return node.of.ups if isinstance(node, Late) else node.ups


def _held(used: int | None, waiting: int | None, node: Stateful) -> int | None:
    if used is None or used >= END_OF_TIME:
        return used
    held = used - node.hold
    return held if waiting is None else min(held, waiting)


def _later(one: int | None, other: int | None) -> int | None:
    known = [each for each in (one, other) if each is not None]
    return max(known, default=None)


def _least(promises: list[SourceWatermark]) -> SourceWatermark:
    awake = [promise for promise in promises if not promise.idle]
    if not awake:  # one that never had a row holds nobody back
        known = [promise.before for promise in promises if promise.before is not None]
        return SourceWatermark(min(known, default=None), bool(promises))
    if any(promise.before is None for promise in awake):
        return SourceWatermark(None)
    return SourceWatermark(min(promise.before for promise in awake if promise.before is not None))
