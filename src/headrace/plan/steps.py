"""The names of steps: given, or derived so that a change elsewhere in the plan renames no state."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.base.errors import DuplicateStep
from headrace.base.names import MAX_LENGTH
from headrace.plan.nodes import Late, Node, Source, Stateful

if TYPE_CHECKING:
    from collections.abc import Iterable


def step_name(node: Node) -> str:
    """Return a step's name before equal stateless names are numbered.

    The derived name of a stateful step has its sources, its verb and its keys; that of a stateless step has the step
    above and its verb.
    """
    if node.name is not None:
        return node.name
    if isinstance(node, Source):
        return _plain(node.label)
    if isinstance(node, Stateful):
        return _plain("_".join([*_sources(node), node.name_suffix]))
    if isinstance(node, Late):
        return f"{step_name(node.of)}_late"
    return _plain(f"{_anchor(node)}_{node.shown_verb}")


def names(nodes: Iterable[Node]) -> dict[int, str]:
    """Return the name of each step by the `id` of its node; equal stateless names are numbered.

    Raises:
        DuplicateStep: two stateful steps have one name.

    """
    names_by_id: dict[int, str] = {}
    taken: set[str] = set()
    listed = list(nodes)
    for node in sorted(listed, key=lambda node: not node.stateful):
        name = step_name(node)
        if name in taken and node.stateful:
            raise DuplicateStep(name)
        names_by_id[id(node)] = _free(name, taken)
        taken.add(names_by_id[id(node)])
    return {id(node): names_by_id[id(node)] for node in listed}


def _free(name: str, taken: set[str]) -> str:
    tried, number = name, 2
    while tried in taken:
        tried, number = f"{name}_{number}", number + 1
    return tried


def _anchor(node: Node) -> str:
    """Return the name of the nearest step above that has one of its own: named, stateful, or a source."""
    up = node.ups[0]
    while up.name is None and not up.stateful and up.ups and not isinstance(up, Late):
        up = up.ups[0]
    return step_name(up)


def _sources(node: Node) -> list[str]:
    found = [step_name(source) for source in node.walk() if not source.ups]
    return list(dict.fromkeys(found))


def _plain(text: str) -> str:
    """Return any text as a valid name."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII)[:MAX_LENGTH]
    return name if name and not name[0].isdigit() else f"_{name}"
