"""What the reports of an epoch's tasks add up to: the heads of the state, the counts, and the times that rows wait."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.base.dead_letters import CAUSES
from headrace.base.errors import InternalError
from headrace.plan.nodes import Suppress

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from headrace.connect.source import OffsetRange
    from headrace.kernels.state.state import StateHead
    from headrace.kernels.task import Report
    from headrace.plan.plan import Plan

    Heads = Mapping[str, Mapping[str, StateHead]]
    Counted = Mapping[str, int]


def least_waiting_times(heads: Heads) -> dict[str, int]:
    """Return by step the least event time of the rows that wait in it; steps without such rows are not in it."""
    times = {
        step: [head.oldest for head in by_shard.values() if head.oldest is not None] for step, by_shard in heads.items()
    }
    return {step: min(oldest) for step, oldest in times.items() if oldest}


def waits_for_clock(plan: Plan, keeps: Container[str], waiting: Container[str]) -> bool:
    """Whether a step has something that a later watermark ends, which the clock moves where sources are idle.

    A step that detects late rows has, as long as it keeps any that are not for rows to come alone; `suppress` with
    periods, while changes wait in it.

    Args:
        plan: the steps.
        keeps: the names of those with such rows in their state.
        waiting: the names of those in which rows wait.

    """
    return any(
        (node.detects_late and plan.name(node) in keeps)
        or (isinstance(node, Suppress) and node.every is not None and plan.name(node) in waiting)
        for node in plan.stateful()
    )


def counts_of(
    reports: Sequence[Report], heads: Heads, *, read: Sequence[OffsetRange] = (), lost: Counted = MappingProxyType({})
) -> dict[str, dict[str, int]]:
    """Return the counts of all tasks by step, with how many rows each step keeps.

    Args:
        reports: of the tasks.
        heads: of the state.
        read: what the sources gave.
        lost: how many records each source had lost before.

    """
    totals: dict[str, dict[str, int]] = {}
    for report in reports:
        for step, counts in report.counts.items():
            total = totals.setdefault(step, {})
            for name, value in vars(counts).items():
                total[name] = total.get(name, 0) + value
        for step, found in report.causes.items():
            total = totals.setdefault(f"{CAUSES}{step}", {})
            for cause, value in found.items():
                total[cause] = total.get(cause, 0) + value
    for step, by_shard in heads.items():
        totals.setdefault(step, {})["state_rows"] = sum(head.rows for head in by_shard.values())
    found_rows = [(each.source, "rows_out", each.rows) for each in read]
    for source, name, rows in [*found_rows, *((source, "lost", rows) for source, rows in lost.items())]:
        total = totals.setdefault(source, {})
        total[name] = total.get(name, 0) + rows
    return totals


def heads_after(before: Heads, reports: Sequence[Report]) -> dict[str, dict[str, StateHead]]:
    """Return the newest heads: those of the reports, and those before of shards that changed nothing.

    Raises:
        InternalError: a task without a shard kept state.

    """
    newest = {step: dict(heads) for step, heads in before.items()}
    for report in reports:
        if len(report.heads) and report.shard is None:
            raise InternalError("a task without a shard kept state")
        for step, head in report.heads.items():
            newest.setdefault(step, {})[str(report.shard)] = head
    return newest


def steps_that_end(heads: Heads) -> set[str]:
    """Return the steps that keep rows which a later watermark may release, not for rows to come alone."""
    return {step for step, by_shard in heads.items() if any(head.ends for head in by_shard.values())}
