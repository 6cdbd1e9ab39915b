"""All levels of an epoch in one process: what one level sends is what the next receives."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from headrace.kernels.program import Level, Program
    from headrace.kernels.task import Outcome, Report

    Received = dict[int, list[pa.Table]]
    RunLevel = Callable[[Level, int, Received], Outcome]


def run_levels(
    program: Program, first: Outcome, run: RunLevel, each: Callable[..., Iterable[Outcome]] = map
) -> list[Report]:
    """Run the levels after level 0 for every shard, and return the reports of all, level 0's first.

    `run` is given a level, a shard, and by delta number what came to it. `each` is `map`, or one that runs the shards
    of a level side by side; the order of what they send is that of the shards either way. Where functions of a user's
    run, the shards run one after the other: nobody said that these may be called from two threads.
    """
    inbox: dict[tuple[int, int], Received] = {}
    outcomes = [first]
    _deliver(inbox, first)
    for level in program.levels[1:]:
        in_turn = map if level.calls_users else each
        for outcome in list(in_turn(partial(_run, run, level, inbox), range(program.shards))):
            _deliver(inbox, outcome)
            outcomes.append(outcome)
    return [outcome.report for outcome in outcomes]


def _run(run: RunLevel, level: Level, inbox: dict[tuple[int, int], Received], shard: int) -> Outcome:
    received = inbox.pop((level.number, shard), {})
    return run(level, shard, {number: received.get(edge, []) for edge, number in level.receives})


def _deliver(inbox: dict[tuple[int, int], Received], outcome: Outcome) -> None:
    for edge, level, shard, rows in outcome.sent:
        inbox.setdefault((level, shard), {}).setdefault(edge, []).append(rows)
