"""Filling what is new: a step, view or output that an app has more than before begins with the history of its input.

The steps above that an app had before have their current output in their state, or a part of it. A *fill epoch* runs
before all others after a change. It computes what is new from that: its plan is a part of the app's, where the steps
of old are snapshots of their state (`kernels/snapshot.py`), and what is new is as always. It reads no record, so it
leaves offsets and the watermarks of the steps of old as they are. It is committed and published like any other epoch:
a view that it fills is complete, and seen, at once.

What is new is what the last commit does not know. So a fill that a crash cut short is done by the next start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.engine.outcomes import counts_of, heads_after, least_waiting_times, steps_that_end, waits_for_clock
from headrace.engine.pace import add_counts
from headrace.engine.watermarks import SourceWatermark, advance, empty_epoch_due
from headrace.plan.nodes import Late, Stateful

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from headrace.engine.storage import Commit
    from headrace.kernels.task import Report
    from headrace.plan.nodes import Keeps, Node
    from headrace.plan.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Fill:
    """What is filled, and by which part of the plan.

    `steps` and `sinks` are the names of what is new or built anew; `plan` has those that rows come to, and the steps of
    old above them, named in `snapshots`. `replaced` are sinks whose views have rows that the fill replaces.
    """

    steps: frozenset[str]
    sinks: frozenset[str]
    plan: Plan
    snapshots: frozenset[str]
    replaced: frozenset[str]

    def before(self, last: Commit) -> Commit:
        """Return a commit as the fill builds on it: what is filled begins without state and without watermark."""
        heads = {step: by_shard for step, by_shard in last.heads.items() if step not in self.steps}
        watermarks = {step: None if step in self.steps else time for step, time in last.watermarks.items()}
        previous = {step: None if step in self.steps else time for step, time in last.previous.items()}
        totals = {name: counts for name, counts in last.totals.items() if name not in self.steps | self.sinks}
        return replace(last, heads=heads, watermarks=watermarks, previous=previous, totals=totals)


def fill_of(plan: Plan, last: Commit, views: Collection[str], rebuilt: Collection[str] = ()) -> Fill | None:
    """Return what has to be filled before the next epoch, or None where nothing has.

    Args:
        plan: the app's plan as it is now.
        last: the last commit; what it does not know is new.
        views: the names of the views that exist.
        rebuilt: names of steps and sinks that exist, and are built anew although the last commit knows them.

    """
    steps, sinks = new_steps(plan, last) | {*rebuilt}, new_sinks(plan, last, views) | {*rebuilt}
    stateful = {plan.name(node) for node in plan.stateful()}
    steps, sinks = steps & stateful, {sink.name for sink in plan.sinks if sink.name in sinks}
    part, snapshots = _fed(plan, steps, sinks, last)
    if not part.sinks and not any(plan.name(node) in steps for node in part.nodes):
        return None
    replaced = {sink.name for sink in part.sinks if sink.view is not None}
    return Fill(
        steps=frozenset(steps),
        sinks=frozenset(sinks),
        plan=part,
        snapshots=frozenset(snapshots),
        replaced=frozenset(replaced),
    )


def new_steps(plan: Plan, last: Commit) -> set[str]:
    """Return the names of the stateful steps that were not in the app when the last epoch ran."""
    return {plan.name(node) for node in plan.stateful()} - set(last.watermarks)


def new_sinks(plan: Plan, last: Commit, views: Collection[str]) -> set[str]:
    """Return the names of the sinks that got nothing of the last epoch: they were not in the app.

    Commits of older versions do not say so; there, a view that does not exist is new.
    """
    if last.sinks is None:
        return {sink.name for sink in plan.sinks if sink.view is not None and sink.view not in views}
    return {sink.name for sink in plan.sinks} - set(last.sinks)


def partial_steps(plan: Plan, last: Commit) -> set[str]:
    """Return the steps that do not have, or will not have, the rows that were read before they began.

    These are the ones that a commit names, those that a reset emptied, and new ones below a source that has been read:
    unless a fill or a replay gives them their history.
    """
    new = new_steps(plan, last) if last.epoch >= 0 else set()
    read = {name for name, progress in last.sources.items() if any(progress.offsets.values())}
    begun = {
        plan.name(node)
        for node in plan.stateful()
        if plan.name(node) in new and read.intersection(plan.name(up) for up in node.walk() if not up.ups)
    }
    return {*last.partial, *last.refill, *begun} & {plan.name(node) for node in plan.stateful()}


def history(plan: Plan, below: Node, new: Collection[str]) -> dict[str, Keeps]:
    """Return by step how much the nearest steps of old, or sources, above a place in the plan have of their output.

    Args:
        plan: the plan.
        below: the step whose output something new reads; it may be new itself.
        new: the names of the stateful steps that are new.

    Returns:
        "all": what is new is complete from its first epoch. "open windows": it begins with these, and misses those
        that have closed. "nothing": it begins with the rows from now on.

    """
    return {plan.name(node): _gives(node, plan, new) for node in _nearest(plan, below, new)}


def nearest_gives(plan: Plan, node: Node, new: Collection[str]) -> Iterator[Keeps]:
    """Yield how much of their output the nearest steps of old, or sources, above a step have."""
    for up in node.ups:
        yield from history(plan, up, new).values()


def fed_by(plan: Plan, node: Node, steps: Collection[str]) -> bool:
    """Whether a step is one of some steps with state, or below one."""
    return any(up.stateful and plan.name(up) in steps for up in node.walk())


def _is_old(plan: Plan, node: Node, new: Collection[str]) -> bool:
    """Whether a step kept state before, or passes on late rows of one that did; of late rows nothing is kept."""
    step = node.of if isinstance(node, Late) else node
    return step.stateful and plan.name(step) not in new


def _gives(node: Node, plan: Plan, new: Collection[str]) -> Keeps:
    return node.keeps_output if isinstance(node, Stateful) and plan.name(node) not in new else "nothing"


def _nearest(plan: Plan, node: Node, new: Collection[str]) -> Iterator[Node]:
    """Yield the steps of old, and the sources, that are nearest above a place."""
    if not node.ups or _is_old(plan, node, new):
        yield node
        return
    for up in node.ups:
        yield from _nearest(plan, up, new)


def _fed(plan: Plan, steps: Collection[str], sinks: Collection[str], last: Commit) -> tuple[Plan, set[str]]:
    """Return the part of a plan that rows come to when what is new is filled, and its snapshots."""
    ends = [sink.up for sink in plan.sinks if sink.name in sinks]
    ends += [node for node in plan.stateful() if plan.name(node) in steps]
    wanted: set[int] = set()
    snapshots: set[str] = set()
    for end in ends:
        _reach(plan, end, steps, wanted)
    fed: set[int] = set()
    for node in plan.nodes:
        if id(node) not in wanted:
            continue
        if not _is_old(plan, node, steps):
            fed |= {id(node)} if any(id(up) in fed for up in node.ups) else set()
        elif _gives(node, plan, steps) != "nothing" and last.heads.get(plan.name(node)):
            snapshots.add(plan.name(node))
            fed.add(id(node))
    nodes = tuple(node for node in plan.nodes if id(node) in fed)
    return replace(
        plan, nodes=nodes, sinks=tuple(s for s in plan.sinks if s.name in sinks and id(s.up) in fed)
    ), snapshots


def _reach(plan: Plan, node: Node, new: Collection[str], wanted: set[int]) -> None:
    """Collect the steps from here up to the nearest ones of old."""
    if id(node) in wanted:
        return
    wanted.add(id(node))
    if not _is_old(plan, node, new):
        for up in node.ups:
            _reach(plan, up, new, wanted)


def _still_partial(plan: Plan, steps: Collection[str], before: Commit) -> set[str]:
    """Return the steps that lack rows after a fill: those that no step above had all of, or whose steps above lack."""
    partial = set(before.partial) - set(steps)
    for node in plan.stateful():
        if plan.name(node) in steps and (
            {*nearest_gives(plan, node, steps)} != {"all"}
            or any(plan.name(up) in partial for up in node.walk() if up is not node and up.stateful)
        ):
            partial.add(plan.name(node))
    return partial


def filled(plan: Plan, fill: Fill, before: Commit, reports: Sequence[Report]) -> Commit:
    """Return the commit of a fill epoch, but for its time: it has read nothing, and what was there goes on as it was.

    Steps that are filled begin with the watermarks of the steps above, as if these had begun with them: no row that
    fills them is late, and windows that are over close in the next epoch.

    Args:
        plan: the app's whole plan.
        fill: what was filled.
        before: the commit that the fill built on (`Fill.before`).
        reports: what its tasks did.

    """
    heads = heads_after(before.heads, reports)
    names = [plan.name(node) for node in plan.stateful()]
    used = {name: before.previous.get(name) for name in names}
    sources = {
        plan.name(node): SourceWatermark(before.outputs.get(plan.name(node)), before.idle.get(plan.name(node), False))
        for node in plan.sources()
    }
    keeps, waiting = steps_that_end(heads), least_waiting_times(heads)
    outputs, watermarks = advance(plan, sources, used, waiting)
    watermarks |= {name: before.watermarks[name] for name in names if name not in fill.steps}
    counts = counts_of(reports, heads)
    return replace(
        before,
        epoch=before.epoch + 1,
        ranges=[],
        watermarks=watermarks,
        previous=used,
        outputs=outputs | before.outputs,
        waiting=waits_for_clock(plan, keeps, waiting),
        due=before.due or empty_epoch_due(plan, used, watermarks, keeps, {}),
        heads=heads,
        staged=[staged for report in reports for staged in report.staged],
        counts=counts,
        totals=add_counts(before.totals, counts),
        rows=0,
        sinks=[sink.name for sink in plan.sinks],
        refill=[],
        replay=False,
        partial=sorted(_still_partial(plan, fill.steps, before)),
        filled=sorted(fill.steps | fill.sinks),
        replaced=sorted(fill.replaced),
    )
