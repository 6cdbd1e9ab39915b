"""All levels of an epoch in one process: the rows that one level sends are the input of the next."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from headrace.kernels.program import Level, Program
    from headrace.kernels.task import Outcome, Report

    Received = dict[int, list[pa.Table]]
    RunLevel = Callable[[Level, int, Received], Outcome]


def run_levels(
    program: Program, first: Sequence[Outcome], run: RunLevel, map_shards: Callable[..., Iterable[Outcome]] = map
) -> list[Report]:
    """Run the levels after level 0 for every shard, and return all reports, level 0's first.

    Levels that call a user's functions run their shards one after the other: these functions may not be thread-safe.

    Args:
        program: the levels.
        first: the outcomes of level 0.
        run: runs a level for a shard on its input, by delta number.
        map_shards: `map`, or a `map` that runs the shards of a level in parallel and keeps their order.

    """
    inbox: dict[tuple[int, int], Received] = {}
    outcomes = list(first)
    for outcome in first:
        _deliver(inbox, outcome)
    for level in program.levels[1:]:
        map_level = map if level.calls_users else map_shards
        for outcome in list(map_level(partial(_run, run, level, inbox), range(program.shards))):
            _deliver(inbox, outcome)
            outcomes.append(outcome)
    return [outcome.report for outcome in outcomes]


def _run(run: RunLevel, level: Level, inbox: dict[tuple[int, int], Received], shard: int) -> Outcome:
    received = inbox.pop((level.number, shard), {})
    return run(level, shard, {number: received.get(edge, []) for edge, number in level.receives})


def _deliver(inbox: dict[tuple[int, int], Received], outcome: Outcome) -> None:
    for edge, level, shard, rows in outcome.sent:
        inbox.setdefault((level, shard), {}).setdefault(edge, []).append(rows)
