"""The plan for people: as text, as a Mermaid graph, and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headrace.base.schema import to_ddl
from headrace.base.time import show_duration
from headrace.plan.nodes import (
    Aggregate,
    AsOfJoin,
    Changes,
    Dedupe,
    Ending,
    Explode,
    Join,
    Late,
    Latest,
    LookupJoin,
    MapBatches,
    Node,
    ReadSource,
    Select,
    StreamJoin,
    Top,
    TopicSource,
    Where,
    Windowed,
)
from headrace.plan.windows import AlignedWindow, SessionWindow, SlidingWindow

if TYPE_CHECKING:
    from headrace.plan.plan import Plan


class Explanation:
    """A plan, explained; `str` is the text."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @property
    def data(self) -> dict[str, Any]:
        """The plan as plain values: `{"app", "levels", "steps": […], "sinks": […]}`."""
        return {
            "app": self.plan.app,
            "levels": self.plan.depth + 1,
            "steps": [self._step(node) for node in self.plan.nodes],
            "sinks": [{"name": sink.name, "from": self.plan.name(sink.up)} for sink in self.plan.sinks],
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
        lines += [f"  {sink.name}  <- {self.plan.name(sink.up)}" for sink in self.plan.sinks]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _moved(self, node: Node) -> list[bool]:
        """Return for each step above whether its rows go through an exchange to come here."""
        return [columns is not None for columns in self.plan.moves.get(id(node), [None] * len(node.ups))]

    def _step(self, node: Node) -> dict[str, Any]:
        return {
            "name": self.plan.name(node),
            "verb": node.shown if isinstance(node, Select) else node.verb,
            "level": self.plan.level(node),
            "inputs": [self.plan.name(up) for up in node.ups],
            "exchange": self.plan.exchanged(node),
            "detail": _detail(node),
            "key": list(node.key) if node.key is not None else None,
            "window": str(node.window) if isinstance(node, Windowed) and node.window else None,
            "emit": node.emit if isinstance(node, Aggregate) or (isinstance(node, Top) and node.window) else None,
            "state": _state(node),
            "schema": to_ddl(node.schema),
        }


def _detail(node: Node) -> str:
    if isinstance(node, TopicSource):
        private = f", private: {', '.join(sorted(node.sealed))}" if node.sealed else ""
        upserts = ", upserts and deletes" if node.upserts else ""
        return f"topic {node.topic}{upserts}{private}" + _timing(node)
    if isinstance(node, ReadSource):
        return f"Spark source {node.label}" + _timing(node)
    if isinstance(node, Select):
        return ", ".join(n if n == made.text else f"{made.text} AS {n}" for n, made in node.columns)
    if isinstance(node, Where | Ending):
        return node.condition.text + (", else deleted" if isinstance(node, Ending) else "")
    if isinstance(node, Explode):
        return f"{node.column.text} AS {', '.join(node.into)}"
    if isinstance(node, MapBatches):
        return getattr(node.function, "__qualname__", repr(node.function))
    if isinstance(node, Aggregate):
        return ", ".join(f"{made.text} AS {name}" for name, made in node.aggregates.results)
    return _chosen(node)


def _chosen(node: Node) -> str:
    if isinstance(node, Join):
        return _meeting(node)
    if isinstance(node, Dedupe):
        return f"first row per ({', '.join(node.keys)}) within {show_duration(node.within)}"
    if isinstance(node, Latest):
        return f"last row per ({', '.join(node.keys)}) by {'event time' if node.by_time else 'offset'}"
    if isinstance(node, Top):
        by = ", ".join(f"{term.value.text} {term.direction.lower()}" for term in node.order)
        return f"first {node.n}{' of each shard' if node.part else ''} by {by}"
    if isinstance(node, Late):
        return "rows that came too late" if isinstance(node.of, Dedupe) else "rows after their windows closed"
    return "insert, update_preimage, update_postimage, delete" if isinstance(node, Changes) else ""


def _meeting(node: Join) -> str:
    on = " and ".join(f"{left} = {right}" if left != right else left for left, right in node.on)
    where = f", where {node.where.text}" if node.where is not None else ""
    if isinstance(node, StreamJoin):
        return f"{node.how}, on {on}, right - left in [{show_duration(node.low)}, {show_duration(node.high)}]{where}"
    if isinstance(node, AsOfJoin):
        return f"{node.how}, on {on}, as of {node.at}{where}"
    return f"{node.how}, on {on}{', as it arrives' if isinstance(node, LookupJoin) else ''}{where}"


def _timing(node: TopicSource | ReadSource) -> str:
    at = f", event time {node.event_time}" if node.event_time else ", event time of the log"
    if isinstance(node, TopicSource) and node.sent_time:
        at += f" corrected by {node.sent_time}"
    return f"{at}, out of order {show_duration(node.out_of_order)}"


def _state(node: Node) -> str | None:
    if isinstance(node, Dedupe):
        kept = f"until the watermark passes its first row by {show_duration(node.within)}"
        return f"a row per ({', '.join(node.keys)}), kept {kept}"
    if isinstance(node, Top):
        every = f"first {node.n} rows" if node.up.append_only else f"rows, and the first {node.n} of them"
        group = ", ".join(node.keys) or "one group"
        if node.window is not None:
            return f"the {every} per ({group}, window), dropped when it closes"
        return f"the {every} per ({group}), kept for ever"
    if isinstance(node, Latest):
        return f"a row per ({', '.join(node.keys)}), kept until it is deleted"
    if isinstance(node, Join):
        return _buffers(node)
    if not isinstance(node, Aggregate):
        return None
    group = ", ".join(node.keys) or "one group"
    if node.window is None:
        return f"a row per ({group}), kept for ever"
    if isinstance(node.window, SessionWindow):
        return f"a row per ({group}, session), dropped when it closes"
    if isinstance(node.window, SlidingWindow):
        return f"a row per ({group}, event time), dropped when no open window reaches it"
    assert isinstance(node.window, AlignedWindow)  # noqa: S101 -- there is no other
    return f"a row per ({group}, pane of {node.window.shown_pane}), dropped when its last window closes"


def _buffers(node: Join) -> str:
    if isinstance(node, StreamJoin):
        return "the rows of both sides, dropped when no partner can come any more"
    if isinstance(node, LookupJoin):
        return "the rows of the right side, kept until they are deleted"
    if isinstance(node, AsOfJoin):
        return "the rows that wait, and the versions of the table that they may still ask for"
    return "the rows of both sides, kept until they are withdrawn"


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
    named = ("detail", "window", "emit", "key", "state", "schema")
    for field in named:
        value = step[field]
        if value not in (None, "", []):
            lines.append(f"      {field:<7}{', '.join(value) if isinstance(value, list) else value}")
    return lines
