"""The plan for people: as text, as a Mermaid graph, and as JSON."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from headrace.base.schema import to_ddl
from headrace.expressions.clock import reads_clock
from headrace.plan.columns_read import columns_read
from headrace.plan.nodes import Source

if TYPE_CHECKING:
    from headrace.plan.nodes import Node
    from headrace.plan.plan import Plan
    from headrace.plan.sinks import Sink


_CLOCK = " (the time of the epoch: another one when rows are replayed)"


class Explanation:
    """A plan, explained; `str` is the text."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._read = columns_read(plan)

    @property
    def data(self) -> dict[str, Any]:
        """The plan as plain values: `{"app", "levels", "steps": […], "sinks": […]}`."""
        return {
            "app": self.plan.app,
            "levels": self.plan.depth + 1,
            "steps": [self._step(node) for node in self.plan.nodes],
            "sinks": [
                {"name": sink.name, "from": self.plan.name(sink.up), "guarantee": sink.guarantee}
                for sink in self.plan.sinks
            ],
        }

    @property
    def json(self) -> str:
        """The same as JSON text."""
        return json.dumps(self.data, indent=2)

    @property
    def mermaid(self) -> str:
        """The same as a Mermaid flowchart, one box a level."""
        lines = ["flowchart LR"]
        steps = self.data["steps"]
        for level in range(self.plan.depth + 1):
            lines.append(f'  subgraph L{level}["level {level}"]')
            lines += [f"    {_box(step)}" for step in steps if step["level"] == level]
            lines.append("  end")
        for node, step in zip(self.plan.nodes, steps, strict=True):
            for up, moved in zip(step["inputs"], self._moved(node), strict=True):
                lines.append(f"  {up} {'==>|exchange|' if moved else '-->'} {step['name']}")
        for number, sink in enumerate(self.plan.sinks):
            lines.append(f'  {self.plan.name(sink.up)} --> sink{number}[("{sink.name}")]')
        return "\n".join(lines)

    def __str__(self) -> str:
        lines = [f"app {self.plan.app}: {self.plan.depth + 1} levels"]
        for level in range(self.plan.depth + 1):
            lines.append(
                f"level {level}" + (" (per input partition)" if level == 0 else " (per shard, after an exchange)")
            )
            for step in self.data["steps"]:
                if step["level"] == level:
                    lines += _text(step)
        lines.append("sinks")
        lines += [f"  {sink.name}  <- {self.plan.name(sink.up)}{_weaker(sink)}" for sink in self.plan.sinks]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _moved(self, node: Node) -> list[bool]:
        """Return for each step above whether its rows go through an exchange."""
        return [columns is not None for columns in self.plan.moves.get(id(node), [None] * len(node.ups))]

    def _reads(self, node: Node) -> str | None:
        """Return which columns of a source are read; None: all, or it is none."""
        if not isinstance(node, Source) or node.upserts or node.format is not None:
            return None
        read = [name for name in node.schema.names if name in self._read[id(node)]]
        every = len(node.schema.names)
        return None if len(read) == every else f"{len(read)} of {every} columns: {', '.join(read)}".removesuffix(": ")

    def _step(self, node: Node) -> dict[str, Any]:
        described = node.describe()
        return {
            "name": self.plan.name(node),
            "verb": node.shown_verb,
            "level": self.plan.level(node),
            "inputs": [self.plan.name(up) for up in node.ups],
            "exchange": self.plan.exchanged(node),
            "detail": described.detail + (_CLOCK if reads_clock(_own_parts(node)) else ""),
            "key": list(node.key) if node.key is not None else None,
            "window": described.window,
            "emit": described.emit,
            "state": described.state,
            "reads": self._reads(node),
            "schema": to_ddl(node.schema),
        }


def _box(step: dict[str, Any]) -> str:
    label = f"{step['name']}<br/>{step['verb']}"
    if step["window"]:
        label += f"<br/>{step['window']}"
    if step["key"] is not None:
        label += f"<br/>key {', '.join(step['key']) or '(none)'}"
    quoted = label.replace('"', "'")
    return f'{step["name"]}[["{quoted}"]]' if step["state"] else f'{step["name"]}["{quoted}"]'


def _text(step: dict[str, Any]) -> list[str]:
    lines = [f"  {step['name']}  [{step['verb']}]" + (f"  <- {', '.join(step['inputs'])}" if step["inputs"] else "")]
    named = ("detail", "window", "emit", "key", "state", "reads", "schema")
    for field in named:
        value = step[field]
        if value not in (None, "", []):
            lines.append(f"      {field:<7}{', '.join(value) if isinstance(value, list) else value}")
    return lines


def _own_parts(node: Node) -> list[object]:
    """Return what a step is made of, without the steps above it."""
    ups = {id(up) for up in node.ups}
    return [part for field in fields(node) if id(part := getattr(node, field.name)) not in ups | {id(node.ups)}]


def _weaker(sink: Sink) -> str:
    return "" if sink.guarantee == "exactly_once" else f" ({sink.guarantee.replace('_', ' ')})"
