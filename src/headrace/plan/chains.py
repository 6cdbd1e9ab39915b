"""Chains of stateless steps: what a step with state, or a sink, is fed with.

A stateless step over a table is a part of the state below it: a row that it let pass is withdrawn through it. So what
feeds a consumer is a part of what its kept rows mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.plan.nodes import Changes, Ending, Late, Meaning, Source, Stateful, Stateless, Union, Where

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
    `time`: what the time is by which rows that are withdrawn are looked for, None where they are not. `changes`: for
    each table whose changes are read, what its rows are, and its columns.
    """

    start: tuple[tuple[str, str], ...]
    meaning: str
    shown: tuple[str, ...]
    stays: bool
    missed: tuple[str, ...] = ()
    time: str | None = None
    changes: tuple[tuple[str, dict[str, str]], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as `plan.json` keeps it."""
        start = [list(each) for each in self.start]
        some = {"missed": list(self.missed), "time": self.time, "changes": [list(each) for each in self.changes]}
        plain = {"from": start, "meaning": self.meaning, "shown": list(self.shown), "stays": self.stays}
        return plain | {name: value for name, value in some.items() if value}

    @staticmethod
    def from_json(stored: dict[str, Any]) -> Chain:
        """Return what `to_json` wrote."""
        return Chain(
            start=tuple((str(kind), str(name)) for kind, name in stored["from"]),
            meaning=stored["meaning"],
            shown=tuple(stored["shown"]),
            stays=stored["stays"],
            missed=tuple(stored.get("missed", ())),
            time=stored.get("time"),
            changes=tuple((rows, columns) for rows, columns in stored.get("changes", ())),
        )

    def means(self, other: Chain) -> bool:
        """Whether rows of another chain are the same; what an older version did not write is not compared."""
        return self.meaning == other.meaning and (None in (self.time, other.time) or self.time == other.time)

    def changes_alike(self, other: Chain) -> bool:
        """Whether changes are those of the same rows, so that one ends what another began; columns may be new.

        This is the older one; what an older version did not write is not compared.
        """
        return not self.changes or (
            [rows for rows, _ in self.changes] == [rows for rows, _ in other.changes]
            and all(
                columns[name] == its[name]
                for (_, columns), (_, its) in zip(self.changes, other.changes, strict=True)
                for name in columns.keys() & its.keys()
            )
        )

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


def chain(
    up: Node, name: Callable[[Node], str], columns: Iterable[str] | None = None, *, by_time: bool = False
) -> Chain:
    """Return what leads to a reader of a step.

    Args:
        up: the step.
        name: names steps.
        columns: those of its columns that are read; None: all.
        by_time: whether the reader looks for withdrawn rows by their time.

    """
    above = list(_above(up))
    starts = [node for node in above if not isinstance(node, Stateless | Union)]
    steps = [node for node in above if isinstance(node, Stateless | Union)]
    meanings = {id(node): Meaning.of(" ".join(_start(node, name)), node.schema.names) for node in starts}
    for node in steps:
        meanings[id(node)] = node.meaning([meanings[id(up)] for up in node.ups])
    records = any(isinstance(node, Source) and node.upserts for node in starts)
    time, changed = up.time_column or "", [meanings[id(node.up)] for node in steps if isinstance(node, Changes)]
    return Chain(
        start=tuple(sorted({_start(node, name) for node in starts})),
        meaning=meanings[id(up)].text(columns),
        shown=tuple(_shown(node) for node in steps),
        stays=up.append_only and not records and not any(isinstance(node, Ending) for node in steps),
        missed=tuple(sorted(node.condition.text for node in steps if isinstance(node, Where) and node.missed)),
        time=meanings[id(up)].columns.get(time, time) if by_time else None,
        changes=tuple(sorted(((each.text(()), dict(each.columns)) for each in changed), key=lambda each: each[0])),
    )


def chains(node: Stateful, name: Callable[[Node], str]) -> list[Chain]:
    """Return what leads to a step with state: a chain for each step above it."""
    read = zip(node.ups, node.reads, strict=True)
    return [chain(up, name, columns, by_time=node.reads_time) for up, columns in read]


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
