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
    Take = Callable[[int], Received]
    RunShards = Callable[[Level, Take], Iterable[Outcome]]


def run_levels(program: Program, first: Sequence[Outcome], run: RunShards) -> list[Report]:
    """Run the levels after level 0 for every shard, and return all reports, level 0's first.

    Args:
        program: the levels.
        first: the outcomes of level 0.
        run: runs a level for all shards, and returns their outcomes in order. It takes a shard's input, by delta
            number, once.

    """
    inbox: dict[tuple[int, int], Received] = {}
    outcomes = list(first)
    for outcome in first:
        _deliver(inbox, outcome)
    for level in program.levels[1:]:
        for outcome in list(run(level, partial(_take, inbox, level))):
            _deliver(inbox, outcome)
            outcomes.append(outcome)
    return [outcome.report for outcome in outcomes]


def each_shard(shards: int, run: RunLevel, map_shards: Callable[..., Iterable[Outcome]] = map) -> RunShards:
    """Return what runs a level for each of so many shards.

    Levels that call a user's functions run their shards one after the other: these functions may not be thread-safe.

    Args:
        shards: how many there are.
        run: runs a level for a shard on its input, by delta number.
        map_shards: `map`, or a `map` that runs the shards of a level in parallel and keeps their order.

    """

    def run_shards(level: Level, take: Take) -> Iterable[Outcome]:
        map_level = map if level.calls_users else map_shards
        return map_level(lambda shard: run(level, shard, take(shard)), range(shards))

    return run_shards


def _take(inbox: dict[tuple[int, int], Received], level: Level, shard: int) -> Received:
    received = inbox.pop((level.number, shard), {})
    return {number: received.get(edge, []) for edge, number in level.receives}


def _deliver(inbox: dict[tuple[int, int], Received], outcome: Outcome) -> None:
    for edge, level, shard, rows in outcome.sent:
        inbox.setdefault((level, shard), {}).setdefault(edge, []).append(rows)
