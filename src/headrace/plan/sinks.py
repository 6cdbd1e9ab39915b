"""Where rows go: topics, views, objects of the user's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.plan.nodes import Node


@dataclass(frozen=True, eq=False, kw_only=True)
class Sink:
    """A place that a step's rows go to; `name` is unique in the app."""

    up: Node
    name: str


@dataclass(frozen=True, eq=False, kw_only=True)
class TopicSink(Sink):
    """Appends to a topic: rows of a stream, or upserts and tombstones of a table."""

    topic: str
    location: str | None
    record_key: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class ViewSink(Sink):
    """Keeps a view: the current rows."""

    view: str


@dataclass(frozen=True, eq=False, kw_only=True)
class CallSink(Sink):
    """Hands each epoch's rows to an object of the user's with `write(epoch, rows)`."""

    target: Any
