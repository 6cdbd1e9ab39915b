"""Changed programs: what a case's program was before, and which outputs are complete after the change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.engine.program.fill import history, new_steps
from headrace.testing.simulation.accidents import NAMED
from headrace.testing.simulation.drawing import needed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.engine.storage import Commit
    from headrace.plan.plan import Plan
    from headrace.plan.sinks import Sink
    from headrace.testing.simulation.case import Case, Step


def before(case: Case, kind: str, what: Any) -> Case:
    """Return the program as it was before a change; the case itself where the change is of what is not in it."""
    if kind == "fewer":
        outputs = tuple(output for output in case.outputs if output.name not in what)
        return needed(replace(case, outputs=outputs)) if outputs else case
    if kind == "condition":
        name, code, sql = what
        return _with(case, name, lambda step: replace(step, code=code, sql=sql))
    return _named(case, what, 'named("was_{me}")')


def after(case: Case, kind: str, what: Any) -> Case:
    """Return the program as it is after a change."""
    if kind == "renamed from":
        return _named(case, what, 'named("{me}", renamed_from="was_{me}")')
    return case


def _named(case: Case, name: str, named: str) -> Case:
    return _with(case, name, lambda step: replace(step, code=step.code.replace(NAMED, named)))


def _with(case: Case, name: str, change: Callable[[Step], Step]) -> Case:
    return replace(case, steps=tuple(change(step) if step.name == name else step for step in case.steps))


def below(case: Case, step: str) -> set[str]:
    """Return the names of the outputs of a step, and of all steps that it feeds."""
    fed = {step}
    for each in case.steps:
        if fed.intersection(each.inputs):
            fed.add(each.name)
    return {output.name for output in case.outputs if output.step in fed}


def incomplete(plan: Plan, last: Commit, now: Commit) -> set[str]:
    """Return the outputs that lack rows of before the change, as the app itself says.

    Args:
        plan: the changed program.
        last: the last commit before it.
        now: the last commit after its start.

    """
    new = new_steps(plan, last)
    known = {*(last.sinks or ())}
    found = {_place(sink) for sink in plan.sinks if last.epoch >= 0 and sink.name not in known
             and not _is_filled(plan, sink, new, last)}  # fmt: skip
    return found | set(partial(plan, plan.sinks, now))


def partial(plan: Plan, sinks: Iterable[Sink], now: Commit) -> Iterator[str]:
    """Yield the outputs of steps that began without the rows before them."""
    lacking = {*now.partial}
    for sink in sinks:
        if any(node.stateful and plan.name(node) in lacking for node in sink.up.walk()):
            yield _place(sink)


def _place(sink: Sink) -> str:
    return sink.name.partition(":")[2]


def _is_filled(plan: Plan, sink: Sink, new: set[str], last: Commit) -> bool:
    unread = {plan.name(node) for node in plan.sources()}
    unread -= {name for name, progress in last.sources.items() if any(progress.offsets.values())}
    return all(keeps == "all" or name in unread for name, keeps in history(plan, sink.up, new).items())
