"""Makes a failing case small: leaves out what it fails without."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.testing.simulation.drawing import needed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.testing.simulation.case import Action, Case, Step

MOST_PLAYS = 250


def shrink(case: Case, fails: Callable[[Case], bool], *, most: int = MOST_PLAYS) -> Case:
    """Return a case that still fails, of which no single part can be left out; plays at most `most` others."""
    left = most
    progress = True
    while progress and left > 0:
        progress = False
        for smaller in _smaller(case):
            left -= 1
            if fails(smaller):
                case, progress = smaller, True
                break
            if left <= 0:
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Yield smaller cases, the smallest first."""
    for actions in _shorter(case.actions):
        yield replace(case, actions=actions)
    for outputs in _shorter(case.outputs):
        if outputs:
            yield needed(replace(case, outputs=outputs))
    for step in case.steps:
        for other in step.inputs:
            yield _without(case, step, other)
    if case.shards > 1:
        yield replace(case, shards=1)
    for number, action in enumerate(case.actions):
        for simpler in _simpler(action):
            yield replace(case, actions=(*case.actions[:number], simpler, *case.actions[number + 1 :]))


def _shorter(items: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield tuples without a half, a quarter, … one of the items."""
    size = len(items) // 2
    while size >= 1:
        for first in range(0, len(items), size):
            yield items[:first] + items[first + size :]
        size //= 2


def _without(case: Case, step: Step, other: str) -> Case:
    """Return the case with an input of a step in the step's place."""
    steps = [
        replace(each, inputs=tuple(other if name == step.name else name for name in each.inputs))
        for each in case.steps
        if each.name != step.name
    ]
    outputs = [
        replace(output, step=other) if output.step == step.name and output.kind != "late" else output
        for output in case.outputs
    ]
    kept = [output for output in outputs if output.step != step.name]
    return needed(replace(case, steps=tuple(steps), outputs=tuple(kept)))


def _simpler(action: Action) -> Iterator[Action]:
    if action[0] == "send":
        for rows in _shorter(action[2]):
            if rows:
                yield (*action[:2], rows)
    elif action[0] not in ("step", "check", "restart"):
        yield ("step",)
