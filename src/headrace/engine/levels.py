"""All levels of an epoch in one process: what one level sends is what the next receives."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from headrace.kernels.spec import Level, Program
    from headrace.kernels.task import Outcome, Report

    Received = dict[int, list[pa.Table]]
    RunLevel = Callable[[Level, int, Received], Outcome]


def run_levels(
    program: Program, first: Outcome, run: RunLevel, each: Callable[..., Iterable[Outcome]] = map
) -> list[Report]:
    """Run the levels after level 0 for every shard, and return the reports of all, level 0's first.

    `run` is given a level, a shard, and by delta number what came to it. `each` is `map`, or one that runs the shards
    of a level side by side; the order of what they send is that of the shards either way.
    """
    inbox: dict[tuple[int, int], Received] = {}
    outcomes = [first]
    _deliver(inbox, first)
    for level in program.levels[1:]:
        for outcome in list(each(lambda shard: _run(run, level, shard, inbox), range(program.shards))):  # noqa: B023 -- ended before the next
            _deliver(inbox, outcome)
            outcomes.append(outcome)
    return [outcome.report for outcome in outcomes]


def _run(run: RunLevel, level: Level, shard: int, inbox: dict[tuple[int, int], Received]) -> Outcome:
    received = inbox.pop((level.number, shard), {})
    return run(level, shard, {number: received.get(edge, []) for edge, number in level.receives})


def _deliver(inbox: dict[tuple[int, int], Received], outcome: Outcome) -> None:
    for edge, level, shard, rows in outcome.sent:
        inbox.setdefault((level, shard), {}).setdefault(edge, []).append(rows)
