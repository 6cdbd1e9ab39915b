"""Chains of stateless steps: what a step with state, or a sink, is fed with.

A stateless step over a table is a part of the state below it: a row that it let pass is withdrawn through it. So what
feeds a consumer is a part of what its kept rows mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.plan.nodes import Ending, Late, Meaning, Source, Stateful, Stateless, Union, Where

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.plan.nodes import Node

STEP, SOURCE, LATE = "step", "source", "late rows of"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """What leads to a consumer from the nearest steps that keep rows, or read them.

    `start`: those, as (kind, name). `meaning` is equal for equal chains. `shown`: its steps, for people, first to
    last. `stays`: whether none of its rows is ever withdrawn or replaced. `missed`: the conditions that were written
    below the consumer, or further below: rows that do not meet them are not in its state, though it means them.
    """

    start: tuple[tuple[str, str], ...]
    meaning: str
    shown: tuple[str, ...]
    stays: bool
    missed: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as `plan.json` keeps it."""
        start = [list(each) for each in self.start]
        missed = {"missed": list(self.missed)} if self.missed else {}
        return {"from": start, "meaning": self.meaning, "shown": list(self.shown), "stays": self.stays, **missed}

    @staticmethod
    def from_json(stored: dict[str, Any]) -> Chain:
        """Return what `to_json` wrote."""
        start = tuple((str(kind), str(name)) for kind, name in stored["from"])
        shown, missed = tuple(stored["shown"]), tuple(stored.get("missed", ()))
        return Chain(start=start, meaning=stored["meaning"], shown=shown, stays=stored["stays"], missed=missed)

    @property
    def steps(self) -> frozenset[str]:
        """The steps with state that it begins at."""
        return frozenset(name for kind, name in self.start if kind != SOURCE)

    @property
    def sources(self) -> frozenset[str]:
        """The sources that it begins at."""
        return frozenset(name for kind, name in self.start if kind == SOURCE)

    def __str__(self) -> str:
        start = " and ".join(f"{kind} {name}" for kind, name in self.start)
        return ", ".join([start, *self.shown])


def chain(up: Node, name: Callable[[Node], str], columns: Iterable[str] | None = None) -> Chain:
    """Return what leads to a reader of these columns (None: of all) of the step `up`; `name` names steps."""
    above = list(_above(up))
    starts = [node for node in above if not isinstance(node, Stateless | Union)]
    steps = [node for node in above if isinstance(node, Stateless | Union)]
    meanings = {id(node): Meaning.of(" ".join(_start(node, name)), node.schema.names) for node in starts}
    for node in steps:
        meanings[id(node)] = node.meaning([meanings[id(up)] for up in node.ups])
    records = any(isinstance(node, Source) and node.upserts for node in starts)
    return Chain(
        start=tuple(sorted({_start(node, name) for node in starts})),
        meaning=meanings[id(up)].text(columns),
        shown=tuple(_shown(node) for node in steps),
        stays=up.append_only and not records and not any(isinstance(node, Ending) for node in steps),
        missed=tuple(sorted(node.condition.text for node in steps if isinstance(node, Where) and node.missed)),
    )


def chains(node: Stateful, name: Callable[[Node], str]) -> list[Chain]:
    """Return what leads to a step with state: a chain for each step above it."""
    return [chain(up, name, columns) for up, columns in zip(node.ups, node.reads, strict=True)]


def _above(node: Node) -> Iterator[Node]:
    """Yield the stateless steps that lead to a step and what they begin at, each once and before its readers."""
    seen: set[int] = set()

    def visit(node: Node) -> Iterator[Node]:
        if id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, Stateless | Union):
                for up in node.ups:
                    yield from visit(up)
            yield node

    return visit(node)


def _start(node: Node, name: Callable[[Node], str]) -> tuple[str, str]:
    if isinstance(node, Late):
        return LATE, name(node.of)
    return STEP if node.stateful else SOURCE, name(node)


def _shown(node: Node) -> str:
    return f"{node.shown_verb} {node.describe().detail}".strip()
